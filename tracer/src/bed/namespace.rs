//! The private mount namespace of the calling thread, and in it a small tmpfs
//! over /run/writepath.bed that holds the mount points.
//!
//! /run/writepath.bed is an empty directory for everybody else. It is removed
//! by whoever leaves last: each user holds a shared lock on it, for removing
//! a directory takes away what others have mounted on it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, UnmountFlags};
use rustix::thread::UnshareFlags;

use super::BedError;
use super::mount;

/// The directory that everybody sees empty.
const BASE: &str = "/run/writepath.bed";

/// A mount namespace of ours with its mount points.
#[derive(Debug)]
pub struct Private {
    namespace: u64,
    // After the namespace's mount on it is gone.
    _base: Base,
}

/// The directory, held against removal by others and removed by the last.
#[derive(Debug)]
struct Base(OwnedFd);

/// The namespaces that this process has made and still uses.
static MADE: Mutex<Vec<Weak<Private>>> = Mutex::new(Vec::new());

/// Moves the calling thread into a private mount namespace, unless it is in
/// one of ours already.
pub fn enter() -> Result<Arc<Private>, BedError> {
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    made.retain(|private| private.strong_count() > 0);
    let here = current()?;
    if let Some(private) = made
        .iter()
        .filter_map(Weak::upgrade)
        .find(|private| private.namespace == here)
    {
        return Ok(private);
    }
    let base = Base::lock()?;
    let fail = |call| {
        move |errno: Errno| BedError::Namespace {
            call,
            reason: errno.into(),
        }
    };
    // SAFETY: NEWNS unshares the mount namespace (and with it the working
    // directory) of this thread; no memory and no descriptor is affected.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }.map_err(fail("unshare"))?;
    let private = Arc::new(Private {
        namespace: current()?,
        _base: base,
    });
    rustix::mount::mount_change(
        "/",
        MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
    )
    .map_err(fail("make / private"))?;
    // The descriptor that is locked lies in the old namespace: open it anew.
    open_base()
        .map_err(io::Error::from)
        .and_then(|here| mount::tmpfs(&here))
        .map_err(|reason| BedError::MountPoint {
            path: BASE.into(),
            reason,
        })?;
    made.push(Arc::downgrade(&private));
    Ok(private)
}

/// Makes a mount point named after the device, in the calling thread's
/// namespace, which must be one of ours.
pub fn make_point(name: &str) -> Result<PathBuf, BedError> {
    let path = Path::new(BASE).join(name);
    match std::fs::create_dir(&path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(BedError::MountPoint {
            path,
            reason: error,
        }),
        _ => Ok(path),
    }
}

impl Private {
    /// Removes a mount point. One that is busy goes with the namespace.
    pub fn remove_point(&self, path: &Path) {
        if self.is_here() {
            let _ = std::fs::remove_dir(path);
        }
    }

    fn is_here(&self) -> bool {
        current().is_ok_and(|here| here == self.namespace)
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        // From elsewhere it cannot be reached; it ends with its last process.
        if self.is_here() {
            let _ = rustix::mount::unmount(BASE, UnmountFlags::NOFOLLOW);
        }
    }
}

/// The number of the calling thread's mount namespace.
fn current() -> Result<u64, BedError> {
    std::fs::metadata("/proc/thread-self/ns/mnt")
        .map(|metadata| metadata.ino())
        .map_err(|reason| BedError::Namespace {
            call: "stat /proc/thread-self/ns/mnt",
            reason,
        })
}

impl Base {
    /// Makes and opens the directory and holds it against removal.
    fn lock() -> Result<Self, BedError> {
        let fail = |errno: Errno| BedError::MountPoint {
            path: BASE.into(),
            reason: errno.into(),
        };
        loop {
            match rustix::fs::mkdir(BASE, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(fail(errno)),
            }
            let base = match open_base() {
                Err(Errno::NOENT) => continue,
                opened => opened.map_err(fail)?,
            };
            rustix::fs::flock(&base, FlockOperation::LockShared).map_err(fail)?;
            // Removed between opening and locking? Then start again.
            if same(base.as_fd()).map_err(fail)? {
                return Ok(Self(base));
            }
        }
    }
}

impl Drop for Base {
    fn drop(&mut self) {
        if rustix::fs::flock(&self.0, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = std::fs::remove_dir(BASE);
        }
    }
}

fn open_base() -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(BASE, flags, Mode::empty())
}

fn same(base: impl AsFd) -> Result<bool, Errno> {
    let held = rustix::fs::fstat(base)?;
    match rustix::fs::lstat(BASE) {
        Ok(named) => Ok((named.st_dev, named.st_ino) == (held.st_dev, held.st_ino)),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno),
    }
}
