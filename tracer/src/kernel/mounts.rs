//! Mounted filesystems: which devices hold ext4, in which mode, and which
//! hold another. ext4 also shows mounts of other namespaces, in /proc/fs.

use super::block::DevNumber;
use procfs::process::{MountInfo, Process};
use std::{
    collections::HashMap,
    fs::{self, File},
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
};

/// One mounted filesystem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Type, as in /proc/filesystems.
    pub kind: String,
    /// Where, in our namespace; ext4 may be mounted in another alone.
    pub point: Option<PathBuf>,
    /// Source device.
    pub source: Option<String>,
    /// Seconds of `commit=`, for ext4.
    pub commit_s: Option<u32>,
    /// `data=journal`.
    pub data_journal: bool,
    /// log2 of the block size in sectors, for ext4.
    pub block_shift: u32,
}

fn parse_dev(text: &str) -> Option<DevNumber> {
    let (major, minor) = text.split_once(':')?;
    Some(DevNumber {
        major: major.parse().ok()?,
        minor: minor.parse().ok()?,
    })
}

fn table() -> Vec<MountInfo> {
    let mounts = Process::myself().and_then(|process| process.mountinfo());
    mounts.map(|mounts| mounts.0).unwrap_or_default()
}

fn from_info(info: &MountInfo) -> Mount {
    Mount {
        kind: info.fs_type.clone(),
        point: Some(info.mount_point.clone()),
        source: info.mount_source.clone(),
        commit_s: None,
        data_journal: false,
        block_shift: 3,
    }
}

/// Every mounted filesystem that has a block device, by its number.
pub fn by_device() -> HashMap<DevNumber, Mount> {
    let mut mounts = HashMap::new();
    for info in table() {
        let source = info.mount_source.as_deref().unwrap_or_default();
        let by_source = fs::metadata(source)
            .ok()
            .filter(|found| source.starts_with("/dev") && found.rdev() != 0)
            .map(|found| DevNumber::from_stat(found.rdev()));
        let by_number = parse_dev(&info.majmin).filter(|dev| dev.major != 0);
        if let Some(dev) = by_number.or(by_source) {
            let whole = info.root == "/";
            if whole || !mounts.contains_key(&dev) {
                mounts.insert(dev, from_info(&info));
            }
        }
    }
    for entry in fs::read_dir("/proc/fs/ext4")
        .into_iter()
        .flatten()
        .flatten()
    {
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let dev = fs::read_to_string(format!("/sys/class/block/{name}/dev"));
        let Some(dev) = dev.ok().and_then(|text| parse_dev(text.trim())) else {
            continue;
        };
        let options = fs::read_to_string(entry.path().join("options")).unwrap_or_default();
        let mount = mounts.entry(dev).or_insert_with(|| Mount {
            kind: "ext4".to_owned(),
            point: None,
            source: Some(format!("/dev/{name}")),
            commit_s: None,
            data_journal: false,
            block_shift: 3,
        });
        "ext4".clone_into(&mut mount.kind);
        mount.commit_s = options
            .lines()
            .find_map(|line| line.strip_prefix("commit=")?.parse().ok());
        mount.data_journal = options.lines().any(|line| line == "data=journal");
        mount.block_shift = block_shift(mount.point.as_deref(), &name).unwrap_or(3);
    }
    mounts
}

/// log2 of the block size in sectors: from the mount, or, where another
/// namespace has it, from the device.
fn block_shift(point: Option<&Path>, name: &str) -> Option<u32> {
    match point.and_then(|point| rustix::fs::statvfs(point).ok()) {
        Some(found) => Some((found.f_bsize / 512).max(1).ilog2()),
        None => ext4_block_shift(name),
    }
}

/// From the superblock: `s_log_block_size`, at byte 24 of byte 1024
/// (Documentation/filesystems/ext4/super.rst).
fn ext4_block_shift(name: &str) -> Option<u32> {
    let device = File::open(Path::new("/dev").join(name)).ok()?;
    let mut bytes = [0; 4];
    device.read_exact_at(&mut bytes, 1024 + 24).ok()?;
    let shift = u32::from_le_bytes(bytes);
    (shift <= 6).then_some(shift + 1)
}

/// The mount that a directory is on.
pub fn of_directory(path: &Path) -> Option<Mount> {
    let path = path.canonicalize().ok()?;
    table()
        .iter()
        .filter(|info| path.starts_with(&info.mount_point))
        .max_by_key(|info| info.mount_point.components().count())
        .map(from_info)
}
