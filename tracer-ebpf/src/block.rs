//! Bios as they are submitted: each gets its row here.

use crate::{
    classify::{self, Bio},
    complete::{add_control, count_flushes},
    globals::{Head, cfg_get, get, read_kernel, tp, tp_field},
    inode::bpf_ktime_get_ns_u64,
    maps::{FLIGHTS, OF_BIO, device, device_of, lose},
};
use aya_ebpf::{
    EbpfContext,
    bindings::BPF_NOEXIST,
    macros::{raw_tracepoint, tracepoint},
    programs::{RawTracePointContext, TracePointContext},
};
use tracer_common::{Flight, FlightKey, RowKey, btf, control, loss, op, tp as f};

/// Bios in flight on one start sector that can be told apart.
pub const SLOTS: u8 = 8;

/// Flags of a bio that matter here.
#[derive(Clone, Copy)]
pub struct Flags {
    pub op: u8,
    pub meta: bool,
    pub fua: bool,
    pub preflush: bool,
    pub swap: bool,
}

/// From `bi_opf` or `cmd_flags`; the bits are the running kernel's.
#[inline(always)]
pub fn flags_of(opf: u32) -> Flags {
    let code = opf as u8;
    let op = if code == cfg_get!(req_op[0]) {
        op::WRITE
    } else if code == cfg_get!(req_op[3]) {
        op::WRITE_ZEROES
    } else if code == cfg_get!(req_op[2]) {
        op::SECURE_ERASE
    } else if code == cfg_get!(req_op[1]) {
        op::DISCARD
    } else if code == cfg_get!(req_op[4]) {
        op::FLUSH
    } else {
        0
    };
    Flags {
        op,
        meta: opf & cfg_get!(req_meta) != 0,
        fua: opf & cfg_get!(req_fua) != 0,
        preflush: opf & cfg_get!(req_preflush) != 0,
        swap: opf & cfg_get!(req_swap) != 0,
    }
}

/// From the text of a tracepoint: `[F]op[F][A][S][M]`.
#[inline(always)]
pub fn flags_of_text<C: EbpfContext>(ctx: &C, index: usize) -> Flags {
    let text: [u8; 8] = read_kernel(ctx.as_ptr() as u64 + u64::from(tp_field(index).offset));
    let mut flags = Flags {
        op: 0,
        meta: false,
        fua: false,
        preflush: false,
        swap: false,
    };
    let mut at = 0;
    if text[0] == b'F' {
        flags.preflush = true;
        at = 1;
    }
    match if at == 0 { text[0] } else { text[1] } {
        b'W' => flags.op = op::WRITE,
        b'D' => flags.op = op::DISCARD,
        b'N' => flags.op = op::WRITE_ZEROES,
        // A flush on its own is `FF`.
        b'F' => {
            flags.op = op::FLUSH;
            return flags;
        }
        _ => return flags,
    }
    // Secure erase is `DE`.
    for byte in text.iter().skip(1) {
        match *byte {
            b'E' => flags.op = op::SECURE_ERASE,
            b'M' => flags.meta = true,
            b'F' => flags.fua = true,
            0 => break,
            _ => {}
        }
    }
    flags
}

/// Keeps a bio's row until it completes.
#[inline(always)]
pub fn keep(disk: u16, kind: u8, sector: u64, row: &RowKey, sectors: u32) {
    let mut key = FlightKey {
        sector,
        disk,
        op: kind,
        slot: 0,
        reserved: 0,
    };
    let flight = Flight {
        row: *row,
        sectors,
        submitted: (bpf_ktime_get_ns_u64() >> 20) as u32,
    };
    for slot in 0..SLOTS {
        key.slot = slot;
        if FLIGHTS
            .insert(&key, &flight, u64::from(BPF_NOEXIST))
            .is_ok()
        {
            if slot > 0 {
                add_control(control::TWINS, 1);
            }
            return;
        }
    }
    lose(loss::FLIGHT);
}

