//! Who owns which sectors of the disk: the journal's extents, each file's,
//! and metadata for the rest of the filesystem. Entry: [`Map::of`].

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::requests::Request;
use crate::bed::Bed;
use crate::disk::ioctl;
use crate::script::FS_IOC_FIEMAP;
use crate::writers::BLOCK;

/// Who owns a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    Journal,
    /// By inode number.
    File(u64),
    Metadata,
    /// Not in the filesystem: another partition, the table.
    Outside,
}

/// Sectors written, by owner.
pub type Sums = BTreeMap<Owner, u64>;

/// Ranges of sectors of the whole disk with their owners, in order.
pub struct Map {
    ranges: Vec<(u64, u64, Owner)>,
    /// Where the filesystem begins.
    start: u64,
}

impl Map {
    /// Reads the places of the journal and of all files of a mounted bed.
    /// FIEMAP is asked without its sync flag, which would itself write.
    pub fn of(bed: &Bed) -> Result<Map> {
        let start = bed.fs_offset() / 512;
        let mut ranges = Vec::new();
        for (block, blocks) in journal(bed.fs_node())? {
            let first = start + block * BLOCK / 512;
            ranges.push((first, first + blocks * BLOCK / 512, Owner::Journal));
        }
        files(&bed.mnt(), &mut |ino, path| {
            for (byte, len) in fiemap(path)? {
                let first = start + byte / 512;
                ranges.push((first, first + len / 512, Owner::File(ino)));
            }
            Ok(())
        })?;
        Map::new(ranges, start)
    }

    fn new(mut ranges: Vec<(u64, u64, Owner)>, start: u64) -> Result<Map> {
        ranges.sort_unstable();
        for pair in ranges.windows(2) {
            ensure!(pair[0].1 <= pair[1].0, "two owners of one place: {pair:?}");
        }
        Ok(Map { ranges, start })
    }

    /// The same map as if everything of `owner` lay `sectors` further on.
    pub fn shifted(&self, owner: impl Fn(Owner) -> bool, sectors: u64) -> Map {
        let moved = self.ranges.iter().map(|&(first, end, who)| {
            let by = if owner(who) { sectors } else { 0 };
            (first + by, end + by, who)
        });
        let mut ranges: Vec<_> = moved.collect();
        ranges.sort_unstable();
        Map {
            ranges,
            start: self.start,
        }
    }

    /// The inodes of all files of the map.
    pub fn inodes(&self) -> Vec<u64> {
        let files = self.ranges.iter().filter_map(|range| match range.2 {
            Owner::File(ino) => Some(ino),
            _ => None,
        });
        let mut inodes: Vec<u64> = files.collect();
        inodes.sort_unstable();
        inodes.dedup();
        inodes
    }

    /// Adds up requests by owner, sector by sector.
    pub fn place(&self, requests: &[Request]) -> Sums {
        let mut sums = Sums::new();
        for request in requests {
            let mut at = request.sector;
            let end = request.sector + request.sectors;
            while at < end {
                let (owner, until) = self.owner(at);
                let next = until.min(end);
                *sums.entry(owner).or_default() += next - at;
                at = next;
            }
        }
        sums
    }

    /// The owner of a sector, and where that owner's stretch ends.
    fn owner(&self, sector: u64) -> (Owner, u64) {
        let after = self.ranges.partition_point(|range| range.1 <= sector);
        match self.ranges.get(after) {
            Some(&(first, end, owner)) if first <= sector => (owner, end),
            other => {
                let next = other.map_or(u64::MAX, |range| range.0);
                if sector < self.start {
                    (Owner::Outside, next.min(self.start))
                } else {
                    (Owner::Metadata, next)
                }
            }
        }
    }
}

