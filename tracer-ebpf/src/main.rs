//! The eBPF programs of writepath.
//!
//! Each kernel hook is a thin entry over one inline handler, so that the raw
//! tracepoint and the plain tracepoint of an event share it. Field places are
//! constants in read-only data ([`globals`]); state lives in [`maps`]. Every
//! early return that loses something counts it.
#![cfg_attr(target_arch = "bpf", no_std)]
#![cfg_attr(target_arch = "bpf", no_main)]
#![cfg_attr(target_arch = "bpf", feature(core_intrinsics))]
#![cfg_attr(target_arch = "bpf", allow(internal_features))]
// The attributes of the programs hand contexts over by value. What a map is
// given is borrowed: by value it would be copied to a stack of 512 bytes.
#![cfg_attr(
    target_arch = "bpf",
    allow(
        clippy::needless_pass_by_value,
        clippy::needless_borrows_for_generic_args
    )
)]

#[cfg(target_arch = "bpf")]
mod block;
#[cfg(target_arch = "bpf")]
mod classify;
#[cfg(target_arch = "bpf")]
mod complete;
#[cfg(target_arch = "bpf")]
mod current;
#[cfg(target_arch = "bpf")]
mod direct;
#[cfg(target_arch = "bpf")]
mod dirty;
#[cfg(target_arch = "bpf")]
mod ext4;
#[cfg(target_arch = "bpf")]
mod flights;
#[cfg(target_arch = "bpf")]
mod globals;
#[cfg(target_arch = "bpf")]
mod inode;
#[cfg(target_arch = "bpf")]
mod jbd2;
#[cfg(target_arch = "bpf")]
mod maps;
#[cfg(target_arch = "bpf")]
mod names;
#[cfg(target_arch = "bpf")]
mod page;
#[cfg(target_arch = "bpf")]
mod sched;
#[cfg(target_arch = "bpf")]
mod writeback;
#[cfg(target_arch = "bpf")]
mod writes;

/// The helpers that read kernel memory and stacks are for GPL programs.
#[cfg(target_arch = "bpf")]
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[cfg(target_arch = "bpf")]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo) -> ! {
    loop {}
}

#[cfg(not(target_arch = "bpf"))]
fn main() {}
