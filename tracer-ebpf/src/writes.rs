//! What a recording with every write keeps: who dirties which blocks, and
//! what takes dirty blocks away. Attached only where it is asked for, after
//! all other hooks, whose contexts it reads.

use crate::{
    current,
    globals::{cfg_get, get, member, tp, tp_field},
    inode::bpf_ktime_get_ns_u64,
    maps::device,
};
use aya_ebpf::{
    EbpfContext,
    helpers::generated,
    macros::{map, raw_tracepoint, tracepoint},
    maps::{PerCpuArray, RingBuf},
    programs::{RawTracePointContext, TracePointContext},
};
use core::ffi::c_void;
use tracer_common::{WriteRecord, btf, kept, path, tp as f, trig};

/// Made small at load where nobody asks for writes.
#[map]
pub static WRITES: RingBuf = RingBuf::with_byte_size(1 << 22, 0);
/// Records that did not fit, by kind.
#[map]
pub static WRITES_LOST: PerCpuArray<u64> = PerCpuArray::with_max_entries(kept::COUNT, 0);

/// What a CPU saw last.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Last {
    /// Inode that was touched, its device, and when.
    touched: u64,
    touched_dev: u32,
    touched_tick: u32,
    /// Inode that was written, by which thread, and when.
    written: u64,
    written_by: u32,
    written_tick: u32,
    /// 1 until the folio of that write was seen to become dirty.
    folio_follows: u32,
    reserved: u32,
}

#[map]
pub static WRITES_LAST: PerCpuArray<Last> = PerCpuArray::with_max_entries(1, 0);

#[inline(always)]
fn last() -> Option<&'static mut Last> {
    // SAFETY: a per-CPU map value; these programs run in tasks and are not
    // interrupted by themselves.
    WRITES_LAST.get_ptr_mut(0).map(|last| unsafe { &mut *last })
}

#[inline(always)]
fn tick() -> u32 {
    // SAFETY: the helper has no preconditions.
    unsafe { generated::bpf_jiffies64() as u32 }
}

/// Sends a record; wakes nobody: the reader comes several times a second.
#[inline(always)]
fn keep(kind: u32, dev: u32, ino: u64, first: u64, second: u64, code: u32) {
    use aya_ebpf::bindings::BPF_RB_NO_WAKEUP;
    let Some(mut entry) = WRITES.reserve::<WriteRecord>(0) else {
        if let Some(lost) = WRITES_LOST.get_ptr_mut(kind) {
            // SAFETY: a per-CPU map value, checked not null.
            unsafe { *lost += 1 };
        }
        return;
    };
    entry.write(WriteRecord {
        kind,
        dev,
        ino,
        ns: bpf_ktime_get_ns_u64(),
        first,
        second,
        pid: current::tgid(),
        code,
    });
    entry.submit(u64::from(BPF_RB_NO_WAKEUP));
}

#[inline(always)]
fn written(dev: u32, ino: u64, position: u64, bytes: u64) {
    if bytes == 0 || device(dev).is_none() {
        return;
    }
    if let Some(last) = last() {
        last.written = ino;
        last.written_by = current::tid();
        last.written_tick = tick();
        last.folio_follows = 1;
    }
    keep(kept::WRITE, dev, ino, position, bytes, 0);
}

#[tracepoint]
pub fn tp_keep_da_write_end(ctx: TracePointContext) -> u32 {
    written(
        tp(&ctx, f::DAWE_DEV) as u32,
        tp(&ctx, f::DAWE_INO),
        tp(&ctx, f::DAWE_POS),
        tp(&ctx, f::DAWE_COPIED),
    );
    0
}

#[tracepoint]
pub fn tp_keep_write_end(ctx: TracePointContext) -> u32 {
    written(
        tp(&ctx, f::WE_DEV) as u32,
        tp(&ctx, f::WE_INO),
        tp(&ctx, f::WE_POS),
        tp(&ctx, f::WE_COPIED),
    );
    0
}

#[tracepoint]
pub fn tp_keep_journalled_write_end(ctx: TracePointContext) -> u32 {
    written(
        tp(&ctx, f::JWE_DEV) as u32,
        tp(&ctx, f::JWE_INO),
        tp(&ctx, f::JWE_POS),
        tp(&ctx, f::JWE_COPIED),
    );
    0
}

/// Pages of a folio, as a power of two.
#[inline(always)]
fn order(folio: u64) -> u64 {
    let bit = cfg_get!(head_bit);
    if bit == 0 || get(folio, btf::FOLIO_FLAGS) >> (bit & 63) & 1 == 0 {
        return 0;
    }
    // Until 6.5 the order has a member of its own, later it is the low byte
    // of the flags of the second page (include/linux/mm.h).
    let order = if member(btf::FOLIO_ORDER).present() {
        get(folio, btf::FOLIO_ORDER)
    } else {
        get(folio, btf::FOLIO_FLAGS_1)
    };
    order & 0xff
}

