//! Rows as the programs counted them become accounts: triggers resolved,
//! commits joined with what they wrote.

use super::commits::Cause;
use crate::model::{
    path::{Op, Path},
    record::{Commit, FastCommit},
    trigger::CommitTrigger,
};
use std::collections::{BTreeMap, HashMap};
use tracer_common::{CALL_NONE, RowKey, RowValue, trig};

/// Why a path ran, as a value that rows can be grouped by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Trigger {
    /// The flusher's reason, in the running kernel's numbers.
    Reason(u16),
    /// A system call.
    Call(u16),
    /// A job of the filesystem.
    Job(u16),
    /// A commit.
    Commit(CommitTrigger),
    /// Unknown; the submitting thread is in `by`.
    Unknown,
}

/// One row of the accounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Row {
    /// Index of the disk.
    pub disk: u16,
    /// How the sectors came.
    pub path: Path,
    /// What was done.
    pub op: Op,
    /// Why then.
    pub trigger: Trigger,
    /// Process that triggered it, 0 for none.
    pub by: u32,
    /// Its system call, or `CALL_NONE`.
    pub call: u16,
    /// Device of the filesystem, in the kernel's form.
    pub fs_dev: u32,
    /// File, 0 for none.
    pub file: u32,
    /// Who dirtied it: 0 unknown, [`RowKey::SHARED`] several.
    pub dirtier: u32,
    /// Found by the page that the bio carried.
    pub by_page: bool,
}

/// What was counted in a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sectors of 512 bytes.
    pub sectors: u64,
    /// Bios.
    pub bios: u64,
    /// Flushes asked for.
    pub flushes: u64,
}

impl Counts {
    /// Adds another's.
    pub fn add(&mut self, other: Self) {
        self.sectors += other.sectors;
        self.bios += other.bios;
        self.flushes += other.flushes;
    }
}

impl From<RowValue> for Counts {
    fn from(value: RowValue) -> Self {
        Self {
            sectors: value.sectors,
            bios: value.bios,
            flushes: value.flushes,
        }
    }
}

/// A commit, its cause and what it wrote.
#[derive(Debug, Clone)]
pub struct CommitEntry {
    /// The record.
    pub commit: Commit,
    /// Why, and who.
    pub cause: Cause,
    /// Sectors in the journal's place.
    pub sectors: u64,
    /// Sectors of file data that it had to write first.
    pub ordered_sectors: u64,
    /// Ended by a fast commit.
    pub fast: bool,
    settled: u32,
}

/// Settlings after which a commit's rows have all been drained.
const SETTLED: u32 = 3;

/// The accounts of a run, or of one interval of it.
#[derive(Debug, Default)]
pub struct Accounts {
    /// Every row.
    pub rows: HashMap<Row, Counts>,
    /// Rows whose commit has not ended yet, by device and transaction.
    waiting: HashMap<(u32, u32), Vec<(Row, Counts)>>,
    /// Commits that may still get rows.
    recent: HashMap<(u32, u32), CommitEntry>,
    /// Commits that are complete.
    pub commits: Vec<CommitEntry>,
}

impl Accounts {
    /// Takes rows that were drained.
    pub fn take_rows(&mut self, rows: impl IntoIterator<Item = (RowKey, RowValue)>) {
        for (key, value) in rows {
            let row = from_key(&key);
            if key.trig == trig::COMMIT {
                let commit = (key.fs_dev, key.aux);
                self.waiting
                    .entry(commit)
                    .or_default()
                    .push((row, value.into()));
            } else {
                self.rows.entry(row).or_default().add(value.into());
            }
        }
    }

    /// Takes a commit that ended.
    pub fn take_commit(&mut self, commit: Commit, cause: Cause) {
        let key = (commit.dev, commit.tid);
        let entry = CommitEntry {
            commit,
            cause,
            sectors: 0,
            ordered_sectors: 0,
            fast: false,
            settled: 0,
        };
        self.recent.insert(key, entry);
    }

    /// Takes a fast commit that succeeded; its rows name the caller already.
    pub fn take_fast_commit(&mut self, fast: &FastCommit, cause: Cause, block_sectors: u64) {
        let commit = Commit {
            dev: fast.dev,
            tid: 0,
            start_ns: fast.start_ns,
            locking_ns: 0,
            flushing_ns: 0,
            logging_ns: 0,
            end_ns: fast.end_ns,
            running_ticks: 0,
            handles: 0,
            blocks: 0,
            blocks_logged: fast.blocks,
            syncing: 0,
            waker: None,
            waiting: None,
            sync_fs: None,
        };
        self.commits.push(CommitEntry {
            commit,
            cause,
            sectors: u64::from(fast.blocks) * block_sectors,
            ordered_sectors: 0,
            fast: true,
            settled: SETTLED,
        });
    }

