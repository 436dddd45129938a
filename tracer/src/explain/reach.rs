//! Which knobs can act on a row of the ledger, by the kernel's rules.
//!
//! - Periodic write-back takes inodes that have been dirty for longer than
//!   `dirty_expire` (fs/fs-writeback.c), and looks every `dirty_writeback`.
//! - Background write-back runs while more is dirty than the background
//!   threshold, whatever its age (mm/page-writeback.c).
//! - Writers are slowed from midway between both thresholds; it is then that
//!   the limit decides how much is written in the background.
//! - `commit=` acts on commits of the timer, on data that these must write
//!   first, and on metadata in place, which may be written only once a commit
//!   let it go. Commits that are forced let go the same metadata.
//! - Nothing of this acts on what a call waits for.

use super::{
    evidence::{Device, Row},
    lever::Lever,
};

/// What of a device decides which knobs reach a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// The timer caused a commit.
    pub timers: bool,
    /// Writers may have been slowed: true unless samples say otherwise.
    pub slowed: bool,
}

impl Facts {
    /// From a device.
    pub fn of(device: &Device) -> Self {
        let in_rows = device.rows.iter().any(|row| row.trigger == "timer");
        let in_groups = device.commits().0 > 0;
        Self {
            timers: in_rows || in_groups,
            slowed: device.memory.is_none_or(|memory| {
                memory.dirty_max >= slowed_from(memory.background_min, memory.threshold_min)
            }),
        }
    }
}

/// How much must be dirty for writers to be slowed, in bytes.
pub fn slowed_from(background: u64, threshold: u64) -> u64 {
    u64::midpoint(background, threshold)
}

/// What can act on a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// These knobs; none of them where it is empty.
    Known(Vec<Lever>),
    /// It is not known what the row is.
    Unknown,
}

/// The knobs that can act on a row.
pub fn of(row: &Row, facts: Facts) -> Reach {
    let with = |list: &[(Lever, bool)]| {
        let acting = list.iter().filter(|(_, acts)| *acts);
        Reach::Known(acting.map(|(lever, _)| *lever).collect())
    };
    let metadata = row.path == "metadata";
    match (row.path.as_str(), row.trigger.as_str()) {
        ("journal" | "ordered", "timer") => with(&[(Lever::Commit, true)]),
        // Of commits that had not ended, or whose cause was not seen.
        ("journal" | "ordered", "unknown") if facts.timers => with(&[(Lever::Commit, true)]),
        ("journal" | "ordered" | "metadata" | "writeback", "unknown")
        | ("other" | "unattributed" | "in_flight_before", _) => Reach::Unknown,
        ("writeback" | "metadata" | "raw", "periodic") => with(&[
            (Lever::Commit, metadata && facts.timers),
            (Lever::Expire, true),
            (Lever::Writeback, true),
        ]),
        ("writeback" | "metadata" | "raw", "background") => with(&[
            (Lever::Commit, metadata && facts.timers),
            (Lever::Background, true),
            (Lever::Limit, facts.slowed),
        ]),
        // The log filled up: fewer commits of the timer would fill it later.
        ("metadata", "checkpoint") => with(&[(Lever::Commit, facts.timers)]),
        _ => with(&[]),
    }
}

/// Whether a path is of the journal: write-back that allocates blocks dirties
/// metadata, which whatever commit comes next then logs.
pub fn in_journal(path: &str) -> bool {
    matches!(path, "journal" | "ordered")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::evidence::Memory;

    fn row(path: &str, trigger: &str) -> Row {
        Row {
            path: path.to_owned(),
            trigger: trigger.to_owned(),
            sectors: 8,
            by: Vec::new(),
        }
    }

    const TIMERS: Facts = Facts {
        timers: true,
        slowed: true,
    };
    const NONE: Facts = Facts {
        timers: false,
        slowed: false,
    };

    fn known(path: &str, trigger: &str, facts: Facts) -> Vec<Lever> {
        match of(&row(path, trigger), facts) {
            Reach::Known(knobs) => knobs,
            Reach::Unknown => panic!("{path} {trigger} is not known"),
        }
    }

    #[test]
    fn each_knob_has_its_rows() {
        use Lever::{Background, Commit, Expire, Limit, Writeback};
        assert_eq!(known("journal", "timer", TIMERS), [Commit]);
        assert_eq!(known("ordered", "timer", TIMERS), [Commit]);
        assert_eq!(known("writeback", "periodic", TIMERS), [Expire, Writeback]);
        assert_eq!(
            known("metadata", "periodic", TIMERS),
            [Commit, Expire, Writeback]
        );
        assert_eq!(known("metadata", "periodic", NONE), [Expire, Writeback]);
        assert_eq!(
            known("writeback", "background", TIMERS),
            [Background, Limit]
        );
        assert_eq!(known("writeback", "background", NONE), [Background]);
        assert_eq!(known("metadata", "checkpoint", NONE), []);
    }

    #[test]
    fn what_a_call_waits_for_is_out_of_reach() {
        for (path, trigger) in [
            ("journal", "fsync"),
            ("journal", "space"),
            ("journal", "fast-commit"),
            ("ordered", "sync"),
            ("fsync", "fsync"),
            ("fsync", "sync-write"),
            ("forced", "close"),
            ("forced", "rename"),
            ("direct", "pwrite64"),
            ("writeback", "sync"),
            ("writeback", "vmscan"),
            ("metadata", "sync"),
            ("metadata", "umount"),
            ("swap", "reclaim"),
            ("fs", "lazy-init"),
            ("raw", "write"),
        ] {
            assert_eq!(known(path, trigger, TIMERS), [], "{path} {trigger}");
        }
        assert_eq!(of(&row("unattributed", "unknown"), TIMERS), Reach::Unknown);
        assert_eq!(of(&row("journal", "unknown"), NONE), Reach::Unknown);
    }

    #[test]
    fn samples_tell_whether_writers_were_slowed() {
        let mut device = Device::default();
        assert!(Facts::of(&device).slowed, "not known: it may be");
        device.memory = Some(Memory {
            samples: 9,
            dirty_max: 140,
            background_min: 100,
            threshold_min: 200,
        });
        assert!(!Facts::of(&device).slowed);
        device.memory.as_mut().unwrap().dirty_max = 150;
        assert!(Facts::of(&device).slowed);
    }
}
