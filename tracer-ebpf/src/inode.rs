//! Inodes that were seen: a number for each life of each, and who dirtied it.

use crate::{
    complete::add_control,
    current,
    maps::{FILE_SEQUENCE, INODES, Inode, RING, SHARES, Task, add, lose, ring_flags},
    names,
};
use aya_ebpf::{
    bindings::BPF_NOEXIST,
    helpers::{bpf_get_smp_processor_id, bpf_ktime_get_ns},
    maps::HashMap,
};
use tracer_common::{FreedRecord, InodeKey, REC_FREED, RowKey, control, loss};

/// Numbers of one CPU; the CPU is in the bits above.
const NUMBERS: u32 = 1 << 22;

/// The inode's entry, made and named when it is new.
#[inline(always)]
pub fn entry(dev: u32, ino: u64, inode: u64) -> Option<&'static mut Inode> {
    let key = InodeKey {
        ino,
        dev,
        reserved: 0,
    };
    if let Some(found) = INODES.get_ptr_mut(&key) {
        // SAFETY: a live map value; racing writers set whole integers.
        return Some(unsafe { &mut *found });
    }
    let sequence = FILE_SEQUENCE.get_ptr_mut(0)?;
    // SAFETY: a per-CPU map value, checked not null.
    let number = unsafe {
        *sequence = (*sequence + 1) & (NUMBERS - 1);
        (bpf_get_smp_processor_id() * NUMBERS) | *sequence
    };
    let new = Inode {
        file: number,
        owner: 0,
        first_ns: 0,
        last_ns: 0,
        bytes: 0,
        before_owner: 0,
        aux: 0,
        before_first: 0,
        before_last: 0,
        code: 0,
        call: 0,
        path: 0,
        trig: 0,
        reserved: 0,
    };
    if INODES.insert(&key, &new, u64::from(BPF_NOEXIST)).is_err() {
        if INODES.get_ptr(&key).is_none() {
            lose(loss::INODE);
        }
    } else {
        names::send(dev, ino, number, inode);
    }
    // SAFETY: as above.
    INODES.get_ptr_mut(&key).map(|found| unsafe { &mut *found })
}

/// The entry of an inode that was seen before.
#[inline(always)]
pub fn known(dev: u32, ino: u64) -> Option<&'static mut Inode> {
    // SAFETY: as in `entry`.
    INODES
        .get_ptr_mut(&InodeKey {
            ino,
            dev,
            reserved: 0,
        })
        .map(|found| unsafe { &mut *found })
}

/// The current process made it dirty.
#[inline(always)]
pub fn dirtied(inode: &mut Inode) {
    let now = bpf_ktime_get_ns_u64();
    let tgid = current::tgid();
    if inode.owner == 0 {
        inode.owner = tgid;
        inode.first_ns = now;
        inode.bytes = 0;
    } else if inode.owner != tgid && inode.owner != RowKey::SHARED {
        add_share(inode.file, inode.owner, inode.bytes);
        inode.owner = RowKey::SHARED;
    }
    inode.last_ns = now;
    current::note_process();
}

/// What is dirty now is being written by this task; later writes are of a
/// new stretch.
#[inline(always)]
pub fn begin_write(inode: &mut Inode, task: &mut Task) {
    if inode.owner != 0 {
        inode.before_owner = inode.owner;
        inode.before_first = inode.first_ns;
        inode.before_last = inode.last_ns;
        inode.owner = 0;
    }
    task.pages_owner = inode.before_owner;
    task.pages_first = inode.before_first;
    task.pages_last = inode.before_last;
}

/// Bytes that a process dirtied. Shares count only while several processes
/// have dirtied the same stretch; a single owner needs none.
#[inline(always)]
pub fn add_bytes(inode: &mut Inode, tgid: u32, bytes: u64) {
    if inode.owner == tgid {
        inode.bytes += bytes;
    } else if inode.owner == RowKey::SHARED
        || inode.owner == 0 && inode.before_owner == RowKey::SHARED
    {
        add_share(inode.file, tgid, bytes);
    }
}

/// Adds dirtied bytes to a process's share of a file.
#[inline(always)]
fn add_share(file: u32, tgid: u32, bytes: u64) {
    if bytes == 0 || file == 0 {
        return;
    }
    add_to(&SHARES, (u64::from(file) << 32) | u64::from(tgid), bytes);
}

/// Adds to a share, made when it is new.
#[inline(always)]
pub fn add_to(shares: &HashMap<u64, u64>, key: u64, amount: u64) {
    if let Some(share) = shares.get_ptr_mut(&key) {
        add(share, amount);
    } else if shares
        .insert(&key, &amount, u64::from(BPF_NOEXIST))
        .is_err()
    {
        if let Some(share) = shares.get_ptr_mut(&key) {
            add(share, amount);
        } else {
            lose(loss::SHARE);
        }
    }
}

/// Forgets an inode that was freed: its number will name another file.
#[inline(always)]
pub fn forget(dev: u32, ino: u64) {
    let Some(entry) = known(dev, ino) else {
        return;
    };
    let record = FreedRecord {
        kind: REC_FREED,
        size: size_of::<FreedRecord>() as u32,
        file: entry.file,
        reserved: 0,
    };
    if RING.output::<FreedRecord>(record, ring_flags()).is_err() {
        lose(loss::RING);
    }
    add_control(control::LIVES, 1);
    // An error only says that it is gone.
    let _ = INODES.remove(&InodeKey {
        ino,
        dev,
        reserved: 0,
    });
}

/// Monotonic nanoseconds.
#[inline(always)]
pub fn bpf_ktime_get_ns_u64() -> u64 {
    // SAFETY: the helper has no preconditions.
    unsafe { bpf_ktime_get_ns() }
}
