//! Brackets of ext4: syncs of files, write-back of pages, fast commits, the
//! filesystem's own jobs.

use crate::{
    current,
    globals::{get, tp},
    inode,
    jbd2::journal_or_new,
    maps::{JOURNALS, RING, Task, device, lose, ring_flags},
};
use aya_ebpf::{
    helpers::bpf_get_current_comm,
    macros::{raw_tracepoint, tracepoint},
    programs::{RawTracePointContext, TracePointContext},
};
use tracer_common::{FastCommitRecord, REC_FAST_COMMIT, RowKey, btf, loss, tp as f, waker};

/// Device and inode number of the inode at this address.
#[inline(always)]
pub fn identity(address: u64) -> (u32, u64) {
    (
        get(get(address, btf::INODE_SB), btf::SB_DEV) as u32,
        get(address, btf::INODE_INO),
    )
}

#[inline(always)]
fn sync_enter(dev: u32, ino: u64, address: u64) {
    if device(dev).is_none() {
        return;
    }
    let Some(task) = current::context_or_new() else {
        return;
    };
    task.sync_depth += 1;
    if task.sync_depth > 1 {
        return;
    }
    task.sync_dev = dev;
    task.sync_fs = 0;
    task.sync_call = current::call();
    task.sync_file = match inode::entry(dev, ino, address) {
        Some(entry) => entry.file,
        None => 0,
    };
    current::note_process();
    if let Some(journal) = journal_or_new(dev) {
        journal.syncing += 1;
        let latest = &mut journal.latest;
        latest.kind = waker::FSYNC;
        latest.tgid = current::tgid();
        latest.tid = current::tid();
        latest.file = task.sync_file;
        latest.call = u32::from(task.sync_call);
        latest.comm = bpf_get_current_comm().unwrap_or_default();
        latest.ns = inode::bpf_ktime_get_ns_u64();
        if journal.waiting.kind == waker::NONE {
            journal.waiting = journal.latest;
        }
    }
}

#[inline(always)]
fn sync_exit(dev: u32) {
    let Some(task) = current::context() else {
        return;
    };
    if task.sync_depth == 0 || task.sync_dev != dev {
        return;
    }
    task.sync_depth -= 1;
    if task.sync_depth > 0 {
        return;
    }
    task.sync_dev = 0;
    if let Some(journal) = JOURNALS.get_ptr_mut(&dev) {
        // SAFETY: a live map value; racing writers set whole integers.
        let journal = unsafe { &mut *journal };
        journal.syncing = journal.syncing.saturating_sub(1);
        let waiting = &mut journal.waiting;
        if waiting.tid == current::tid() {
            waiting.kind = waker::NONE;
        }
    }
}

/// (struct file *, int datasync).
#[raw_tracepoint]
pub fn raw_sync_file_enter(ctx: RawTracePointContext) -> i32 {
    let address = get(ctx.arg::<u64>(0), btf::FILE_INODE);
    let (dev, ino) = identity(address);
    sync_enter(dev, ino, address);
    0
}

#[tracepoint]
pub fn tp_sync_file_enter(ctx: TracePointContext) -> u32 {
    sync_enter(tp(&ctx, f::SYNC_DEV) as u32, tp(&ctx, f::SYNC_INO), 0);
    0
}

#[tracepoint]
pub fn tp_sync_file_exit(ctx: TracePointContext) -> u32 {
    sync_exit(tp(&ctx, f::SYNCX_DEV) as u32);
    0
}

#[inline(always)]
fn pages_enter(dev: u32, ino: u64, address: u64) {
    if device(dev).is_none() {
        return;
    }
    let Some(task) = current::context_or_new() else {
        return;
    };
    let Some(entry) = inode::entry(dev, ino, address) else {
        return;
    };
    inode::begin_write(entry, task);
    task.pages_dev = dev;
    task.pages_file = entry.file;
    // A worker may submit some of the bios later: it finds the cause here.
    let mut row = RowKey::default();
    crate::classify::file_data(task, &mut row);
    task.pages_row = row;
    entry.path = row.path;
    entry.trig = row.trig;
    entry.code = row.code;
    entry.call = row.call;
    entry.aux = row.aux;
}

