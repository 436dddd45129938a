//! The ledger of a run, ready to be shown.

use super::path::{Class, Op, Path};

/// A process as a row names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessName {
    /// Process id; none for what has no process.
    pub pid: Option<u32>,
    /// Its name; empty where it is not known.
    pub comm: Vec<u8>,
}

/// Who triggered a part of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct By {
    /// The process.
    pub process: ProcessName,
    /// Its system call.
    pub call: Option<&'static str>,
    /// Sectors.
    pub sectors: u64,
}

/// One row of `paths`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathRow {
    /// The path.
    pub path: Path,
    /// Its trigger, as a word.
    pub trigger: String,
    /// What was done.
    pub op: Op,
    /// Sectors.
    pub sectors: u64,
    /// Bios.
    pub bios: u64,
    /// Who triggered it, largest first.
    pub by: Vec<By>,
}

/// Sectors of one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathSectors {
    /// The path.
    pub path: Path,
    /// Sectors.
    pub sectors: u64,
}

/// Sectors of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessSectors {
    /// The process.
    pub process: ProcessName,
    /// Sectors.
    pub sectors: u64,
}

/// One row of `files`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRow {
    /// Path from the root of its filesystem; none for what is no file, or has
    /// no known name.
    pub file: Option<Vec<u8>>,
    /// What it is, where it is no file.
    pub of: Option<&'static str>,
    /// It was deleted during the run.
    pub deleted: bool,
    /// Inode number.
    pub ino: Option<u64>,
    /// Device of the filesystem (`major:minor`).
    pub fs_dev: Option<String>,
    /// Sectors.
    pub sectors: u64,
    /// By path, largest first.
    pub paths: Vec<PathSectors>,
    /// Who dirtied it, largest first.
    pub dirtiers: Vec<ProcessSectors>,
}

/// One row of `dirtiers`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirtierRow {
    /// The process.
    pub process: ProcessName,
    /// What it is, where it is no process.
    pub of: Option<&'static str>,
    /// Its cgroup.
    pub cgroup: Option<Vec<u8>>,
    /// In the tree of the traced command.
    pub in_command: bool,
    /// It had ended at the end of the run.
    pub exited: bool,
    /// Sectors.
    pub sectors: u64,
    /// By path, largest first.
    pub paths: Vec<PathSectors>,
}

/// Age of data when it was submitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgeRow {
    /// The path.
    pub path: Path,
    /// Half of the sectors were younger, in microseconds.
    pub median_us: u64,
    /// 99 % were younger.
    pub p99_us: u64,
    /// The oldest.
    pub max_us: u64,
    /// Sectors whose age is known.
    pub sectors: u64,
    /// Sectors by age: the least age of each bucket in microseconds.
    pub buckets: Vec<(u64, u64)>,
}

/// Flushes asked for, by path and trigger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlushRow {
    /// The path.
    pub path: Path,
    /// Its trigger, as a word.
    pub trigger: String,
    /// Flushes.
    pub count: u64,
}

/// Durations of commits, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Durations {
    /// Half were shorter.
    pub median_us: u64,
    /// The longest.
    pub max_us: u64,
}

/// Commits of one journal with one trigger, by one process on one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitGroup {
    /// Device of the filesystem (`major:minor`).
    pub fs_dev: String,
    /// Why.
    pub trigger: &'static str,
    /// Who.
    pub by: Option<ProcessName>,
    /// By which call.
    pub call: Option<&'static str>,
    /// On which file.
    pub file: Option<Vec<u8>>,
    /// How many.
    pub count: u64,
    /// Handles.
    pub handles: u64,
    /// Blocks that handles dirtied.
    pub blocks: u64,
    /// Blocks logged.
    pub blocks_logged: u64,
    /// Sectors in the journal's place.
    pub sectors: u64,
    /// Sectors of file data forced first.
    pub ordered_sectors: u64,
    /// From start to end.
    pub duration: Durations,
}

/// One commit.
#[derive(Debug, Clone, PartialEq)]
pub struct CommitRow {
    /// Device of the filesystem (`major:minor`).
    pub fs_dev: String,
    /// Transaction; 0 for a fast commit.
    pub tid: u32,
    /// Why.
    pub trigger: &'static str,
    /// Who.
    pub by: Option<ProcessName>,
    /// By which call.
    pub call: Option<&'static str>,
    /// On which file.
    pub file: Option<Vec<u8>>,
    /// Seconds from the start of the run to the start of the commit.
    pub t_s: f64,
    /// Time that the transaction had been open.
    pub age_us: u64,
    /// Waiting for handles to end.
    pub locked_us: Option<u64>,
    /// Writing ordered data.
    pub flushing_us: Option<u64>,
    /// Writing the log.
    pub logging_us: Option<u64>,
    /// From start to end.
    pub duration_us: u64,
    /// Handles.
    pub handles: u32,
    /// Blocks that handles dirtied.
    pub blocks: u32,
    /// Blocks logged.
    pub blocks_logged: u32,
    /// Sectors in the journal's place.
    pub sectors: u64,
    /// Sectors of file data forced first.
    pub ordered_sectors: u64,
}

