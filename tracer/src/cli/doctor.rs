//! `writepath doctor`.

use clap::Args;
use std::{io::Write, process::ExitCode};

/// Options of `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {}

/// Runs `doctor`.
pub fn run(_args: DoctorArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    writeln!(out, "doctor")?;
    Ok(ExitCode::SUCCESS)
}
