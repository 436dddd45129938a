//! Watches a filesystem's commits twice, by the tracer and by the kernel's
//! events, and compares the tracer's list with a known one.

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::bed::Bed;
use crate::knob::Knob;
use crate::report::Report;
use crate::stacks::instance::{Instance, Wanted, devno};
use crate::stacks::trace;
use crate::tracer::Tracer;

/// One commit as the tracer tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// The transaction; none for a fast commit.
    pub tid: Option<u64>,
    pub trigger: String,
    pub pid: Option<u64>,
    pub call: Option<String>,
    pub file: Option<String>,
    pub age_us: u64,
}

/// What a commit must be. A field that is none is not looked at.
#[derive(Clone, Debug)]
pub struct Expected {
    pub trigger: &'static str,
    pub pid: Option<u32>,
    pub call: Option<&'static str>,
    pub file: Option<String>,
}

impl Expected {
    /// Requested by process `pid`.
    pub fn by(trigger: &'static str, pid: u32) -> Expected {
        Expected {
            pid: Some(pid),
            ..Expected::trigger(trigger)
        }
    }

    /// Of this trigger, whoever it was.
    pub fn trigger(trigger: &'static str) -> Expected {
        Expected {
            trigger,
            pid: None,
            call: None,
            file: None,
        }
    }

    /// By a call on a file.
    pub fn on(pid: u32, call: &'static str, file: &str) -> Expected {
        Expected {
            call: Some(call),
            file: Some(file.to_owned()),
            ..Expected::by("fsync", pid)
        }
    }

    fn misses(&self, got: &Commit) -> Vec<String> {
        let mut wrong = Vec::new();
        if got.trigger != self.trigger {
            wrong.push(format!("trigger {}, not {}", got.trigger, self.trigger));
        }
        if self.pid.is_some() && self.pid.map(u64::from) != got.pid {
            wrong.push(format!("pid {:?}, not {:?}", got.pid, self.pid));
        }
        if self.call.is_some() && self.call != got.call.as_deref() {
            wrong.push(format!("call {:?}, not {:?}", got.call, self.call));
        }
        if self.file.is_some() && self.file != got.file {
            wrong.push(format!("file {:?}, not {:?}", got.file, self.file));
        }
        wrong
    }
}

/// A watched stretch.
pub struct Watched {
    pub report: Report,
    /// All commits of the tracer's list, oldest first.
    pub commits: Vec<Commit>,
    /// Transactions that the kernel ended, oldest first.
    pub tids: Vec<u64>,
}

/// Runs `body` under the tracer and the kernel's events.
pub fn watch<T>(bed: &Bed, body: impl FnOnce() -> Result<T>) -> Result<(Watched, T)> {
    // No flusher: it commits nothing, but would write after the last look.
    let _still = Knob::set("/proc/sys/vm/dirty_writeback_centisecs", "0")?;
    let kernel = Instance::new(&[Wanted {
        event: "jbd2/jbd2_end_commit",
        dev: devno(bed.fs_node())?,
        stack: false,
    }])?;
    let tracer = Tracer::start(bed, &["--commits"])?;
    let result = body()?;
    let report = tracer.stop()?;
    let tids = tids(&kernel.finish()?)?;
    let commits = commits(&report)?;
    Ok((
        Watched {
            report,
            commits,
            tids,
        },
        result,
    ))
}

/// The transactions of `jbd2_end_commit` lines.
fn tids(text: &str) -> Result<Vec<u64>> {
    let ends = text
        .lines()
        .filter_map(trace::line)
        .filter(|line| line.name == "jbd2_end_commit");
    ends.map(|line| {
        let mut words = line.fields.split_ascii_whitespace();
        let found = words.find(|word| *word == "transaction");
        found
            .and(words.next())
            .and_then(|tid| tid.parse().ok())
            .with_context(|| format!("no transaction in {:?}", line.fields))
    })
    .collect()
}

