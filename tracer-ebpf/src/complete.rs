//! Completions: the device counts a sector when it completes, and so do we.

use crate::{
    block::{in_ledger, kind_of, parse_text},
    classify::{Bio, flag},
    flights::{claim, find, keep, slots},
    globals::{cfg_get, get, tp},
    maps::{
        CONTROL, EDGES, OF_REQUEST, ROWS, add, control_value, device, device_of, lose, scratch,
    },
};
use aya_ebpf::{
    bindings::BPF_NOEXIST,
    helpers::{bpf_get_smp_processor_id, generated},
    macros::{raw_tracepoint, tracepoint},
    programs::{RawTracePointContext, TracePointContext},
};
use core::{
    ffi::c_void,
    ptr::{null_mut, read_volatile, write_volatile},
};
use tracer_common::{
    DeviceInfo, Edge, FlightKey, RowKey, RowValue, btf, control, loss, op, path, tp as f,
};

/// Bios walked in one completion.
const WALK: u32 = 16384;
/// The same on kernels before 5.17, which have no `bpf_loop`: what the
/// verifier takes.
const WALK_WITHOUT_LOOP: u32 = 24;
/// Sectors stepped over while looking for the next bio that is known.
const STEP: u64 = 8;
/// A bio may have waited this long for a tag when the probes came on.
const GRACE_NS: u64 = 2_000_000_000;

/// No slot.
const NONE: u8 = u8::MAX;

static NO_COUNTS: RowValue = RowValue {
    sectors: 0,
    bios: 0,
    flushes: 0,
};

/// A completed part of a request.
struct Completion {
    info: DeviceInfo,
    sector: u64,
    sectors: u64,
    op: u8,
    failed: bool,
    /// Address of the request, 0 where the hook does not tell it.
    request: u64,
}

/// Adds to a control value.
#[inline(always)]
pub fn add_control(index: u32, value: u64) {
    if let Some(control) = CONTROL.get_ptr_mut(index) {
        add(control, value);
    }
}

/// The row's counts, made when it is new.
#[inline(always)]
fn counts(row: &RowKey) -> Option<*mut RowValue> {
    if let Some(value) = ROWS.get_ptr_mut(row) {
        return Some(value);
    }
    // A row made by another CPU meanwhile is as good.
    let _ = ROWS.insert(row, &NO_COUNTS, u64::from(BPF_NOEXIST));
    let value = ROWS.get_ptr_mut(row);
    if value.is_none() {
        lose(loss::ROW);
    }
    value
}

/// Adds to a row.
#[inline(always)]
fn count(row: &RowKey, sectors: u64, bios: u64) {
    if let Some(value) = counts(row) {
        // SAFETY: fields of a live map value.
        unsafe {
            add(&raw mut (*value).sectors, sectors);
            add(&raw mut (*value).bios, bios);
        }
    }
}

/// Flushes that a bio asks for: one before it, one after it where the device
/// cannot write through by itself.
#[inline(always)]
pub fn count_flushes(row: &RowKey, bio: &Bio) {
    let device_fua = bio.info.flags & tracer_common::device_flag::FUA != 0;
    let after = bio.has(flag::FUA) && bio.sectors > 0 && !device_fua;
    let asked = u64::from(bio.has(flag::PREFLUSH)) + u64::from(after);
    let mut row = *row;
    row.epoch = control_value(control::EPOCH) as u32;
    if let Some(value) = counts(&row) {
        // SAFETY: a field of a live map value.
        add(unsafe { &raw mut (*value).flushes }, asked);
    }
}

#[inline(always)]
fn unknown(completion: &Completion, sectors: u64, epoch: u32) {
    let started = control_value(control::STARTED_NS);
    let made_ns = match completion.request {
        0 => 0,
        request => get(request, btf::RQ_START),
    };
    let before = if made_ns != 0 && made_ns < started {
        true
    } else {
        crate::inode::bpf_ktime_get_ns_u64().wrapping_sub(started) < GRACE_NS
    };
    let row = RowKey {
        epoch,
        disk: completion.info.disk as u16,
        op: completion.op,
        path: if before {
            path::BEFORE
        } else {
            path::UNATTRIBUTED
        },
        ..RowKey::default()
    };
    count(&row, sectors, 1);
}

