//! The directory that a workload works in: fresh, its own, never left.
//!
//! Everything below the directory that was typed is reached from a directory
//! descriptor by a single name with `O_NOFOLLOW`, and everything that is made
//! is made exclusively: no link leads out, nothing that was there is written
//! or removed.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};

use super::WorkloadError;

/// The share of a filesystem that has to stay free, in percent.
pub const FREE_PERCENT: u64 = 20;

/// Room on a filesystem, as statvfs gives it.
#[derive(Debug, Clone, Copy)]
pub struct Space {
    /// Size in bytes.
    pub total: u64,
    /// Bytes an unprivileged process may still use.
    pub available: u64,
    /// Free inodes; none where the filesystem has no fixed number.
    pub inodes: Option<u64>,
}

impl Space {
    /// The room on the filesystem of `dir`.
    pub fn of(dir: impl AsFd) -> io::Result<Self> {
        let vfs = rustix::fs::fstatvfs(dir)?;
        Ok(Self {
            total: vfs.f_blocks.saturating_mul(vfs.f_frsize),
            available: vfs.f_bavail.saturating_mul(vfs.f_frsize),
            inodes: (vfs.f_files > 0).then_some(vfs.f_favail),
        })
    }

    /// Refuses when after writing `bytes` and making `inodes` less than
    /// [`FREE_PERCENT`] of the filesystem would stay free.
    pub fn check(&self, path: &Path, bytes: u64, inodes: u64) -> Result<(), WorkloadError> {
        let left = u128::from(self.available.saturating_sub(bytes));
        if bytes > self.available || left * 100 < u128::from(self.total) * u128::from(FREE_PERCENT)
        {
            return Err(WorkloadError::Space {
                path: path.to_owned(),
                needed: bytes,
                available: self.available,
                total: self.total,
                percent: FREE_PERCENT,
            });
        }
        match self.inodes {
            Some(available) if available < inodes => Err(WorkloadError::Inodes {
                path: path.to_owned(),
                needed: inodes,
                available,
            }),
            _ => Ok(()),
        }
    }
}

/// An open directory of the workload's.
#[derive(Debug)]
pub struct Dir {
    fd: OwnedFd,
    path: PathBuf,
}

/// Flags of every open.
const ALWAYS: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC);

impl Dir {
    /// Opens the directory that was typed. Links on the way are the user's
    /// own choice and followed.
    pub fn typed(path: &Path) -> Result<Self, WorkloadError> {
        Self::open(path, OFlags::DIRECTORY | OFlags::CLOEXEC)
    }

    /// Opens a directory that must not itself be a link.
    pub fn no_link(path: &Path) -> Result<Self, WorkloadError> {
        Self::open(path, OFlags::DIRECTORY | ALWAYS)
    }

    fn open(path: &Path, flags: OFlags) -> Result<Self, WorkloadError> {
        let fail = |reason| WorkloadError::Directory {
            path: path.to_owned(),
            reason,
        };
        let fd = rustix::fs::open(path, flags | OFlags::RDONLY, Mode::empty())
            .map_err(|errno| fail(errno.into()))?;
        // Absolute where that can be had, so that the account names a place.
        let path = std::path::absolute(path).map_err(fail)?;
        Ok(Self { fd, path })
    }

    /// Where it is, for people; never used to reach it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a directory `prefix-XXXXXX` that only its owner may enter.
    pub fn fresh(&self, prefix: &str) -> Result<Self, WorkloadError> {
        loop {
            let name = format!("{prefix}-{:06x}", rand::random::<u32>() >> 8);
            match self.make_dir(&name) {
                Err(WorkloadError::File { reason, .. })
                    if reason.kind() == io::ErrorKind::AlreadyExists => {}
                made => return made,
            }
        }
    }

    /// Makes the directory `name`, which must not exist, and opens it.
    pub fn make_dir(&self, name: &str) -> Result<Self, WorkloadError> {
        rustix::fs::mkdirat(&self.fd, name, Mode::RWXU).map_err(|e| self.fail("mkdir", name, e))?;
        self.sub(name)
    }

