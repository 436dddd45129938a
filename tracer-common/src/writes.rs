//! Records of what is dirtied and submitted, for recordings that are to hold
//! every write. They have a ring buffer of their own.

/// Kinds of [`WriteRecord::kind`], also the indices of their loss counters.
/// Recordings have the same numbers.
pub mod kept {
    /// A buffered write: `first` is its position, `second` its length, bytes.
    pub const WRITE: u32 = 16;
    /// A clean folio became dirty without a write: its first page, its pages.
    pub const STORE: u32 = 17;
    /// An inode's metadata became dirty.
    pub const TOUCH: u32 = 18;
    /// A call that syncs a file began: `code` is 1 for its data alone.
    pub const SYNC: u32 = 19;
    /// A sync of a filesystem began.
    pub const SYNC_FS: u32 = 20;
    /// Pages were submitted: `first` is their number, `second` the path,
    /// `code` the reason or system call.
    pub const FLUSH: u32 = 21;
    /// A file is cut: `first` is its new size, all ones where unknown.
    pub const TRUNCATE: u32 = 22;
    /// An inode without links left memory.
    pub const EVICT: u32 = 23;
    /// A round of the flusher began: `first` and `second` are the beginning
    /// of the disk's name, `major:minor`, and `code` is the reason.
    pub const WAKE: u32 = 24;
    /// Size of the array of loss counters.
    pub const COUNT: u32 = 32;
}

/// One record.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteRecord {
    /// One of [`kept`].
    pub kind: u32,
    /// Device number of the filesystem.
    pub dev: u32,
    /// Inode number.
    pub ino: u64,
    /// `CLOCK_MONOTONIC` nanoseconds.
    pub ns: u64,
    /// By kind.
    pub first: u64,
    /// By kind.
    pub second: u64,
    /// Process.
    pub pid: u32,
    /// By kind.
    pub code: u32,
}

const _: () = assert!(size_of::<WriteRecord>() == 48);