/// A knob of write-back and its value at the end of the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnobValue {
    /// `vm.dirty_expire_centisecs` and its like, or `commit`.
    pub knob: &'static str,
    /// Its value, in the knob's own unit.
    pub value: u64,
    /// The filesystem (`major:minor`) that it is a mount option of.
    pub fs_dev: Option<String>,
}

/// The machine's page cache over a run, from samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Memory {
    /// Samples taken.
    pub samples: u64,
    /// Most that was dirty, in bytes.
    pub dirty_bytes_max: u64,
    /// Least that the flusher's threshold was, in bytes.
    pub background_bytes_min: u64,
    /// Least that the threshold was that writers are slowed at, in bytes.
    pub threshold_bytes_min: u64,
}

impl Memory {
    /// Takes another sample.
    pub fn add(&mut self, dirty: u64, background: u64, threshold: u64) {
        let first = self.samples == 0;
        let least = |before: u64, now: u64| if first { now } else { before.min(now) };
        self.dirty_bytes_max = self.dirty_bytes_max.max(dirty);
        self.background_bytes_min = least(self.background_bytes_min, background);
        self.threshold_bytes_min = least(self.threshold_bytes_min, threshold);
        self.samples += 1;
    }
}

/// The ledger of one device.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DeviceLedger {
    /// Name in /sys/block.
    pub name: String,
    /// `major:minor`.
    pub dev: String,
    /// Change of sectors written in stat.
    pub sectors_written: u64,
    /// Sectors with a known path.
    pub sectors_attributed: u64,
    /// Sectors without one, those in flight before among them.
    pub sectors_unattributed: u64,
    /// Sectors submitted before the probes were on.
    pub in_flight_before: u64,
    /// What is left of the equation.
    pub residual: i64,
    /// Sectors whose completion no program saw; part of their rows.
    pub sectors_unseen: u64,
    /// Completions that passed while stat was read at an edge; 0 exact.
    pub edge_completions: u64,
    /// Sectors written as zeroes; part of sectors written.
    pub sectors_zeroed: u64,
    /// Sectors discarded; beside the ledger.
    pub sectors_discarded: u64,
    /// Flushes that bios asked for.
    pub flushes_requested: u64,
    /// Flushes that the device did, by stat.
    pub flushes_done: u64,
    /// Completions with an error.
    pub failed: u64,
    /// Sectors of those.
    pub sectors_failed: u64,
    /// Page cache that the device has not got yet, in bytes.
    pub still_dirty_bytes: Option<u64>,
    /// How far that may be off: the kernel keeps it in batches per CPU.
    pub still_dirty_error_bytes: Option<u64>,
    /// Seconds until it would have it at this run's rate.
    pub drain_eta_s: Option<f64>,
    /// Why `still_dirty_bytes` is missing.
    pub still_dirty_missing: Option<String>,
    /// The device vanished during the run.
    pub vanished: bool,
    /// By path, trigger and op.
    pub paths: Vec<PathRow>,
    /// By file.
    pub files: Vec<FileRow>,
    /// By dirtier.
    pub dirtiers: Vec<DirtierRow>,
    /// Ages of data.
    pub ages: Vec<AgeRow>,
    /// Flushes by path and trigger.
    pub flush_requests: Vec<FlushRow>,
    /// Commits, grouped.
    pub commits: Vec<CommitGroup>,
    /// Commits, one by one, where asked for.
    pub commit_list: Option<Vec<CommitRow>>,
    /// Knobs of write-back in force.
    pub knobs: Vec<KnobValue>,
    /// The machine's page cache, where it can be read.
    pub memory: Option<Memory>,
    /// What this device's filesystems keep from the tracer.
    pub notes: Vec<String>,
}

impl DeviceLedger {
    /// Sectors of a class.
    pub fn of_class(&self, class: Class) -> u64 {
        let rows = self.paths.iter().filter(|row| row.path.class() == class);
        rows.map(|row| row.sectors).sum()
    }
}

/// What was lost on the way.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lost {
    /// Records that did not fit the ring.
    pub ring: u64,
    /// Records offered to it.
    pub ring_offered: u64,
    /// Entries that did not fit a map, by map.
    pub maps: Vec<(&'static str, u64)>,
    /// Records that could not be read.
    pub undecoded: u64,
    /// Hooks that are not attached, and what is lost for it.
    pub hooks: Vec<(String, String)>,
}

impl Lost {
    /// Entries lost over all maps.
    pub fn in_maps(&self) -> u64 {
        self.maps.iter().map(|(_, count)| count).sum()
    }
}

/// A run, or one interval of it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Run {
    /// The kernel's release.
    pub kernel: String,
    /// Seconds since the epoch when it began.
    pub started_at: u64,
    /// Seconds.
    pub duration_s: f64,
    /// What was lost.
    pub lost: Lost,
    /// Filters that acted on rows.
    pub filters: Vec<String>,
    /// The traced command: what it was and how it ended.
    pub command: Option<CommandEnd>,
    /// One for each device.
    pub devices: Vec<DeviceLedger>,
}

/// How the traced command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandEnd {
    /// Its first word.
    pub program: String,
    /// Exit code.
    pub code: Option<i32>,
    /// Signal that ended it.
    pub signal: Option<i32>,
}
