//! Point "commit triggers": every commit of a known sequence has the trigger,
//! the requester and the file that the sequence gave it, one by one, and the
//! list of commits is the kernel's own (`jbd2_end_commit`, recorded through a
//! tracefs instance beside the tracer).
//!
//! The beds are quiet: noatime, a settled journal, no other writer, and a
//! `commit=` interval that the timer cannot reach where it is not under test.

mod observe;
mod sequences;
mod storms;

use crate::harness::Test;

/// All tests of this folder.
pub fn tests() -> Vec<Test> {
    let mut tests = sequences::tests();
    tests.extend(storms::tests());
    tests
}
