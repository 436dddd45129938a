//! What a recording holds, event by event, as its reader hands it out.
//!
//! Times are nanoseconds from the start of the recording. Filesystems and
//! disks are named by device number in the kernel's form (`major << 20 |
//! minor`), which [`super::start::Start`] spells out.

use crate::model::{path::Path, trigger::CommitTrigger};

/// An event and when it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Nanoseconds from the start, in steps of the recording's tick (4 ms);
    /// of a commit it is its end.
    pub t_ns: u64,
    /// What happened.
    pub what: What,
}

/// A stretch of a file that became dirty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dirtied {
    /// Device of the filesystem.
    pub fs: u32,
    /// Inode number.
    pub ino: u64,
    /// First block of the file, in blocks of the filesystem.
    pub first: u64,
    /// Last block, inclusive.
    pub last: u64,
    /// Process that did it.
    pub pid: u32,
}

/// What happened. Kinds marked *writes* are there with `--writes` only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// Name of an inode, when it was first heard of. A number that is used
    /// again after [`What::Freed`] gets a name anew.
    Name {
        /// Device of the filesystem.
        fs: u32,
        /// Inode number; 0 is the block device itself.
        ino: u64,
        /// Path from the root of the filesystem, or its end.
        name: Vec<u8>,
        /// Whether the path begins at the root.
        whole: bool,
    },
    /// Name of a process, when it was first heard of or has changed.
    Process {
        /// Process id.
        pid: u32,
        /// Its name.
        comm: Vec<u8>,
    },
    /// An inode was freed: its file is deleted.
    Freed {
        /// Device of the filesystem.
        fs: u32,
        /// Inode number.
        ino: u64,
    },
    /// A journal commit ended.
    Commit(Box<CommitEvent>),
    /// State of the whole machine's page cache.
    Memory(Memory),
    /// Sectors that a disk wrote by one path since the sample before.
    Sectors {
        /// The disk.
        disk: u32,
        /// The path.
        path: Path,
        /// Sectors of 512 bytes.
        sectors: u64,
    },
    /// *writes*: a buffered write, or the part of one that fell into a folio.
    Write(Dirtied),
    /// *writes*: a store into a clean page of a file mapping; the kernel then
    /// counts the whole folio as dirty. Later stores into it are not seen.
    Store(Dirtied),
    /// *writes*: an inode's metadata became dirty.
    Touch {
        /// Device of the filesystem.
        fs: u32,
        /// Inode number.
        ino: u64,
    },
    /// *writes*: a call that syncs one file began.
    Sync {
        /// Device of the filesystem.
        fs: u32,
        /// Inode number.
        ino: u64,
        /// Process that called.
        pid: u32,
        /// fdatasync and its like.
        data_only: bool,
    },
    /// *writes*: sync, syncfs, umount, freeze or remount reached a filesystem.
    SyncFs {
        /// Device of the filesystem.
        fs: u32,
        /// Process that called.
        pid: u32,
    },
    /// *writes*: dirty pages of an inode were submitted.
    Flush {
        /// Device of the filesystem.
        fs: u32,
        /// Inode number.
        ino: u64,
        /// By which path: `writeback`, `fsync`, `ordered` or `forced`.
        path: Path,
        /// Why: the number of the flusher's reason ([`super::start::Start`]
        /// has their names) for `writeback`, of the system call for `fsync`
        /// and `forced`, 0 for `ordered`.
        code: u16,
        /// Pages of memory (4 KiB on most machines).
        pages: u64,
    },
    /// *writes*: a file is cut.
    Truncate {
        /// Device of the filesystem.
        fs: u32,
        /// Inode number.
        ino: u64,
        /// Its new size in bytes; none where the kernel does not tell.
        size: Option<u64>,
    },
    /// *writes*: an inode without a name left memory: what was dirty of it
    /// will never be written.
    Evict {
        /// Device of the filesystem.
        fs: u32,
        /// Inode number.
        ino: u64,
    },
    /// *writes*: the flusher began a round.
    Wake {
        /// The disk.
        disk: u32,
        /// Number of its reason.
        reason: u16,
    },
    /// Events of a kind were lost since the event before of this sort.
    Lost {
        /// Of which kind.
        kind: Kind,
        /// How many.
        count: u64,
    },
    /// The budget is used up: from here on nothing of *writes* is kept.
    Full,
}

