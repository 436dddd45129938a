//! What userspace told at load, and how fields are read with it.

use aya_ebpf::{EbpfContext, helpers::generated};
use core::{ffi::c_void, mem::MaybeUninit};
use tracer_common::{Config, Field};

/// Set by userspace before load; the verifier sees its values as constants.
#[unsafe(no_mangle)]
static CONFIG: Config = Config::EMPTY;

/// A value of the configuration.
macro_rules! cfg_get {
    ($($field:tt)+) => {
        // SAFETY: CONFIG is a static of plain integers; the volatile read
        // keeps the compiler from folding the value in before it is set.
        unsafe { core::ptr::read_volatile(&raw const (*$crate::globals::config()).$($field)+) }
    };
}
pub(crate) use cfg_get;

#[inline(always)]
pub fn config() -> *const Config {
    &raw const CONFIG
}

/// Place of a tracepoint field.
#[inline(always)]
pub fn tp_field(index: usize) -> Field {
    // SAFETY: as in `cfg_get`; the index is a constant below the length.
    unsafe { core::ptr::read_volatile((&raw const (*config()).tp).cast::<Field>().add(index)) }
}

/// Place of a structure's member.
#[inline(always)]
pub fn member(index: usize) -> Field {
    // SAFETY: as in `cfg_get`; the index is a constant below the length.
    unsafe { core::ptr::read_volatile((&raw const (*config()).btf).cast::<Field>().add(index)) }
}

/// Copies from kernel memory; zeroes when the address is bad.
#[inline(always)]
pub fn read_kernel<T: Copy + Default>(address: u64) -> T {
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: `value` is writable for its size; the helper checks the source,
    // and fills with zeroes where it cannot read.
    unsafe {
        generated::bpf_probe_read_kernel(
            value.as_mut_ptr().cast::<c_void>(),
            size_of::<T>() as u32,
            address as *const c_void,
        );
        value.assume_init()
    }
}

/// An unsigned number of 1, 2, 4 or 8 bytes at a place whose size is known
/// only at load.
#[inline(always)]
fn read_sized(address: u64, size: u16) -> u64 {
    match size {
        8 => read_kernel::<u64>(address),
        4 => u64::from(read_kernel::<u32>(address)),
        2 => u64::from(read_kernel::<u16>(address)),
        1 => u64::from(read_kernel::<u8>(address)),
        _ => 0,
    }
}

/// Bytes copied at once of a structure whose members are asked for together.
pub const HEAD: usize = 128;

/// The beginning of a structure, copied once. It lies in a map: on the stack
/// it would take more than older kernels leave to a program and its callees.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Head([u64; HEAD / 8]);

impl Head {
    /// Copies it; zeroes when the address is bad.
    #[inline(always)]
    pub fn read(&mut self, address: u64) {
        // SAFETY: writable for its size; the helper checks the source.
        unsafe {
            generated::bpf_probe_read_kernel(
                (&raw mut self.0).cast::<c_void>(),
                HEAD as u32,
                address as *const c_void,
            );
        }
    }

    /// A member; one beyond the copy is fetched from `address`.
    #[inline(always)]
    pub fn get(&self, address: u64, index: usize) -> u64 {
        let field = member(index);
        let end = field.offset as usize + field.size as usize;
        if !field.present() || end > HEAD {
            return get(address, index);
        }
        let start = (&raw const self.0).cast::<u8>();
        // SAFETY: inside the copy, and aligned as the kernel aligns it. The
        // verifier knows offset and size as constants.
        #[allow(clippy::cast_ptr_alignment)]
        unsafe {
            let place = start.add(field.offset as usize);
            match field.size {
                8 => place.cast::<u64>().read(),
                4 => u64::from(place.cast::<u32>().read()),
                2 => u64::from(place.cast::<u16>().read()),
                _ => u64::from(place.read()),
            }
        }
    }
}

/// A field of a tracepoint's record; 0 when this kernel has none.
#[inline(always)]
pub fn tp<C: EbpfContext>(ctx: &C, index: usize) -> u64 {
    let field = tp_field(index);
    if !field.present() {
        return 0;
    }
    read_sized(ctx.as_ptr() as u64 + u64::from(field.offset), field.size)
}

/// A member of a structure; 0 when this kernel has none.
#[inline(always)]
pub fn get(base: u64, index: usize) -> u64 {
    let field = member(index);
    if !field.present() {
        return 0;
    }
    read_sized(base + u64::from(field.offset), field.size)
}