/// (struct inode *, struct `writeback_control` *).
#[raw_tracepoint]
pub fn raw_writepages(ctx: RawTracePointContext) -> i32 {
    let address = ctx.arg::<u64>(0);
    let (dev, ino) = identity(address);
    pages_enter(dev, ino, address);
    0
}

#[tracepoint]
pub fn tp_writepages(ctx: TracePointContext) -> u32 {
    pages_enter(tp(&ctx, f::WP_DEV) as u32, tp(&ctx, f::WP_INO), 0);
    0
}

#[tracepoint]
pub fn tp_writepages_result(ctx: TracePointContext) -> u32 {
    if let Some(task) = current::context()
        && task.pages_dev == tp(&ctx, f::WPR_DEV) as u32
    {
        task.pages_dev = 0;
    }
    0
}

#[tracepoint]
pub fn tp_fast_commit_start(ctx: TracePointContext) -> u32 {
    let dev = tp(&ctx, f::FCS_DEV) as u32;
    if device(dev).is_none() {
        return 0;
    }
    if let Some(task) = current::context_or_new() {
        task.fast_dev = dev;
        task.fast_ns = inode::bpf_ktime_get_ns_u64();
    }
    0
}

#[tracepoint]
pub fn tp_fast_commit_stop(ctx: TracePointContext) -> u32 {
    let Some(task) = current::context() else {
        return 0;
    };
    if task.fast_dev == 0 || task.fast_dev != tp(&ctx, f::FCE_DEV) as u32 {
        return 0;
    }
    send_fast_commit(
        task,
        tp(&ctx, f::FCE_NBLKS) as u32,
        tp(&ctx, f::FCE_REASON) as i32,
    );
    task.fast_dev = 0;
    0
}

#[inline(always)]
fn send_fast_commit(task: &Task, blocks: u32, status: i32) {
    let record = FastCommitRecord {
        kind: REC_FAST_COMMIT,
        size: size_of::<FastCommitRecord>() as u32,
        dev: task.fast_dev,
        tgid: current::tgid(),
        file: task.sync_file,
        blocks,
        status,
        call: u32::from(task.sync_call),
        start_ns: task.fast_ns,
        end_ns: inode::bpf_ktime_get_ns_u64(),
        comm: bpf_get_current_comm().unwrap_or_default(),
    };
    if RING
        .output::<FastCommitRecord>(record, ring_flags())
        .is_err()
    {
        lose(loss::RING);
    }
}

/// Fires in sync, syncfs, umount, freeze and remount, and has no end.
#[tracepoint]
pub fn tp_sync_fs(ctx: TracePointContext) -> u32 {
    let dev = tp(&ctx, f::SFS_DEV) as u32;
    if device(dev).is_none() {
        return 0;
    }
    if let Some(task) = current::context_or_new() {
        task.sync_fs = 1;
    }
    current::note_process();
    if let Some(journal) = journal_or_new(dev) {
        let waiting = &mut journal.sync_fs;
        waiting.kind = waker::SYNC_FS;
        waiting.tgid = current::tgid();
        waiting.tid = current::tid();
        waiting.file = 0;
        waiting.call = u32::from(current::call());
        waiting.comm = bpf_get_current_comm().unwrap_or_default();
        waiting.ns = inode::bpf_ktime_get_ns_u64();
    }
    0
}

#[tracepoint]
pub fn tp_free_inode(ctx: TracePointContext) -> u32 {
    let dev = tp(&ctx, f::FREE_DEV) as u32;
    if device(dev).is_some() {
        inode::forget(dev, tp(&ctx, f::FREE_INO));
    }
    0
}
