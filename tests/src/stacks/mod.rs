//! Point "right by path": while the tracer runs, a tracefs instance records
//! every submitted bio with its kernel stack; each stack gives a path by a
//! table, and the sectors of every path must be equal, to the sector.
//!
//! - [`trace`] reads the text, [`table`] and [`classify`] judge a stack,
//!   [`compare`] and [`wrong`] count: pure, tested on recorded stacks;
//! - [`instance`] records; [`watch`] runs tracer and recorder together;
//! - [`beds`] and [`memory`] are the workloads.

mod beds;
mod classify;
mod compare;
pub mod instance;
mod memory;
mod table;
pub mod trace;
mod watch;
mod wrong;

use crate::harness::Test;

/// All tests of this folder.
pub fn tests() -> Vec<Test> {
    let mut tests = beds::tests();
    tests.extend(memory::tests());
    tests
}