/// One turn of the walk: one look-up. Where several bios are in flight on one
/// start sector, the one in the highest slot is taken whose length is all that
/// is left, else the one in the lowest slot. The highest, so that a bio whose
/// completion no program saw grows old instead of taking the place of its
/// successors. Returns 1 at the end.
///
/// From the highest slot down, for another CPU may take the bio that is meant,
/// in place of a twin of its own: that twin was not higher, and is met next.
extern "C" fn turn(_index: u32, _context: *mut c_void) -> i64 {
    let Some(scratch) = scratch(scratch::COMPLETE) else {
        return 1;
    };
    let walk = &mut scratch.walk;
    if walk.left == 0 {
        return 1;
    }
    let len = match find(&walk.key) {
        // SAFETY: a live map value, checked not null.
        Some(flight) => u64::from(unsafe { (*flight).sectors }),
        None => 0,
    };
    let slot = walk.key.slot;
    let exact = len == walk.left;
    if !exact {
        if len != 0 {
            walk.other = slot;
            walk.other_sectors = len as u32;
        }
        if slot > 0 {
            walk.key.slot = slot - 1;
            return 0;
        }
    }
    let (choice, whole) = if exact {
        (slot, walk.left as u32)
    } else {
        (walk.other, walk.other_sectors)
    };
    let top = walk.slots - 1;
    if choice == NONE {
        let step = if walk.left < STEP { walk.left } else { STEP };
        walk.missed += step;
        walk.left -= step;
        walk.key.sector += step;
        walk.key.slot = top;
        return 0;
    }
    walk.key.slot = choice;
    let claimed = claim(&walk.key, whole);
    if exact && slot > 0 && claimed.is_none() {
        walk.key.slot = slot - 1;
        return 0;
    }
    walk.key.slot = top;
    walk.other = NONE;
    let Some(mut flight) = claimed else {
        return 0;
    };
    let whole = u64::from(whole);
    let done = if whole < walk.left { whole } else { walk.left };
    flight.row.epoch = walk.epoch;
    count(&flight.row, done, 1);
    walk.key.sector += done;
    walk.left -= done;
    if done < whole {
        // Only the last of a completion can be cut.
        flight.sectors = (whole - done) as u32;
        walk.cut = flight;
    }
    0
}

/// Takes the bio that is the whole of a completion, the usual case; says
/// whether there was one.
#[inline(always)]
fn alone(key: &FlightKey, completion: &Completion, epoch: u32) -> bool {
    let Some(found) = find(key) else {
        return false;
    };
    // SAFETY: a field of a live map value.
    if u64::from(unsafe { (*found).sectors }) != completion.sectors {
        return false;
    }
    let Some(mut flight) = claim(key, completion.sectors as u32) else {
        return false;
    };
    flight.row.epoch = epoch;
    count(&flight.row, completion.sectors, 1);
    true
}

/// Takes the known bios of a completed range.
#[inline(always)]
fn walk(completion: &Completion, epoch: u32) {
    let key = FlightKey {
        sector: completion.sector,
        disk: completion.info.disk as u16,
        op: completion.op,
        slot: 0,
        reserved: 0,
    };
    let slots = slots();
    if slots == 1 && alone(&key, completion, epoch) {
        return;
    }
    let Some(scratch) = scratch(scratch::COMPLETE) else {
        return;
    };
    let walk = &mut scratch.walk;
    walk.key = key;
    walk.key.slot = slots - 1;
    walk.left = completion.sectors;
    walk.missed = 0;
    walk.cut.sectors = 0;
    walk.epoch = epoch;
    walk.slots = slots;
    walk.other = NONE;
    if cfg_get!(loop_callable) != 0 {
        // SAFETY: the callback takes what the helper gives it.
        unsafe {
            generated::bpf_loop(WALK, turn as *mut c_void, null_mut(), 0);
        }
    } else {
        for index in 0..WALK_WITHOUT_LOOP {
            if turn(index, null_mut()) != 0 {
                break;
            }
        }
    }
    // Looked up anew: the turns had it for themselves.
    let Some(scratch) = self::scratch(scratch::COMPLETE) else {
        return;
    };
    let walk = &scratch.walk;
    if walk.cut.sectors > 0 {
        keep(walk.key.sector, &walk.cut);
    }
    let unknown_sectors = walk.missed + walk.left;
    if unknown_sectors > 0 {
        unknown(completion, unknown_sectors, epoch);
    }
}

