//! `experiment`: what a run leaves as its result, that it leaves nothing else
//! whatever ends it, and bad input.
//!
//! - [`short`] a run of seconds on an emulated device;
//! - [`result`] what it measured; [`ends`] signals and `kill -9`; [`input`]
//!   bad input.

mod ends;
mod input;
mod result;
mod short;

use crate::harness::Test;
use crate::tracer;

/// All tests of this folder.
pub fn tests() -> Vec<Test> {
    [result::tests(), ends::tests(), input::tests()]
        .into_iter()
        .flatten()
        .map(|test| test.needs(tracer::available))
        .collect()
}
