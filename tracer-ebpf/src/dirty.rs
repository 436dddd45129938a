//! Who makes pages dirty.
//!
//! A buffered write passes here for each folio, so the usual case, the same
//! task writing the same file within a tick, must cost next to nothing: it
//! only adds to a per-CPU sum.

use crate::{
    current,
    globals::{get, member, tp},
    inode,
    maps::{DIRTIED, device},
};
use aya_ebpf::{
    helpers::generated,
    macros::{raw_tracepoint, tracepoint},
    programs::{RawTracePointContext, TracePointContext},
};
use tracer_common::{Dirtied, btf, tp as f};

#[inline(always)]
fn jiffies() -> u64 {
    // SAFETY: the helper has no preconditions.
    unsafe { generated::bpf_jiffies64() }
}

/// How the current task made a page dirty.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    /// Through a write call: its folio's dirtying follows, if it was clean.
    Write,
    /// A clean folio became dirty: by that write, or by a store into a mapping.
    Folio,
}

/// `bytes` of the inode at this address were made dirty by the current task.
#[inline(always)]
fn dirtied_at(address: u64, bytes: u64, by: By) {
    let Some(cache) = DIRTIED.get_ptr_mut(0) else {
        return;
    };
    // SAFETY: a per-CPU map value, checked not null.
    let cache = unsafe { &mut *cache };
    let now = jiffies();
    let tid = current::tid();
    let mut bytes = bytes;
    if cache.inode == address && cache.tid == tid {
        if by == By::Folio && cache.write != 0 {
            bytes = 0;
        }
        cache.write = u32::from(by == By::Write);
        if cache.jiffies == now {
            cache.bytes += bytes;
            return;
        }
    }
    flush(cache);
    cache.inode = address;
    cache.tid = tid;
    cache.jiffies = now;
    cache.bytes = 0;
    cache.write = u32::from(by == By::Write);
    cache.file = 0;
    let mut dev = get(get(address, btf::INODE_SB), btf::SB_DEV) as u32;
    let mut ino = get(address, btf::INODE_INO);
    if device(dev).is_none() {
        // The block device's own inode carries its device number. Kernel
        // threads dirty metadata through it: they own nothing.
        if ino >> 32 != 0 || device(ino as u32).is_none() || current::is_kernel_thread() {
            return;
        }
        dev = ino as u32;
        ino = 0;
    }
    let Some(entry) = inode::entry(dev, ino, address) else {
        return;
    };
    inode::dirtied(entry);
    cache.tgid = current::tgid();
    cache.file = entry.file;
    cache.dev = dev;
    cache.ino = ino;
    cache.bytes = bytes;
}

/// Books the bytes gathered so far to the stretch that they belong to.
#[inline(always)]
fn flush(cache: &Dirtied) {
    if cache.file == 0 || cache.bytes == 0 {
        return;
    }
    if let Some(entry) = inode::known(cache.dev, cache.ino)
        && entry.file == cache.file
    {
        inode::add_bytes(entry, cache.tgid, cache.bytes);
    }
}

/// The plain tracepoints know the inode by number only.
#[inline(always)]
fn dirtied_by_number(dev: u32, ino: u64, bytes: u64) {
    if device(dev).is_none() {
        return;
    }
    if let Some(entry) = inode::entry(dev, ino, 0) {
        inode::dirtied(entry);
        inode::add_bytes(entry, current::tgid(), bytes);
    }
}

/// All three: (struct inode *, `loff_t` pos, unsigned len, unsigned copied).
#[raw_tracepoint]
pub fn raw_write_end(ctx: RawTracePointContext) -> i32 {
    dirtied_at(
        ctx.arg::<u64>(0),
        u64::from(ctx.arg::<u64>(3) as u32),
        By::Write,
    );
    0
}

/// (struct folio *, struct `address_space` *); struct page * in 5.10.
#[raw_tracepoint]
pub fn raw_dirty_folio(ctx: RawTracePointContext) -> i32 {
    dirtied_at(host(ctx.arg::<u64>(1)), 4096, By::Folio);
    0
}

/// Address of the inode of an address space, which is a part of it. The usual
/// one, that of the inode dirtied last, needs no read.
#[inline(always)]
fn host(mapping: u64) -> u64 {
    let inside = member(btf::INODE_DATA);
    if inside.present()
        && let Some(cache) = DIRTIED.get_ptr(0)
    {
        // SAFETY: a per-CPU map value, checked not null.
        let last = unsafe { (*cache).inode };
        if last + u64::from(inside.offset) == mapping {
            return last;
        }
    }
    get(mapping, btf::MAPPING_HOST)
}

#[tracepoint]
pub fn tp_da_write_end(ctx: TracePointContext) -> u32 {
    dirtied_by_number(
        tp(&ctx, f::DAWE_DEV) as u32,
        tp(&ctx, f::DAWE_INO),
        tp(&ctx, f::DAWE_COPIED),
    );
    0
}

#[tracepoint]
pub fn tp_write_end(ctx: TracePointContext) -> u32 {
    dirtied_by_number(
        tp(&ctx, f::WE_DEV) as u32,
        tp(&ctx, f::WE_INO),
        tp(&ctx, f::WE_COPIED),
    );
    0
}

#[tracepoint]
pub fn tp_journalled_write_end(ctx: TracePointContext) -> u32 {
    dirtied_by_number(
        tp(&ctx, f::JWE_DEV) as u32,
        tp(&ctx, f::JWE_INO),
        tp(&ctx, f::JWE_COPIED),
    );
    0
}
