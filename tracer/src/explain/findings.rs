//! What an explanation says, as values.

use super::{evidence::Source, lever::Lever};
use crate::profile::{Knob, Value};

/// The explanation of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    /// What it was made from.
    pub source: Source,
    /// Release of the kernel.
    pub kernel: String,
    /// The profile that it is about, in an experiment.
    pub profile: Option<String>,
    /// One for each disk.
    pub devices: Vec<DeviceFindings>,
}

/// The explanation of one disk.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceFindings {
    /// Name in /sys/block.
    pub name: String,
    /// `major:minor`
    pub dev: String,
    /// Seconds that it was watched.
    pub duration_s: f64,
    /// Sectors written.
    pub sectors_written: u64,
    /// All sectors, each in exactly one part; largest first.
    pub parts: Vec<Part>,
    /// One for each knob.
    pub findings: Vec<Finding>,
    /// Sectors that none of the knobs can act on.
    pub out_of_reach: u64,
    /// Sectors of which it is not known who could act on them.
    pub not_known: u64,
    /// One sentence on the whole.
    pub sentence: String,
    /// What an experiment measured and the ceilings forbid.
    pub contradictions: Vec<String>,
    /// What limits all this.
    pub notes: Vec<String>,
}

/// Sectors that came by one path for one reason.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// The path's word.
    pub path: String,
    /// The trigger's word.
    pub trigger: String,
    /// Sectors of 512 bytes.
    pub sectors: u64,
    /// Share of all in tenths of a percent; they add up to 1000.
    pub tenths: u64,
    /// What can act on them.
    pub levers: Vec<Lever>,
    /// Whether it is known what they are.
    pub known: bool,
    /// Why they were written then.
    pub why: String,
    /// Who caused most of them.
    pub by: Option<String>,
    /// On which file.
    pub file: Option<String>,
    /// How often, in seconds, where that is regular.
    pub every_s: Option<f64>,
}

/// What one knob can do.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// The knob or pair.
    pub lever: Lever,
    /// Its member in force.
    pub knob: Knob,
    /// Its value; none where it is not known.
    pub value: Option<Value>,
    /// Sectors that it can act on at all.
    pub ceiling: u64,
    /// Sectors of the journal that the writes which it acts on may have caused
    /// (blocks that they allocate), beside the ceiling.
    pub indirect: u64,
    /// Sectors whose wait this knob decided, for the two times of periodic
    /// write-back; none where it cannot be told.
    pub decided: Option<u64>,
    /// The value above which it cannot act any further.
    pub saturates_at: Option<Value>,
    /// Ceilings of values.
    pub named: Vec<Named>,
    /// What an experiment measured.
    pub measured: Vec<Measured>,
    /// A sentence for a bug report.
    pub sentence: String,
}

/// The ceiling of one value.
#[derive(Debug, Clone, PartialEq)]
pub struct Named {
    /// The knob.
    pub knob: Knob,
    /// The value.
    pub value: Value,
    /// Whether the user asked for it; else it is twice the value in force.
    pub asked: bool,
    /// Sectors that it saves at most.
    pub ceiling: u64,
    /// Sectors of file data that it would have saved of the recorded writes.
    pub estimate: Option<u64>,
    /// Why.
    pub why: String,
}

/// What a profile of an experiment changed.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// The profile.
    pub profile: String,
    /// This knob's value in it.
    pub value: Value,
    /// Whether it is the only knob that the profile changed.
    pub alone: bool,
    /// Blocks of the profile and of the first one.
    pub blocks: (usize, usize),
    /// Change of sectors a second against the first profile, as a share.
    pub change: f64,
    /// Its 95 % interval; none with fewer than two blocks of either.
    pub interval: Option<(f64, f64)>,
    /// What the profile's knobs can act on together, in sectors.
    pub ceiling: u64,
    /// Whether more was saved than the ceiling.
    pub contradicts: bool,
}
