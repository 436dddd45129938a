//! Flash wear: who wrote those sectors, and what do they amount to?

use anyhow::Result;

use super::run::{
    After, Answers, append, bed, case, fill, holds, percent, sqlite, syncfs, traced, within,
};
use crate::bed::{Bed, Spec};
use crate::harness::{Test, has_program};
use crate::writers::{Random, Step, SyncCall, Writer, open, run};

pub fn tests() -> Vec<Test> {
    let sqlite3 = || has_program("sqlite3");
    vec![
        case(1, "sqlite_recorder", sqlite_recorder).needs(sqlite3),
        case(4, "commit_interval", commit_interval),
        case(
            6,
            "device_against_process_counters",
            device_against_counters,
        ),
        case(11, "container_log", container_log),
        case(12, "three_names_one_card", rank),
        case(16, "mmap_database", mmap_database),
        case(18, "sync_mount", sync_mount),
        case(20, "write_amplification_of_a_wal", amplification).needs(sqlite3),
    ]
}

/// One transaction a moment, synchronous=FULL: one fsync, one commit each.
/// The application's knob works, the mount's does not.
fn sqlite_recorder() -> Result<()> {
    let mut totals = Vec::new();
    for synchronous in ["full", "normal"] {
        let bed = Bed::new(Spec::ext4(256).mount("commit=300"))?;
        let (report, done) = traced(&bed, || sqlite(&bed.path("t.db"), synchronous, 60, 50))?;
        holds(
            &report,
            "the writer is sqlite3",
            report.dirtier(done.pid).name == "sqlite3",
        )?;
        if synchronous == "full" {
            let by_fsync = report.commits("fsync", "count");
            holds(&report, "a commit for each insert", by_fsync >= 60)?;
            holds(
                &report,
                "all of them by fsync",
                report.all_commits() == by_fsync,
            )?;
            let wal = report.commits_by("fsync", "sqlite3", "t.db-wal");
            holds(&report, "for the WAL, by sqlite3", wal >= 60)?;
            within(
                &report,
                "journal percent",
                report.journal_percent(),
                60.0..=100.0,
            )?;
        }
        totals.push((report.total(), report));
    }
    let (full, normal) = (totals[0].0, totals[1].0);
    holds(
        &totals[1].1,
        &format!("NORMAL's {normal} sectors are a third of FULL's {full} at most"),
        normal * 3 <= full,
    )
}

/// `commit=` moves timer commits only: the fsync logger does not care. It all
/// ends before the flusher comes for data of 30 seconds.
fn commit_interval() -> Result<()> {
    let logger = |options: &'static str, count: u64, after: After, pause_ms: u64| {
        std::thread::spawn(move || {
            let bed = Bed::new(Spec::ext4(256).mount(options))?;
            let mut steps = append(&bed.path("log"), count, 120, after, pause_ms);
            // The last commit of the short interval, and rest.
            steps.push(Step::Sleep { ms: 2500 });
            let (report, _) = traced(&bed, || run("logger", &steps))?;
            Ok::<_, anyhow::Error>(report)
        })
    };
    let running = [
        logger("commit=1", 200, After::Nothing, 100),
        logger("commit=30", 200, After::Nothing, 100),
        logger("commit=5", 20, After::Fsync, 1000),
        logger("commit=300", 20, After::Fsync, 1000),
    ];
    let mut reports = Vec::new();
    for thread in running {
        reports.push(thread.join().expect("a bed's thread panicked")?);
    }
    let [one, thirty, five, hundreds] = &reports[..] else {
        unreachable!("four beds");
    };
    holds(
        thirty,
        &format!("{} sectors at 1 s, {} at 30 s", one.total(), thirty.total()),
        one.total() >= 5 * thirty.total(),
    )?;
    let timer = one.commits("timer", "count");
    within(one, "timer commits at 1 s", timer as f64, 9.0..=23.0)?;
    holds(one, "the timer made them all", one.all_commits() == timer)?;
    let change = percent(five.total().abs_diff(hundreds.total()), five.total());
    within(
        hundreds,
        "change of the fsync logger in percent",
        change,
        0.0..=3.0,
    )?;
    for report in [five, hundreds] {
        let by_fsync = report.commits_by("fsync", "logger", "log");
        holds(report, "20 commits, by fsync of the log", by_fsync == 20)?;
        holds(report, "and no other", report.all_commits() == by_fsync)?;
    }
    Ok(())
}

