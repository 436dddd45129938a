//! Records as the programs sent them, decoded.

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// A file's name.
    Name(Name),
    /// A journal commit.
    Commit(Box<Commit>),
    /// A fast commit.
    FastCommit(FastCommit),
    /// The file of this number was deleted.
    Freed(u32),
}

/// A file's name at first sight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// Device of the filesystem, in the kernel's form.
    pub dev: u32,
    /// Inode number; 0 is the device itself.
    pub ino: u64,
    /// The tracer's number of the file.
    pub file: u32,
    /// Path from the root of the filesystem, if the kernel's side told it.
    pub name: Option<Vec<u8>>,
    /// Whether the path begins at the root.
    pub whole: bool,
}

/// What a waker was inside of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WakerKind {
    /// `ext4_sync_file`.
    Fsync,
    /// `ext4_sync_fs`.
    SyncFs,
    /// A synchronous handle came last.
    SyncHandle,
    /// None of these.
    Other,
}

/// A task that woke the journal's thread or waits for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waker {
    /// What it was inside of.
    pub kind: WakerKind,
    /// Process.
    pub tgid: u32,
    /// Thread.
    pub tid: u32,
    /// The tracer's number of the synced file, 0 for none.
    pub file: u32,
    /// System call.
    pub call: u16,
    /// Name of the thread.
    pub comm: Vec<u8>,
    /// Monotonic nanoseconds.
    pub ns: u64,
    /// Kernel stack, innermost first.
    pub stack: Vec<u64>,
}

/// A commit that ended; times are monotonic nanoseconds, 0 unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// Device of the filesystem, in the kernel's form.
    pub dev: u32,
    /// Transaction.
    pub tid: u32,
    /// It began.
    pub start_ns: u64,
    /// It waited for handles to end.
    pub locking_ns: u64,
    /// It wrote ordered data.
    pub flushing_ns: u64,
    /// It wrote the log.
    pub logging_ns: u64,
    /// It ended.
    pub end_ns: u64,
    /// Kernel ticks that the transaction was open.
    pub running_ticks: u64,
    /// Handles.
    pub handles: u32,
    /// Blocks dirtied by handles.
    pub blocks: u32,
    /// Blocks logged.
    pub blocks_logged: u32,
    /// Tasks inside `ext4_sync_file` when it began.
    pub syncing: u32,
    /// Who woke the thread first.
    pub waker: Option<Waker>,
    /// Who waited in fsync when it began.
    pub waiting: Option<Waker>,
    /// Who had entered a sync of the filesystem.
    pub sync_fs: Option<Waker>,
}

/// A fast commit that ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FastCommit {
    /// Device of the filesystem, in the kernel's form.
    pub dev: u32,
    /// Process.
    pub tgid: u32,
    /// The tracer's number of the synced file.
    pub file: u32,
    /// Blocks written.
    pub blocks: u32,
    /// 0, or why it fell back to a full commit.
    pub status: i32,
    /// System call.
    pub call: u16,
    /// Start, monotonic nanoseconds.
    pub start_ns: u64,
    /// End.
    pub end_ns: u64,
    /// Name of the thread.
    pub comm: Vec<u8>,
}
