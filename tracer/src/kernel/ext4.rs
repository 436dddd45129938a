//! What an ext4 filesystem says of itself: geometry from its superblock
//! (Documentation/filesystems/ext4/super.rst), options from /proc.

use super::block::DevNumber;
use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::Path,
};

/// Sizes that a filesystem was made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Size of a block.
    pub block_bytes: u64,
    /// Size of an inode on disk.
    pub inode_bytes: u64,
    /// Inodes of a block group.
    pub inodes_per_group: u64,
    /// Blocks of a block group.
    pub blocks_per_group: u64,
    /// Size of the journal inside the filesystem; none without one.
    pub journal_bytes: Option<u64>,
}

/// Where the superblock is, and how much of it is read.
const SUPERBLOCK: u64 = 1024;
const BYTES: usize = 1024;
const MAGIC: u32 = 0xef53;
const HAS_JOURNAL: u32 = 4;

/// Name of a device in /sys/class/block and /dev.
fn name(dev: DevNumber) -> Option<String> {
    let path = fs::canonicalize(format!("/sys/dev/block/{dev}")).ok()?;
    Some(path.file_name()?.to_str()?.to_owned())
}

/// Its sizes; none where the device cannot be read or holds something else.
pub fn geometry(dev: DevNumber) -> Option<Geometry> {
    let device = File::open(Path::new("/dev").join(name(dev)?)).ok()?;
    let mut bytes = [0; BYTES];
    device.read_exact_at(&mut bytes, SUPERBLOCK).ok()?;
    parse(&bytes)
}

/// Its options, as the kernel has them, defaults too, a line each; none when
/// it is mounted nowhere.
pub fn options(dev: DevNumber) -> Option<String> {
    fs::read_to_string(format!("/proc/fs/ext4/{}/options", name(dev)?)).ok()
}

fn parse(bytes: &[u8; BYTES]) -> Option<Geometry> {
    let word = |at: usize| {
        let mut number = [0; 4];
        number.copy_from_slice(&bytes[at..at + 4]);
        u32::from_le_bytes(number)
    };
    if word(0x38) & 0xffff != MAGIC || word(0x18) > 6 {
        return None;
    }
    // Revision 0 has inodes of 128 bytes.
    let inode_bytes = if word(0x4c) == 0 {
        128
    } else {
        word(0x58) & 0xffff
    };
    // A copy of the journal inode's block list; its size comes last.
    let journal_bytes = u64::from(word(0x10c + 15 * 4)) << 32 | u64::from(word(0x10c + 16 * 4));
    let journal = word(0x5c) & HAS_JOURNAL != 0 && journal_bytes > 0;
    Some(Geometry {
        block_bytes: 1024 << word(0x18),
        inode_bytes: inode_bytes.into(),
        inodes_per_group: word(0x28).into(),
        blocks_per_group: word(0x20).into(),
        journal_bytes: journal.then_some(journal_bytes),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_superblock_is_read() {
        let mut bytes = [0; BYTES];
        let mut put = |at: usize, value: u32| {
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        };
        put(0x18, 2);
        put(0x20, 32768);
        put(0x28, 8192);
        put(0x38, 0x1_ef53);
        put(0x4c, 1);
        put(0x58, 256);
        put(0x5c, 0x3c);
        put(0x10c + 16 * 4, 64 << 20);
        let expected = Geometry {
            block_bytes: 4096,
            inode_bytes: 256,
            inodes_per_group: 8192,
            blocks_per_group: 32768,
            journal_bytes: Some(64 << 20),
        };
        assert_eq!(parse(&bytes), Some(expected));
        bytes[0x38] = 0;
        assert_eq!(parse(&bytes), None);
    }
}