/// The kernel's counter of a process knows dirtied pages; the card also gets
/// the journal. The process's row holds both.
fn device_against_counters() -> Result<()> {
    let bed = bed("")?;
    let steps = append(&bed.path("l"), 100, 100, After::Fsync, 0);
    let (report, done) = traced(&bed, || run("k3s", &steps))?;
    let row = report.dirtier(done.pid);
    // 102 blocks of data pages, as /proc/PID/io counts them.
    let counted = 102 * 8;
    holds(
        &report,
        "its data is what it dirtied",
        row.path("fsync") == counted,
    )?;
    holds(
        &report,
        "with its commits it is 3.5 times as much",
        row.sectors * 2 >= counted * 7,
    )?;
    holds(
        &report,
        "the journal is in its row",
        row.path("journal") == report.path("journal"),
    )
}

/// Three names for one log: its file and its writer are what counts.
fn container_log() -> Result<()> {
    let bed = Bed::new(Spec::ext4(256))?;
    let steps = append(&bed.path("x-json.log"), 1000, 200, After::Nothing, 1);
    let (report, done) = traced(&bed, || {
        let done = run("shim", &steps)?;
        syncfs(&bed)?;
        Ok(done)
    })?;
    let log = report.file_named("x-json.log");
    within(
        &report,
        "percent of the log",
        percent(log.sectors, report.total()),
        60.0..=100.0,
    )?;
    holds(
        &report,
        "all of it dirtied by the shim",
        report.dirtier(done.pid).path("writeback") == log.sectors,
    )?;
    holds(
        &report,
        "written because of syncfs",
        report.trigger("writeback", "sync") == log.sectors,
    )?;
    no_kworker(&report)
}

/// A kernel thread is never an owner.
fn no_kworker(report: &crate::report::Report) -> Result<()> {
    let rows = report.device()["dirtiers"].as_array();
    let kernel = rows.into_iter().flatten().any(|row| {
        let comm = row["comm"].as_str().unwrap_or_default();
        comm.starts_with("kworker") || comm.starts_with("jbd2")
    });
    holds(report, "no kernel thread owns data", !kernel)
}

/// Bytes written and sectors worn rank differently.
fn rank() -> Result<()> {
    let bed = Bed::new(Spec::ext4(256))?;
    let (a, b) = (bed.path("a"), bed.path("b"));
    let (report, (first, second)) = traced(&bed, || {
        let small = Writer::spawn("small", &append(&a, 200, 100, After::Fsync, 20))?;
        let large = Writer::spawn("large", &append(&b, 200, 20480, After::Nothing, 20))?;
        let both = (small.wait()?, large.wait()?);
        syncfs(&bed)?;
        Ok(both)
    })?;
    let small = report.dirtier(first.pid).sectors;
    let large = report.dirtier(second.pid).sectors;
    let apart = percent(small.abs_diff(large), large);
    within(&report, "apart in percent", apart, 0.0..=35.0)?;
    let amplification = |sectors: u64, bytes: u64| sectors as f64 * 512.0 / bytes as f64;
    within(
        &report,
        "amplification of the small one",
        amplification(small, 200 * 100),
        100.0..=1000.0,
    )?;
    within(
        &report,
        "amplification of the large one",
        amplification(large, 200 * 20480),
        0.9..=1.2,
    )
}

