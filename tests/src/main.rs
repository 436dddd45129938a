//! `kernel-tests`: everything that needs root and a kernel, as one static
//! binary that also runs in a bare guest.
//!
//! The same binary plays three parts: the list of tests (libtest-mimic), one
//! test in a process of its own (`run-one NAME`), and a known writer
//! (`writer COMM`). It must not depend on the tracer's crates: it only sees
//! the program at `WRITEPATH_BIN`.

mod bad_input;
mod bed;
mod cases;
mod clean;
mod commits;
mod disk;
mod experiment;
mod explain;
mod harness;
mod knob;
mod ledger;
mod place;
mod profiles;
mod record;
mod report;
mod script;
mod selftest;
mod stacks;
mod tracer;
mod writers;

use std::process::ExitCode;

/// All tests of this binary, in the order in which they run.
fn tests() -> Vec<harness::Test> {
    let mut tests = Vec::new();
    tests.extend(selftest::tests());
    tests.extend(ledger::tests());
    tests.extend(place::tests());
    tests.extend(stacks::tests());
    tests.extend(commits::tests());
    tests.extend(record::tests());
    tests.extend(bad_input::tests());
    tests.extend(cases::tests());
    tests.extend(profiles::tests());
    tests.extend(explain::tests());
    tests.extend(experiment::tests());
    tests
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    match (args.get(1).map(String::as_str), args.get(2)) {
        (Some("writer"), Some(comm)) => script::main(comm),
        (Some("run-one"), Some(name)) => harness::run_one(&tests(), name),
        _ => harness::run_all(tests()),
    }
}
