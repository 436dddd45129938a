//! `cargo xtask setup`: installs what build, demo and test need and this
//! machine lacks. Each step looks first, so a second run changes nothing.

use anyhow::Result;

use crate::packages::{self, BASE};
use crate::toolchain::Toolchain;

/// Runs all steps, one line of output for each thing found or done.
pub fn run() -> Result<()> {
    packages::ensure("packages", BASE)?;
    let toolchain = Toolchain::probe()?;
    toolchain.ensure_parts()?;
    toolchain.ensure_bpf_linker()
}