#[inline(always)]
fn completed(completion: &Completion) {
    // SAFETY: the helper has no preconditions.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    let Some(edge) = EDGES.get_ptr_mut(cpu) else {
        return;
    };
    mark(edge, true);
    let epoch = control_value(control::EPOCH) as u32;
    let beside = |op| RowKey {
        epoch,
        disk: completion.info.disk as u16,
        op,
        ..RowKey::default()
    };
    if completion.op == op::FLUSH || completion.op == op::DISCARD {
        count(&beside(completion.op), completion.sectors, 1);
    } else {
        walk(completion, epoch);
    }
    if completion.failed {
        count(&beside(op::FAILED), completion.sectors, 1);
    }
    mark(edge, false);
}

#[inline(always)]
fn mark(edge: *mut Edge, begin: bool) {
    // SAFETY: this program alone writes this CPU's entry, and does not nest.
    unsafe {
        let counter = if begin {
            &raw mut (*edge).begun
        } else {
            &raw mut (*edge).ended
        };
        write_volatile(counter, read_volatile(counter) + 1);
    }
}

#[inline(always)]
fn dev_of_queue(queue: u64) -> u32 {
    let disk = get(queue, btf::QUEUE_DISK);
    ((get(disk, btf::DISK_MAJOR) << 20) | get(disk, btf::DISK_MINOR)) as u32
}

/// (struct request *, `blk_status_t`, unsigned bytes).
#[raw_tracepoint]
pub fn raw_rq_complete(ctx: RawTracePointContext) -> i32 {
    let request = ctx.arg::<u64>(0);
    let Some(scratch) = scratch(scratch::COMPLETE) else {
        return 0;
    };
    let head = &mut scratch.head;
    head.read(request);
    let kind = kind_of(head.get(request, btf::RQ_FLAGS) as u32);
    if !in_ledger(kind) && kind != op::DISCARD && kind != op::FLUSH {
        return 0;
    }
    let queue = head.get(request, btf::RQ_QUEUE);
    let Some((_, info)) = device_of(OF_REQUEST, queue, dev_of_queue) else {
        return 0;
    };
    let sectors = u64::from(ctx.arg::<u64>(2) as u32) >> 9;
    if sectors == 0 && kind != op::FLUSH {
        return 0;
    }
    completed(&Completion {
        info,
        sector: head.get(request, btf::RQ_SECTOR),
        sectors,
        op: kind,
        failed: ctx.arg::<u64>(1) as u8 != 0,
        request,
    });
    0
}

#[tracepoint]
pub fn tp_rq_complete(ctx: TracePointContext) -> u32 {
    let Some(info) = device(tp(&ctx, f::RQC_DEV) as u32) else {
        return 0;
    };
    let (kind, _) = parse_text(&ctx, f::RQC_RWBS);
    let sectors = tp(&ctx, f::RQC_NR);
    if !(kind == op::FLUSH || sectors > 0 && (in_ledger(kind) || kind == op::DISCARD)) {
        return 0;
    }
    completed(&Completion {
        info,
        sector: tp(&ctx, f::RQC_SECTOR),
        sectors,
        op: kind,
        failed: tp(&ctx, f::RQC_ERROR) as i32 != 0,
        request: 0,
    });
    0
}
