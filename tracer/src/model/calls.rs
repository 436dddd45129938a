//! Names of the system calls that write, on this architecture.

use tracer_common::{CALL_FIEMAP, CALL_FREEZE, CALL_IO_URING, CALL_NONE, CALL_THAW};

macro_rules! calls {
    ($($number:ident $name:literal),+ $(,)?) => {
        &[$((libc::$number, $name)),+]
    };
}

#[cfg(target_arch = "x86_64")]
const OLD: &[(libc::c_long, &str)] = calls! {
    SYS_open "open", SYS_creat "creat", SYS_rename "rename", SYS_unlink "unlink",
    SYS_mkdir "mkdir", SYS_rmdir "rmdir", SYS_link "link", SYS_symlink "symlink",
    SYS_dup2 "dup2", SYS_chmod "chmod", SYS_chown "chown", SYS_mknod "mknod",
    SYS_utimes "utimes",
};
#[cfg(not(target_arch = "x86_64"))]
const OLD: &[(libc::c_long, &str)] = &[];

const CALLS: &[(libc::c_long, &str)] = calls! {
    SYS_read "read", SYS_write "write", SYS_pread64 "pread64", SYS_pwrite64 "pwrite64",
    SYS_readv "readv", SYS_writev "writev", SYS_preadv "preadv", SYS_pwritev "pwritev",
    SYS_preadv2 "preadv2", SYS_pwritev2 "pwritev2", SYS_sendfile "sendfile", SYS_splice "splice",
    SYS_copy_file_range "copy_file_range", SYS_io_submit "io_submit",
    SYS_io_uring_enter "io_uring", SYS_fsync "fsync", SYS_fdatasync "fdatasync",
    SYS_msync "msync", SYS_sync "sync", SYS_syncfs "syncfs",
    SYS_sync_file_range "sync_file_range", SYS_fadvise64 "fadvise64",
    SYS_fallocate "fallocate", SYS_truncate "truncate", SYS_ftruncate "ftruncate",
    SYS_openat "openat", SYS_close "close", SYS_dup3 "dup3", SYS_exit_group "exit_group",
    SYS_exit "exit", SYS_renameat "renameat", SYS_renameat2 "renameat2", SYS_unlinkat "unlinkat",
    SYS_mkdirat "mkdirat", SYS_linkat "linkat", SYS_symlinkat "symlinkat",
    SYS_mknodat "mknodat", SYS_fchmod "fchmod", SYS_fchmodat "fchmodat", SYS_fchown "fchown",
    SYS_fchownat "fchownat", SYS_utimensat "utimensat", SYS_setxattr "setxattr",
    SYS_fsetxattr "fsetxattr", SYS_getdents64 "getdents64", SYS_ioctl "ioctl",
    SYS_mount "mount", SYS_umount2 "umount2", SYS_munmap "munmap", SYS_mmap "mmap",
    SYS_madvise "madvise", SYS_openat2 "openat2", SYS_close_range "close_range",
    SYS_fsconfig "fsconfig", SYS_fsmount "fsmount", SYS_mount_setattr "mount_setattr",
    SYS_swapoff "swapoff", SYS_reboot "reboot", SYS_execve "execve", SYS_unshare "unshare",
    SYS_setns "setns", SYS_statx "statx", SYS_readahead "readahead",
};

/// The call's name; none for kernel threads and calls not in the table.
pub fn name(call: u16) -> Option<&'static str> {
    match call {
        CALL_NONE => None,
        CALL_IO_URING => Some("io_uring"),
        CALL_FIEMAP => Some("fiemap"),
        CALL_FREEZE => Some("freeze"),
        CALL_THAW => Some("thaw"),
        call => CALLS
            .iter()
            .chain(OLD)
            .find(|(number, _)| *number == libc::c_long::from(call))
            .map(|(_, name)| *name),
    }
}

/// The number of a call, for tests and decisions.
pub fn number(name: &str) -> Option<u16> {
    CALLS
        .iter()
        .chain(OLD)
        .find(|(_, known)| *known == name)
        .and_then(|(number, _)| u16::try_from(*number).ok())
}

/// Calls that take data from a program.
pub fn writes(name: &str) -> bool {
    matches!(
        name,
        "write"
            | "pwrite64"
            | "writev"
            | "pwritev"
            | "pwritev2"
            | "sendfile"
            | "splice"
            | "copy_file_range"
            | "io_submit"
            | "io_uring"
    )
}

/// Calls that give data to a program.
pub fn reads(name: &str) -> bool {
    matches!(
        name,
        "read" | "pread64" | "readv" | "preadv" | "preadv2" | "readahead"
    )
}
