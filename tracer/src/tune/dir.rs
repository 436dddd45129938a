//! /run/writepath: the directory of the state, and its lock, which is one on
//! the directory itself. Gone when nothing is tuned.
//!
//! Nothing there is trusted that is not root's alone: the directory and the
//! files are looked at by descriptor, and no link is followed.

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::{
    fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, Stat},
    io::Errno,
};

use super::{
    TuneError,
    state::{MOST_BYTES, State},
};

/// Where it is.
pub const DIR: &str = "/run/writepath";
/// What a run has changed and has to put back.
pub const RUN: &str = "state.json";
/// What `--keep` left in force on purpose.
pub const KEPT: &str = "kept.json";

/// How long a guard is given to put back what a dead run left.
const GUARD: Duration = Duration::from_secs(20);
/// How long a run may be about to begin or to end.
const EDGE: Duration = Duration::from_secs(3);

/// The directory, open and locked for as long as any copy of the descriptor
/// is open.
#[derive(Debug)]
pub struct Dir {
    fd: OwnedFd,
    path: PathBuf,
    owner: u32,
}

impl Dir {
    /// Makes it if need be, opens it and waits a moment for its lock.
    pub fn lock() -> Result<Self, TuneError> {
        Self::lock_at(Path::new(DIR), 0)
    }

    /// As [`Dir::lock`], elsewhere and for another owner.
    pub(super) fn lock_at(path: &Path, owner: u32) -> Result<Self, TuneError> {
        let began = Instant::now();
        loop {
            let dir = Self::make(path, owner)?;
            match rustix::fs::flock(&dir.fd, FlockOperation::NonBlockingLockExclusive) {
                // Removed between opening and locking? Then start again.
                Ok(()) if dir.is_named()? => return Ok(dir),
                Ok(()) => continue,
                Err(Errno::WOULDBLOCK) => {}
                Err(errno) => return Err(dir.fail("lock it", errno)),
            }
            let pid = dir.read(RUN).ok().flatten().map(|state| state.pid);
            let patience = match pid {
                Some(pid) if is_alive(pid) => Duration::ZERO,
                Some(_) => GUARD,
                None => EDGE,
            };
            if began.elapsed() >= patience {
                return Err(TuneError::Busy { pid });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Opens it as it is, without its lock; none when it does not exist.
    pub fn look() -> Result<Option<Self>, TuneError> {
        Self::open(Path::new(DIR), 0)
    }

    /// The directory whose lock this descriptor holds for its caller.
    pub fn of_guard(fd: BorrowedFd<'_>) -> Result<Self, TuneError> {
        let path = PathBuf::from(DIR);
        let fd = fd.try_clone_to_owned().map_err(|reason| TuneError::State {
            path: path.clone(),
            doing: "open it",
            reason,
        })?;
        let dir = Self { fd, path, owner: 0 };
        dir.check()?;
        Ok(dir)
    }

    fn make(path: &Path, owner: u32) -> Result<Self, TuneError> {
        loop {
            match rustix::fs::mkdir(path, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => {
                    return Err(TuneError::State {
                        path: path.to_owned(),
                        doing: "make it",
                        reason: errno.into(),
                    });
                }
            }
            if let Some(dir) = Self::open(path, owner)? {
                return Ok(dir);
            }
        }
    }

    fn open(path: &Path, owner: u32) -> Result<Option<Self>, TuneError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::NOTDIR | Errno::LOOP) => {
                return Err(TuneError::Unsafe {
                    path: path.to_owned(),
                    why: "is a link or no directory".to_owned(),
                });
            }
            Err(errno) => {
                return Err(TuneError::State {
                    path: path.to_owned(),
                    doing: "open it",
                    reason: errno.into(),
                });
            }
        };
        let dir = Self {
            fd,
            path: path.to_owned(),
            owner,
        };
        dir.check()?;
        Ok(Some(dir))
    }

    fn check(&self) -> Result<(), TuneError> {
        let found = rustix::fs::fstat(&self.fd).map_err(|errno| self.fail("look at it", errno))?;
        match distrust(&found, self.owner, FileType::Directory) {
            Some(why) => Err(TuneError::Unsafe {
                path: self.path.clone(),
                why,
            }),
            None => Ok(()),
        }
    }

    fn is_named(&self) -> Result<bool, TuneError> {
        let held = rustix::fs::fstat(&self.fd).map_err(|errno| self.fail("look at it", errno))?;
        match rustix::fs::lstat(&self.path) {
            Ok(named) => Ok((named.st_dev, named.st_ino) == (held.st_dev, held.st_ino)),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(self.fail("look at it", errno)),
        }
    }

