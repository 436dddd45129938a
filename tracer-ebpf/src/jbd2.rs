//! The journal: who woke its thread, its commits and their phases.

use crate::{
    current,
    globals::{get, tp},
    inode,
    maps::{
        BLOCKS, JOURNAL_BITS, JOURNAL_THREADS, JOURNALS, Journal, RING, device, lose, ring_flags,
    },
};
use aya_ebpf::{
    EbpfContext,
    bindings::BPF_NOEXIST,
    helpers::{bpf_get_current_comm, generated},
    macros::{raw_tracepoint, tracepoint},
    programs::{RawTracePointContext, TracePointContext},
};
use core::ffi::c_void;
use tracer_common::{
    CALL_NONE, CommitRecord, REC_COMMIT, RowKey, STACK_FRAMES, Waker, btf, loss, tp as f, waker,
};

static NO_WAKER: Waker = Waker {
    kind: waker::NONE,
    tgid: 0,
    tid: 0,
    file: 0,
    call: CALL_NONE as u32,
    frames: 0,
    comm: [0; 16],
    ns: 0,
    stack: [0; STACK_FRAMES],
};

static NO_JOURNAL: Journal = Journal {
    record: CommitRecord {
        kind: REC_COMMIT,
        size: size_of::<CommitRecord>() as u32,
        dev: 0,
        tid: 0,
        start_ns: 0,
        locking_ns: 0,
        flushing_ns: 0,
        logging_ns: 0,
        end_ns: 0,
        running_ticks: 0,
        handles: 0,
        blocks: 0,
        blocks_logged: 0,
        syncing: 0,
        waker: NO_WAKER,
        waiting: NO_WAKER,
        sync_fs: NO_WAKER,
    },
    waiting: NO_WAKER,
    sync_fs: NO_WAKER,
    latest: NO_WAKER,
    thread: 0,
    open: 0,
    woken: 0,
    syncing: 0,
    last_tid: 0,
    reserved: 0,
};

/// The journal of a device, if one was seen.
#[inline(always)]
fn journal(dev: u32) -> Option<&'static mut Journal> {
    // SAFETY: a live map value; racing writers set whole integers.
    JOURNALS
        .get_ptr_mut(&dev)
        .map(|journal| unsafe { &mut *journal })
}

/// The journal of a device, made when it is new.
#[inline(always)]
pub fn journal_or_new(dev: u32) -> Option<&'static mut Journal> {
    if JOURNALS.get_ptr(&dev).is_none()
        && JOURNALS
            .insert(&dev, &NO_JOURNAL, u64::from(BPF_NOEXIST))
            .is_err()
        && JOURNALS.get_ptr(&dev).is_none()
    {
        lose(loss::TASK);
    }
    journal(dev)
}

/// The device whose journal this thread keeps.
#[inline(always)]
pub fn thread_of(tid: u32) -> Option<u32> {
    // SAFETY: copied out at once.
    unsafe { JOURNAL_THREADS.get(&tid) }.copied()
}

/// The transaction that the journal will commit next, 0 unknown.
#[inline(always)]
pub fn next_commit(dev: u32) -> u32 {
    match journal(dev) {
        Some(journal) if journal.last_tid != 0 => journal.last_tid + 1,
        _ => 0,
    }
}

/// The journal of the commit that this thread is making.
#[inline(always)]
fn committing(dev: u32) -> Option<&'static mut Journal> {
    match journal(dev) {
        Some(journal) if journal.open != 0 => Some(journal),
        _ => None,
    }
}

#[inline(always)]
fn clear(waker: &mut Waker) {
    waker.kind = waker::NONE;
    waker.frames = 0;
    waker.tid = 0;
}

