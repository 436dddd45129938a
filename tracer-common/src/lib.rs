//! Types that the eBPF programs and userspace share.
//!
//! Everything here is laid out in C: integers and byte arrays only, no
//! implicit padding, sizes pinned by assertions. Kinds are numbers here and
//! become enumerations in userspace, with an arm for unknown values.
#![no_std]

mod fields;
mod records;
mod rows;
mod writes;

pub use fields::{BTF_MEMBERS, Config, FIELDS, Field, btf, tp};
pub use records::{
    CommitRecord, FastCommitRecord, FreedRecord, NAME_BYTES, NameRecord, REC_COMMIT,
    REC_FAST_COMMIT, REC_FREED, REC_NAME, STACK_FRAMES, Waker, waker,
};
pub use rows::{
    AGE_BUCKETS, Dirtied, Edge, Flight, FlightKey, InodeKey, Process, RowKey, RowValue, Seat,
    age_bucket, age_bucket_floor_ms, control, job, loss, op, path, trig,
};

pub use writes::{WriteRecord, kept};

/// Changes with every change of a type in this crate; checked after load.
pub const ABI_VERSION: u32 = 1;

/// A system call number that stands for an `io_uring` worker.
pub const CALL_IO_URING: u16 = 0xfff0;
/// ioctl(FIEMAP).
pub const CALL_FIEMAP: u16 = 0xfff1;
/// ioctl(FIFREEZE).
pub const CALL_FREEZE: u16 = 0xfff2;
/// ioctl(FITHAW).
pub const CALL_THAW: u16 = 0xfff3;
/// No system call: a kernel thread, or a kernel that does not tell.
pub const CALL_NONE: u16 = 0xffff;

/// What is known of a device number, a disk's or a partition's.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceInfo {
    /// Index of the traced disk that it belongs to.
    pub disk: u32,
    /// Bits of [`device_flag`].
    pub flags: u32,
    /// First sector of the partition on the disk; 0 for a whole disk.
    pub start: u64,
}

/// Bits of [`DeviceInfo::flags`].
pub mod device_flag {
    /// An ext4 filesystem is mounted from it.
    pub const EXT4: u32 = 1;
    /// Another filesystem is mounted from it.
    pub const OTHER_FS: u32 = 2;
    /// That ext4 is mounted data=journal.
    pub const DATA_JOURNAL: u32 = 4;
    /// The disk has a volatile write cache, so flushes reach it.
    pub const CACHE: u32 = 8;
    /// The disk writes through by itself when asked (FUA).
    pub const FUA: u32 = 16;
    /// Shift of the log2 of sectors per filesystem block.
    pub const BLOCK_SHIFT: u32 = 8;
}

const _: () = assert!(size_of::<DeviceInfo>() == 16);

#[cfg(feature = "user")]
mod pod {
    //! Marks the shared types as plain data for aya's maps.
    macro_rules! pod {
        ($($t:ty),+ $(,)?) => { $(
            // SAFETY: repr(C), integers and arrays of integers only, no
            // padding (pinned by the size assertions), any bits are valid.
            unsafe impl aya::Pod for $t {}
        )+ };
    }
    pod!(
        super::Config,
        super::DeviceInfo,
        super::RowKey,
        super::RowValue,
        super::Flight,
        super::FlightKey,
        super::InodeKey,
        super::Process,
        super::Edge,
        super::Dirtied,
    );
}
