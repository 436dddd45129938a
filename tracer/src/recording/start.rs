//! What a recording says of the machine when it began, as JSON text of
//! `writepath.start/1` (docs/recording.md).

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The schema of [`Start`].
pub const SCHEMA: &str = "writepath.start/1";

/// The machine when the recording began.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Start {
    /// [`SCHEMA`].
    pub schema: String,
    /// Release of the kernel.
    pub kernel: String,
    /// Hardware name, as `uname -m` has it.
    pub machine: String,
    /// Version of writepath that recorded.
    pub recorder: String,
    /// Ticks of the kernel's clock a second.
    pub hz: u64,
    /// Memory of the machine.
    pub memory_bytes: u64,
    /// Size of a page of memory.
    pub page_bytes: u64,
    /// Knobs by name (`vm.dirty_expire_centisecs`), as the kernel had them.
    pub knobs: BTreeMap<String, String>,
    /// Page cache that was dirty, and what is too much of it.
    pub dirty_bytes: u64,
    /// Submitted, not yet completed.
    pub writeback_bytes: u64,
    /// Above it writers are slowed.
    pub threshold_bytes: u64,
    /// Above it the flusher runs.
    pub background_bytes: u64,
    /// Names of the flusher's reasons, by number.
    pub reasons: BTreeMap<u64, String>,
    /// Names of system calls that events may carry, by number.
    pub calls: BTreeMap<u16, String>,
    /// The traced disks.
    pub devices: Vec<Device>,
    /// Whether `--writes` was asked for.
    pub writes: bool,
    /// Size of the file at which writes stop being kept; 0 for none.
    pub max_size_bytes: u64,
    /// Hooks of `--writes` that are not attached, and what is lost for it.
    pub lost_hooks: Vec<LostHook>,
    /// What the kernel does not tell of all this.
    pub missing: Vec<String>,
}

/// A traced disk.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Device {
    /// Name in /sys/block.
    pub name: String,
    /// `major:minor`.
    pub dev: String,
    /// Its page cache that was dirty; none where debugfs does not tell.
    pub dirty_bytes: Option<u64>,
    /// Its page cache on the way.
    pub writeback_bytes: Option<u64>,
    /// Inodes whose data or metadata was dirty already: how many, not which.
    pub dirty_inodes: Option<u64>,
    /// What is mounted from it and its partitions.
    pub filesystems: Vec<Filesystem>,
}

/// A mounted filesystem; what is none cannot be known.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Filesystem {
    /// `major:minor`, as events have it in the kernel's form.
    pub dev: String,
    /// Type.
    pub kind: String,
    /// Where it is mounted, lossy.
    pub mounted_on: Option<String>,
    /// Its options, as `/proc/fs/ext4/DEV/options` has them.
    pub options: Vec<String>,
    /// Seconds of `commit=`.
    pub commit_s: Option<u32>,
    /// `data=journal`.
    pub data_journal: bool,
    /// Size of a block.
    pub block_bytes: u64,
    /// Size of an inode on disk.
    pub inode_bytes: Option<u64>,
    /// Inodes of a block group.
    pub inodes_per_group: Option<u64>,
    /// Blocks of a block group.
    pub blocks_per_group: Option<u64>,
    /// Size of the journal.
    pub journal_bytes: Option<u64>,
}

/// A hook that is not attached.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LostHook {
    /// Its name.
    pub hook: String,
    /// What is lost for it.
    pub lost: String,
}
