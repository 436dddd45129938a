//! Point "bad input": whatever is wrong, writepath says what, where and what
//! to do, ends with the status that DESIGN gives it, and leaves nothing.
//!
//! - [`call`] runs the program with any command line and judges how it ended;
//! - [`arguments`] what was typed; [`outputs`] where results go;
//!   [`commands`] CMD and signals; [`devices`] the disks; [`names`] hostile names.

mod arguments;
pub mod call;
mod commands;
mod devices;
mod names;
mod outputs;
mod remains;

use crate::harness::Test;

/// All tests of this folder.
pub fn tests() -> Vec<Test> {
    let mut tests = arguments::tests();
    tests.extend(outputs::tests());
    tests.extend(commands::tests());
    tests.extend(devices::tests());
    tests.extend(names::tests());
    tests.extend(remains::tests());
    tests
}
