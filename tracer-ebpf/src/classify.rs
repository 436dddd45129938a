//! Why a bio is written: its path and trigger, from what the submitting task
//! is inside of. Only at submission is the current task the cause.

use crate::{
    current, direct,
    globals::cfg_get,
    inode, jbd2,
    maps::{AGES, Task},
    page,
};
use tracer_common::{
    AGE_BUCKETS, CALL_NONE, DeviceInfo, RowKey, age_bucket, device_flag, job, path, trig,
};

/// A bio as it is submitted.
pub struct Bio {
    /// Its device: the partition's number where the hook tells it.
    pub dev: u32,
    pub info: DeviceInfo,
    pub sector: u64,
    pub sectors: u32,
    pub op: u8,
    /// Bits of [`flag`].
    pub flags: u32,
    /// Address of the kernel's bio, 0 where the hook does not tell it.
    pub address: u64,
    /// Address of the inode that direct I/O writes to, 0 for any other bio.
    pub direct: u64,
}

/// Flags of a bio that matter here. Numbers, not truth values: each of those
/// would double the paths that the verifier has to walk.
pub mod flag {
    pub const META: u32 = 1;
    pub const FUA: u32 = 2;
    pub const PREFLUSH: u32 = 4;
    pub const SWAP: u32 = 8;
}

impl Bio {
    #[inline(always)]
    pub fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }
}

/// Sectors of an ext4 block zero, which holds the superblock.
const SUPERBLOCK_SECTORS: u64 = 8;

#[inline(always)]
fn by_call(row: &mut RowKey, path: u8, call: u16) {
    row.path = path;
    row.trig = trig::CALL;
    row.call = call;
    row.aux = current::tgid();
    current::note_process();
}

#[inline(always)]
fn by_job(row: &mut RowKey, path: u8, job: u16, call: u16) {
    row.path = path;
    row.trig = trig::JOB;
    row.code = job;
    row.call = call;
    row.aux = current::tgid();
    current::note_process();
}

#[inline(always)]
fn by_commit(row: &mut RowKey, path: u8, task: &Task) {
    row.path = path;
    row.trig = trig::COMMIT;
    row.aux = task.commit_tid;
    row.call = CALL_NONE;
}

#[inline(always)]
fn by_reason(row: &mut RowKey, path: u8, task: &Task) {
    row.path = path;
    row.trig = trig::REASON;
    row.code = task.work_reason;
    row.call = task.work_call;
    row.aux = task.work_by;
}

/// File data: the task is inside `ext4_writepages`.
#[inline(always)]
pub fn file_data(task: &Task, row: &mut RowKey) {
    *row = RowKey {
        fs_dev: task.pages_dev,
        file: task.pages_file,
        dirtier: task.pages_owner,
        ..RowKey::default()
    };
    if task.commit_dev != 0 {
        by_commit(row, path::ORDERED, task);
    } else if task.fast_dev != 0 {
        by_job(row, path::ORDERED, job::FAST_COMMIT, task.sync_call);
    } else if task.flusher != 0 {
        by_reason(row, path::WRITEBACK, task);
    } else if task.sync_depth > 0 {
        by_call(row, path::FSYNC, task.sync_call);
    } else {
        let call = current::call();
        let sync = u32::from(call) == cfg_get!(call_sync_file_range);
        by_call(row, if sync { path::FSYNC } else { path::FORCED }, call);
    }
}

/// Fills in the row of a bio; its epoch comes at completion.
///
/// The row lies in a map: what is stored there, the verifier forgets, so that
/// all ways through here meet again.
#[inline(always)]
pub fn fill(bio: &Bio, row: &mut RowKey) {
    *row = RowKey::default();
    if bio.direct != 0 {
        direct::fill(bio, row);
    } else {
        match current::context() {
            Some(task) => in_context(bio, task, row),
            None => without_context(bio, None, row),
        }
    }
    row.disk = bio.info.disk as u16;
    row.op = bio.op;
    if row.fs_dev == 0 {
        row.fs_dev = bio.dev;
    }
}

