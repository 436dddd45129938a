//! Profiles: named sets of values for the kernel's write-back tunables.
//!
//! Pure: what the knobs are, which values they take, what a profile means and
//! where it traps. Nothing here reads or sets anything; that is `tune`.
//! Entry: [`Profile`], [`builtin`] and [`parse_toml`].

pub mod builtin;
pub mod error;
pub mod exposure;
pub mod file;
pub mod knob;
pub mod lint;
pub mod memory;
pub mod scale;

use std::collections::BTreeMap;

pub use builtin::{builtin, builtins};
pub use error::ProfileError;
pub use exposure::Exposure;
pub use file::parse_toml;
pub use knob::{Knob, Place, Unit};
pub use lint::{Finding, Severity, lint, lint_with};

/// A value of a knob, in the knob's own unit.
pub type Value = u64;

/// Values by knob. Of a pair (`…_ratio` and `…_bytes`) one at most.
pub type Values = BTreeMap<Knob, Value>;

/// A named set of knob values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// Name, as typed.
    pub name: String,
    /// What it is for, in one line; may be empty.
    pub about: String,
    /// The knobs that it sets. Those that it does not name stay as they are.
    pub values: Values,
}

impl Profile {
    /// What would be in force if it were applied over `in_force`: its own
    /// values, and those of the knobs that it does not set.
    pub fn over(&self, in_force: &Values) -> Values {
        let mut merged = in_force.clone();
        for (knob, value) in &self.values {
            if let Some(partner) = knob.partner() {
                merged.remove(&partner);
            }
            merged.insert(*knob, *value);
        }
        merged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_of_a_pair_takes_the_place_of_the_other() {
        let default = builtin("default").unwrap();
        let profile = Profile {
            name: "x".to_owned(),
            about: String::new(),
            values: Values::from([(Knob::DirtyBytes, 1 << 20)]),
        };
        let merged = profile.over(&default.values);
        assert_eq!(merged.get(&Knob::DirtyBytes), Some(&(1 << 20)));
        assert_eq!(merged.get(&Knob::DirtyRatio), None);
        assert_eq!(merged.get(&Knob::DirtyBackgroundRatio), Some(&10));
    }
}
