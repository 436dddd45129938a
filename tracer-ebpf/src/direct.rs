//! Direct I/O: which file the next bios of this task belong to.

use crate::{
    classify::Bio,
    current,
    ext4::identity,
    globals::{get, member, tp},
    inode,
    maps::{LAST_DIRECT, LastDirect, Task, control_value, device},
};
use aya_ebpf::{
    macros::{raw_tracepoint, tracepoint},
    programs::{RawTracePointContext, TracePointContext},
};
use tracer_common::{CALL_NONE, RowKey, btf, control, path, tp as f, trig};

/// Fills in the row of a bio that is direct I/O by its own account.
#[inline(always)]
pub fn fill(bio: &Bio, row: &mut RowKey) {
    let task = current::pid_tgid();
    row.path = path::DIRECT;
    row.trig = trig::CALL;
    row.aux = (task >> 32) as u32;
    row.dirtier = row.aux;
    row.call = CALL_NONE;
    let Some(last) = LAST_DIRECT.get_ptr_mut(0) else {
        return;
    };
    // SAFETY: a per-CPU map value, used by one program only.
    let last = unsafe { &mut *last };
    let lives = control_value(control::LIVES);
    if last.task != task
        || last.inode != bio.direct
        || last.lives != lives
        || get(bio.direct, btf::INODE_INO) != last.ino
    {
        last.task = task;
        last.inode = bio.direct;
        last.lives = lives;
        last.kind = current::kind();
        find(last);
        current::note_process();
    }
    row.fs_dev = last.dev;
    row.file = last.file;
    row.call = current::call_of(last.kind);
}

/// The file of an inode. A function of its own: it is rarely needed, and
/// inside its caller it would cost stack there.
#[inline(never)]
fn find(last: &mut LastDirect) {
    let (dev, ino) = identity(last.inode);
    last.ino = ino;
    last.dev = dev;
    last.file = match device(dev) {
        Some(_) => inode::entry(dev, ino, last.inode).map_or(0, |entry| entry.file),
        None => 0,
    };
}

#[inline(always)]
fn begin(task: &mut Task, dev: u32, ino: u64, address: u64, bytes: u64) {
    let Some(info) = device(dev) else {
        task.dio_inode = 0;
        task.dio_left = 0;
        return;
    };
    task.dio_inode = address;
    task.dio_ino = ino;
    task.dio_dev = dev;
    task.dio_disk = info.disk;
    task.dio_file = match inode::entry(dev, ino, address) {
        Some(entry) => entry.file,
        None => 0,
    };
    task.dio_left = bytes;
    task.dio_call = current::call();
    current::note_process();
}

/// (struct kiocb *, struct `iov_iter` *, unsigned flags, `size_t` done): reads
/// pass here too.
#[raw_tracepoint]
pub fn raw_dio_begin(ctx: RawTracePointContext) -> i32 {
    let iter = ctx.arg::<u64>(1);
    if member(btf::ITER_SOURCE).present() && get(iter, btf::ITER_SOURCE) == 0 {
        return 0;
    }
    let address = get(get(ctx.arg::<u64>(0), btf::KIOCB_FILE), btf::FILE_INODE);
    let bytes = get(iter, btf::ITER_COUNT);
    let Some(task) = current::context_or_new() else {
        return 0;
    };
    // The usual case, the file of the last call, costs two reads.
    if task.dio_inode == address && get(address, btf::INODE_INO) == task.dio_ino {
        task.dio_left = bytes;
        task.dio_call = current::call();
        return 0;
    }
    let (dev, ino) = identity(address);
    begin(task, dev, ino, address, bytes);
    0
}

#[tracepoint]
pub fn tp_dio_begin(ctx: TracePointContext) -> u32 {
    let dev = tp(&ctx, f::DIO_DEV) as u32;
    if device(dev).is_some()
        && let Some(task) = current::context_or_new()
    {
        begin(task, dev, tp(&ctx, f::DIO_INO), 0, tp(&ctx, f::DIO_COUNT));
    }
    0
}

#[inline(always)]
fn extent(dev: u32, ino: u64, start: u64, len: u64) {
    if device(dev).is_none() {
        return;
    }
    if let Some(task) = current::context_or_new() {
        task.extent_dev = dev;
        task.extent_ino = ino;
        task.extent_start = start;
        task.extent_len = len;
    }
}

/// Kernels without `iomap_dio_rw_begin`: the extent looked up just before.
#[tracepoint]
pub fn tp_es_lookup_extent_exit(ctx: TracePointContext) -> u32 {
    if tp(&ctx, f::ESL_FOUND) != 0 {
        extent(
            tp(&ctx, f::ESL_DEV) as u32,
            tp(&ctx, f::ESL_INO),
            tp(&ctx, f::ESL_PBLK),
            tp(&ctx, f::ESL_LEN),
        );
    }
    0
}

/// The same for an extent that was just allocated.
#[tracepoint]
pub fn tp_es_insert_extent(ctx: TracePointContext) -> u32 {
    extent(
        tp(&ctx, f::ESI_DEV) as u32,
        tp(&ctx, f::ESI_INO),
        tp(&ctx, f::ESI_PBLK),
        tp(&ctx, f::ESI_LEN),
    );
    0
}
