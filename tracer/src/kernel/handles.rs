//! Names of inodes by number, from the filesystem itself: for files whose
//! name the kernel's side did not tell.
//!
//! An ext4 file handle holds the inode's number and generation, and
//! generation 0 fits any (`ext4_nfs_get_inode`, fs/ext4/super.c).

use std::{
    fs::{self, File},
    io,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

/// `FILEID_INO32_GEN` (include/linux/exportfs.h).
const INO32_GEN: i32 = 1;

#[repr(C)]
struct Handle {
    bytes: u32,
    kind: i32,
    ino: u32,
    generation: u32,
}

/// A mounted ext4 filesystem whose inodes can be asked for.
pub struct Inodes {
    mount: File,
    point: Vec<u8>,
}

impl Inodes {
    /// Opens a mount point.
    pub fn open(point: &Path) -> io::Result<Self> {
        Ok(Self {
            mount: File::open(point)?,
            point: point.as_os_str().as_bytes().to_vec(),
        })
    }

    /// The inode's path from the root of its filesystem, if it has one now.
    pub fn name(&self, ino: u64) -> Option<Vec<u8>> {
        let mut handle = Handle {
            bytes: 8,
            kind: INO32_GEN,
            ino: u32::try_from(ino).ok()?,
            generation: 0,
        };
        // SAFETY: a handle of the size that it states; the descriptor that
        // comes back is ours.
        let opened = unsafe {
            let fd = libc::syscall(
                libc::SYS_open_by_handle_at,
                self.mount.as_raw_fd(),
                &raw mut handle,
                libc::O_PATH | libc::O_CLOEXEC | libc::O_NOFOLLOW,
            );
            (fd >= 0).then(|| OwnedFd::from_raw_fd(fd as i32))?
        };
        let link = fs::read_link(format!("/proc/self/fd/{}", opened.as_raw_fd())).ok()?;
        let path = link.as_os_str().as_bytes();
        let inside = path.strip_prefix(self.point.as_slice())?;
        let inside = inside.strip_prefix(b"/").unwrap_or(inside);
        // A name that is only known by its number reads as the root.
        (!inside.is_empty()).then(|| inside.to_vec())
    }
}
