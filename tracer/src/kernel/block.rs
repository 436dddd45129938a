//! Block devices: which disks there are, what they counted, how they flush.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::{FileExt, FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

/// A device number in the kernel's own form (major << 20 | minor), which
/// tracepoints carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DevNumber {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

impl DevNumber {
    /// As tracepoints carry it.
    pub fn kernel(self) -> u32 {
        self.major << 20 | self.minor
    }

    /// From a tracepoint.
    pub fn from_kernel(dev: u32) -> Self {
        Self {
            major: dev >> 20,
            minor: dev & 0xf_ffff,
        }
    }

    /// From `stat(2)`.
    pub fn from_stat(dev: u64) -> Self {
        Self {
            major: rustix::fs::major(dev),
            minor: rustix::fs::minor(dev),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.trim().split_once(':')?;
        Some(Self {
            major: major.parse().ok()?,
            minor: minor.parse().ok()?,
        })
    }
}

impl std::fmt::Display for DevNumber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// Why a device cannot be traced.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// Nothing of this name.
    #[error(
        "no such device: {0}; name a disk or partition (mmcblk0, /dev/mmcblk0p2, 179:0) or a directory on it"
    )]
    Missing(String),
    /// A file that is neither block device nor directory.
    #[error("{0} is not a block device and not a directory")]
    NotBlock(String),
    /// A directory on a filesystem that has no disk.
    #[error("{path} is on {fs}, which has no block device")]
    NoDevice {
        /// The directory.
        path: String,
        /// What it is on.
        fs: String,
    },
    /// The kernel does not count for it.
    #[error("{0} does not count: write 1 to /sys/block/{0}/queue/iostats and start again")]
    NotCounting(String),
    /// It could not be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// What was read.
        path: String,
        /// Why it failed.
        source: io::Error,
    },
}

/// A partition of a disk, or the whole disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Its number.
    pub dev: DevNumber,
    /// First sector on the disk.
    pub start: u64,
}

/// A whole disk, as in /sys/block.
#[derive(Debug)]
pub struct Disk {
    /// Its name in /sys/block.
    pub name: String,
    /// Its number.
    pub dev: DevNumber,
    stat: File,
}

/// What a disk counted since it came up (Documentation/block/stat.rst).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskStat {
    /// Sectors of 512 bytes written.
    pub sectors_written: u64,
    /// Sectors discarded.
    pub sectors_discarded: u64,
    /// Flushes done.
    pub flushes: u64,
    /// Requests in flight, reads too.
    pub in_flight: u64,
}

impl Disk {
    /// Opens a disk by its name in /sys/block.
    pub fn open(name: &str) -> Result<Self, DeviceError> {
        let root = Path::new("/sys/block").join(name);
        let read = |path: &Path, source| DeviceError::Read {
            path: path.display().to_string(),
            source,
        };
        let dev_path = root.join("dev");
        let dev = fs::read_to_string(&dev_path)
            .ok()
            .and_then(|text| DevNumber::parse(&text))
            .ok_or_else(|| DeviceError::Missing(name.to_owned()))?;
        let stat_path = root.join("stat");
        let stat = File::open(&stat_path).map_err(|source| read(&stat_path, source))?;
        if fs::read_to_string(root.join("queue/iostats")).is_ok_and(|text| text.trim() == "0") {
            return Err(DeviceError::NotCounting(name.to_owned()));
        }
        Ok(Self {
            name: name.to_owned(),
            dev,
            stat,
        })
    }

    /// What it counted so far.
    pub fn stat(&self) -> io::Result<DiskStat> {
        let mut buffer = [0; 512];
        let len = self.stat.read_at(&mut buffer, 0)?;
        let text = std::str::from_utf8(&buffer[..len]).map_err(io::Error::other)?;
        let mut numbers = text.split_ascii_whitespace().map(str::parse::<u64>);
        let mut skip = |count: usize| numbers.nth(count).and_then(Result::ok);
        let sectors_written = skip(6).ok_or_else(|| io::Error::other("short stat"))?;
        let in_flight = skip(1).unwrap_or_default();
        // Kernels before 4.18 count no discards, before 5.5 no flushes.
        let sectors_discarded = skip(4).unwrap_or_default();
        let flushes = skip(1).unwrap_or_default();
        Ok(DiskStat {
            sectors_written,
            sectors_discarded,
            flushes,
            in_flight,
        })
    }

    fn queue(&self, name: &str) -> Option<String> {
        let path = format!("/sys/block/{}/queue/{name}", self.name);
        Some(fs::read_to_string(path).ok()?.trim().to_owned())
    }

