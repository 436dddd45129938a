//! Why a path ran at that moment, in the tracer's words.

use super::{calls, path::Path};
use tracer_common::job;

/// The word for a system call as the trigger of a path.
pub fn of_call(path: Path, call: u16) -> &'static str {
    let Some(name) = calls::name(call) else {
        return if call == tracer_common::CALL_NONE {
            "kernel"
        } else {
            "other-call"
        };
    };
    match path {
        Path::Fsync if calls::writes(name) && name != "io_uring" => "sync-write",
        Path::Forced if calls::writes(name) => "direct-io",
        Path::Forced if calls::reads(name) => "read",
        Path::Fsync | Path::Direct => name,
        _ => plain(name),
    }
}

/// Calls that do the same under several names.
fn plain(name: &'static str) -> &'static str {
    match name {
        "sync" | "syncfs" => "sync",
        "umount2" => "umount",
        "mount" | "fsconfig" | "fsmount" => "mount",
        "mount_setattr" => "remount",
        "renameat" | "renameat2" => "rename",
        "ftruncate" => "truncate",
        "openat" | "openat2" | "creat" => "open",
        "fadvise64" => "fadvise",
        "dup2" | "dup3" | "close_range" => "close",
        "exit_group" => "exit",
        "unlinkat" => "unlink",
        "mkdirat" => "mkdir",
        name => name,
    }
}

/// The word for a job of a filesystem.
pub fn of_job(code: u16) -> &'static str {
    match code {
        job::LAZY_INIT => "lazy-init",
        job::SUPERBLOCK => "superblock",
        job::CHECKPOINT => "checkpoint",
        job::FAST_COMMIT => "fast-commit",
        job::RECLAIM => "reclaim",
        _ => "unknown",
    }
}

/// Why a journal committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CommitTrigger {
    /// The transaction was older than `commit=`.
    Timer,
    /// A task synced a file.
    Fsync,
    /// sync or syncfs.
    Sync,
    /// The filesystem was unmounted.
    Umount,
    /// It was remounted.
    Remount,
    /// It was frozen.
    Freeze,
    /// The transaction or the log was full.
    Space,
    /// The filesystem had no free blocks but those a commit would free.
    NoSpace,
    /// A handle asked to be synchronous (dirsync, chattr +S).
    SyncHandle,
    /// A fast commit.
    FastCommit,
    /// Cannot be told.
    Unknown,
}

impl CommitTrigger {
    /// All of them; recordings have a trigger by its place here.
    pub const ALL: [Self; 11] = [
        Self::Timer,
        Self::Fsync,
        Self::Sync,
        Self::Umount,
        Self::Remount,
        Self::Freeze,
        Self::Space,
        Self::NoSpace,
        Self::SyncHandle,
        Self::FastCommit,
        Self::Unknown,
    ];

    /// Its place in [`Self::ALL`].
    pub fn code(self) -> u8 {
        let at = Self::ALL.iter().position(|trigger| *trigger == self);
        at.unwrap_or(Self::ALL.len()) as u8
    }

    /// From its place; a number of another version is unknown.
    pub fn from_code(code: u8) -> Self {
        let found = Self::ALL.get(usize::from(code));
        found.copied().unwrap_or(Self::Unknown)
    }

    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Timer => "timer",
            Self::Fsync => "fsync",
            Self::Sync => "sync",
            Self::Umount => "umount",
            Self::Remount => "remount",
            Self::Freeze => "freeze",
            Self::Space => "space",
            Self::NoSpace => "no-space",
            Self::SyncHandle => "sync-handle",
            Self::FastCommit => "fast-commit",
            Self::Unknown => "unknown",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_call_is_another_trigger_on_another_path() {
        let write = calls::number("pwrite64").unwrap();
        assert_eq!(of_call(Path::Fsync, write), "sync-write");
        assert_eq!(of_call(Path::Forced, write), "direct-io");
        assert_eq!(of_call(Path::Direct, write), "pwrite64");
        assert_eq!(of_call(Path::Raw, write), "pwrite64");
        let umount = calls::number("umount2").unwrap();
        assert_eq!(of_call(Path::Metadata, umount), "umount");
        assert_eq!(of_call(Path::Metadata, tracer_common::CALL_NONE), "kernel");
        assert_eq!(of_call(Path::Metadata, 0x7ff), "other-call");
    }
}
