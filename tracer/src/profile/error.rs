//! What can be wrong with a profile: what, where, what to do.

use super::{Knob, Value};

/// An error of a profile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// The file is no profile.
    #[error("line {line}: {what}")]
    File {
        /// Line, from 1.
        line: usize,
        /// What is wrong there, and what to do.
        what: String,
    },
    /// Times cannot be divided by this.
    #[error("a time scale of {k} makes {knob}={value} of profile {profile} {becomes}; {advice}")]
    Scale {
        /// The divisor.
        k: u32,
        /// Name of the profile.
        profile: String,
        /// The knob that stands in the way.
        knob: Knob,
        /// Its value.
        value: Value,
        /// What it would be.
        becomes: String,
        /// Which divisors work.
        advice: String,
    },
}
