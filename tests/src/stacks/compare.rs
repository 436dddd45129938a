//! Sectors per path, and what differs between two accounts of them. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::classify::{Verdict, classify};
use super::trace::{Event, Kind};

/// Sectors per path; a path without sectors has no entry.
pub type Account = BTreeMap<String, u64>;
/// Sectors per (path, trigger).
pub type Detailed = BTreeMap<(String, String), u64>;

/// What the referee knows of a trace.
#[derive(Debug, Default)]
pub struct Referee {
    pub paths: Account,
    /// Only of bios whose stack names the trigger.
    pub triggers: Detailed,
    /// Sectors that the device completed.
    pub completed: u64,
    /// Stacks that the table does not know, with their sectors.
    pub unknown: Vec<(Event, u64)>,
}

/// Judges every write of a trace by its stack.
///
/// A bio is counted as a whole when it is submitted: the beds are at rest at
/// both ends, so that what was submitted is what completed.
pub fn referee(events: &[Event]) -> Referee {
    let mut result = Referee::default();
    for event in events.iter().filter(|e| e.is_write() && e.sectors > 0) {
        match event.kind {
            Kind::Complete => result.completed += event.sectors,
            Kind::Issue => {}
            Kind::Queue => match classify(event) {
                Some(verdict) => add(&mut result, verdict, event.sectors),
                None => result.unknown.push((event.clone(), event.sectors)),
            },
        }
    }
    result
}

fn add(result: &mut Referee, verdict: Verdict, sectors: u64) {
    *result.paths.entry(verdict.path.to_owned()).or_default() += sectors;
    if let Some(trigger) = verdict.trigger {
        let key = (verdict.path.to_owned(), trigger.to_owned());
        *result.triggers.entry(key).or_default() += sectors;
    }
}

/// One line for each path whose sectors are not equal; empty when all agree.
pub fn differences<K: Ord + std::fmt::Debug>(
    expected: &BTreeMap<K, u64>,
    got: &BTreeMap<K, u64>,
) -> Vec<String> {
    let keys: BTreeSet<&K> = expected.keys().chain(got.keys()).collect();
    keys.into_iter()
        .filter_map(|key| {
            let want = expected.get(key).copied().unwrap_or(0);
            let have = got.get(key).copied().unwrap_or(0);
            (want != have).then(|| format!("{key:?}: expected {want} sectors, got {have}"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(rows: &[(&str, u64)]) -> Account {
        rows.iter().map(|(p, s)| ((*p).to_owned(), *s)).collect()
    }

    #[test]
    fn equal_accounts_have_no_differences() {
        let a = account(&[("fsync", 8), ("journal", 40)]);
        assert!(differences(&a, &a.clone()).is_empty());
    }

    #[test]
    fn a_sector_moved_or_missing_is_two_or_one_differences() {
        let a = account(&[("fsync", 8), ("journal", 40)]);
        assert_eq!(
            differences(&a, &account(&[("fsync", 9), ("journal", 39)])).len(),
            2
        );
        assert_eq!(differences(&a, &account(&[("fsync", 8)])).len(), 1);
        assert_eq!(
            differences(&a, &account(&[("fsync", 8), ("journal", 40), ("raw", 1)])).len(),
            1
        );
    }

    #[test]
    fn bios_are_counted_when_submitted_and_stat_when_completed() {
        let event = |kind, rwbs: &str, sectors, stack: &[&str]| Event {
            kind,
            pid: 1,
            time_us: 0,
            rwbs: rwbs.to_owned(),
            sector: 0,
            sectors,
            stack: stack.iter().map(|s| (*s).to_owned()).collect(),
        };
        let result = referee(&[
            event(Kind::Queue, "W", 16, &["ext4_writepages", "wb_workfn"]),
            event(Kind::Queue, "FWS", 0, &["blkdev_issue_flush"]),
            event(Kind::Queue, "R", 8, &["ext4_read_bh"]),
            event(Kind::Queue, "WS", 8, &["who_knows"]),
            event(Kind::Issue, "W", 24, &[]),
            event(Kind::Complete, "W", 16, &[]),
            event(Kind::Complete, "WS", 8, &[]),
            event(Kind::Complete, "FF", 0, &[]),
        ]);
        assert_eq!(result.paths, account(&[("writeback", 16)]));
        assert_eq!(result.completed, 24);
        assert_eq!(result.unknown.len(), 1);
        assert!(result.triggers.is_empty());
    }
}
