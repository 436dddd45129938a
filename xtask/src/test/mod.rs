//! `cargo xtask test`: the gate. Formatting, lints, unit tests, the kernel
//! tests on this machine, then in a guest. Nothing stops early; the last line
//! sums up all runners.

mod tally;

use std::env;
use std::time::Instant;

use anyhow::{Error, Result, bail};

use crate::build::{self, Profile, Target};
use crate::process::{self, Cmd};
use crate::setup;
use crate::vm;
use tally::{Reader, Tally};

/// How long the kernel tests may take here, in seconds: quick and all.
const KERNEL_TIMEOUT_S: (u64, u64) = (1500, 7200);

#[derive(clap::Args)]
pub struct Args {
    /// Run the slow kernel tests too.
    #[arg(long)]
    full: bool,
    /// Run only unit and kernel tests whose name contains one of these.
    names: Vec<String>,
}

/// The command. Exits with 1 when anything failed, so that the sum stays the
/// last line.
pub fn run(args: &Args) -> Result<()> {
    setup::run()?;
    let mut all = Tally::default();
    if args.names.is_empty() {
        all.add(step("format", || Ok(check(format())))?);
        all.add(step("lints", || Ok(check(lints())))?);
        all.add(step("lints of the eBPF crate", || Ok(check(ebpf_lints())))?);
    }
    all.add(step("unit tests", || unit_tests(args))?);
    all.add(step("kernel tests", || kernel_tests(args))?);
    if args.names.is_empty() {
        all.add(step("kernel tests in a guest", || Ok(guest_tests()))?);
    }
    if env::var("WRITEPATH_NO_SKIP").is_ok_and(|value| value == "1") {
        let allowed = env::var("WRITEPATH_MAY_SKIP").unwrap_or_default();
        let allowed: Vec<&str> = allowed.split_whitespace().collect();
        all.forbid_skips(&allowed);
    }
    println!();
    for (name, why) in &all.skips {
        println!("skipped: {name}: {why}");
    }
    for name in &all.failures {
        println!("failed: {name}");
    }
    println!(
        "{} passed, {} failed, {} skipped",
        all.passed, all.failed, all.skipped
    );
    if all.failed > 0 {
        std::process::exit(1);
    }
    Ok(())
}

/// Runs a part of the gate and says how long it took. What fails is counted;
/// only a signal to xtask ends the gate early.
fn step(name: &str, body: impl FnOnce() -> Result<Tally>) -> Result<Tally> {
    println!("\n== {name}");
    let start = Instant::now();
    let tally = body().unwrap_or_else(|error| {
        let mut tally = Tally::default();
        tally.fail(shown(&error));
        tally
    });
    if let Some(signal) = process::signalled() {
        bail!("stopped by signal {signal} in {name}");
    }
    println!(
        "== {name}: {} passed, {} failed, {} skipped in {:.1} s",
        tally.passed,
        tally.failed,
        tally.skipped,
        start.elapsed().as_secs_f64()
    );
    Ok(tally.of(name))
}

/// A check without tests of its own counts as one.
fn check(result: Result<()>) -> Tally {
    let mut tally = Tally::default();
    match result {
        Ok(()) => tally.pass(),
        Err(error) => {
            println!("{error:#}");
            tally.fail("see above");
        }
    }
    tally
}

fn format() -> Result<()> {
    Cmd::new("cargo")
        .args(["fmt", "--all", "--check"])
        .dir(crate::workspace::root())
        .run_quiet()
}

fn lints() -> Result<()> {
    build::cargo("clippy", &build::object()?)
        .args(["--workspace", "--all-targets", "--", "-D", "warnings"])
        .run_quiet()
}

fn ebpf_lints() -> Result<()> {
    build::ebpf_cargo("clippy")?
        .args(["--", "-D", "warnings"])
        .run_quiet()
}

fn unit_tests(args: &Args) -> Result<Tally> {
    Ok(read(
        build::cargo("test", &build::object()?)
            .args(["--workspace", "--no-fail-fast", "--"])
            .args(&args.names),
    ))
}

fn kernel_tests(args: &Args) -> Result<Tally> {
    let mut tally = Tally::default();
    if !process::is_root() {
        tally.skip("all", "they need root: run this with sudo");
        return Ok(tally);
    }
    build::userspace(&["tracer", "tests"], Profile::Release, Target::Host)?;
    let tests = build::binary("kernel-tests", Profile::Release, Target::Host)?;
    let tracer = build::binary("writepath", Profile::Release, Target::Host)?;
    let (tier, timeout) = if args.full {
        ("full", KERNEL_TIMEOUT_S.1)
    } else {
        ("quick", KERNEL_TIMEOUT_S.0)
    };
    let run = |name: Option<&String>| {
        read(
            Cmd::new(&tests)
                .args(name)
                .env("WRITEPATH_BIN", &tracer)
                .env("WRITEPATH_TIER", tier)
                // Skips are judged here, over all runners.
                .env("WRITEPATH_NO_SKIP", "")
                .timeout_s(timeout),
        )
    };
    if args.names.is_empty() {
        return Ok(run(None));
    }
    // The harness takes one name at a time.
    for name in &args.names {
        tally.add(run(Some(name)));
    }
    Ok(tally)
}

fn guest_tests() -> Tally {
    let kernel = match vm::prepare(vm::DEFAULT_KERNEL) {
        Ok(kernel) => kernel,
        Err(why) => {
            let mut tally = Tally::default();
            tally.skip("all", format!("no guest: {why:#}").replace('\n', "; "));
            return tally;
        }
    };
    let mut reader = Reader::default();
    let ended = vm::boot(&kernel, &vm::gate_command(), vm::TESTS_TIMEOUT_S, |line| {
        println!("{line}");
        reader.line(line);
    });
    reader.end(match ended {
        Ok(0) => None,
        Ok(status) => Some(format!("ended with status {status}")),
        Err(error) => Some(shown(&error)),
    })
}

/// Runs a test runner, shows its lines and counts.
fn read(runner: Cmd) -> Tally {
    let mut reader = Reader::default();
    let ended = runner.scan(|line| {
        println!("{line}");
        reader.line(line);
    });
    reader.end(match ended {
        Ok(status) if status.success() => None,
        Ok(status) => Some(process::ended(status)),
        Err(error) => Some(shown(&error)),
    })
}

/// Shows an error in full and gives its first line, for the end.
fn shown(error: &Error) -> String {
    let text = format!("{error:#}");
    println!("{text}");
    text.lines().next().unwrap_or_default().to_owned()
}