    /// The descriptor that holds the lock.
    pub fn lock_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The state in a file there, of whatever boot; none when there is none.
    pub fn read(&self, name: &str) -> Result<Option<State>, TuneError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&self.fd, name, flags, Mode::empty()) {
            Ok(fd) => File::from(fd),
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP) => return Err(self.distrusted(name, "is a link".to_owned())),
            Err(errno) => return Err(self.fail_file(name, "open it", errno.into())),
        };
        let found = rustix::fs::fstat(&file)
            .map_err(|errno| self.fail_file(name, "look at it", errno.into()))?;
        if let Some(why) = distrust(&found, self.owner, FileType::RegularFile) {
            return Err(self.distrusted(name, why));
        }
        let mut text = String::new();
        file.take(MOST_BYTES)
            .read_to_string(&mut text)
            .map_err(|reason| self.fail_file(name, "read it", reason))?;
        State::parse(&text)
            .map(Some)
            .map_err(|why| self.distrusted(name, format!("is no state of writepath: {why}")))
    }

    /// Writes a state so that it is whole and on its device, whenever this
    /// process ends.
    pub fn write(&self, name: &str, state: &State) -> Result<(), TuneError> {
        let new = format!("{name}.new");
        self.unlink(&new)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.fd, &new, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|errno| self.fail_file(&new, "make it", errno.into()))?;
        let mut file = File::from(file);
        file.write_all(state.text().as_bytes())
            .and_then(|()| file.sync_all())
            .map_err(|reason| self.fail_file(&new, "write it", reason))?;
        rustix::fs::renameat(&self.fd, &new, &self.fd, name)
            .map_err(|errno| self.fail_file(name, "replace it", errno.into()))?;
        self.sync()
    }

    /// Removes a state.
    pub fn remove(&self, name: &str) -> Result<(), TuneError> {
        self.unlink(name)?;
        self.sync()
    }

    /// Removes the directory when nothing is left in it. The lock is held
    /// until the descriptor closes.
    pub fn leave(self) {
        let _ = self.unlink(&format!("{RUN}.new"));
        let _ = self.unlink(&format!("{KEPT}.new"));
        // Not empty when values are kept.
        let _ = rustix::fs::rmdir(&self.path);
    }

    fn unlink(&self, name: &str) -> Result<(), TuneError> {
        match rustix::fs::unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(self.fail_file(name, "remove it", errno.into())),
        }
    }

    fn sync(&self) -> Result<(), TuneError> {
        rustix::fs::fsync(&self.fd).map_err(|errno| self.fail("sync it", errno))
    }

    fn fail(&self, doing: &'static str, errno: Errno) -> TuneError {
        TuneError::State {
            path: self.path.clone(),
            doing,
            reason: errno.into(),
        }
    }

    fn fail_file(&self, name: &str, doing: &'static str, reason: io::Error) -> TuneError {
        TuneError::State {
            path: self.path.join(name),
            doing,
            reason,
        }
    }

    fn distrusted(&self, name: &str, why: String) -> TuneError {
        TuneError::Unsafe {
            path: self.path.join(name),
            why,
        }
    }
}

/// Why a file or directory is not to be trusted.
fn distrust(found: &Stat, owner: u32, kind: FileType) -> Option<String> {
    if FileType::from_raw_mode(found.st_mode) != kind {
        Some("is not what belongs there".to_owned())
    } else if found.st_uid != owner {
        Some(format!("belongs to user {}", found.st_uid))
    } else if found.st_mode & 0o077 != 0 {
        Some(format!(
            "is open to others, mode {:o}",
            found.st_mode & 0o777
        ))
    } else if kind == FileType::RegularFile && found.st_nlink != 1 {
        Some("has a second name".to_owned())
    } else {
        None
    }
}

/// Whether a process is there and has not ended.
fn is_alive(pid: u32) -> bool {
    // pid (comm) state …: the name may hold anything, even ')'.
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        let state = stat.rsplit_once(") ").map(|(_, rest)| rest.as_bytes());
        !matches!(state, Some([b'Z' | b'X', ..]))
    })
}

/// The running boot.
pub fn boot() -> Result<String, TuneError> {
    let path = "/proc/sys/kernel/random/boot_id";
    let text = std::fs::read_to_string(path).map_err(|reason| TuneError::State {
        path: path.into(),
        doing: "read it",
        reason,
    })?;
    Ok(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    fn state(pid: u32) -> State {
        State {
            boot: "b".to_owned(),
            pid,
            entries: Vec::new(),
        }
    }

    #[test]
    fn one_has_it_at_a_time_and_it_goes_with_the_last() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("state");
        let me = rustix::process::geteuid().as_raw();
        let dir = Dir::lock_at(&path, me).unwrap();
        dir.write(RUN, &state(std::process::id())).unwrap();
        let second = Dir::lock_at(&path, me).unwrap_err();
        assert!(matches!(second, TuneError::Busy { pid: Some(pid) } if pid == std::process::id()));
        assert_eq!(dir.read(RUN).unwrap(), Some(state(std::process::id())));
        assert_eq!(dir.read(KEPT).unwrap(), None);
        dir.remove(RUN).unwrap();
        dir.leave();
        assert!(!path.exists());
        let again = Dir::lock_at(&path, me).unwrap();
        again.write(KEPT, &state(1)).unwrap();
        again.leave();
        assert!(path.join(KEPT).exists());
    }

    #[test]
    fn what_others_could_have_made_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let me = rustix::process::geteuid().as_raw();
        let path = temp.path().join("state");
        let refused = |result: Result<Dir, TuneError>| {
            assert!(
                matches!(result, Err(TuneError::Unsafe { .. })),
                "{result:?}"
            );
        };
        refused(Dir::lock_at(&temp.path().join("other"), me + 1));
        drop(Dir::lock_at(&path, me).unwrap());
        let link = temp.path().join("link");
        symlink(&path, &link).unwrap();
        refused(Dir::lock_at(&link, me));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o750)).unwrap();
        refused(Dir::lock_at(&path, me));
        let file = temp.path().join("file");
        std::fs::write(&file, "").unwrap();
        refused(Dir::lock_at(&file, me));
    }

    #[test]
    fn a_zombie_is_not_alive() {
        assert!(is_alive(std::process::id()));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let end = Instant::now() + Duration::from_secs(5);
        while is_alive(child.id()) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(!is_alive(child.id()));
        child.wait().unwrap();
    }
}
