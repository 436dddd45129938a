//! The inode of a bio by the pages it carries: for bios that a worker submits
//! for another (throttling), and for file data in the journal.
//!
//! Not for `O_DIRECT`, whose pages are the program's own.

use crate::{
    classify::Bio,
    ext4,
    globals::{get, member},
    inode,
    maps::{Inode, device},
};
use tracer_common::{RowKey, btf, path};

/// Size of struct `bio_vec`: a pointer and two 32-bit numbers.
const BIO_VEC: u64 = 16;

/// Address of the inode whose page cache the bio carries, 0 for none.
#[inline(always)]
fn host(bio: &Bio) -> u64 {
    if bio.address == 0 || !member(btf::PAGE_MAPPING).present() {
        return 0;
    }
    let vector = get(bio.address, btf::BIO_IO_VEC) + get(bio.address, btf::BIO_IDX) * BIO_VEC;
    let mut page = get(vector, btf::BVEC_PAGE);
    let head = get(page, btf::PAGE_HEAD);
    if head & 1 != 0 {
        page = head - 1;
    }
    let mapping = get(page, btf::PAGE_MAPPING);
    // The low bits mark anonymous and movable pages.
    if mapping == 0 || mapping & 3 != 0 {
        return 0;
    }
    get(mapping, btf::MAPPING_HOST)
}

/// The file's entry, if the pages belong to a file of this disk.
#[inline(always)]
fn entry(bio: &Bio) -> Option<(u32, &'static mut Inode)> {
    let host = host(bio);
    if host == 0 {
        return None;
    }
    let (dev, ino) = ext4::identity(host);
    match device(dev) {
        Some(info) if info.disk == bio.info.disk => {
            inode::entry(dev, ino, host).map(|entry| (dev, entry))
        }
        _ => None,
    }
}

/// Fills in the file; false when the pages belong to none.
#[inline(always)]
pub fn file(bio: &Bio, row: &mut RowKey) -> bool {
    let Some((dev, entry)) = entry(bio) else {
        return false;
    };
    row.fs_dev = dev;
    row.file = entry.file;
    row.dirtier = if entry.before_owner != 0 {
        entry.before_owner
    } else {
        entry.owner
    };
    row.by_page = 1;
    true
}

/// File data in the log of data=journal: its file and dirtier.
#[inline(always)]
pub fn journalled(bio: &Bio, row: &mut RowKey) {
    if let Some((_, entry)) = entry(bio) {
        row.file = entry.file;
        row.dirtier = if entry.owner != 0 {
            entry.owner
        } else {
            entry.before_owner
        };
        row.by_page = 1;
    }
}

/// A bio that a worker submits late: the cause of the file's last write-back.
#[inline(always)]
pub fn delayed(bio: &Bio, row: &mut RowKey) -> bool {
    let Some((dev, entry)) = entry(bio) else {
        return false;
    };
    if entry.path == path::UNATTRIBUTED {
        return false;
    }
    row.fs_dev = dev;
    row.file = entry.file;
    row.dirtier = entry.before_owner;
    row.path = entry.path;
    row.trig = entry.trig;
    row.code = entry.code;
    row.call = entry.call;
    row.aux = entry.aux;
    row.by_page = 1;
    true
}