fn commits(report: &Report) -> Result<Vec<Commit>> {
    let list = report.device()["journal"]["commit_list"]
        .as_array()
        .with_context(|| format!("no journal.commit_list\n{}", report.dump()))?;
    let text = |row: &Value, key: &str| row[key].as_str().map(str::to_owned);
    Ok(list
        .iter()
        .map(|row| Commit {
            tid: row["tid"].as_u64(),
            trigger: text(row, "trigger").unwrap_or_default(),
            pid: row["pid"].as_u64(),
            call: text(row, "call"),
            file: text(row, "file"),
            age_us: row["age_us"].as_u64().unwrap_or(0),
        })
        .collect())
}

impl Watched {
    /// Commits of the journal thread: those with a transaction of their own.
    pub fn full(&self) -> Vec<&Commit> {
        let fast = |c: &&Commit| c.trigger == "fast-commit";
        self.commits.iter().filter(|c| !fast(c)).collect()
    }

    /// The tracer's list is the kernel's: same transactions in the same order.
    pub fn same_transactions(&self) -> Result<()> {
        let listed: Vec<Option<u64>> = self.full().iter().map(|c| c.tid).collect();
        let ended: Vec<Option<u64>> = self.tids.iter().map(|tid| Some(*tid)).collect();
        if listed != ended {
            bail!(
                "transactions {listed:?}, the kernel ended {ended:?}\n{}",
                self.report.dump()
            );
        }
        Ok(())
    }

    /// Commit by commit what was expected, and the kernel's transactions.
    pub fn are(&self, expected: &[Expected]) -> Result<()> {
        self.report.closed().done()?;
        let mut wrong = Vec::new();
        let count = expected.len();
        if self.tids.len() != count {
            wrong.push(format!(
                "the bed is not what it should be: the kernel made {} commits, the sequence {count}",
                self.tids.len()
            ));
        }
        if self.commits.len() != count {
            wrong.push(format!(
                "{} commits listed, not {count}",
                self.commits.len()
            ));
        }
        for (number, (got, want)) in self.commits.iter().zip(expected).enumerate() {
            for miss in want.misses(got) {
                wrong.push(format!("commit {number}: {miss}"));
            }
        }
        self.verdict(&wrong)?;
        self.same_transactions()
    }

    /// Every commit is the same kind; at least `least` of them.
    pub fn all_are(&self, expected: &Expected, least: usize) -> Result<()> {
        self.report.closed().done()?;
        let mut wrong = Vec::new();
        if self.tids.len() < least {
            wrong.push(format!(
                "the bed is not what it should be: the kernel made {} commits, at least {least} expected",
                self.tids.len()
            ));
        }
        if self.commits.len() != self.tids.len() {
            wrong.push(format!(
                "{} commits listed, the kernel made {}",
                self.commits.len(),
                self.tids.len()
            ));
        }
        for (number, got) in self.commits.iter().enumerate() {
            for miss in expected.misses(got) {
                wrong.push(format!("commit {number}: {miss}"));
            }
        }
        self.verdict(&wrong)?;
        self.same_transactions()
    }

    /// Fails with all that is wrong.
    pub fn verdict(&self, wrong: &[String]) -> Result<()> {
        if wrong.is_empty() {
            return Ok(());
        }
        bail!(
            "{} wrong:\n  {}\ncommits: {:#?}\n{}",
            wrong.len(),
            wrong.join("\n  "),
            self.commits,
            self.report.dump()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactions_of_the_kernel_are_read_in_order() {
        let text = "\
#  TASK-PID
     jbd2/loop0-8-99      [000] .....     1.000001: jbd2_end_commit: dev 7,0 transaction 5 sync 0 head 4
     jbd2/loop0-8-99      [001] .....     2.000001: jbd2_end_commit: dev 7,0 transaction 6 sync 0 head 4
";
        assert_eq!(tids(text).expect("readable"), [5, 6]);
    }

    #[test]
    fn what_is_none_is_not_looked_at() {
        let got = Commit {
            tid: Some(1),
            trigger: "fsync".to_owned(),
            pid: Some(7),
            call: Some("fsync".to_owned()),
            file: Some("mgmt".to_owned()),
            age_us: 0,
        };
        assert!(Expected::trigger("fsync").misses(&got).is_empty());
        assert!(Expected::on(7, "fsync", "mgmt").misses(&got).is_empty());
        assert_eq!(Expected::on(8, "fdatasync", "x").misses(&got).len(), 3);
        assert_eq!(Expected::trigger("timer").misses(&got).len(), 1);
    }
}
