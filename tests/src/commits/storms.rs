//! Loads whose commits are many and all of one kind: no room in the journal,
//! no room on the device, a journal thread that never sleeps, fast commits.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};

use super::observe::{Expected, watch};
use crate::bed::{Bed, Spec};
use crate::harness::{Test, scaled};
use crate::tracer;
use crate::writers::{BLOCK, Step, SyncCall, Writer, filled, open, repeat, run};

const QUIET: &str = "noatime,commit=300";

pub fn tests() -> Vec<Test> {
    let test = |name: &str, body: fn() -> Result<()>| {
        Test::new(format!("commits::{name}"), body)
            .needs(tracer::available)
            .guest()
    };
    vec![
        test("journal_space", journal_space),
        test("no_space", no_space),
        test("busy_journal_thread", busy),
        test("fast_commit", fast_commit),
    ]
}

/// A 4 MiB journal under metadata load: nobody waits for durability, the log
/// is what runs out.
fn journal_space() -> Result<()> {
    let bed = Bed::new(Spec::ext4(256).journal(4).mount(QUIET))?;
    let (seen, _) = watch(&bed, || {
        run(
            "mkdirs",
            &[
                Step::Mkdir {
                    path: bed.path("top"),
                },
                repeat(
                    scaled(3000, 1500),
                    vec![Step::Mkdir {
                        path: bed.path("top/d{i}"),
                    }],
                ),
            ],
        )
    })?;
    seen.all_are(&Expected::trigger("space"), 2)
}

/// Blocks freed in the running transaction can be had only after its commit.
fn no_space() -> Result<()> {
    let bed = Bed::new(Spec::ext4(64).mount(QUIET))?;
    let half = 24 << 20;
    run(
        "fill",
        &[
            open(bed.path("half"), "wo creat"),
            repeat(24, vec![Step::Write { len: 1 << 20 }]),
            open(bed.path("rest"), "wo creat"),
            Step::Fill { len: BLOCK },
            Step::Close,
        ],
    )?;
    bed.settle()?;
    let (seen, _) = watch(&bed, || {
        run(
            "squeeze",
            &[
                Step::Unlink {
                    path: bed.path("half"),
                },
                open(bed.path("new"), "wo creat"),
                repeat(half / (1 << 20) - 1, vec![Step::Write { len: 1 << 20 }]),
                Step::SyncRange { at: 0, len: half },
            ],
        )
    })?;
    seen.all_are(&Expected::trigger("no-space"), 1)
}

/// Eight processes that do nothing but append and fsync: the journal thread
/// is seldom asleep, and each commit is one of theirs, on that one's file.
fn busy() -> Result<()> {
    let bed = Bed::new(Spec::ext4(64).mount(QUIET))?;
    let rounds = scaled(40, 10);
    let names: Vec<String> = (0..8).map(|n| format!("file{n}")).collect();
    let mut writers = Vec::new();
    for name in &names {
        run("setup", &filled(bed.path(name), 1))?;
        writers.push(Writer::spawn(
            name,
            &[
                open(bed.path(name), "wo append"),
                Step::Wait,
                repeat(
                    rounds,
                    vec![Step::Write { len: 100 }, Step::Sync(SyncCall::Fsync)],
                ),
            ],
        )?);
    }
    bed.settle()?;
    let file_of: BTreeMap<u64, &str> = writers
        .iter()
        .zip(&names)
        .map(|(writer, name)| (u64::from(writer.pid()), name.as_str()))
        .collect();
    let (seen, ()) = watch(&bed, || {
        for writer in &mut writers {
            writer.go()?;
        }
        for writer in std::mem::take(&mut writers) {
            writer.wait()?;
        }
        Ok(())
    })?;
    seen.all_are(&Expected::trigger("fsync"), 10)?;
    let stranger = |commit: &&super::observe::Commit| {
        let file = commit.pid.and_then(|pid| file_of.get(&pid).copied());
        file.is_none() || file != commit.file.as_deref()
    };
    let wrong: Vec<String> = seen
        .commits
        .iter()
        .filter(stranger)
        .map(|commit| format!("{commit:?} is not one of {file_of:?}"))
        .collect();
    seen.verdict(&wrong)
}

/// Appends with fsync: after the first full commit the caller writes one
/// block itself, without the journal thread.
fn fast_commit() -> Result<()> {
    let bed = Bed::new(Spec::ext4(64).mkfs("-O fast_commit").mount(QUIET))?;
    run("setup", &filled(bed.path("mgmt"), 2))?;
    bed.settle()?;
    let count = 20;
    let (seen, done) = watch(&bed, || {
        run(
            "committer",
            &[
                open(bed.path("mgmt"), "wo append"),
                repeat(
                    count,
                    vec![
                        Step::Write { len: 100 },
                        Step::Sync(SyncCall::Fsync),
                        Step::Sleep { ms: 20 },
                    ],
                ),
            ],
        )
    })?;
    seen.report.closed().done()?;
    seen.same_transactions()?;
    let mut wrong = Vec::new();
    let fast = seen.commits.iter().filter(|c| c.trigger == "fast-commit");
    let fast = fast.count() as u64;
    ensure!(
        seen.tids.len() as u64 + fast >= count,
        "{} commits of the kernel and {fast} fast ones for {count} fsyncs\n{}",
        seen.tids.len(),
        seen.report.dump()
    );
    for commit in &seen.commits {
        let by = commit.pid == Some(u64::from(done.pid)) && commit.file.as_deref() == Some("mgmt");
        if !matches!(commit.trigger.as_str(), "fast-commit" | "fsync") || !by {
            wrong.push(format!(
                "{commit:?} is not an fsync of mgmt by {}",
                done.pid
            ));
        }
    }
    seen.verdict(&wrong)
}
