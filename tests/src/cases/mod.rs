//! Real questions of people who do this job, with checkable answers: each
//! case runs its recipe and looks for the answer in writepath's own output.
//! The number of a case is that of the collection of cases that this issue
//! names. Shares, ratios, triggers and names are compared, never latency.
//!
//! - [`run`] is what the cases share;
//! - [`wear`] who wears the flash; [`replace`] files saved without fsync;
//!   [`journal`] commits, mount options; [`layout`] modes of the filesystem;
//!   [`vanish`] data whose writer, file or device is gone or slow.

mod journal;
mod layout;
mod replace;
mod run;
mod vanish;
mod wear;

use crate::harness::Test;

/// All tests of this folder.
pub fn tests() -> Vec<Test> {
    let mut tests = wear::tests();
    tests.extend(replace::tests());
    tests.extend(journal::tests());
    tests.extend(layout::tests());
    tests.extend(vanish::tests());
    tests
}