    /// Joins rows with commits; at the end of a run (`last`) what has no
    /// commit keeps an unknown trigger.
    pub fn settle(&mut self, last: bool) {
        let ready: Vec<(u32, u32)> = self
            .waiting
            .keys()
            .filter(|key| last || self.commit_of(**key).is_some())
            .copied()
            .collect();
        for key in ready {
            let rows = self.waiting.remove(&key).unwrap_or_default();
            let mut entry = self
                .commit_of(key)
                .and_then(|key| self.recent.get_mut(&key));
            for (mut row, counts) in rows {
                if let Some(entry) = entry.as_deref_mut() {
                    join(entry, &mut row, counts);
                }
                self.rows.entry(row).or_default().add(counts);
            }
        }
        for entry in self.recent.values_mut() {
            entry.settled += 1;
        }
        let done: Vec<(u32, u32)> = self
            .recent
            .iter()
            .filter(|(_, entry)| last || entry.settled >= SETTLED)
            .map(|(key, _)| *key)
            .collect();
        let done = done.iter().filter_map(|key| self.recent.remove(key));
        self.commits.extend(done);
        self.commits.sort_by_key(|entry| entry.commit.end_ns);
    }

    /// The commit that waiting rows belong to. Transaction 0 is the next one of
    /// a journal that was not heard of before.
    fn commit_of(&self, (dev, tid): (u32, u32)) -> Option<(u32, u32)> {
        if tid != 0 {
            return self.recent.contains_key(&(dev, tid)).then_some((dev, tid));
        }
        let own = self.recent.keys().filter(|(of, _)| *of == dev);
        own.copied().min_by_key(|(_, tid)| *tid)
    }

    /// Sectors so far by disk and path, those of commits that go on too.
    pub fn by_path(&self) -> BTreeMap<(u16, Path), u64> {
        let waiting = self.waiting.values().flatten();
        let waiting = waiting.map(|(row, counts)| (row, counts));
        let mut sums = BTreeMap::new();
        for (row, counts) in self.rows.iter().chain(waiting) {
            if row.op.in_ledger() && counts.sectors > 0 {
                *sums.entry((row.disk, row.path)).or_default() += counts.sectors;
            }
        }
        sums
    }

    /// Begins another interval: what is waiting goes on.
    pub fn next_interval(&mut self) {
        self.rows.clear();
        self.commits.clear();
    }
}

fn join(entry: &mut CommitEntry, row: &mut Row, counts: Counts) {
    row.trigger = Trigger::Commit(entry.cause.trigger);
    if let Some(by) = &entry.cause.by {
        row.by = by.tgid;
        row.call = by.call;
    }
    match row.path {
        Path::Ordered => entry.ordered_sectors += counts.sectors,
        _ => entry.sectors += counts.sectors,
    }
}

fn from_key(key: &RowKey) -> Row {
    let (trigger, by) = match key.trig {
        trig::REASON => (Trigger::Reason(key.code), key.aux),
        trig::CALL => (Trigger::Call(key.call), key.aux),
        trig::JOB => (Trigger::Job(key.code), key.aux),
        trig::COMMIT => (Trigger::Commit(CommitTrigger::Unknown), 0),
        _ => (Trigger::Unknown, key.aux),
    };
    Row {
        disk: key.disk,
        path: Path::from_code(key.path),
        op: Op::from_code(key.op),
        trigger,
        by,
        call: if key.trig == trig::UNKNOWN {
            CALL_NONE
        } else {
            key.call
        },
        fs_dev: key.fs_dev,
        file: key.file,
        dirtier: key.dirtier,
        by_page: key.by_page != 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracer_common::{op, path};

    fn key(tid: u32) -> RowKey {
        RowKey {
            fs_dev: 7,
            aux: tid,
            path: path::JOURNAL,
            trig: trig::COMMIT,
            op: op::WRITE,
            ..RowKey::default()
        }
    }

    fn value(sectors: u64) -> RowValue {
        RowValue {
            sectors,
            bios: 1,
            flushes: 0,
        }
    }

    fn commit(tid: u32) -> (Commit, Cause) {
        let commit = Commit {
            dev: 7,
            tid,
            start_ns: 1,
            locking_ns: 0,
            flushing_ns: 0,
            logging_ns: 0,
            end_ns: u64::from(tid),
            running_ticks: 0,
            handles: 0,
            blocks: 0,
            blocks_logged: 0,
            syncing: 0,
            waker: None,
            waiting: None,
            sync_fs: None,
        };
        let cause = Cause {
            trigger: CommitTrigger::Timer,
            by: None,
        };
        (commit, cause)
    }

    #[test]
    fn rows_wait_for_their_commit() {
        let mut accounts = Accounts::default();
        accounts.take_rows([(key(1), value(16)), (key(2), value(8))]);
        let (one, cause) = commit(1);
        accounts.take_commit(one, cause);
        accounts.settle(false);
        assert_eq!(accounts.rows.len(), 1);
        let journal = accounts.by_path()[&(0, Path::Journal)];
        assert_eq!(journal, 24, "also of the commit that goes on");
        let row = accounts.rows.keys().next().unwrap();
        assert_eq!(row.trigger, Trigger::Commit(CommitTrigger::Timer));
        accounts.take_rows([(key(1), value(4))]);
        accounts.settle(true);
        assert_eq!(accounts.commits[0].sectors, 20);
        let sum: u64 = accounts.rows.values().map(|counts| counts.sectors).sum();
        assert_eq!(sum, 28, "nothing is lost, nothing counted twice");
    }
}