#[tracepoint]
pub fn tp_start_commit(ctx: TracePointContext) -> u32 {
    let dev = tp(&ctx, f::JSTART_DEV) as u32;
    if device(dev).is_none() {
        return 0;
    }
    let Some(task) = current::context_or_new() else {
        return 0;
    };
    let Some(journal) = journal_or_new(dev) else {
        return 0;
    };
    let tid = current::tid();
    if journal.thread != tid {
        journal.thread = tid;
        let _ = JOURNAL_THREADS.insert(&tid, &dev, 0);
        if let Some(bits) = JOURNAL_BITS.get_ptr_mut((tid >> 6) & 511) {
            // SAFETY: a live map value; two journals rarely start at once,
            // and a lost bit is set again at the next commit's start.
            unsafe { *bits |= 1 << (tid & 63) };
        }
    }
    task.commit_dev = dev;
    task.commit_tid = tp(&ctx, f::JSTART_TID) as u32;
    task.flushing = 0;
    task.ordered_file = 0;
    let record = &mut journal.record;
    record.dev = dev;
    record.tid = task.commit_tid;
    record.start_ns = inode::bpf_ktime_get_ns_u64();
    record.locking_ns = 0;
    record.flushing_ns = 0;
    record.logging_ns = 0;
    record.syncing = journal.syncing;
    record.waiting = journal.waiting;
    record.sync_fs = journal.sync_fs;
    if record.waiting.kind == waker::NONE && journal.syncing > 0 {
        record.waiting = journal.latest;
    }
    clear(&mut journal.waiting);
    clear(&mut journal.sync_fs);
    journal.open = 1;
    0
}

#[tracepoint]
pub fn tp_commit_locking(ctx: TracePointContext) -> u32 {
    if let Some(journal) = committing(tp(&ctx, f::JLOCK_DEV) as u32) {
        journal.record.locking_ns = inode::bpf_ktime_get_ns_u64();
    }
    0
}

#[tracepoint]
pub fn tp_commit_flushing(ctx: TracePointContext) -> u32 {
    if let Some(journal) = committing(tp(&ctx, f::JFLUSH_DEV) as u32) {
        journal.record.flushing_ns = inode::bpf_ktime_get_ns_u64();
        if let Some(task) = current::context() {
            task.flushing = 1;
        }
    }
    0
}

#[tracepoint]
pub fn tp_commit_logging(ctx: TracePointContext) -> u32 {
    if let Some(journal) = committing(tp(&ctx, f::JLOG_DEV) as u32) {
        journal.record.logging_ns = inode::bpf_ktime_get_ns_u64();
        if let Some(task) = current::context() {
            task.flushing = 0;
        }
    }
    0
}

#[tracepoint]
pub fn tp_run_stats(ctx: TracePointContext) -> u32 {
    if let Some(journal) = committing(tp(&ctx, f::JRUN_DEV) as u32) {
        let record = &mut journal.record;
        record.running_ticks = tp(&ctx, f::JRUN_RUNNING);
        record.handles = tp(&ctx, f::JRUN_HANDLES) as u32;
        record.blocks = tp(&ctx, f::JRUN_BLOCKS) as u32;
        record.blocks_logged = tp(&ctx, f::JRUN_LOGGED) as u32;
    }
    0
}

#[tracepoint]
pub fn tp_end_commit(ctx: TracePointContext) -> u32 {
    let Some(journal) = committing(tp(&ctx, f::JEND_DEV) as u32) else {
        return 0;
    };
    journal.record.end_ns = inode::bpf_ktime_get_ns_u64();
    journal.last_tid = journal.record.tid;
    journal.open = 0;
    journal.woken = 0;
    if RING
        .output::<CommitRecord>(&journal.record, ring_flags())
        .is_err()
    {
        lose(loss::RING);
    }
    clear(&mut journal.record.waker);
    if let Some(task) = current::context() {
        task.commit_dev = 0;
        task.flushing = 0;
    }
    0
}

#[tracepoint]
pub fn tp_submit_inode_data(ctx: TracePointContext) -> u32 {
    let dev = tp(&ctx, f::JDATA_DEV) as u32;
    if device(dev).is_none() {
        return 0;
    }
    let ino = tp(&ctx, f::JDATA_INO);
    if let (Some(task), Some(entry)) = (current::context(), inode::entry(dev, ino, 0)) {
        inode::begin_write(entry, task);
        task.ordered_file = entry.file;
    }
    0
}

/// The journal's superblock is the next bio of this task.
#[tracepoint]
pub fn tp_write_superblock(ctx: TracePointContext) -> u32 {
    if device(tp(&ctx, f::JSB_DEV) as u32).is_some()
        && let Some(task) = current::context_or_new()
    {
        task.journal_superblock = 1;
    }
    0
}

#[tracepoint]
pub fn tp_checkpoint(ctx: TracePointContext) -> u32 {
    if device(tp(&ctx, f::JCKPT_DEV) as u32).is_some()
        && let Some(task) = current::context_or_new()
    {
        task.checkpoint = 1;
    }
    0
}

/// (`dev_t`, tid, type, `line_no`, `requested_blocks`): a checkpoint that made
/// room for this handle is over.
#[raw_tracepoint]
pub fn raw_handle_start(_ctx: RawTracePointContext) -> i32 {
    if let Some(task) = current::context() {
        task.checkpoint = 0;
    }
    0
}

