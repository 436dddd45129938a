//! `writepath explain` on real traces whose answer is known: ceilings against
//! the commits that were listed, against stat, and against what another value
//! of the knob really made of the same work.

mod inputs;
mod run;
mod scenes;

use crate::harness::Test;

/// All tests of this module.
pub fn tests() -> Vec<Test> {
    let mut tests = scenes::tests();
    tests.extend(inputs::tests());
    tests
}
