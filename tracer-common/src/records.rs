//! Records of the ring buffer: what needs a time or a text.
//!
//! Each begins with its kind (u32) and its size in bytes (u32).

/// A file's name as the kernel's dentries have it.
pub const REC_NAME: u32 = 1;
/// A journal commit that ended.
pub const REC_COMMIT: u32 = 2;
/// An ext4 fast commit that ended.
pub const REC_FAST_COMMIT: u32 = 3;

/// An inode that was freed: its file is deleted.
pub const REC_FREED: u32 = 4;

/// [`REC_FREED`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FreedRecord {
    /// [`REC_FREED`].
    pub kind: u32,
    /// Size of this record.
    pub size: u32,
    /// Number of the file.
    pub file: u32,
    /// Always zero.
    pub reserved: u32,
}

const _: () = assert!(size_of::<FreedRecord>() == 16);

/// Room for a name: components from the file up, each NUL-terminated.
pub const NAME_BYTES: usize = 768;

/// Frames kept of the stack that woke the journal thread.
pub const STACK_FRAMES: usize = 20;

/// [`REC_NAME`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NameRecord {
    /// [`REC_NAME`].
    pub kind: u32,
    /// Size of this record.
    pub size: u32,
    /// Inode number.
    pub ino: u64,
    /// Device number of the filesystem.
    pub dev: u32,
    /// Number of the file.
    pub file: u32,
    /// Bytes used of `name`; 0 when the kernel did not tell.
    pub len: u32,
    /// 1 when the root of the filesystem was reached.
    pub whole: u32,
    /// Components from the file up, each NUL-terminated.
    pub name: [u8; NAME_BYTES],
}

const _: () = assert!(size_of::<NameRecord>() == 32 + NAME_BYTES);

/// Kinds of [`Waker::kind`].
pub mod waker {
    /// Nobody woke the thread: it was busy.
    pub const NONE: u32 = 0;
    /// A task inside `ext4_sync_file`.
    pub const FSYNC: u32 = 1;
    /// A task inside `ext4_sync_fs`.
    pub const SYNC_FS: u32 = 2;
    /// A task whose last handle was synchronous.
    pub const SYNC_HANDLE: u32 = 3;
    /// Any other task, also one that a timer interrupted.
    pub const OTHER: u32 = 4;
}

/// Who woke the journal thread first since its last commit, or who waited in
/// fsync or sync when the commit started.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Waker {
    /// One of [`waker`].
    pub kind: u32,
    /// Process.
    pub tgid: u32,
    /// Thread.
    pub tid: u32,
    /// File that was synced, 0 where there is none.
    pub file: u32,
    /// System call, or `CALL_NONE`.
    pub call: u32,
    /// Frames of `stack` that are valid.
    pub frames: u32,
    /// Name of the thread.
    pub comm: [u8; 16],
    /// `CLOCK_MONOTONIC` nanoseconds.
    pub ns: u64,
    /// Kernel stack of the waker, innermost first.
    pub stack: [u64; STACK_FRAMES],
}

const _: () = assert!(size_of::<Waker>() == 48 + 8 * STACK_FRAMES);

/// [`REC_COMMIT`]. Durations of phases are in the kernel's ticks, as
/// `jbd2_run_stats` has them; times are `CLOCK_MONOTONIC` nanoseconds.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CommitRecord {
    /// [`REC_COMMIT`].
    pub kind: u32,
    /// Size of this record.
    pub size: u32,
    /// Device number of the filesystem.
    pub dev: u32,
    /// Transaction.
    pub tid: u32,
    /// `jbd2_start_commit`.
    pub start_ns: u64,
    /// `jbd2_commit_locking`.
    pub locking_ns: u64,
    /// `jbd2_commit_flushing`.
    pub flushing_ns: u64,
    /// `jbd2_commit_logging`.
    pub logging_ns: u64,
    /// `jbd2_end_commit`.
    pub end_ns: u64,
    /// Ticks that the transaction was open.
    pub running_ticks: u64,
    /// Handles.
    pub handles: u32,
    /// Blocks that handles dirtied.
    pub blocks: u32,
    /// Blocks logged, with descriptors and the commit block.
    pub blocks_logged: u32,
    /// Tasks inside `ext4_sync_file` when it started.
    pub syncing: u32,
    /// Who caused it, as far as the kernel's side can tell.
    pub waker: Waker,
    /// Who waited inside fsync when it started (no stack).
    pub waiting: Waker,
    /// Who had entered `ext4_sync_fs` last when it started (no stack).
    pub sync_fs: Waker,
}

const _: () = assert!(size_of::<CommitRecord>() == 80 + 3 * size_of::<Waker>());

/// [`REC_FAST_COMMIT`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FastCommitRecord {
    /// [`REC_FAST_COMMIT`].
    pub kind: u32,
    /// Size of this record.
    pub size: u32,
    /// Device number of the filesystem.
    pub dev: u32,
    /// Process.
    pub tgid: u32,
    /// File that was synced.
    pub file: u32,
    /// Blocks written to the fast-commit area.
    pub blocks: u32,
    /// The kernel's status (0 ok, else why it fell back to a full commit).
    pub status: i32,
    /// System call.
    pub call: u32,
    /// Start, `CLOCK_MONOTONIC` nanoseconds.
    pub start_ns: u64,
    /// End.
    pub end_ns: u64,
    /// Name of the thread.
    pub comm: [u8; 16],
}

const _: () = assert!(size_of::<FastCommitRecord>() == 64);