#[tracepoint]
pub fn tp_handle_start(_ctx: TracePointContext) -> u32 {
    if let Some(task) = current::context() {
        task.checkpoint = 0;
    }
    0
}

#[inline(always)]
fn handle_ended(dev: u32, sync: bool, dirtied: i32) {
    let mut task = current::context();
    if let Some(task) = &mut task {
        task.sync_handle = u8::from(sync);
    }
    if !sync && dirtied <= 0 || device(dev).is_none() {
        return;
    }
    if dirtied > 0 {
        // Blocks that the flusher's handles dirty are the file's owner's.
        let owner = match task {
            Some(task) if task.pages_dev != 0 => task.pages_owner,
            // Workers finish what others began; whose it was is not known.
            _ if current::is_kernel_thread() => 0,
            _ => current::tgid(),
        };
        if owner != 0 && owner != RowKey::SHARED {
            inode::add_to(
                &BLOCKS,
                (u64::from(dev) << 32) | u64::from(owner),
                dirtied as u64,
            );
            if owner == current::tgid() {
                current::note_process();
            }
        }
    }
    if sync && let Some(task) = current::context_or_new() {
        task.sync_handle = 1;
    }
}

/// (`dev_t`, tid, type, `line_no`, interval, sync, requested, dirtied).
#[raw_tracepoint]
pub fn raw_handle_stats(ctx: RawTracePointContext) -> i32 {
    handle_ended(
        ctx.arg::<u64>(0) as u32,
        ctx.arg::<u64>(5) as u32 != 0,
        ctx.arg::<u64>(7) as i32,
    );
    0
}

#[tracepoint]
pub fn tp_handle_stats(ctx: TracePointContext) -> u32 {
    handle_ended(
        tp(&ctx, f::JH_DEV) as u32,
        tp(&ctx, f::JH_SYNC) != 0,
        tp(&ctx, f::JH_DIRTIED) as i32,
    );
    0
}

/// Somebody wakes a thread: only the first waking of a journal's thread since
/// its last commit matters. Every waking of the machine passes here.
#[inline(always)]
fn waking<C: EbpfContext>(ctx: &C, pid: u32, skip: u64) {
    let Some(bits) = JOURNAL_BITS.get_ptr((pid >> 6) & 511) else {
        return;
    };
    // SAFETY: a live map value, checked not null.
    if unsafe { *bits } & (1 << (pid & 63)) == 0 {
        return;
    }
    let Some(dev) = thread_of(pid) else {
        return;
    };
    let Some(journal) = journal_or_new(dev) else {
        return;
    };
    if journal.open != 0 || journal.woken != 0 {
        return;
    }
    journal.woken = 1;
    let waker = &mut journal.record.waker;
    waker.kind = waker::OTHER;
    waker.tgid = current::tgid();
    waker.tid = current::tid();
    waker.file = 0;
    waker.call = u32::from(current::call());
    waker.comm = bpf_get_current_comm().unwrap_or_default();
    waker.ns = inode::bpf_ktime_get_ns_u64();
    if let Some(task) = current::context() {
        if task.sync_depth > 0 && task.sync_dev == dev {
            waker.kind = waker::FSYNC;
            waker.file = task.sync_file;
            waker.call = u32::from(task.sync_call);
        } else if task.sync_fs != 0 {
            waker.kind = waker::SYNC_FS;
        } else if task.sync_handle != 0 {
            waker.kind = waker::SYNC_HANDLE;
        }
    }
    current::note_process();
    // SAFETY: the buffer is a map value, writable for its size.
    let got = unsafe {
        generated::bpf_get_stack(
            ctx.as_ptr(),
            (&raw mut waker.stack).cast::<c_void>(),
            (8 * STACK_FRAMES) as u32,
            skip,
        )
    };
    waker.frames = if got > 0 { got as u32 / 8 } else { 0 };
}

/// (struct `task_struct` *). Two frames of the program's own are skipped.
#[raw_tracepoint]
pub fn raw_sched_waking(ctx: RawTracePointContext) -> i32 {
    let pid = get(ctx.arg::<u64>(0), btf::TASK_PID) as u32;
    waking(&ctx, pid, 0);
    0
}

#[tracepoint]
pub fn tp_sched_waking(ctx: TracePointContext) -> u32 {
    waking(&ctx, tp(&ctx, f::WAKE_PID) as u32, 0);
    0
}