/// (struct folio *, struct `address_space` *). In a write it comes after the
/// write's own event, when the folio was clean.
#[raw_tracepoint]
pub fn raw_keep_dirty_folio(ctx: RawTracePointContext) -> i32 {
    let address = get(ctx.arg::<u64>(1), btf::MAPPING_HOST);
    let (dev, ino) = crate::ext4::identity(address);
    if device(dev).is_none() {
        return 0;
    }
    if let Some(last) = last()
        && last.folio_follows != 0
    {
        last.folio_follows = 0;
        // Later it is a store: the write's folio was dirty already.
        let soon = tick().wrapping_sub(last.written_tick) <= 1;
        if soon && last.written == ino && last.written_by == current::tid() {
            return 0;
        }
    }
    let folio = ctx.arg::<u64>(0);
    let order = order(folio);
    let pages = 1_u64 << (order & 31);
    let index = get(folio, btf::FOLIO_INDEX);
    keep(kept::STORE, dev, ino, index, pages, 0);
    0
}

/// Several times in a call: once a tick is enough.
#[tracepoint]
pub fn tp_keep_mark_inode_dirty(ctx: TracePointContext) -> u32 {
    let dev = tp(&ctx, f::TOUCH_DEV) as u32;
    if device(dev).is_none() {
        return 0;
    }
    let ino = tp(&ctx, f::TOUCH_INO);
    let tick = tick();
    if let Some(last) = last() {
        if last.touched == ino && last.touched_dev == dev && last.touched_tick == tick {
            return 0;
        }
        last.touched = ino;
        last.touched_dev = dev;
        last.touched_tick = tick;
    }
    keep(kept::TOUCH, dev, ino, 0, 0, 0);
    0
}

#[tracepoint]
pub fn tp_keep_sync_file(ctx: TracePointContext) -> u32 {
    let dev = tp(&ctx, f::SYNC_DEV) as u32;
    if device(dev).is_some() {
        let data = u32::from(tp(&ctx, f::SYNC_DATA) != 0);
        keep(kept::SYNC, dev, tp(&ctx, f::SYNC_INO), 0, 0, data);
    }
    0
}

#[tracepoint]
pub fn tp_keep_sync_fs(ctx: TracePointContext) -> u32 {
    let dev = tp(&ctx, f::SFS_DEV) as u32;
    if device(dev).is_some() {
        keep(kept::SYNC_FS, dev, 0, 0, 0, 0);
    }
    0
}

/// The row that the write-back of pages got when it began says why.
#[tracepoint]
pub fn tp_keep_writepages(ctx: TracePointContext) -> u32 {
    let dev = tp(&ctx, f::WPR_DEV) as u32;
    let pages = tp(&ctx, f::WPR_PAGES) as i32;
    if pages <= 0 || device(dev).is_none() {
        return 0;
    }
    let (mut path, mut code) = (path::UNATTRIBUTED, 0);
    if let Some(task) = current::context() {
        let row = &task.pages_row;
        path = row.path;
        code = match row.trig {
            trig::REASON => row.code,
            trig::CALL => row.call,
            _ => 0,
        };
    }
    keep(
        kept::FLUSH,
        dev,
        tp(&ctx, f::WPR_INO),
        pages as u64,
        u64::from(path),
        u32::from(code),
    );
    0
}

/// (struct inode *), which has its new size already.
#[raw_tracepoint]
pub fn raw_keep_truncate(ctx: RawTracePointContext) -> i32 {
    let address = ctx.arg::<u64>(0);
    let (dev, ino) = crate::ext4::identity(address);
    if device(dev).is_some() {
        let size = get(address, btf::INODE_SIZE);
        keep(kept::TRUNCATE, dev, ino, size, 0, 0);
    }
    0
}

#[tracepoint]
pub fn tp_keep_truncate(ctx: TracePointContext) -> u32 {
    let dev = tp(&ctx, f::CUT_DEV) as u32;
    if device(dev).is_some() {
        keep(kept::TRUNCATE, dev, tp(&ctx, f::CUT_INO), u64::MAX, 0, 0);
    }
    0
}

#[tracepoint]
pub fn tp_keep_evict(ctx: TracePointContext) -> u32 {
    let dev = tp(&ctx, f::EVICT_DEV) as u32;
    if device(dev).is_some() && tp(&ctx, f::EVICT_LINKS) as i32 == 0 {
        keep(kept::EVICT, dev, tp(&ctx, f::EVICT_INO), 0, 0, 0);
    }
    0
}

/// Rounds of all disks; they are few, and userspace knows whose they are.
#[tracepoint]
pub fn tp_keep_round(ctx: TracePointContext) -> u32 {
    let place = tp_field(f::WBS_NAME);
    if !place.present() {
        return 0;
    }
    let mut name = [0_u64; 2];
    // SAFETY: the buffer is writable for its size; the source is the record.
    unsafe {
        generated::bpf_probe_read_kernel(
            (&raw mut name).cast::<c_void>(),
            size_of::<[u64; 2]>() as u32,
            ctx.as_ptr().cast::<u8>().add(place.offset as usize).cast(),
        );
    }
    let reason = tp(&ctx, f::WBS_REASON) as u32;
    keep(kept::WAKE, 0, 0, name[0], name[1], reason);
    0
}
