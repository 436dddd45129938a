//! Recordings: everything of a known sequence is in the file, what is lost or
//! not kept is told, and a file that is cut short or no recording is said to
//! be so.

mod files;
mod kit;
mod load;
mod sequences;

use crate::harness::Test;

/// All tests of this folder.
pub fn tests() -> Vec<Test> {
    let mut tests = sequences::tests();
    tests.extend(files::tests());
    tests.extend(load::tests());
    tests
}