/// A commit; times are nanoseconds from the start, none where not seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitEvent {
    /// Device of the filesystem.
    pub fs: u32,
    /// Transaction; 0 for a fast commit.
    pub tid: u32,
    /// The transaction was opened (in the kernel's ticks).
    pub opened_ns: u64,
    /// The commit began.
    pub start_ns: u64,
    /// It waited for handles to end.
    pub locking_ns: Option<u64>,
    /// It wrote ordered data.
    pub flushing_ns: Option<u64>,
    /// It wrote the log.
    pub logging_ns: Option<u64>,
    /// It ended.
    pub end_ns: u64,
    /// Handles.
    pub handles: u32,
    /// Blocks that handles dirtied.
    pub blocks: u32,
    /// Blocks logged, with descriptors and commit block.
    pub blocks_logged: u32,
    /// Why.
    pub trigger: CommitTrigger,
    /// Process that caused it, 0 for none.
    pub pid: u32,
    /// System call, or `CALL_NONE`.
    pub call: u16,
    /// Inode that was synced, 0 for none.
    pub ino: u64,
}

/// State of the page cache, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Memory {
    /// Dirty, not yet submitted (`nr_dirty`).
    pub dirty: u64,
    /// Submitted, not yet completed (`nr_writeback`).
    pub writeback: u64,
    /// Above it writers are slowed (`nr_dirty_threshold`).
    pub threshold: u64,
    /// Above it the flusher runs (`nr_dirty_background_threshold`).
    pub background: u64,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $code:literal $word:literal),+ $(,)?) => {
        /// The kinds of [`What`], with the numbers of the file.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Kind { $($(#[$doc])* $name = $code),+ }

        impl Kind {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// From the file.
            pub fn from_code(code: u8) -> Option<Self> {
                match code { $($code => Some(Self::$name),)+ _ => None }
            }

            /// Its word.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $word),+ }
            }
        }
    };
}

kinds! {
    /// [`What::Name`]
    Name = 1 "name",
    /// [`What::Process`]
    Process = 2 "process",
    /// [`What::Freed`]
    Freed = 3 "freed",
    /// [`What::Commit`]
    Commit = 4 "commit",
    /// [`What::Memory`]
    Memory = 5 "memory",
    /// [`What::Sectors`]
    Sectors = 6 "sectors",
    /// [`What::Lost`]
    Lost = 7 "lost",
    /// [`What::Full`]
    Full = 8 "full",
    /// [`What::Write`]
    Write = 16 "write",
    /// [`What::Store`]
    Store = 17 "store",
    /// [`What::Touch`]
    Touch = 18 "touch",
    /// [`What::Sync`]
    Sync = 19 "sync",
    /// [`What::SyncFs`]
    SyncFs = 20 "sync-fs",
    /// [`What::Flush`]
    Flush = 21 "flush",
    /// [`What::Truncate`]
    Truncate = 22 "truncate",
    /// [`What::Evict`]
    Evict = 23 "evict",
    /// [`What::Wake`]
    Wake = 24 "wake",
}

impl Kind {
    /// Whether it is there with `--writes` only.
    pub fn of_writes(self) -> bool {
        self as u8 >= Self::Write as u8
    }
}

impl What {
    /// Its kind.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Name { .. } => Kind::Name,
            Self::Process { .. } => Kind::Process,
            Self::Freed { .. } => Kind::Freed,
            Self::Commit(_) => Kind::Commit,
            Self::Memory(_) => Kind::Memory,
            Self::Sectors { .. } => Kind::Sectors,
            Self::Lost { .. } => Kind::Lost,
            Self::Full => Kind::Full,
            Self::Write(_) => Kind::Write,
            Self::Store(_) => Kind::Store,
            Self::Touch { .. } => Kind::Touch,
            Self::Sync { .. } => Kind::Sync,
            Self::SyncFs { .. } => Kind::SyncFs,
            Self::Flush { .. } => Kind::Flush,
            Self::Truncate { .. } => Kind::Truncate,
            Self::Evict { .. } => Kind::Evict,
            Self::Wake { .. } => Kind::Wake,
        }
    }
}
