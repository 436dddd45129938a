//! Bios as they are submitted: each gets its row here.

use crate::{
    classify::{self, Bio, flag},
    complete::count_flushes,
    flights::{SLOTS, find, keep},
    globals::{Head, cfg_get, get, read_kernel, tp, tp_field},
    maps::{OF_BIO, Scratch, control_value, device, device_of, scratch},
};
use aya_ebpf::{
    EbpfContext,
    macros::{raw_tracepoint, tracepoint},
    programs::{RawTracePointContext, TracePointContext},
};
use tracer_common::{FlightKey, btf, control, op, tp as f};

/// Kind of a bio or request, 0 for what is not counted: from `bi_opf` or
/// `cmd_flags`, by the running kernel's codes.
#[inline(always)]
pub fn kind_of(opf: u32) -> u8 {
    let code = opf as u8;
    if code == cfg_get!(req_op[0]) {
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
    }
}

/// The bits of `bi_opf` as [`flag`] has them.
#[inline(always)]
fn flags_of(opf: u32) -> u32 {
    let bit = |mask: u32, flag: u32| if opf & mask != 0 { flag } else { 0 };
    bit(cfg_get!(req_meta), flag::META)
        | bit(cfg_get!(req_fua), flag::FUA)
        | bit(cfg_get!(req_preflush), flag::PREFLUSH)
        | bit(cfg_get!(req_swap), flag::SWAP)
}

/// Kind and flags from the text of a tracepoint: `[F]op[F][A][S][M]`.
#[inline(always)]
pub fn parse_text<C: EbpfContext>(ctx: &C, index: usize) -> (u8, u32) {
    let text: [u8; 8] = read_kernel(ctx.as_ptr() as u64 + u64::from(tp_field(index).offset));
    let mut flags = 0;
    let mut kind = text[0];
    if text[0] == b'F' {
        flags = flag::PREFLUSH;
        kind = text[1];
    }
    let mut kind = match kind {
        b'W' => op::WRITE,
        b'D' => op::DISCARD,
        b'N' => op::WRITE_ZEROES,
        // A flush on its own is `FF`.
        b'F' => return (op::FLUSH, flags),
        _ => return (0, flags),
    };
    // Secure erase is `DE`.
    for byte in text.iter().skip(1) {
        match *byte {
            b'E' => kind = op::SECURE_ERASE,
            b'M' => flags |= flag::META,
            b'F' => flags |= flag::FUA,
            0 => break,
            _ => {}
        }
    }
    (kind, flags)
}

#[inline(always)]
fn queued(bio: &Bio, scratch: &mut Scratch) {
    let flight = &mut scratch.flight;
    classify::fill(bio, &mut flight.row);
    if bio.flags & (flag::PREFLUSH | flag::FUA) != 0 {
        count_flushes(&flight.row, bio);
    }
    if bio.sectors > 0 {
        flight.sectors = bio.sectors;
        flight.submitted = control_value(control::EPOCH) as u32;
        keep(bio.sector, flight);
    }
}

/// The kinds that stat counts as sectors written.
#[inline(always)]
pub fn in_ledger(kind: u8) -> bool {
    matches!(kind, op::WRITE | op::WRITE_ZEROES | op::SECURE_ERASE)
}

/// Takes kind and flags through a map: the verifier knew them as constants,
/// one way through the program for each. To be done before anything else is
/// read: values that live across it make those ways differ for good.
#[inline(always)]
fn launder(scratch: &mut Scratch, kind: u8, flags: u32) {
    scratch.op = u32::from(kind);
    scratch.flags = flags;
}

/// (struct bio *).
#[raw_tracepoint]
pub fn raw_bio_queue(ctx: RawTracePointContext) -> i32 {
    let address = ctx.arg::<u64>(0);
    let Some(scratch) = scratch(scratch::QUEUE) else {
        return 0;
    };
    let head = &mut scratch.head;
    head.read(address);
    let opf = head.get(address, btf::BIO_OPF) as u32;
    let kind = kind_of(opf);
    if !in_ledger(kind) {
        return 0;
    }
    let bdev = head.get(address, btf::BIO_BDEV);
    let dev_of = |bdev| get(bdev, btf::BDEV_DEV) as u32;
    let Some((dev, info)) = device_of(OF_BIO, bdev, dev_of) else {
        return 0;
    };
    launder(scratch, kind, flags_of(opf));
    queued(
        &Bio {
            dev,
            info,
            sector: scratch.head.get(address, btf::BIO_SECTOR),
            sectors: (scratch.head.get(address, btf::BIO_SIZE) >> 9) as u32,
            op: scratch.op as u8,
            flags: scratch.flags,
            address,
            direct: direct_inode(&scratch.head, address),
        },
        scratch,
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
    let (kind, flags) = parse_text(&ctx, f::BIOQ_RWBS);
    if !in_ledger(kind) {
        return 0;
    }
    let Some(scratch) = scratch(scratch::QUEUE) else {
        return 0;
    };
    launder(scratch, kind, flags);
    queued(
        &Bio {
            dev,
            info,
            sector: tp(&ctx, f::BIOQ_SECTOR),
            sectors: tp(&ctx, f::BIOQ_NR) as u32,
            op: scratch.op as u8,
            flags: scratch.flags,
            address: 0,
            direct: 0,
        },
        scratch,
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
    let (kind, _) = parse_text(&ctx, f::SPLIT_RWBS);
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
        let Some(found) = find(&key) else {
            continue;
        };
        // SAFETY: a live map value; only the submitter of this bio, which is
        // the current task, changes it before it completes.
        let flight = unsafe { &mut *found };
        if flight.sectors > front {
            let rest = flight.sectors - front;
            flight.sectors = front;
            if let Some(scratch) = scratch(scratch::SPLIT) {
                scratch.flight = *flight;
                scratch.flight.sectors = rest;
                keep(cut, &scratch.flight);
            }
            return 0;
        }
    }
    0
}