#[inline(always)]
fn in_context(bio: &Bio, task: &mut Task, row: &mut RowKey) {
    if task.journal_superblock != 0 {
        task.journal_superblock = 0;
        journal_superblock(row);
    } else if task.pages_dev != 0 && !bio.has(flag::META) && task.checkpoint == 0 {
        *row = task.pages_row;
        count_age(bio, row.path, task);
    } else if task.commit_dev != 0 {
        row.fs_dev = task.commit_dev;
        if task.flushing != 0 && !bio.has(flag::META) && task.ordered_file != 0 {
            by_commit(row, path::ORDERED, task);
            row.file = task.ordered_file;
            row.dirtier = task.pages_owner;
            count_age(bio, path::ORDERED, task);
        } else {
            by_commit(row, path::JOURNAL, task);
            if bio.info.flags & device_flag::DATA_JOURNAL != 0 {
                page::journalled(bio, row);
            }
        }
    } else if task.fast_dev != 0 {
        row.fs_dev = task.fast_dev;
        by_job(row, path::JOURNAL, job::FAST_COMMIT, task.sync_call);
        row.dirtier = row.aux;
    } else if is_superblock(bio) {
        by_job(row, path::FS, job::SUPERBLOCK, current::call());
    } else if bio.has(flag::META) {
        if bio.info.flags & device_flag::DATA_JOURNAL != 0 {
            // Journalled file data goes to its place like metadata.
            page::file(bio, row);
        }
        if task.flusher != 0 && task.checkpoint == 0 {
            by_reason(row, path::METADATA, task);
        } else if task.checkpoint != 0 {
            by_job(row, path::METADATA, job::CHECKPOINT, current::call());
        } else if task.sync_depth > 0 {
            by_call(row, path::METADATA, task.sync_call);
        } else {
            by_call(row, path::METADATA, current::call());
        }
    } else if bio.has(flag::SWAP) {
        by_job(row, path::SWAP, job::RECLAIM, CALL_NONE);
    } else if task.flusher != 0 {
        device_data(bio, row);
        let path = if bio.info.flags & device_flag::OTHER_FS != 0 {
            path::WRITEBACK
        } else {
            path::RAW
        };
        by_reason(row, path, task);
    } else if task.dio_left > 0 && task.dio_disk == bio.info.disk {
        let bytes = u64::from(bio.sectors) << 9;
        task.dio_left = task.dio_left.saturating_sub(bytes);
        row.fs_dev = task.dio_dev;
        row.file = task.dio_file;
        row.path = path::DIRECT;
        row.trig = trig::CALL;
        row.call = task.dio_call;
        row.aux = current::tgid();
        row.dirtier = row.aux;
    } else if in_extent(bio, task) {
        row.fs_dev = task.extent_dev;
        row.file = match inode::entry(task.extent_dev, task.extent_ino, 0) {
            Some(entry) => entry.file,
            None => 0,
        };
        by_call(row, path::DIRECT, current::call());
        row.dirtier = row.aux;
    } else {
        without_context(bio, Some(task), row);
    }
}

/// The journal's superblock: by its thread for the commit that comes next (the
/// log's tail moves just before it), or by a task that opens or closes it.
#[inline(always)]
fn journal_superblock(row: &mut RowKey) {
    if let Some(dev) = jbd2::thread_of(current::tid()) {
        row.path = path::JOURNAL;
        row.fs_dev = dev;
        row.trig = trig::COMMIT;
        row.aux = jbd2::next_commit(dev);
        row.call = CALL_NONE;
    } else {
        by_call(row, path::JOURNAL, current::call());
    }
}

