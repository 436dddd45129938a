//! What can go wrong with a bed: what failed, on what, what to do.

use std::io;
use std::path::PathBuf;

/// An error of a bed.
#[derive(Debug, thiserror::Error)]
pub enum BedError {
    /// Not root.
    #[error("an image needs root: loop device and mount are root's; run it with sudo")]
    NotRoot,
    /// No private mount namespace.
    #[error("cannot enter a private mount namespace: {call}: {reason}")]
    Namespace {
        /// The call.
        call: &'static str,
        /// The reason.
        reason: io::Error,
    },
    /// The place for the mount cannot be made.
    #[error("{}: cannot be made a mount point: {reason}", path.display())]
    MountPoint {
        /// The directory.
        path: PathBuf,
        /// The reason.
        reason: io::Error,
    },
    /// The image cannot be made.
    #[error("{}: cannot make an image there: {reason}", dir.display())]
    Image {
        /// The directory.
        dir: PathBuf,
        /// The reason.
        reason: io::Error,
    },
    /// No room for the image.
    #[error(
        "{}: an image of {size} bytes does not fit, {available} bytes are free; \
         make it smaller or choose another directory",
        dir.display()
    )]
    NoSpace {
        /// The directory.
        dir: PathBuf,
        /// Bytes wanted.
        size: u64,
        /// Bytes free.
        available: u64,
    },
    /// The filesystem of the directory cannot set space aside.
    #[error(
        "{}: its filesystem cannot set space aside (fallocate); choose a directory \
         on ext4, XFS, btrfs or tmpfs",
        dir.display()
    )]
    NoFallocate {
        /// The directory.
        dir: PathBuf,
    },
    /// The loop driver is not there.
    #[error("/dev/loop-control: {reason}; is the loop driver loaded? try `modprobe loop`")]
    NoLoopDriver {
        /// The reason.
        reason: io::Error,
    },
    /// All loop devices are taken.
    #[error(
        "no free loop device: {why}; detach one (`losetup -l` lists them) or raise max_loop \
         of the loop driver"
    )]
    NoFreeLoop {
        /// What was tried.
        why: String,
    },
    /// A loop device cannot be attached.
    #[error("{device}: cannot attach the image (LOOP_CONFIGURE, Linux 5.8 or later): {reason}")]
    Attach {
        /// The device's path.
        device: String,
        /// The reason.
        reason: io::Error,
    },
    /// A tunable of the device cannot be set to its default.
    #[error("{}: cannot be reset to {value:?}: {reason}", path.display())]
    Knob {
        /// The file below /sys.
        path: PathBuf,
        /// What was written.
        value: String,
        /// The reason.
        reason: io::Error,
    },
    /// mkfs.ext4 is not installed.
    #[error("mkfs.ext4 is in none of {path}; install e2fsprogs")]
    NoMkfs {
        /// Where it was looked for.
        path: &'static str,
    },
    /// mkfs.ext4 failed.
    #[error("`{command}` failed, {status}:\n{stderr}")]
    Mkfs {
        /// The command line.
        command: String,
        /// How it ended.
        status: String,
        /// What it said.
        stderr: String,
    },
    /// A mount option is not taken.
    #[error("mount option `{option}`: {why}")]
    MountOption {
        /// The option.
        option: String,
        /// What the kernel said, or why it is not allowed.
        why: String,
    },
    /// The filesystem cannot be mounted.
    #[error("cannot mount {device} with options `{options}`: {why}")]
    Mount {
        /// The device's path.
        device: String,
        /// The mount options.
        options: String,
        /// What the kernel said.
        why: String,
    },
    /// The filesystem cannot be unmounted.
    #[error("cannot unmount {}: {reason}; a process may still work there", path.display())]
    Umount {
        /// The mount point.
        path: PathBuf,
        /// The reason.
        reason: io::Error,
    },
}
