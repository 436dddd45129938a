//! The journal: who makes it move, and which advice can work.

use anyhow::Result;

use super::run::{
    After, Answers, append, bed, case, fill, holds, overwrite, percent, quick, syncfs, traced,
    within,
};
use crate::bed::{Bed, Spec};
use crate::harness::Test;
use crate::report::Report;
use crate::writers::{Step, SyncCall, open, repeat, run};

pub fn tests() -> Vec<Test> {
    vec![
        quick(21, "jbd2_at_99_percent", fsync_storm),
        quick(22, "advice_that_cannot_work", advice),
        quick(25, "fsync_or_fdatasync", fsync_or_fdatasync),
        case(28, "fast_commit", fast_commit),
        case(31, "lazytime", lazytime),
        quick(34, "reading_writes", reading_writes),
    ]
}

fn log_100(bed: &Bed) -> Result<Report> {
    let steps = append(&bed.path("log"), 100, 100, After::Fsync, 0);
    Ok(traced(bed, || run("logger", &steps))?.0)
}

/// jbd2 is on top of iotop; the answer is the program that makes it run.
fn fsync_storm() -> Result<()> {
    let bed = bed("")?;
    let report = log_100(&bed)?;
    holds(
        &report,
        "100 commits, all by fsync of the log by the logger",
        report.commits_by("fsync", "logger", "log") == 100 && report.all_commits() == 100,
    )?;
    within(
        &report,
        "journal percent",
        report.journal_percent(),
        73.0..=77.0,
    )?;
    let flushes = report.count("flushes_done") as f64 / 100.0;
    within(&report, "flushes for each commit", flushes, 1.9..=2.1)?;
    holds(
        &report,
        "the journal is on nobody's account but the fsync's",
        report.trigger("journal", "fsync") + 8 >= report.path("journal"),
    )
}

/// Knobs that govern another path change nothing, to the sector.
fn advice() -> Result<()> {
    let mut seen = Vec::new();
    for options in ["", "data=writeback", "commit=600"] {
        let bed = bed(options)?;
        let report = log_100(&bed)?;
        holds(
            &report,
            "100 commits by fsync",
            report.commits("fsync", "count") == 100,
        )?;
        seen.push((report.path("fsync"), report.path("journal"), report.total()));
    }
    anyhow::ensure!(
        seen.iter().all(|row| *row == seen[0]),
        "fsync, journal and total differ between the mounts: {seen:?}"
    );
    Ok(())
}

/// Written blocks need no commit with fdatasync; unwritten ones do.
fn fsync_or_fdatasync() -> Result<()> {
    let bed = bed("noatime")?;
    fill(&bed, "log", 8)?;
    let log = bed.path("log");
    let (data, _) = traced(&bed, || {
        run("wal", &overwrite(&log, 100, After::Fdatasync, 10))
    })?;
    let mut check = data.check();
    check.eq("sectors of 100 fdatasync", data.total(), 800);
    check.eq("all of them data", data.trigger("fsync", "fdatasync"), 800);
    check.eq("commits of 100 fdatasync", data.all_commits(), 0);
    check.done()?;
    let (full, _) = traced(&bed, || run("wal", &overwrite(&log, 100, After::Fsync, 10)))?;
    let mut check = full.check();
    check.eq("data of 100 fsync", full.trigger("fsync", "fsync"), 800);
    let by_fsync = full.commits_by("fsync", "wal", "log");
    check.eq("commits of 100 fsync", by_fsync, 100);
    check.eq("all of them by fsync", full.all_commits(), 100);
    check.done()?;
    within(
        &full,
        "fsync over fdatasync",
        full.total() as f64 / 800.0,
        3.5..=4.5,
    )?;
    run(
        "setup",
        &[
            open(bed.path("f"), "wo creat"),
            Step::Fallocate {
                mode: 0,
                at: 0,
                len: 8 << 20,
            },
            Step::Sync(SyncCall::Fsync),
        ],
    )?;
    bed.settle()?;
    let (fresh, _) = traced(&bed, || {
        run("wal", &overwrite(&bed.path("f"), 200, After::Fdatasync, 0))
    })?;
    let conversions = fresh.commits_by("fsync", "wal", "f");
    holds(
        &fresh,
        "a commit for each block that was only allocated",
        conversions == 200,
    )?;
    within(
        &fresh,
        "journal percent",
        fresh.journal_percent(),
        70.0..=80.0,
    )
}