/// Nothing on this task says why it writes.
#[inline(always)]
fn without_context(bio: &Bio, task: Option<&Task>, row: &mut RowKey) {
    if bio.has(flag::SWAP) {
        by_job(row, path::SWAP, job::RECLAIM, CALL_NONE);
    } else if is_superblock(bio) {
        by_job(row, path::FS, job::SUPERBLOCK, current::call());
    } else if bio.has(flag::META) {
        by_call(row, path::METADATA, current::call());
    } else if matches!(task, Some(task) if task.checkpoint != 0) && page::file(bio, row) {
        by_job(row, path::FORCED, job::CHECKPOINT, current::call());
    } else if current::is_kernel_thread() {
        if current::is_lazy_init() {
            by_job(row, path::FS, job::LAZY_INIT, CALL_NONE);
        } else if !page::delayed(bio, row) {
            row.path = path::UNATTRIBUTED;
            row.trig = trig::UNKNOWN;
            row.aux = current::tid();
        }
    } else {
        let call = u32::from(current::call());
        let mounting = call == cfg_get!(call_mount) || call == cfg_get!(call_fsconfig);
        if mounting && in_superblock(bio) {
            // The mount that is just being made is not known yet.
            by_job(row, path::FS, job::SUPERBLOCK, call as u16);
            return;
        }
        let other = bio.info.flags & device_flag::OTHER_FS != 0;
        by_call(
            row,
            if other { path::OTHER } else { path::RAW },
            current::call(),
        );
        row.dirtier = row.aux;
    }
}

/// Pages of the block device itself: whoever dirtied them.
#[inline(always)]
fn device_data(bio: &Bio, row: &mut RowKey) {
    if let Some(entry) = inode::known(bio.dev, 0) {
        row.dirtier = if entry.owner != 0 {
            entry.owner
        } else {
            entry.before_owner
        };
    }
}

/// The superblock written by itself is forced through the cache; as a block
/// of the journal's it is metadata like any other.
#[inline(always)]
fn is_superblock(bio: &Bio) -> bool {
    bio.info.flags & device_flag::EXT4 != 0
        && (bio.has(flag::FUA) || !bio.has(flag::META))
        && in_superblock(bio)
}

#[inline(always)]
fn in_superblock(bio: &Bio) -> bool {
    bio.sector.wrapping_sub(bio.info.start) < SUPERBLOCK_SECTORS
}

/// Whether the bio begins in the extent that this task looked up last.
#[inline(always)]
fn in_extent(bio: &Bio, task: &Task) -> bool {
    if task.extent_dev == 0 || task.extent_dev != bio.dev {
        return false;
    }
    let shift = (bio.info.flags >> device_flag::BLOCK_SHIFT) & 15;
    let block = bio.sector.wrapping_sub(bio.info.start) >> shift;
    block.wrapping_sub(task.extent_start) < task.extent_len
}

/// Counts how long the data had been dirty, spread evenly between its first
/// and its last dirtying.
#[inline(always)]
fn count_age(bio: &Bio, path: u8, task: &Task) {
    if task.pages_first != 0 && bio.info.disk < 16 {
        let base = (bio.info.disk * path::COUNT as u32 + u32::from(path)) * AGE_BUCKETS;
        add_ages(base, task.pages_first, task.pages_last, bio.sectors);
    }
}

#[inline(never)]
fn add_ages(base: u32, first_ns: u64, last_ns: u64, sectors: u32) {
    let now = inode::bpf_ktime_get_ns_u64();
    let oldest = now.saturating_sub(first_ns) / 1_000_000;
    let newest = now.saturating_sub(last_ns) / 1_000_000;
    let step = oldest.saturating_sub(newest) / 4;
    let quarter = u64::from(sectors) / 4;
    let rest = u64::from(sectors) - 3 * quarter;
    add_age(base, newest + step / 2, quarter);
    add_age(base, newest + step + step / 2, quarter);
    add_age(base, newest + 2 * step + step / 2, quarter);
    add_age(base, oldest - step / 2, rest);
}

#[inline(always)]
fn add_age(base: u32, ms: u64, sectors: u64) {
    if let Some(counter) = AGES.get_ptr_mut(base + age_bucket(ms)) {
        // SAFETY: a per-CPU map value, checked not null.
        unsafe { *counter += sectors };
    }
}
