//! Whether programs may compare and exchange: asked by loading one that does.

use std::mem::size_of;

/// `union bpf_attr` for `BPF_PROG_LOAD`, as far as it is used
/// (include/uapi/linux/bpf.h).
#[repr(C)]
#[derive(Default)]
struct ProgLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
}

/// One instruction: `opcode`, registers (source above destination), offset,
/// immediate.
const fn insn(opcode: u8, registers: u8, offset: i16, immediate: i32) -> u64 {
    opcode as u64
        | (registers as u64) << 8
        | (offset as u16 as u64) << 16
        | (immediate as u32 as u64) << 32
}

/// Puts 0 on the stack, exchanges it for 1, and returns 0.
const PROGRAM: [u64; 6] = [
    // *(u64 *)(r10 - 8) = 0
    insn(0x7a, 10, -8, 0),
    // r0 = 0
    insn(0xb7, 0, 0, 0),
    // r2 = 1
    insn(0xb7, 2, 0, 1),
    // r0 = cmpxchg(r10 - 8, r0, r2)
    insn(0xdb, 0x2a, -8, 0xf1),
    // r0 = 0; exit
    insn(0xb7, 0, 0, 0),
    insn(0x95, 0, 0, 0),
];

const BPF_PROG_LOAD: i32 = 5;
const BPF_PROG_TYPE_RAW_TRACEPOINT: u32 = 17;

/// Whether verifier and JIT of this kernel take `BPF_CMPXCHG` (5.12 on x86,
/// later elsewhere, never on 32-bit ARM).
pub fn is_allowed() -> bool {
    let license = c"Dual MIT/GPL";
    let attributes = ProgLoad {
        prog_type: BPF_PROG_TYPE_RAW_TRACEPOINT,
        insn_cnt: PROGRAM.len() as u32,
        insns: PROGRAM.as_ptr() as u64,
        license: license.as_ptr() as u64,
        ..ProgLoad::default()
    };
    // SAFETY: the attributes and what they point to live through the call,
    // which only reads them.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_PROG_LOAD,
            &raw const attributes,
            size_of::<ProgLoad>(),
        )
    };
    if fd < 0 {
        return false;
    }
    // SAFETY: a descriptor that was just made and is ours.
    unsafe { libc::close(fd as i32) };
    true
}
