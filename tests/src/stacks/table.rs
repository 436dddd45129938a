//! The table of the referee "right by path": what a function on the stack of
//! a submitted bio says about it. It covers the names of 6.1 and of 6.18;
//! a function that a kernel does not have simply never shows up.
//!
//! The words are those of writepath's ledger. Three questions are answered
//! from the inside of the stack to its outside:
//!
//! 1. *What is written?* Data of a file, the filesystem's metadata, pages of
//!    the block device itself, or a thing whose path needs no second question
//!    (log blocks, a direct write, swap, the superblock …).
//! 2. *Who made it happen?* The flusher, a sync call, a commit, or another
//!    call: that decides the path of file data.
//! 3. *By which system call?* That names the trigger.

/// What a function on the stack means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// File data is being written.
    Data,
    /// Metadata is being written in place.
    Metadata,
    /// Pages of the block device's own mapping: metadata of the filesystem on
    /// it, which carries the mark of metadata, or what a process wrote there.
    Device,
    /// The path, whatever lies further out.
    Path(&'static str, Option<&'static str>),
    /// Who made data or metadata be written: the path of file data, and the
    /// trigger where it does not depend on the system call.
    Cause(&'static str, Option<&'static str>),
    /// A journal thread that commits: file data is ordered data, all else is
    /// the log itself.
    Commit,
}

use Role::{Cause, Commit, Data, Device, Metadata, Path};

/// Functions of file systems and of the block layer.
pub const FUNCTIONS: &[(&str, Role)] = &[
    // What is written: file data.
    ("ext4_writepages", Data),
    ("ext4_do_writepages", Data),
    ("ext4_writepage", Data),
    ("ext4_bio_write_folio", Data),
    ("ext4_bio_write_page", Data),
    // What is written: metadata in place.
    ("fsync_buffers_list", Metadata),
    ("sync_mapping_buffers", Metadata),
    ("ext4_write_inode", Metadata),
    ("ext4_handle_dirty_metadata", Metadata),
    ("__ext4_handle_dirty_metadata", Metadata),
    // What is written: the block device's own pages.
    ("blkdev_writepages", Device),
    ("blkdev_writepage", Device),
    ("__block_write_full_folio", Device),
    ("__block_write_full_page", Device),
    // What lands in the journal's place.
    ("jbd2_write_superblock", Path("journal", None)),
    ("journal_submit_commit_record", Path("journal", None)),
    ("jbd2_journal_write_revoke_records", Path("journal", None)),
    ("ext4_fc_submit_bh", Path("journal", Some("fast-commit"))),
    // Blocks of the log brought home.
    (
        "jbd2_log_do_checkpoint",
        Path("metadata", Some("checkpoint")),
    ),
    // Direct writes of a file: pages of the cache that must go first are data
    // under it, and were met before.
    ("iomap_dio_bio_iter", Path("direct", None)),
    ("iomap_dio_bio_opflags", Path("direct", None)),
    ("iomap_dio_zero", Path("direct", None)),
    // Anonymous memory.
    ("swap_writepage", Path("swap", Some("reclaim"))),
    ("swap_writeout", Path("swap", Some("reclaim"))),
    ("__swap_writepage", Path("swap", Some("reclaim"))),
    ("swap_write_unplug", Path("swap", Some("reclaim"))),
    // The filesystem's own work.
    ("ext4_init_inode_table", Path("fs", Some("lazy-init"))),
    ("ext4_lazyinit_thread", Path("fs", Some("lazy-init"))),
    ("ext4_commit_super", Path("fs", Some("superblock"))),
    // A process and the device itself.
    ("__blkdev_direct_IO_simple", Path("raw", None)),
    ("__blkdev_direct_IO_async", Path("raw", None)),
    ("__blkdev_direct_IO", Path("raw", None)),
    ("blkdev_direct_IO", Path("raw", None)),
    ("blkdev_direct_write", Path("raw", None)),
    ("blkdev_common_ioctl", Path("raw", None)),
    ("blkdev_fallocate", Path("raw", None)),
    // Who made it happen: the commit.
    ("jbd2_journal_commit_transaction", Commit),
    ("ext4_fc_commit", Commit),
    // Who made it happen: the flusher, with its reason in the work item and
    // not on the stack.
    ("wb_workfn", Cause("writeback", None)),
    // Who made it happen: calls that ask for durability.
    ("ext4_sync_file", Cause("fsync", None)),
    ("blkdev_fsync", Cause("fsync", None)),
    ("sync_file_range", Cause("fsync", Some("sync_file_range"))),
    (
        "ksys_sync_file_range",
        Cause("fsync", Some("sync_file_range")),
    ),
    // Who made it happen: calls that had to write file data first.
    ("ext4_release_file", Cause("forced", Some("close"))),
    ("ext4_rename", Cause("forced", Some("rename"))),
    ("ext4_rename2", Cause("forced", Some("rename"))),
    ("generic_fadvise", Cause("forced", Some("fadvise"))),
    ("ext4_fallocate", Cause("forced", Some("fallocate"))),
    ("ext4_fiemap", Cause("forced", Some("fiemap"))),
    ("iomap_fiemap", Cause("forced", Some("fiemap"))),
    ("ext4_setattr", Cause("forced", Some("truncate"))),
    ("ext4_file_read_iter", Cause("forced", Some("read"))),
    ("__iomap_dio_rw", Cause("forced", None)),
    ("iomap_dio_rw", Cause("forced", None)),
    ("ext4_file_write_iter", Cause("forced", Some("direct-io"))),
    // Who made it happen: what concerns a whole filesystem. It writes
    // metadata only; file data goes through the flusher.
    ("sync_bdevs", Cause("metadata", Some("sync"))),
    ("ksys_sync", Cause("metadata", Some("sync"))),
    ("generic_shutdown_super", Cause("metadata", Some("umount"))),
    ("freeze_super", Cause("metadata", Some("freeze"))),
    ("ext4_freeze", Cause("metadata", Some("freeze"))),
    ("ext4_reconfigure", Cause("metadata", Some("remount"))),
    ("ext4_remount", Cause("metadata", Some("remount"))),
    ("ext4_fill_super", Cause("metadata", Some("mount"))),
];

