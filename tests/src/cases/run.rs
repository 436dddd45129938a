//! What the cases share: beds, loggers, a traced stretch, `SQLite` by its own
//! program, and the shares that their answers are made of.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::bed::{Bed, Spec};
use crate::harness::Test;
use crate::report::Report;
use crate::tracer::{self, Tracer};
use crate::writers::{Done, Step, SyncCall, open, repeat, run};

/// A case of the full tier.
pub fn case(number: u32, name: &str, body: fn() -> Result<()>) -> Test {
    Test::new(format!("cases::{number:02}_{name}"), body)
        .needs(tracer::available)
        .limit(120)
        .full()
}

/// A case that is short enough for every run.
pub fn quick(number: u32, name: &str, body: fn() -> Result<()>) -> Test {
    Test::new(format!("cases::{number:02}_{name}"), body).needs(tracer::available)
}

/// An ext4 of the usual size with these mount options.
pub fn bed(mount: &str) -> Result<Bed> {
    Bed::new(Spec::ext4(512).mount(mount))
}

/// Traces `body` on a settled bed; the ledger must close.
///
/// The bed need not be at rest at the end: what the flusher and the timer do
/// then is part of no case. So stat is a range, from before the tracer is told
/// to end until it has ended.
pub fn traced<T>(bed: &Bed, body: impl FnOnce() -> Result<T>) -> Result<(Report, T)> {
    let before = bed.stat()?;
    let tracer = Tracer::start(bed, &[])?;
    let result = body()?;
    let least = bed.stat()?.since(before).write_sectors;
    let report = tracer.stop()?;
    let mut check = report.balanced();
    let most = report.stat.write_sectors;
    check.is(
        format!("sectors_written within {least} to {most}"),
        (least..=most).contains(&report.total()),
    );
    check.done()?;
    Ok((report, result))
}

/// What follows each write of a logger.
#[derive(Clone, Copy)]
pub enum After {
    Nothing,
    Fsync,
    Fdatasync,
}

impl After {
    fn steps(self) -> Vec<Step> {
        match self {
            After::Nothing => Vec::new(),
            After::Fsync => vec![Step::Sync(SyncCall::Fsync)],
            After::Fdatasync => vec![Step::Sync(SyncCall::Fdatasync)],
        }
    }
}

fn paced(mut steps: Vec<Step>, after: After, pause_ms: u64) -> Vec<Step> {
    steps.extend(after.steps());
    if pause_ms > 0 {
        steps.push(Step::Sleep { ms: pause_ms });
    }
    steps
}

/// A log that grows by `count` lines of `len` bytes.
pub fn append(path: &Path, count: u64, len: u64, after: After, pause_ms: u64) -> Vec<Step> {
    let round = paced(vec![Step::Write { len }], after, pause_ms);
    vec![open(path, "wo creat append"), repeat(count, round)]
}

/// `count` blocks of an existing file, one after the other, written again.
pub fn overwrite(path: &Path, count: u64, after: After, pause_ms: u64) -> Vec<Step> {
    let round = paced(vec![Step::Write { len: 4096 }], after, pause_ms);
    vec![open(path, "wo"), repeat(count, round)]
}

/// A file of `mib` MiB on the device, in large writes.
pub fn fill(bed: &Bed, name: &str, mib: u64) -> Result<()> {
    run(
        "fill",
        &[
            open(bed.path(name), "wo creat"),
            repeat(mib, vec![Step::Write { len: 1 << 20 }]),
            Step::Sync(SyncCall::Fsync),
            Step::Close,
        ],
    )?;
    bed.settle()
}

/// `sync -f`, by a process of its own.
pub fn syncfs(bed: &Bed) -> Result<Done> {
    run(
        "syncer",
        &[open(bed.mnt(), "ro"), Step::Sync(SyncCall::Syncfs)],
    )
}

/// One sqlite3 process that inserts `count` rows of 100 bytes, each in a
/// transaction of its own.
pub fn sqlite(db: &Path, synchronous: &str, count: u64, pause_ms: u64) -> Result<Done> {
    let mut child = Command::new("sqlite3")
        .arg(db)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .context("starting sqlite3")?;
    let pid = child.id();
    let mut stdin = child.stdin.take().context("no pipe to sqlite3")?;
    writeln!(stdin, "pragma journal_mode=wal;")?;
    writeln!(stdin, "pragma synchronous={synchronous};")?;
    writeln!(
        stdin,
        "create table if not exists t(id integer primary key, v text);"
    )?;
    let row = "v".repeat(100);
    for _ in 0..count {
        writeln!(stdin, "insert into t(v) values('{row}');")?;
        stdin.flush()?;
        std::thread::sleep(Duration::from_millis(pause_ms));
    }
    drop(stdin);
    let status = child.wait()?;
    ensure!(status.success(), "sqlite3: {status}");
    Ok(Done {
        pid,
        comm: "sqlite3".to_owned(),
    })
}

/// Parts per hundred.
pub fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    part as f64 * 100.0 / whole as f64
}

/// How a report is read by most cases.
pub trait Answers {
    /// Sectors written in all.
    fn total(&self) -> u64;
    /// Sectors of the journal, in percent of all.
    fn journal_percent(&self) -> f64;
    /// Commits of any trigger.
    fn all_commits(&self) -> u64;
    /// Commits of this trigger that the named process asked for on this file.
    fn commits_by(&self, trigger: &str, comm: &str, file: &str) -> u64;
}

impl Answers for Report {
    fn total(&self) -> u64 {
        self.count("sectors_written")
    }

    fn journal_percent(&self) -> f64 {
        percent(self.path("journal"), self.total())
    }

    fn all_commits(&self) -> u64 {
        let rows = self.device()["journal"]["commits"].as_array();
        rows.into_iter()
            .flatten()
            .map(|row| row["count"].as_u64().unwrap_or(0))
            .sum()
    }

    fn commits_by(&self, trigger: &str, comm: &str, file: &str) -> u64 {
        let rows = self.device()["journal"]["commits"].as_array();
        rows.into_iter()
            .flatten()
            .filter(|row| row["trigger"] == trigger && row["by"] == comm && row["file"] == file)
            .map(|row| row["count"].as_u64().unwrap_or(0))
            .sum()
    }
}

/// Fails with `what`, the number and the report unless it lies in the range.
pub fn within(
    report: &Report,
    what: &str,
    value: f64,
    range: std::ops::RangeInclusive<f64>,
) -> Result<()> {
    ensure!(
        range.contains(&value),
        "{what}: {value:.2} is not in {range:?}\n{}",
        report.dump()
    );
    Ok(())
}

/// Fails with `what` and the report unless it holds.
pub fn holds(report: &Report, what: &str, condition: bool) -> Result<()> {
    ensure!(condition, "{what}: does not hold\n{}", report.dump());
    Ok(())
}