#[inline(always)]
fn queued(bio: &Bio, flags: Flags) {
    let row = classify::row(bio);
    if flags.preflush || flags.fua {
        count_flushes(&row, bio, flags);
    }
    if bio.sectors > 0 {
        keep(row.disk, row.op, bio.sector, &row, bio.sectors);
    }
}

/// The kinds that stat counts as sectors written.
#[inline(always)]
pub fn in_ledger(kind: u8) -> bool {
    matches!(kind, op::WRITE | op::WRITE_ZEROES | op::SECURE_ERASE)
}

/// (struct bio *).
#[raw_tracepoint]
pub fn raw_bio_queue(ctx: RawTracePointContext) -> i32 {
    let address = ctx.arg::<u64>(0);
    let head = Head::read(address);
    let flags = flags_of(head.get(address, btf::BIO_OPF) as u32);
    if !in_ledger(flags.op) {
        return 0;
    }
    let bdev = head.get(address, btf::BIO_BDEV);
    let dev_of = |bdev| get(bdev, btf::BDEV_DEV) as u32;
    let Some((dev, info)) = device_of(OF_BIO, bdev, dev_of) else {
        return 0;
    };
    queued(
        &Bio {
            dev,
            info,
            sector: head.get(address, btf::BIO_SECTOR),
            sectors: (head.get(address, btf::BIO_SIZE) >> 9) as u32,
            op: flags.op,
            meta: flags.meta,
            fua: flags.fua,
            swap: flags.swap,
            address,
            direct: direct_inode(&head, address),
        },
        flags,
    );
    0
}

/// Address of the inode of a bio of direct I/O, 0 for any other: its end is
/// iomap's, and its private data begins with the I/O's control block.
#[inline(always)]
fn direct_inode(head: &Head, address: u64) -> u64 {
    let end = cfg_get!(direct_end);
    if end == 0 || head.get(address, btf::BIO_END) != end {
        return 0;
    }
    let control_block = get(head.get(address, btf::BIO_PRIVATE), btf::DIO_KIOCB);
    get(get(control_block, btf::KIOCB_FILE), btf::FILE_INODE)
}

#[tracepoint]
pub fn tp_bio_queue(ctx: TracePointContext) -> u32 {
    let dev = tp(&ctx, f::BIOQ_DEV) as u32;
    let Some(info) = device(dev) else {
        return 0;
    };
    let flags = flags_of_text(&ctx, f::BIOQ_RWBS);
    if !in_ledger(flags.op) {
        return 0;
    }
    queued(
        &Bio {
            dev,
            info,
            sector: tp(&ctx, f::BIOQ_SECTOR),
            sectors: tp(&ctx, f::BIOQ_NR) as u32,
            op: flags.op,
            meta: flags.meta,
            fua: flags.fua,
            swap: false,
            address: 0,
            direct: 0,
        },
        flags,
    );
    0
}

/// A bio was cut: the front keeps its key, the rest gets one of its own. The
/// rest does not pass `block_bio_queue` again.
#[tracepoint]
pub fn tp_split(ctx: TracePointContext) -> u32 {
    let Some(info) = device(tp(&ctx, f::SPLIT_DEV) as u32) else {
        return 0;
    };
    let kind = flags_of_text(&ctx, f::SPLIT_RWBS).op;
    if !in_ledger(kind) {
        return 0;
    }
    let sector = tp(&ctx, f::SPLIT_SECTOR);
    let cut = tp(&ctx, f::SPLIT_NEW);
    let front = cut.wrapping_sub(sector) as u32;
    let mut key = FlightKey {
        sector,
        disk: info.disk as u16,
        op: kind,
        slot: 0,
        reserved: 0,
    };
    for slot in 0..SLOTS {
        key.slot = slot;
        let Some(found) = FLIGHTS.get_ptr_mut(&key) else {
            continue;
        };
        // SAFETY: a live map value; only the submitter of this bio, which is
        // the current task, changes it before it completes.
        let flight = unsafe { &mut *found };
        if flight.sectors > front {
            let rest = flight.sectors - front;
            flight.sectors = front;
            let row = flight.row;
            keep(row.disk, row.op, cut, &row, rest);
            return 0;
        }
    }
    0
}