/// One store through a map dirties a whole folio, one write a block.
fn mmap_database() -> Result<()> {
    let mut bed = bed("noatime")?;
    fill(&bed, "db", 64)?;
    let places = |seed| Random {
        area: 64 << 20,
        align: 4096,
        min: 4096,
        max: 4096,
        count: 100,
        seed,
    };
    let stores = |bed: &Bed| vec![open(bed.path("db"), "rw"), Step::MmapRandom(places(1))];
    let (mapped, _) = traced(&bed, || run("lmdb", &stores(&bed)))?;
    let (written, _) = traced(&bed, || {
        run(
            "pwrites",
            &[
                open(bed.path("db"), "rw"),
                Step::Random(places(2)),
                Step::Sync(SyncCall::Fsync),
            ],
        )
    })?;
    bed.umount()?;
    bed.mount()?;
    bed.settle()?;
    let (again, _) = traced(&bed, || run("lmdb", &stores(&bed)))?;
    let sectors = |report: &crate::report::Report| report.file_named("db").sectors;
    let ratio = |report| sectors(report) as f64 / sectors(&written) as f64;
    // Kernels whose folios are pages have no such ratio to show.
    if ratio(&mapped) > 2.0 {
        within(&mapped, "mmap over pwrite", ratio(&mapped), 50.0..=500.0)?;
    }
    within(
        &again,
        "mmap over pwrite after remount",
        ratio(&again),
        0.9..=1.3,
    )?;
    holds(
        &again,
        "msync wrote it",
        again.trigger("fsync", "msync") == sectors(&again),
    )
}

/// Each write of a `sync` mount is data, a commit and two flushes.
fn sync_mount() -> Result<()> {
    let steps = |bed: &Bed| append(&bed.path("v"), 100, 65536, After::Nothing, 0);
    let slow = bed("sync")?;
    let (sync, _) = traced(&slow, || run("recorder", &steps(&slow)))?;
    let fast = bed("")?;
    let (plain, _) = traced(&fast, || {
        run("recorder", &steps(&fast))?;
        syncfs(&fast)
    })?;
    let flushes = |report: &crate::report::Report| report.count("flushes_done") as f64;
    within(&sync, "flushes", flushes(&sync), 195.0..=215.0)?;
    within(&plain, "flushes of the control", flushes(&plain), 1.0..=6.0)?;
    within(
        &sync,
        "journal percent",
        sync.journal_percent(),
        18.0..=30.0,
    )?;
    within(
        &plain,
        "journal percent of the control",
        plain.journal_percent(),
        0.0..=1.0,
    )?;
    within(
        &sync,
        "sectors over the control's",
        sync.total() as f64 / plain.total() as f64,
        1.2..=1.4,
    )?;
    holds(
        &sync,
        "the data is of synchronous writes",
        sync.trigger("fsync", "sync-write") == sync.path("fsync"),
    )
}

/// Row to page to journal: who adds which factor?
fn amplification() -> Result<()> {
    let bed = bed("")?;
    let (report, done) = traced(&bed, || sqlite(&bed.path("t.db"), "full", 200, 0))?;
    within(
        &report,
        "journal percent",
        report.journal_percent(),
        65.0..=90.0,
    )?;
    let mib = report.total() as f64 / 2048.0;
    within(&report, "MiB on the device for 20 kB", mib, 4.5..=8.0)?;
    let commits = report.commits("fsync", "count") as f64;
    within(&report, "commits by fsync", commits, 195.0..=230.0)?;
    let wal = report.file_named("t.db-wal");
    holds(
        &report,
        "the WAL has its name though it is gone",
        wal.path("fsync") >= 1600 && !bed.path("t.db-wal").exists(),
    )?;
    holds(
        &report,
        "the database is named too",
        report.file_named("t.db").sectors > 0,
    )?;
    holds(
        &report,
        "all of it is sqlite3's",
        report.dirtier(done.pid).path("fsync") == report.path("fsync"),
    )
}
