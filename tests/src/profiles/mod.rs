//! Profiles are safe: whatever ends a tuning run, the machine is as before,
//! within two seconds; what somebody else has set meanwhile stays.
//!
//! - [`machine`] all that can be tuned, as the kernel tells it;
//! - [`held`] a run of `profile apply`; [`kills`] its ends by `kill -9`;
//! - [`remounts`] what a remount has to keep; [`others`] what others do;
//! - [`left`] the state of runs that died, trusted or not; [`input`] bad input.

pub mod held;
mod input;
mod kills;
mod left;
pub mod machine;
mod others;
mod remounts;

use crate::harness::Test;
use crate::tracer;

/// All tests of this folder.
pub fn tests() -> Vec<Test> {
    let groups = [
        kills::tests(),
        remounts::tests(),
        others::tests(),
        left::tests(),
        input::tests(),
    ];
    groups
        .into_iter()
        .flatten()
        .map(|test| test.needs(tracer::available))
        .collect()
}
