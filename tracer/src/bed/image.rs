//! The image: a file without a name whose space is set aside.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags};
use rustix::io::Errno;

use super::BedError;

/// An open image file.
#[derive(Debug)]
pub struct Image {
    file: File,
    dir: PathBuf,
    size: u64,
}

impl Image {
    /// Makes an image of `size` bytes in `dir`. It is created exclusively with
    /// mode 0600 and unlinked at once: from then on only descriptors hold it.
    pub fn create(dir: &Path, size: u64) -> Result<Self, BedError> {
        let fail = |errno: Errno| BedError::Image {
            dir: dir.to_owned(),
            reason: errno.into(),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir_fd = rustix::fs::open(dir, flags, Mode::empty()).map_err(fail)?;
        let file = loop {
            let name = format!("writepath-{:08x}.img", rand::random::<u32>());
            let flags =
                OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            match rustix::fs::openat(&dir_fd, &name, flags, Mode::RUSR | Mode::WUSR) {
                Ok(fd) => {
                    rustix::fs::unlinkat(&dir_fd, &name, AtFlags::empty()).map_err(fail)?;
                    break File::from(fd);
                }
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(fail(errno)),
            }
        };
        let image = Self {
            file,
            dir: dir.to_owned(),
            size,
        };
        image.allocate()?;
        Ok(image)
    }

    /// Sets aside the space of the whole image; what has been written stays.
    pub fn allocate(&self) -> Result<(), BedError> {
        let dir = self.dir.clone();
        match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, self.size) {
            Ok(()) => Ok(()),
            Err(Errno::NOSPC | Errno::FBIG | Errno::DQUOT) => Err(BedError::NoSpace {
                available: available(&self.file),
                dir,
                size: self.size,
            }),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Err(BedError::NoFallocate { dir }),
            Err(errno) => Err(BedError::Image {
                dir,
                reason: io::Error::from(errno),
            }),
        }
    }
}

/// Free bytes as far as they can be had: only for a message.
fn available(file: &File) -> u64 {
    rustix::fs::fstatvfs(file).map_or(0, |vfs| vfs.f_bavail.saturating_mul(vfs.f_frsize))
}

impl AsFd for Image {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
