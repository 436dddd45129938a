//! The command line: what was typed, and what is done for it.

mod command;
mod doctor;
mod experiment;
mod explain;
mod guard;
mod profile;
mod record;
mod report;
mod run;
mod stop;
mod trace;
mod typed;
mod verdict;
pub mod workload;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Who writes what to a disk, by which path, and why.
#[derive(Debug, Parser)]
#[command(name = "writepath", version, about, max_term_width = 80)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Say what this kernel lets the tracer see, what is lost, and why.
    Doctor(doctor::DoctorArgs),
    /// Say which knob can act on which sectors, and why not on the rest.
    Explain(explain::ExplainArgs),
    /// Run a workload under several profiles, and compare.
    Experiment(experiment::ExperimentArgs),
    /// Print the ledger: every sector by path, trigger, file and process.
    Trace(Box<trace::TraceArgs>),
    /// Show, judge, apply and put back profiles of the write-back tunables.
    Profile(profile::ProfileArgs),
    /// Put back what a tuning run has set, when it dies.
    #[command(name = crate::tune::GUARD_COMMAND, hide = true)]
    TuningGuard,
    /// Keep a traced run in a file.
    Record(Box<record::RecordArgs>),
    /// Say what is in recordings.
    Report(report::ReportArgs),
    /// Write in a defined way and account for it.
    Workload(workload::WorkloadArgs),
}

/// Exit statuses of writepath.
pub mod status {
    /// Something failed.
    pub const FAILURE: u8 = 1;
    /// What was typed makes no sense.
    pub const USAGE: u8 = 2;
    /// This kernel or these privileges lack what was asked.
    pub const UNABLE: u8 = 3;
    /// The books do not close.
    pub const OPEN_BOOKS: u8 = 4;
    /// A profile was not applied, or not put back.
    pub const NOT_APPLIED: u8 = 5;
}

/// Runs what was typed.
pub fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout();
    match cli.command {
        Command::Doctor(args) => doctor::run(args, &mut out),
        Command::Explain(args) => explain::run(&args, &mut out),
        Command::Experiment(args) => experiment::run(args, &mut out),
        Command::Trace(args) => trace::run(&args, &mut out),
        Command::Profile(args) => profile::run(args, &mut out),
        Command::TuningGuard => Ok(guard::run()),
        Command::Record(args) => record::run(&args),
        Command::Report(args) => report::run(&args, &mut out),
        Command::Workload(args) => workload::run(args, &mut out),
    }
}
