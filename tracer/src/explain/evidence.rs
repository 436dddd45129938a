//! What is known of a run, whatever file it came from.

use super::rewrites::Writes;
use crate::profile::{Knob, Values};
use std::collections::BTreeMap;

/// What kind of file it came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The output of `writepath trace --json`.
    Trace,
    /// The result of an experiment.
    Experiment,
    /// A recording.
    Recording,
}

impl Source {
    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Experiment => "experiment",
            Self::Recording => "recording",
        }
    }
}

/// All that a file says.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    /// Where it came from.
    pub source: Source,
    /// Release of the kernel.
    pub kernel: String,
    /// The traced disks; of an experiment, the disk under its first profile.
    pub devices: Vec<Device>,
    /// What other profiles did, in an experiment.
    pub profiles: Vec<Profile>,
    /// Name of the first profile, which `devices` is about.
    pub base: Option<String>,
    /// Writes of a recording, where it kept them.
    pub writes: Option<Writes>,
}

/// One row of `paths`.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The path's word.
    pub path: String,
    /// The trigger's word.
    pub trigger: String,
    /// Sectors of 512 bytes.
    pub sectors: u64,
    /// Who triggered it, largest first: name and system call.
    pub by: Vec<(Option<String>, Option<String>)>,
}

/// Commits with one trigger, by one process on one file.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// The trigger's word.
    pub trigger: String,
    /// Name of the process.
    pub by: Option<String>,
    /// Its system call.
    pub call: Option<String>,
    /// The file that was synced.
    pub file: Option<String>,
    /// Commits.
    pub count: u64,
    /// Sectors in the journal's place.
    pub sectors: u64,
}

/// One commit.
#[derive(Debug, Clone, PartialEq)]
pub struct Commit {
    /// The filesystem.
    pub fs_dev: String,
    /// The trigger's word.
    pub trigger: String,
    /// Name of the process.
    pub by: Option<String>,
    /// The file that was synced.
    pub file: Option<String>,
    /// Seconds from the start to its start.
    pub t_s: f64,
    /// Seconds that the transaction had been open.
    pub age_s: f64,
    /// Sectors in the journal's place.
    pub sectors: u64,
    /// Sectors of file data forced first.
    pub ordered: u64,
}

/// Whether a commit came because `commit=` was over, or may have.
pub fn is_timer(trigger: &str) -> bool {
    matches!(trigger, "timer" | "unknown")
}

/// The machine's page cache over the run, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Memory {
    /// Samples.
    pub samples: u64,
    /// Most that was dirty.
    pub dirty_max: u64,
    /// Least that the flusher's threshold was.
    pub background_min: u64,
    /// Least that the threshold was that writers are slowed at.
    pub threshold_min: u64,
}

/// A disk over a run, or over all blocks of a profile.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Device {
    /// Name in /sys/block.
    pub name: String,
    /// `major:minor`
    pub dev: String,
    /// Seconds that it was watched.
    pub duration_s: f64,
    /// Sectors written, by stat.
    pub sectors_written: u64,
    /// What the ledger left over.
    pub residual: i64,
    /// Rows by path and trigger.
    pub rows: Vec<Row>,
    /// Sectors of each path by file.
    pub files: BTreeMap<String, BTreeMap<String, u64>>,
    /// Commits, grouped.
    pub groups: Vec<Group>,
    /// Commits one by one, of each watched stretch; none where not kept.
    pub lists: Option<Vec<Vec<Commit>>>,
    /// Knobs in force, in their own units.
    pub knobs: Values,
    /// Knobs that differ between filesystems of the disk.
    pub ambiguous: Vec<Knob>,
    /// The page cache.
    pub memory: Option<Memory>,
    /// Sectors of write-back by age: least age in seconds.
    pub ages: Vec<(f64, u64)>,
    /// Still dirty at the end, in bytes.
    pub still_dirty: Option<u64>,
    /// Filters of the trace: rows are missing for them.
    pub filters: Vec<String>,
    /// What the tracer noted.
    pub notes: Vec<String>,
}

impl Device {
    /// Adds another stretch of the same disk.
    pub fn absorb(&mut self, other: Self) {
        self.duration_s += other.duration_s;
        self.sectors_written = self.sectors_written.saturating_add(other.sectors_written);
        self.residual = self.residual.saturating_add(other.residual);
        for row in other.rows {
            let same = |own: &&mut Row| own.path == row.path && own.trigger == row.trigger;
            match self.rows.iter_mut().find(same) {
                Some(own) => own.sectors = own.sectors.saturating_add(row.sectors),
                None => self.rows.push(row),
            }
        }
        for (path, files) in other.files {
            let own = self.files.entry(path).or_default();
            for (file, sectors) in files {
                let sum = own.entry(file).or_default();
                *sum = sum.saturating_add(sectors);
            }
        }
        for group in other.groups {
            let same = |own: &&mut Group| {
                (&own.trigger, &own.by, &own.call, &own.file)
                    == (&group.trigger, &group.by, &group.call, &group.file)
            };
            match self.groups.iter_mut().find(same) {
                Some(own) => {
                    own.count = own.count.saturating_add(group.count);
                    own.sectors = own.sectors.saturating_add(group.sectors);
                }
                None => self.groups.push(group),
            }
        }
        self.lists = match (self.lists.take(), other.lists) {
            (Some(mut own), Some(more)) => {
                own.extend(more);
                Some(own)
            }
            _ => None,
        };
        if let (Some(own), Some(more)) = (&mut self.memory, other.memory) {
            own.samples = own.samples.saturating_add(more.samples);
            own.dirty_max = own.dirty_max.max(more.dirty_max);
            own.background_min = own.background_min.min(more.background_min);
            own.threshold_min = own.threshold_min.min(more.threshold_min);
        }
        self.ages.extend(other.ages);
        self.notes.extend(other.notes);
        self.notes.dedup();
    }

    /// Sectors of a path, whatever the trigger.
    pub fn of_path(&self, path: &str) -> u64 {
        let rows = self.rows.iter().filter(|row| row.path == path);
        rows.fold(0, |sum, row| sum.saturating_add(row.sectors))
    }

    /// Commits that the timer caused (or may have), and all others.
    pub fn commits(&self) -> (u64, u64) {
        let none: (u64, u64) = (0, 0);
        self.groups.iter().fold(none, |(timer, forced), group| {
            if is_timer(&group.trigger) {
                (timer.saturating_add(group.count), forced)
            } else {
                (timer, forced.saturating_add(group.count))
            }
        })
    }
}

/// What one profile of an experiment did.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// Knobs that it set to another value than the first profile.
    pub changed: Values,
    /// Sectors a second, of each block.
    pub rates: Vec<f64>,
    /// Sectors a second of the first profile, of each block.
    pub base_rates: Vec<f64>,
    /// All its blocks.
    pub device: Device,
}
