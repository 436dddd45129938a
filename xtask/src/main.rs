//! `cargo xtask`: set-up, build, demonstration, tests and virtual machines of
//! writepath. This file only parses the command line and picks the task; each
//! task is a module of its own.

mod bench;
mod build;
mod demo;
mod packages;
mod process;
mod setup;
mod test;
mod toolchain;
mod vm;
mod workspace;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Set up, build, try and test writepath.
#[derive(Parser)]
#[command(bin_name = "cargo xtask", disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Install what the build and the tests need and this machine lacks.
    Setup,
    /// Build the eBPF object, then writepath around it.
    Build(build::Args),
    /// Set up, build, and run the experiment on a throw-away image: nine minutes.
    Demo(demo::Args),
    /// Check everything: formatting, lints, unit and kernel tests.
    Test(test::Args),
    /// Measure what tracing costs and write docs/overhead.md.
    Bench(bench::Args),
    /// Run the kernel tests, or a command, under another kernel in QEMU.
    Vm(vm::Args),
}

fn main() {
    process::catch_signals();
    if let Err(error) = run(Cli::parse().task) {
        eprintln!("xtask: {error:#}");
        std::process::exit(process::signalled().map_or(1, |signal| 128 + signal));
    }
}

fn run(task: Task) -> Result<()> {
    match task {
        Task::Setup => setup::run(),
        Task::Build(args) => build::run(&args),
        Task::Demo(args) => demo::run(&args),
        Task::Test(args) => test::run(&args),
        Task::Bench(args) => bench::run(&args),
        Task::Vm(args) => vm::run(&args),
    }
}
