//! The flusher: rounds, their reasons, and who asked for them.

use crate::{
    current,
    globals::tp,
    maps::{Requester, WORKS},
};
use aya_ebpf::{
    macros::{raw_tracepoint, tracepoint},
    programs::{RawTracePointContext, TracePointContext},
};
use tracer_common::{CALL_NONE, tp as f};

/// (struct `bdi_writeback` *, struct `wb_writeback_work` *): in the requester.
/// The work's address joins it with the flusher's side.
#[raw_tracepoint]
pub fn raw_writeback_queue(ctx: RawTracePointContext) -> i32 {
    let work = ctx.arg::<u64>(1);
    let requester = Requester {
        tgid: current::tgid(),
        call: u32::from(current::call()),
    };
    current::note_process();
    // Without it the round has its reason, but no requester.
    let _ = WORKS.insert(&work, &requester, 0);
    0
}

/// (struct `bdi_writeback` *, struct `wb_writeback_work` *): in the flusher.
#[raw_tracepoint]
pub fn raw_writeback_exec(ctx: RawTracePointContext) -> i32 {
    let work = ctx.arg::<u64>(1);
    let Some(task) = current::context_or_new() else {
        return 0;
    };
    task.work = work;
    // SAFETY: copied out at once.
    if let Some(requester) = unsafe { WORKS.get(&work) } {
        task.work_by = requester.tgid;
        task.work_call = requester.call as u16;
        let _ = WORKS.remove(&work);
    } else {
        task.work_by = 0;
        task.work_call = CALL_NONE;
    }
    0
}

/// (struct `bdi_writeback` *, struct `wb_writeback_work` *): a round of other
/// work than was queued last is the flusher's own.
#[raw_tracepoint]
pub fn raw_writeback_start(ctx: RawTracePointContext) -> i32 {
    if let Some(task) = current::context()
        && task.work != ctx.arg::<u64>(1)
    {
        task.work_by = 0;
        task.work_call = CALL_NONE;
    }
    0
}

#[tracepoint]
pub fn tp_writeback_start(ctx: TracePointContext) -> u32 {
    if let Some(task) = current::context_or_new() {
        task.flusher = 1;
        task.work_reason = tp(&ctx, f::WBS_REASON) as u16;
    }
    0
}

#[tracepoint]
pub fn tp_writeback_written(_ctx: TracePointContext) -> u32 {
    if let Some(task) = current::context() {
        task.flusher = 0;
    }
    0
}
