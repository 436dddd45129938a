//! The bed: a throw-away ext4 filesystem on a loop device to experiment on.
//!
//! Nothing of it outlives the process, however that ends. The image has no
//! name from the moment it is open, the loop device clears itself when its
//! last user is gone, and the mount exists in a private mount namespace only,
//! which ends with its last process. kill -9 leaves no mount, no loop device
//! and no file (an empty directory /run/writepath.bed at most).
//!
//! [`Bed::new`] moves the **calling thread** into a private mount namespace:
//! call it before other threads or children are started, which inherit it.
//! Threads that exist already do not see the mount. Drop the bed in a thread
//! that sees it. This module never touches a device that it did not attach.

mod error;
mod image;
mod knobs;
mod loopdev;
mod mkfs;
mod mount;
mod namespace;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use error::BedError;

use image::Image;
use loopdev::LoopDevice;
use mount::Mount;
use namespace::Private;

/// What kind of bed.
#[derive(Debug, Clone)]
pub struct BedOptions {
    /// Directory of the image; its space is taken for as long as the bed is.
    pub dir: PathBuf,
    /// Size of the image in bytes.
    pub size_bytes: u64,
    /// Arguments of mkfs.ext4 before the device.
    pub mkfs_args: Vec<String>,
    /// Mount options as in fstab, comma separated; nosuid, nodev and noexec
    /// are always on.
    pub mount_options: String,
    /// Owner of the filesystem's root directory (uid, gid); none: root.
    pub owner: Option<(u32, u32)>,
    /// Put a second loop device on the first, and the filesystem on that: what
    /// slows the lower one down is then a slow device below a disk with a
    /// queue of its own.
    pub stacked: bool,
}

impl Default for BedOptions {
    fn default() -> Self {
        Self {
            dir: PathBuf::from("/var/tmp"),
            size_bytes: 1 << 30,
            // Lazy initialisation would write for minutes after the mount.
            mkfs_args: ["-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0"]
                .map(str::to_owned)
                .to_vec(),
            mount_options: String::new(),
            owner: None,
            stacked: false,
        }
    }
}

/// A mounted throw-away filesystem.
#[derive(Debug)]
pub struct Bed {
    // In the order in which they have to go.
    mount: Option<Mount>,
    device: LoopDevice,
    below: Option<LoopDevice>,
    private: Arc<Private>,
    mount_point: PathBuf,
}

/// How long the kernel is given to detach a device whose users are gone.
const DETACH: Duration = Duration::from_secs(2);

impl Bed {
    /// Makes image, loop device and filesystem and mounts it.
    pub fn new(options: &BedOptions) -> Result<Self, BedError> {
        if !rustix::process::geteuid().is_root() {
            return Err(BedError::NotRoot);
        }
        let mkfs = mkfs::find()?;
        let wanted = mount::Options::parse(&options.mount_options)?;
        let private = namespace::enter()?;
        let image = Image::create(&options.dir, options.size_bytes)?;
        let lowest = LoopDevice::attach(&image)?;
        knobs::reset(lowest.name())?;
        let (device, below) = if options.stacked {
            let upper = lowest.stack()?;
            knobs::reset(upper.name())?;
            (upper, Some(lowest))
        } else {
            (lowest, None)
        };
        mkfs::run(&mkfs, &options.mkfs_args, &device.path())?;
        // mkfs discards, which punched holes: take the space again, so that
        // the bed cannot run out of it half way.
        image.allocate()?;
        let mount_point = namespace::make_point(device.name())?;
        let mount = Mount::new(&device.path(), &wanted, options.owner, &mount_point)?;
        Ok(Self {
            mount: Some(mount),
            device,
            below,
            private,
            mount_point,
        })
    }

    /// Where it is mounted, visible to this thread and what it starts.
    pub fn mount_point(&self) -> &Path {
        &self.mount_point
    }

    /// The loop device's name, such as `loop7`.
    pub fn device_name(&self) -> &str {
        self.device.name()
    }

    /// The name of the device below, in a stacked bed.
    pub fn below(&self) -> Option<&str> {
        self.below.as_ref().map(LoopDevice::name)
    }

    /// Whether the loop device goes around the page cache of the filesystem
    /// that holds the image. Where not (a tmpfs before Linux 6.6), the bed
    /// works, but its device answers before the data is anywhere.
    pub fn direct_io(&self) -> bool {
        self.device.direct_io()
    }

    /// Unmounts it. The device stays until the bed is dropped, so that its
    /// counters can be read. Does nothing when it is unmounted already.
    pub fn umount(&mut self) -> Result<(), BedError> {
        if let Some(mount) = self.mount.take()
            && let Err((mount, error)) = mount.umount()
        {
            self.mount = Some(mount);
            return Err(error);
        }
        Ok(())
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        if let Some(mount) = self.mount.take() {
            mount.detach();
        }
        // The next user of this loop device's number shall not inherit what
        // an experiment set. Nobody could act on an error here; attaching
        // resets them again and reports.
        for device in std::iter::once(&self.device).chain(&self.below) {
            let _ = knobs::reset(device.name());
        }
        self.private.remove_point(&self.mount_point);
        let deadline = Instant::now() + DETACH;
        for device in std::iter::once(&mut self.device).chain(&mut self.below) {
            device.release();
            while device.is_attached() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}