/// The trigger that a system call's name gives, for `fsync`, `direct` and
/// `raw`; names are as [`syscall`] gives them.
pub const CALLS: &[(&str, &str)] = &[
    ("fsync", "fsync"),
    ("fdatasync", "fdatasync"),
    ("msync", "msync"),
    ("sync_file_range", "sync_file_range"),
    ("syncfs", "sync"),
    ("sync", "sync"),
    ("write", "write"),
    ("pwrite64", "pwrite64"),
    ("writev", "writev"),
    ("pwritev", "pwritev"),
    ("pwritev2", "pwritev2"),
    ("io_submit", "io_submit"),
    ("io_uring_enter", "io_uring"),
    ("ioctl", "ioctl"),
    ("fallocate", "fallocate"),
];

/// The trigger of file data whose commit-like cause is a write call itself:
/// `O_SYNC`, `O_DSYNC` and `RWF_DSYNC`.
pub const SYNC_WRITE: &str = "sync-write";

/// A worker that the kernel runs in a program's name for `io_uring`: it is in
/// no system call.
pub const URING_WORKER: &str = "io_wq_worker";

/// The role of a function, if the table knows it.
pub fn role(function: &str) -> Option<Role> {
    let found = FUNCTIONS.iter().find(|(name, _)| *name == function);
    found.map(|(_, role)| *role)
}

/// `__x64_sys_fsync` → `fsync`; the inner helpers of a call give its name too.
pub fn syscall(function: &str) -> Option<&str> {
    let prefixes = [
        "__x64_sys_",
        "__arm64_sys_",
        "__ia32_sys_",
        "__do_sys_",
        "ksys_",
    ];
    let name = prefixes.iter().find_map(|p| function.strip_prefix(p))?;
    match name {
        "sync_file_range2" => Some("sync_file_range"),
        "fadvise64_64" => Some("fadvise64"),
        other => Some(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_function_stands_in_the_table_once() {
        let mut names: Vec<&str> = FUNCTIONS.iter().map(|(name, _)| *name).collect();
        names.sort_unstable();
        let before = names.len();
        names.dedup();
        assert_eq!(before, names.len());
    }

    #[test]
    fn only_paths_of_the_ledger_are_named() {
        let known = [
            "writeback",
            "fsync",
            "ordered",
            "journal",
            "metadata",
            "direct",
            "forced",
            "swap",
            "fs",
            "raw",
        ];
        for (name, role) in FUNCTIONS {
            if let Path(path, _) | Cause(path, _) = role {
                assert!(known.contains(path), "{name}: {path}");
            }
        }
    }

    #[test]
    fn calls_are_recognised_on_every_architecture() {
        assert_eq!(syscall("__x64_sys_fsync"), Some("fsync"));
        assert_eq!(syscall("__arm64_sys_fdatasync"), Some("fdatasync"));
        assert_eq!(syscall("__do_sys_msync"), Some("msync"));
        assert_eq!(syscall("ksys_write"), Some("write"));
        assert_eq!(syscall("do_syscall_64"), None);
    }
}
