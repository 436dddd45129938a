//! Names of files, from the kernel's dentries at first sight, so that files
//! that live for a moment keep theirs.

use crate::{
    globals::{get, member},
    maps::{RING, lose, ring_flags},
};
use aya_ebpf::helpers::generated;
use core::ffi::c_void;
use tracer_common::{NAME_BYTES, NameRecord, REC_NAME, btf, loss};

/// Longest single component that is read, with its NUL.
const COMPONENT: usize = 256;
/// Directories climbed.
const DEPTH: usize = 24;

/// Sends the name of an inode; `inode` is 0 where only its number is known.
#[inline(never)]
pub fn send(dev: u32, ino: u64, file: u32, inode: u64) {
    let Some(mut entry) = RING.reserve::<NameRecord>(0) else {
        lose(loss::RING_OFFERED);
        lose(loss::RING);
        return;
    };
    let record = entry.as_mut_ptr();
    // SAFETY: the reservation is writable for the whole record.
    unsafe {
        (*record).kind = REC_NAME;
        (*record).size = size_of::<NameRecord>() as u32;
        (*record).ino = ino;
        (*record).dev = dev;
        (*record).file = file;
        (*record).len = 0;
        (*record).whole = 0;
    }
    if inode != 0 && member(btf::INODE_DENTRY).present() && member(btf::DENTRY_ALIAS).present() {
        let alias = get(inode, btf::INODE_DENTRY);
        if alias != 0 {
            climb(record, alias - u64::from(member(btf::DENTRY_ALIAS).offset));
        }
    }
    entry.submit(ring_flags());
}

#[inline(always)]
fn climb(record: *mut NameRecord, mut dentry: u64) {
    let mut at = 0_usize;
    for _ in 0..DEPTH {
        let parent = get(dentry, btf::DENTRY_PARENT);
        if parent == dentry {
            // SAFETY: as in `send`.
            unsafe { (*record).whole = 1 };
            break;
        }
        // The bound that the verifier wants: a whole component still fits.
        if at > NAME_BYTES - COMPONENT {
            break;
        }
        // SAFETY: `at` leaves COMPONENT bytes in the reservation.
        let read = unsafe {
            generated::bpf_probe_read_kernel_str(
                (&raw mut (*record).name)
                    .cast::<u8>()
                    .add(at)
                    .cast::<c_void>(),
                COMPONENT as u32,
                get(dentry, btf::DENTRY_NAME) as *const c_void,
            )
        };
        if read <= 0 || read > COMPONENT as _ {
            break;
        }
        at += read as usize;
        dentry = parent;
    }
    // SAFETY: as in `send`.
    unsafe { (*record).len = at as u32 };
}