/// Extents (block, blocks) of inode 8 as debugfs reads them from the device;
/// its first block is the journal's superblock. None without a journal.
fn journal(node: &Path) -> Result<Vec<(u64, u64)>> {
    let output = Command::new("debugfs")
        .args(["-c", "-R", "dump_extents <8>"])
        .arg(node)
        .output()
        .context("running debugfs")?;
    ensure!(
        output.status.success(),
        "debugfs: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(leaves(&String::from_utf8_lossy(&output.stdout)))
}

/// `0/ 0   1/  1     0 -  1023   8705 -   9728   1024`: leaves have two ranges.
fn leaves(text: &str) -> Vec<(u64, u64)> {
    let lines = text.lines().filter_map(|line| {
        let numbers: Vec<u64> = line
            .split(|c: char| c.is_whitespace() || c == '/' || c == '-')
            .filter(|word| !word.is_empty())
            .map_while(|word| word.parse().ok())
            .collect();
        match numbers[..] {
            [_, _, _, _, _, _, first, last, blocks] if last + 1 == first + blocks => {
                Some((first, blocks))
            }
            _ => None,
        }
    });
    lines.collect()
}

/// Calls `each` for every regular file below `dir`.
fn files(dir: &Path, each: &mut dyn FnMut(u64, &Path) -> Result<()>) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))? {
        let path = entry?.path();
        let metadata = fs::symlink_metadata(&path)?;
        if metadata.is_dir() {
            files(&path, each)?;
        } else if metadata.is_file() {
            each(metadata.ino(), &path)?;
        }
    }
    Ok(())
}

/// Extents (byte, bytes) of a file on its device.
fn fiemap(path: &Path) -> Result<Vec<(u64, u64)>> {
    const EXTENTS: usize = 128;
    const LAST: u32 = 1;
    // UNKNOWN, DELALLOC: not on the device yet. DATA_INLINE: in the inode.
    const NO_PLACE: u32 = 0x2 | 0x4 | 0x200;
    let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
    let mut found = Vec::new();
    let mut from = 0;
    loop {
        let mut request = Box::new(Fiemap {
            start: from,
            length: u64::MAX - from,
            flags: 0,
            mapped: 0,
            count: EXTENTS as u32,
            reserved: 0,
            extents: [Extent::default(); EXTENTS],
        });
        // SAFETY: struct fiemap with room for the extents it names.
        unsafe { ioctl(file.as_raw_fd(), FS_IOC_FIEMAP, &raw mut *request) }
            .with_context(|| format!("FIEMAP of {}", path.display()))?;
        let extents = &request.extents[..request.mapped as usize];
        found.extend(
            extents
                .iter()
                .filter(|extent| extent.flags & NO_PLACE == 0)
                .map(|extent| (extent.physical, extent.length)),
        );
        match extents.last() {
            Some(last) if last.flags & LAST == 0 => from = last.logical + last.length,
            _ => return Ok(found),
        }
    }
}

/// struct fiemap of linux/fiemap.h.
#[repr(C)]
struct Fiemap {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
    extents: [Extent; 128],
}

/// struct `fiemap_extent`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Extent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(sector: u64, sectors: u64) -> Request {
        Request {
            sector,
            sectors,
            zeroes: false,
        }
    }

    #[test]
    fn leaves_of_debugfs() {
        let text = "Level Entries       Logical          Physical Length Flags\n \
            0/ 1   1/  1     0 -  4095  32800           4096\n \
            1/ 1   1/  2     0 -  1022  32768 -  33790   1023 \n \
            1/ 1   2/  2  1023 -  4095  40000 -  43072   3073 Uninit\n";
        assert_eq!(leaves(text), [(32768, 1023), (40000, 3073)]);
    }

    #[test]
    fn requests_are_cut_at_borders() {
        let ranges = vec![
            (100, 108, Owner::File(12)),
            (108, 116, Owner::Journal),
            (124, 132, Owner::File(12)),
        ];
        let map = Map::new(ranges, 64).unwrap();
        let written = [write(0, 8), write(60, 72), write(128, 16)];
        let sums = map.place(&written);
        assert_eq!(sums[&Owner::Outside], 12);
        assert_eq!(sums[&Owner::File(12)], 8 + 8 + 4);
        assert_eq!(sums[&Owner::Journal], 8);
        assert_eq!(sums[&Owner::Metadata], 36 + 8 + 12);
        assert_eq!(sums.values().sum::<u64>(), 96);
        let shifted = map
            .shifted(|owner| owner == Owner::Journal, 8)
            .place(&written);
        assert_ne!(shifted, map.place(&[write(0, 96)]));
    }

    #[test]
    fn two_owners_of_one_place_are_refused() {
        let ranges = vec![(0, 16, Owner::Journal), (8, 24, Owner::File(12))];
        assert!(Map::new(ranges, 0).is_err());
    }
}