/// The caller writes one block itself where the journal thread wrote three.
fn fast_commit() -> Result<()> {
    let plain = bed("")?;
    let full = log_100(&plain)?;
    let bed = Bed::new(Spec::ext4(512).mkfs("-O fast_commit"))?;
    let fast = log_100(&bed)?;
    let sectors = fast.trigger("journal", "fast-commit");
    within(
        &fast,
        "sectors by fast commits",
        sectors as f64,
        700.0..=820.0,
    )?;
    let rest = fast.path("journal") - sectors;
    within(&fast, "sectors by full commits", rest as f64, 30.0..=200.0)?;
    let rows = fast.device()["paths"].as_array();
    let caller = rows.into_iter().flatten().any(|row| {
        let by = row["by"].as_array();
        row["trigger"] == "fast-commit" && by.into_iter().flatten().any(|by| by["comm"] == "logger")
    });
    holds(&fast, "by the logger itself", caller)?;
    within(
        &fast,
        "sectors over those without",
        fast.total() as f64 / full.total() as f64,
        0.4..=0.65,
    )
}

/// Did lazytime take effect? Equal is an answer, too.
fn lazytime() -> Result<()> {
    let writer = |options: &'static str| {
        std::thread::spawn(move || {
            let bed = Bed::new(Spec::ext4(256).mount(options))?;
            fill(&bed, "log", 8)?;
            let steps = [
                open(bed.path("log"), "wo"),
                repeat(
                    220,
                    vec![Step::Pwrite { at: 0, len: 4096 }, Step::Sleep { ms: 100 }],
                ),
            ];
            let (report, _) = traced(&bed, || run("logger", &steps))?;
            Ok::<_, anyhow::Error>(report)
        })
    };
    let (lazy, eager) = (writer("lazytime"), writer(""));
    let lazy = lazy.join().expect("a bed's thread panicked")?;
    let eager = eager.join().expect("a bed's thread panicked")?;
    for report in [&lazy, &eager] {
        let timer = report.commits("timer", "count");
        holds(
            report,
            "only the timer commits",
            report.all_commits() == timer,
        )?;
    }
    let commits = eager.all_commits() as f64;
    within(&eager, "commits in 22 s", commits, 3.0..=5.0)?;
    // On a kernel whose lazytime works there are fewer; never more.
    let apart = lazy.all_commits() as f64 - commits;
    within(&lazy, "commits more than without", apart, -commits..=1.0)
}

/// Only reads run, and still there are writes: access times.
fn reading_writes() -> Result<()> {
    for options in ["strictatime", "noatime"] {
        let bed = bed(options)?;
        run(
            "setup",
            &[repeat(
                300,
                vec![Step::Create {
                    path: bed.path("f{i}"),
                    len: 3,
                }],
            )],
        )?;
        bed.settle()?;
        let (report, done) = traced(&bed, || {
            let done = run(
                "cat",
                &[repeat(
                    300,
                    vec![open(bed.path("f{i}"), "ro"), Step::Read { at: 0, len: 3 }],
                )],
            )?;
            syncfs(&bed)?;
            Ok(done)
        })?;
        if options == "noatime" {
            holds(&report, "noatime writes nothing", report.total() == 0)?;
            continue;
        }
        within(&report, "sectors", report.total() as f64, 250.0..=420.0)?;
        holds(
            &report,
            "journal and metadata, no file data",
            report.path("journal") + report.path("metadata") == report.total(),
        )?;
        within(
            &report,
            "journal percent",
            report.journal_percent(),
            40.0..=65.0,
        )?;
        let metadata = report.dirtier(done.pid).path("metadata");
        within(
            &report,
            "percent of the metadata on the reader's account",
            percent(metadata, report.path("metadata")),
            90.0..=100.0,
        )?;
    }
    Ok(())
}
