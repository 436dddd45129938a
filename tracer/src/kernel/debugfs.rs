//! Pseudo filesystems that nobody mounted, and what debugfs says of a bdi.

use super::machine;
use rustix::{
    fd::AsRawFd,
    mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen},
};
use std::{
    ffi::CStr,
    fs,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

/// Opens a pseudo filesystem without a mount point; the path works as long as
/// the descriptor lives.
pub fn detached_mount(kind: &CStr) -> std::io::Result<(PathBuf, OwnedFd)> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let mount = fsmount(
        &context,
        FsMountFlags::FSMOUNT_CLOEXEC,
        MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NODEV
            | MountAttrFlags::MOUNT_ATTR_NOEXEC,
    )?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd()));
    Ok((path, mount))
}

/// Why the kernel's counters tell nothing: cgroups write back their own.
const BLIND: &str = "only pages of the root cgroup are counted";

/// Dirty and in-flight page-cache data per device, from debugfs.
pub struct Dirty {
    root: PathBuf,
    blind: bool,
    _mount: Option<OwnedFd>,
}

/// Page cache of one device that it has not got yet, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirtyBytes {
    /// Dirty, not yet submitted.
    pub dirty: u64,
    /// Submitted, not yet completed.
    pub writeback: u64,
}

impl Dirty {
    /// Opens debugfs.
    pub fn open() -> std::io::Result<Self> {
        let mounted = PathBuf::from("/sys/kernel/debug");
        let (root, mount) = if fs::metadata(mounted.join("bdi")).is_ok_and(|found| found.is_dir()) {
            (mounted, None)
        } else {
            let (root, mount) = detached_mount(c"debugfs")?;
            (root, Some(mount))
        };
        Ok(Self {
            blind: machine::cgroups_write_back() && !counts_every_cgroup(&root),
            root,
            _mount: mount,
        })
    }

    /// Why the counters tell nothing; none where they do.
    pub fn blind(&self) -> Option<&'static str> {
        self.blind.then_some(BLIND)
    }

    /// Of the device `major:minor`.
    pub fn read(&self, major: u32, minor: u32) -> std::io::Result<DirtyBytes> {
        if self.blind {
            return Err(std::io::Error::other(BLIND));
        }
        let path = self.root.join(format!("bdi/{major}:{minor}/stats"));
        let text = fs::read_to_string(path)?;
        parse(&text).ok_or_else(|| std::io::Error::other("bdi stats in an unknown form"))
    }

    /// Inodes of the device `major:minor` that are dirty; none where the
    /// kernel does not count them.
    pub fn inodes(&self, major: u32, minor: u32) -> Option<u64> {
        let path = self.root.join(format!("bdi/{major}:{minor}/stats"));
        parse_inodes(&fs::read_to_string(path).ok()?)
    }
}

/// Whether a device's `stats` are of all cgroups: since the kernel that has
/// `wb_stats` beside them (6.10).
fn counts_every_cgroup(root: &Path) -> bool {
    let devices = fs::read_dir(root.join("bdi")).into_iter().flatten();
    devices
        .flatten()
        .any(|device| device.path().join("wb_stats").exists())
}

/// Inodes that wait to be written, by their lists: dirty, in a round, back
/// for another round, and with nothing but a time that changed.
fn parse_inodes(text: &str) -> Option<u64> {
    let count = |key: &str| {
        let line = text.lines().find(|line| line.starts_with(key))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    let lists = ["b_dirty:", "b_io:", "b_more_io:", "b_dirty_time:"];
    lists.into_iter().map(count).sum()
}

/// How far the counters may be off, in bytes: each CPU keeps up to a batch of
/// pages of both to itself (`WB_STAT_BATCH`, include/linux/backing-dev.h).
pub fn error_bytes(cpus: u64) -> u64 {
    let batch = 8 * (1 + u64::from(cpus.max(1).ilog2()));
    2 * batch * cpus * rustix::param::page_size() as u64
}

/// `BdiReclaimable:    4 kB`.
fn parse(text: &str) -> Option<DirtyBytes> {
    let kilobytes = |key: &str| {
        let line = text.lines().find(|line| line.starts_with(key))?;
        let number: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
        Some(number * 1024)
    };
    Some(DirtyBytes {
        dirty: kilobytes("BdiReclaimable:")?,
        writeback: kilobytes("BdiWriteback:")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stats_are_read() {
        let text = "BdiWriteback:              8 kB\nBdiReclaimable:           12 kB\n";
        let bytes = DirtyBytes {
            dirty: 12288,
            writeback: 8192,
        };
        assert_eq!(parse(text), Some(bytes));
        assert_eq!(parse("BdiWriteback: x kB"), None);
        let lists = "b_dirty:  3\nb_io:  1\nb_more_io: 0\nb_dirty_time: 2\nbdi_list: 1\n";
        assert_eq!(parse_inodes(lists), Some(6));
        assert_eq!(parse_inodes(text), None);
    }
}
