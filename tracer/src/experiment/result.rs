//! What an experiment leaves: `result.json`, schema `writepath.experiment/1`,
//! documented in docs/json.md.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The schema.
pub const SCHEMA: &str = "writepath.experiment/1";

/// All of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Experiment {
    /// [`SCHEMA`].
    pub schema: String,
    /// Name of the experiment.
    pub name: String,
    /// Release of the kernel.
    pub kernel: String,
    /// What it ran on.
    pub machine: Machine,
    /// RFC 3339, UTC.
    pub started_at: String,
    /// Of the order of blocks and of the workload.
    pub seed: u64,
    /// What every time was divided by.
    pub time_scale: u32,
    /// Cycles of expiry and interval in a block.
    pub cycles: u32,
    /// Memory that ratios were turned into bytes of; null: as they are.
    pub as_ram_bytes: Option<u64>,
    /// The emulated device; null for none.
    pub emulate: Option<Emulated>,
    /// Endurance for the years, in GiB.
    pub tbw_gib: f64,
    /// The workload.
    pub workload: Workload,
    /// Profiles in the order asked for; changes are against the first.
    pub profiles: Vec<Used>,
    /// Blocks in the order they ran.
    pub blocks: Vec<Block>,
    /// Blocks that were planned.
    pub planned: usize,
}

/// A machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Machine {
    /// Architecture.
    pub arch: String,
    /// CPUs.
    pub cpus: usize,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Device: its name in /sys/block.
    pub device: String,
}

/// An emulated device.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Emulated {
    /// Bytes a second (MB are 10^6).
    pub bytes_per_s: u64,
    /// Writes a second; null for no limit.
    pub iops: Option<u64>,
}

/// The workload of an experiment.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Workload {
    /// Its name.
    pub name: String,
    /// Where in a file updates go.
    pub place: String,
    /// Data files.
    pub files: u32,
    /// Size of each, in KiB.
    pub file_kib: u64,
    /// Threads.
    pub threads: u32,
    /// Period in seconds, scaled.
    pub period_s: f64,
    /// Its own account, `writepath.workload/1`; null until it has ended.
    pub account: Option<serde_json::Value>,
}

/// A profile as it was applied.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Used {
    /// Name.
    pub name: String,
    /// Values by knob, scaled.
    pub knobs: BTreeMap<String, u64>,
    /// Values by knob, as written in the profile.
    pub nominal: BTreeMap<String, u64>,
}

/// A block.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Block {
    /// Name of its profile.
    pub profile: String,
    /// Its place in the order, from 0.
    pub order: usize,
    /// Seconds that settled before it.
    pub settle_s: f64,
    /// Its length in seconds, by the readings of stat.
    pub duration_s: f64,
    /// Sectors written, by stat.
    pub sectors: u64,
    /// MiB a minute.
    pub mib_per_min: f64,
    /// Carried in: dirty when it began; null when not known.
    pub dirty_before_bytes: Option<u64>,
    /// Carried out: dirty when it ended.
    pub dirty_after_bytes: Option<u64>,
    /// Contiguous windows, to be drawn.
    pub windows: Vec<Window>,
    /// Samples, one a second, JSON lines, in the same directory.
    pub samples_file: String,
    /// What was lost on the way to the ledger.
    #[serde(default)]
    pub lost: Losses,
    /// The device of the block's `writepath.trace/1`, with commits.
    pub trace: serde_json::Value,
}

/// Losses of a block, over all its devices.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Losses {
    /// Records that did not fit the ring buffer.
    pub ring: u64,
    /// Entries that did not fit a map.
    pub maps: u64,
}

/// A window of a block.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Window {
    /// Its end, seconds from the block's begin.
    pub t_s: f64,
    /// Sectors written in it, by stat.
    pub sectors: u64,
}

/// A sample of the page cache: a line of a samples file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds from the begin of the settling.
    pub t_s: f64,
    /// Whether the block had begun.
    pub settled: bool,
    /// `nr_dirty`, of the machine.
    pub dirty_bytes: u64,
    /// `nr_writeback`.
    pub writeback_bytes: u64,
    /// Above it the flusher runs.
    pub background_bytes: u64,
    /// Above it writers are slowed.
    pub threshold_bytes: u64,
    /// Sectors by path since settling or block began.
    pub sectors: BTreeMap<String, u64>,
}

impl Experiment {
    /// Rates of the finished blocks of a profile, MiB a minute.
    pub fn rates(&self, profile: &str) -> Vec<f64> {
        self.of(profile).map(|block| block.mib_per_min).collect()
    }

    /// The same as of full scale: a scaled experiment writes its periods as
    /// many times as fast.
    pub fn full_scale_rates(&self, profile: &str) -> Vec<f64> {
        let scale = f64::from(self.time_scale.max(1));
        let rates = self.rates(profile).into_iter();
        rates.map(|rate| rate / scale).collect()
    }

    /// The blocks of a profile.
    pub fn of<'a>(&'a self, profile: &'a str) -> impl Iterator<Item = &'a Block> {
        self.blocks
            .iter()
            .filter(move |block| block.profile == profile)
    }

    /// Whether every number is one that a run could have given.
    pub fn is_plausible(&self) -> bool {
        let within = |value: f64| (0.0..1e9).contains(&value);
        (1..=1_000_000).contains(&self.time_scale)
            && within(self.tbw_gib)
            && within(self.workload.period_s)
            && self
                .blocks
                .iter()
                .all(|block| within(block.mib_per_min) && within(block.duration_s))
    }

    /// Sectors a minute by path and trigger, mean of a profile's blocks.
    pub fn by_path(&self, profile: &str) -> BTreeMap<(String, String), f64> {
        let mut sums: BTreeMap<(String, String), f64> = BTreeMap::new();
        let mut minutes = 0.0;
        for block in self.of(profile) {
            minutes += block.duration_s / 60.0;
            for row in block.trace["paths"].as_array().into_iter().flatten() {
                let word = |key: &str| row[key].as_str().unwrap_or("?").to_owned();
                let sectors = row["sectors"].as_u64().unwrap_or_default();
                *sums.entry((word("path"), word("trigger"))).or_default() += sectors as f64;
            }
        }
        if minutes > 0.0 {
            for sum in sums.values_mut() {
                *sum /= minutes;
            }
        }
        sums
    }
}
