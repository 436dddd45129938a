//! Processes: the traced command's tree, and contexts of tasks that end.

use crate::{
    current,
    globals::tp,
    maps::{MARKED, PROCESSES, TASKS, lose},
};
use aya_ebpf::{macros::tracepoint, programs::TracePointContext};
use tracer_common::{loss, tp as f};

#[tracepoint]
pub fn tp_process_fork(ctx: TracePointContext) -> u32 {
    let parent = current::tgid();
    if MARKED.get_ptr(&parent).is_some() {
        let child = tp(&ctx, f::FORK_CHILD) as u32;
        if MARKED.insert(&child, &1, 0).is_err() {
            lose(loss::PROCESS);
        }
    }
    0
}

/// Fires after the task's last close, which may still write.
#[tracepoint]
pub fn tp_process_free(ctx: TracePointContext) -> u32 {
    let tid = tp(&ctx, f::FREED_PID) as u32;
    // Errors only say that there was no entry.
    let _ = TASKS.remove(&tid);
    let _ = MARKED.remove(&tid);
    0
}

/// A process takes its new program's name.
#[tracepoint]
pub fn tp_process_exec(_ctx: TracePointContext) -> u32 {
    let id = current::tgid();
    if PROCESSES.get_ptr(&id).is_some() {
        let _ = PROCESSES.remove(&id);
        current::note_process();
    }
    0
}