    /// Whether it has a volatile write cache, so that flushes reach it.
    pub fn has_cache(&self) -> bool {
        self.queue("write_cache")
            .is_some_and(|text| text == "write back")
    }

    /// Whether it writes through by itself when asked.
    pub fn has_fua(&self) -> bool {
        self.queue("fua").is_some_and(|text| text == "1")
    }

    /// Whether it is still there.
    pub fn exists(&self) -> bool {
        Path::new("/sys/block").join(&self.name).exists()
    }

    /// The disk and its partitions.
    pub fn parts(&self) -> Vec<Part> {
        let mut parts = vec![Part {
            dev: self.dev,
            start: 0,
        }];
        let root = Path::new("/sys/block").join(&self.name);
        let entries = fs::read_dir(&root).into_iter().flatten().flatten();
        for path in entries.map(|entry| entry.path()) {
            let number = |name: &str| fs::read_to_string(path.join(name)).ok();
            if path.join("partition").exists()
                && let Some(dev) = number("dev").and_then(|text| DevNumber::parse(&text))
                && let Some(Ok(start)) = number("start").map(|text| text.trim().parse())
            {
                parts.push(Part { dev, start });
            }
        }
        parts
    }
}

/// The disk that a device number belongs to.
fn disk_of(dev: DevNumber) -> Option<String> {
    let path = fs::canonicalize(format!("/sys/dev/block/{dev}")).ok()?;
    let whole = if path.join("partition").exists() {
        path.parent()?.to_path_buf()
    } else {
        path
    };
    Some(whole.file_name()?.to_str()?.to_owned())
}

/// Resolves what a user types after `-d`: a name in /sys/block or /dev, a
/// path, `major:minor`, or a directory.
pub fn resolve(text: &str) -> Result<String, DeviceError> {
    let missing = || DeviceError::Missing(text.to_owned());
    if let Some(dev) = DevNumber::parse(text) {
        return disk_of(dev).ok_or_else(missing);
    }
    if !text.contains('/') && !text.starts_with('.') {
        let in_dev = PathBuf::from("/dev").join(text);
        if Path::new("/sys/block").join(text).is_dir() {
            return Ok(text.to_owned());
        }
        if in_dev.exists() {
            return resolve_path(&in_dev, text);
        }
    }
    resolve_path(Path::new(text), text)
}

fn resolve_path(path: &Path, text: &str) -> Result<String, DeviceError> {
    let missing = || DeviceError::Missing(text.to_owned());
    let found = fs::metadata(path).map_err(|_| missing())?;
    if found.file_type().is_block_device() {
        return disk_of(DevNumber::from_stat(found.rdev())).ok_or_else(missing);
    }
    if !found.is_dir() {
        return Err(DeviceError::NotBlock(text.to_owned()));
    }
    let dev = DevNumber::from_stat(found.dev());
    if let Some(disk) = disk_of(dev) {
        return Ok(disk);
    }
    // btrfs and overlays give directories an anonymous number: ask the mount.
    let mount = super::mounts::of_directory(path);
    let source = mount.as_ref().and_then(|mount| mount.source.clone());
    match source.map(PathBuf::from) {
        Some(source) if source.starts_with("/dev") => resolve_path(&source, text),
        _ => Err(DeviceError::NoDevice {
            path: text.to_owned(),
            fs: mount.map_or_else(|| "an unknown filesystem".to_owned(), |mount| mount.kind),
        }),
    }
}

/// Each disk that is not loop, ram or zram and not built on another.
pub fn default_disks() -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir("/sys/block")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| {
            !["loop", "ram", "zram"]
                .iter()
                .any(|kind| name.starts_with(kind))
        })
        .filter(|name| {
            let slaves = format!("/sys/block/{name}/slaves");
            fs::read_dir(slaves).is_ok_and(|mut entries| entries.next().is_none())
        })
        .filter(|name| {
            let size = fs::read_to_string(format!("/sys/block/{name}/size"));
            size.is_ok_and(|text| text.trim() != "0")
        })
        .collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_kernels() {
        let dev = DevNumber {
            major: 259,
            minor: 3,
        };
        assert_eq!(DevNumber::from_kernel(dev.kernel()), dev);
        assert_eq!(DevNumber::parse("259:3\n"), Some(dev));
        assert_eq!(dev.to_string(), "259:3");
    }

    #[test]
    fn what_is_no_device_is_refused() {
        assert!(matches!(
            resolve("/etc/passwd"),
            Err(DeviceError::NotBlock(_))
        ));
        assert!(matches!(
            resolve("nosuchdisk"),
            Err(DeviceError::Missing(_))
        ));
        assert!(matches!(
            resolve("/proc"),
            Err(DeviceError::NoDevice { .. })
        ));
    }
}
