//! The current task: its ids, its system call, its context.

use crate::{
    globals::{cfg_get, get, member, read_kernel},
    maps::{MARKED, PROCESSES, TASKS, Task, lose},
};
use aya_ebpf::{
    bindings::BPF_NOEXIST,
    helpers::{
        bpf_get_current_cgroup_id, bpf_get_current_comm, bpf_get_current_pid_tgid, generated,
    },
};
use core::ffi::c_void;
use tracer_common::{
    CALL_FIEMAP, CALL_FREEZE, CALL_IO_URING, CALL_NONE, CALL_THAW, Process, RowKey, btf, loss,
};

const PF_IO_WORKER: u64 = 0x10;
const PF_USER_WORKER: u64 = 0x4000;
const PF_KTHREAD: u64 = 0x0020_0000;

const NO_ROW: RowKey = RowKey {
    epoch: 0,
    fs_dev: 0,
    file: 0,
    dirtier: 0,
    aux: 0,
    disk: 0,
    code: 0,
    call: 0,
    path: 0,
    trig: 0,
    op: 0,
    by_page: 0,
    reserved: 0,
};

static NO_TASK: Task = Task {
    sync_dev: 0,
    sync_file: 0,
    sync_depth: 0,
    pages_dev: 0,
    pages_file: 0,
    pages_owner: 0,
    pages_row: NO_ROW,
    pages_first: 0,
    pages_last: 0,
    commit_dev: 0,
    commit_tid: 0,
    ordered_file: 0,
    fast_dev: 0,
    fast_ns: 0,
    dio_left: 0,
    dio_inode: 0,
    dio_ino: 0,
    dio_dev: 0,
    dio_file: 0,
    dio_disk: 0,
    extent_dev: 0,
    extent_ino: 0,
    extent_start: 0,
    extent_len: 0,
    work: 0,
    work_by: 0,
    work_call: CALL_NONE,
    work_reason: 0,
    sync_call: CALL_NONE,
    dio_call: CALL_NONE,
    flusher: 0,
    flushing: 0,
    journal_superblock: 0,
    checkpoint: 0,
    sync_handle: 0,
    sync_fs: 0,
    reserved: [0; 2],
};

/// Process id above, thread id below.
#[inline(always)]
pub fn pid_tgid() -> u64 {
    bpf_get_current_pid_tgid()
}

/// Thread id.
#[inline(always)]
pub fn tid() -> u32 {
    bpf_get_current_pid_tgid() as u32
}

/// Process id.
#[inline(always)]
pub fn tgid() -> u32 {
    (bpf_get_current_pid_tgid() >> 32) as u32
}

/// The context of the current task, if it has one.
#[inline(always)]
pub fn context() -> Option<&'static mut Task> {
    // SAFETY: only the task itself changes its entry, and a program is not
    // interrupted by another of the same task.
    TASKS.get_ptr_mut(&tid()).map(|task| unsafe { &mut *task })
}

/// The context of the current task, made when it has none.
#[inline(always)]
pub fn context_or_new() -> Option<&'static mut Task> {
    let tid = tid();
    if let Some(task) = TASKS.get_ptr_mut(&tid) {
        // SAFETY: as in `context`.
        return Some(unsafe { &mut *task });
    }
    if TASKS
        .insert(&tid, &NO_TASK, u64::from(BPF_NOEXIST))
        .is_err()
    {
        lose(loss::TASK);
        return None;
    }
    // SAFETY: as in `context`.
    TASKS.get_ptr_mut(&tid).map(|task| unsafe { &mut *task })
}

/// Flags of the current task, 0 when they cannot be read.
#[inline(always)]
fn flags() -> u64 {
    // SAFETY: the helper has no preconditions.
    let task = unsafe { generated::bpf_get_current_task() };
    get(task, btf::TASK_FLAGS)
}

/// Whether the current task is a kernel thread.
#[inline(always)]
pub fn is_kernel_thread() -> bool {
    if member(btf::TASK_FLAGS).present() {
        return flags() & PF_KTHREAD != 0;
    }
    matches!(bpf_get_current_comm(), Ok(comm) if comm.starts_with(b"kworker/"))
}

/// Whether the current task is the thread that initialises inode tables; its
/// own tracepoint fires after each write (fs/ext4/super.c).
#[inline(always)]
pub fn is_lazy_init() -> bool {
    matches!(bpf_get_current_comm(), Ok(comm) if comm.starts_with(b"ext4lazyinit"))
}

/// How the current system call is told: a user task's registers have it.
const BY_REGISTERS: u32 = 0;
/// A worker of `io_uring`.
const BY_IO_URING: u32 = 1;
/// Not at all.
const BY_NOTHING: u32 = 2;

/// How the system call of the current task is told; the same for all its life.
#[inline(always)]
pub fn kind() -> u32 {
    if cfg_get!(call_readable) == 0 {
        return BY_NOTHING;
    }
    let flags = flags();
    if flags & PF_KTHREAD != 0 {
        BY_NOTHING
    } else if flags & (PF_IO_WORKER | PF_USER_WORKER) != 0 {
        BY_IO_URING
    } else {
        BY_REGISTERS
    }
}

/// The system call that the current task is in, also on its way back to user
/// space (which is where umount does its work).
#[inline(always)]
pub fn call() -> u16 {
    call_of(kind())
}

/// The same, where [`kind`] is known.
#[inline(always)]
pub fn call_of(kind: u32) -> u16 {
    if cfg_get!(call_readable) == 0 || kind == BY_NOTHING {
        return CALL_NONE;
    }
    if kind == BY_IO_URING {
        return CALL_IO_URING;
    }
    // SAFETY: the helpers have no preconditions; the registers of a user
    // task are always there.
    let regs = unsafe { generated::bpf_task_pt_regs(generated::bpf_get_current_task_btf()) } as u64;
    let x86 = member(btf::REGS_CALL).present();
    let index = if x86 {
        btf::REGS_CALL
    } else {
        btf::REGS_CALL_ARM64
    };
    let number = get(regs, index) as u16;
    if u32::from(number) == cfg_get!(call_ioctl) {
        let request = if x86 {
            get(regs, btf::REGS_SECOND)
        } else {
            read_kernel::<u64>(regs + u64::from(member(btf::REGS_ARM64).offset) + 8)
        };
        return ioctl(request as u32);
    }
    number
}

/// Requests of ioctl that write (include/uapi/linux/fs.h).
#[inline(always)]
fn ioctl(request: u32) -> u16 {
    match request {
        0xc020_660b => CALL_FIEMAP,
        0xc004_5877 => CALL_FREEZE,
        0xc004_5878 => CALL_THAW,
        _ => cfg_get!(call_ioctl) as u16,
    }
}

/// Keeps the name of the current process, once. A function of its own: inside
/// its callers it would make them too large to be inlined in turn.
#[inline(never)]
pub fn note_process() {
    let id = tgid();
    if PROCESSES.get_ptr(&id).is_some() {
        return;
    }
    let mut process = Process {
        comm: [0; 16],
        // SAFETY: the helper has no preconditions.
        cgroup: unsafe { bpf_get_current_cgroup_id() },
        marked: u32::from(MARKED.get_ptr(&id).is_some()),
        main: u32::from(tid() == id),
    };
    // SAFETY: writable for its size. aya's wrapper would hold two more copies
    // on a stack that callers and callees share.
    unsafe {
        generated::bpf_get_current_comm(
            (&raw mut process.comm).cast::<c_void>(),
            size_of_val(&process.comm) as u32,
        );
    }
    if PROCESSES.insert(&id, &process, 0).is_err() {
        lose(loss::PROCESS);
    }
}