    /// Opens the directory `name` in it.
    pub fn sub(&self, name: &str) -> Result<Self, WorkloadError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | ALWAYS;
        let fd = rustix::fs::openat(&self.fd, name, flags, Mode::empty())
            .map_err(|e| self.fail("open", name, e))?;
        Ok(Self {
            fd,
            path: self.path.join(name),
        })
    }

    /// Opens the existing file `name` with `flags` added to the usual ones.
    pub fn open_file(&self, name: &str, flags: OFlags) -> Result<OwnedFd, WorkloadError> {
        rustix::fs::openat(&self.fd, name, flags | ALWAYS, Mode::empty())
            .map_err(|e| self.fail("open", name, e))
    }

    /// Makes the file `name`, which must not exist, for writing.
    pub fn make_file(&self, name: &str) -> Result<OwnedFd, WorkloadError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | ALWAYS;
        rustix::fs::openat(&self.fd, name, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|e| self.fail("create", name, e))
    }

    /// Renames `from` over `to`, both in it.
    pub fn rename(&self, from: &str, to: &str) -> Result<(), WorkloadError> {
        rustix::fs::renameat(&self.fd, from, &self.fd, to).map_err(|e| self.fail("rename", from, e))
    }

    /// Removes the file `name`; one that is not there is no error.
    pub fn remove_file(&self, name: &str) -> Result<(), WorkloadError> {
        self.remove(name, AtFlags::empty())
    }

    /// Removes the empty directory `name`; one that is not there is no error.
    pub fn remove_dir(&self, name: &str) -> Result<(), WorkloadError> {
        self.remove(name, AtFlags::REMOVEDIR)
    }

    fn remove(&self, name: &str, flags: AtFlags) -> Result<(), WorkloadError> {
        match rustix::fs::unlinkat(&self.fd, name, flags) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(errno) => Err(self.fail("remove", name, errno)),
        }
    }

    /// The size of `name` if it is a plain file with one name that belongs to
    /// this user and lies on this filesystem, else what is wrong with it.
    pub fn own_file(&self, name: &str) -> Result<u64, String> {
        let stat = rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|errno| format!("{name}: {}", io::Error::from(errno)))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(format!("{name} is not a plain file"));
        }
        if stat.st_nlink != 1 {
            return Err(format!("{name} has {} names", stat.st_nlink));
        }
        if stat.st_uid != rustix::process::geteuid().as_raw() {
            return Err(format!("{name} belongs to user {}", stat.st_uid));
        }
        Ok(stat.st_size as u64)
    }

    /// Fails unless the directory is this user's and nobody else may write it.
    pub fn own_directory(&self) -> Result<(), String> {
        let stat = rustix::fs::fstat(&self.fd).map_err(|e| io::Error::from(e).to_string())?;
        if stat.st_uid != rustix::process::geteuid().as_raw() {
            return Err(format!("it belongs to user {}", stat.st_uid));
        }
        if stat.st_mode & 0o022 != 0 {
            return Err("others may write in it".into());
        }
        Ok(())
    }

    /// Writes all dirty data and metadata of the filesystem to its device.
    pub fn sync_filesystem(&self) -> Result<(), WorkloadError> {
        rustix::fs::syncfs(&self.fd).map_err(|e| self.fail("syncfs", ".", e))
    }

    /// An error about `name` in this directory.
    pub fn fail(
        &self,
        call: &'static str,
        name: &str,
        reason: impl Into<io::Error>,
    ) -> WorkloadError {
        WorkloadError::File {
            call,
            path: self.path.join(name),
            reason: reason.into(),
        }
    }

    /// The last part of its path.
    pub fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    const GB: u64 = 1_000_000_000;

    fn space(total: u64, available: u64) -> Space {
        Space {
            total,
            available,
            inodes: Some(100),
        }
    }

    #[test]
    fn a_fifth_has_to_stay_free_after_the_writing() {
        let path = Path::new("/x");
        assert!(space(10 * GB, 5 * GB).check(path, 3 * GB, 1).is_ok());
        let error = space(10 * GB, 5 * GB).check(path, 3 * GB + 1, 1);
        assert!(matches!(error, Err(WorkloadError::Space { .. })));
        let error = space(10 * GB, GB).check(path, 2 * GB, 1);
        assert!(matches!(error, Err(WorkloadError::Space { .. })));
        assert!(space(10 * GB, 2 * GB).check(path, 0, 1).is_ok());
        assert!(space(10 * GB, 2 * GB - 1).check(path, 0, 1).is_err());
        assert!(space(u64::MAX, u64::MAX).check(path, GB, 1).is_ok());
    }

    #[test]
    fn inodes_have_to_suffice() {
        let path = Path::new("/x");
        assert!(space(GB, GB).check(path, 0, 100).is_ok());
        let error = space(GB, GB).check(path, 0, 101);
        assert!(matches!(error, Err(WorkloadError::Inodes { .. })));
    }

    #[test]
    fn a_link_in_the_directory_is_not_followed() {
        let temp = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("victim"), "precious").unwrap();
        symlink(outside.path().join("victim"), temp.path().join("d0")).unwrap();
        symlink(outside.path(), temp.path().join("data")).unwrap();
        let dir = Dir::typed(temp.path()).unwrap();
        assert!(dir.open_file("d0", OFlags::WRONLY).is_err());
        assert!(dir.open_file("d0", OFlags::WRONLY | OFlags::TRUNC).is_err());
        assert!(dir.make_file("d0").is_err());
        assert!(dir.sub("data").is_err());
        assert!(dir.make_dir("data").is_err());
        assert!(dir.own_file("d0").unwrap_err().contains("plain"));
        let kept = std::fs::read_to_string(outside.path().join("victim")).unwrap();
        assert_eq!(kept, "precious");
        assert!(Dir::typed(&temp.path().join("data")).is_ok());
        assert!(Dir::no_link(&temp.path().join("data")).is_err());
    }

    #[test]
    fn a_name_that_exists_is_not_taken() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::write(temp.path().join("mgmt"), "mine").unwrap();
        let dir = Dir::typed(temp.path()).unwrap();
        let error = dir.make_file("mgmt").unwrap_err().to_string();
        assert!(error.contains("mgmt"), "{error}");
        let kept = std::fs::read_to_string(temp.path().join("mgmt")).unwrap();
        assert_eq!(kept, "mine");
        let fresh = dir.fresh("w").unwrap();
        let other = dir.fresh("w").unwrap();
        assert_ne!(fresh.path(), other.path());
        let mode = std::fs::metadata(fresh.path())
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o7777, 0o700);
    }

    #[test]
    fn a_second_name_or_loose_rights_are_noticed() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::write(temp.path().join("a"), "12345").unwrap();
        let dir = Dir::typed(temp.path()).unwrap();
        assert_eq!(dir.own_file("a").unwrap(), 5);
        assert!(dir.own_directory().is_ok());
        std::fs::hard_link(temp.path().join("a"), temp.path().join("b")).unwrap();
        assert!(dir.own_file("a").unwrap_err().contains("2 names"));
        let open = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(temp.path(), open).unwrap();
        assert!(dir.own_directory().unwrap_err().contains("others"));
    }

    #[test]
    fn what_is_no_directory_is_refused() {
        let temp = tempfile::NamedTempFile::new().unwrap();
        assert!(Dir::typed(temp.path()).is_err());
        assert!(Dir::typed(Path::new("/no/such/place")).is_err());
    }
}
