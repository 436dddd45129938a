//! The keys and values of the kernel's ledger.

/// The route by which a sector reached the device; see DESIGN, section 2.
pub mod path {
    /// No known path.
    pub const UNATTRIBUTED: u8 = 0;
    /// File data written by the flusher.
    pub const WRITEBACK: u8 = 1;
    /// File data written inside a call that syncs.
    pub const FSYNC: u8 = 2;
    /// File data that a commit had to write first.
    pub const ORDERED: u8 = 3;
    /// What lands in the journal's place.
    pub const JOURNAL: u8 = 4;
    /// Metadata written in place.
    pub const METADATA: u8 = 5;
    /// `O_DIRECT`.
    pub const DIRECT: u8 = 6;
    /// File data that another call had to write first.
    pub const FORCED: u8 = 7;
    /// Anonymous and tmpfs memory.
    pub const SWAP: u8 = 8;
    /// The filesystem's own threads.
    pub const FS: u8 = 9;
    /// Writes to the block device itself by a process.
    pub const RAW: u8 = 10;
    /// Writes of a filesystem whose paths are not known.
    pub const OTHER: u8 = 11;
    /// Submitted before the probes were on.
    pub const BEFORE: u8 = 12;
    /// Number of paths.
    pub const COUNT: usize = 13;
}

/// How [`RowKey::code`], `call` and `aux` name the trigger.
pub mod trig {
    /// Unknown; `aux` is the submitting thread.
    pub const UNKNOWN: u8 = 0;
    /// `code` is the kernel's `wb_reason`; `aux` and `call` the requester.
    pub const REASON: u8 = 1;
    /// `call` is a system call, `aux` the calling process.
    pub const CALL: u8 = 2;
    /// `aux` is a transaction of `fs_dev`; 0 is its next commit.
    pub const COMMIT: u8 = 3;
    /// `code` is one of [`super::job`]; `aux` the process it ran in.
    pub const JOB: u8 = 4;
}

/// Jobs of a filesystem that are no system call.
pub mod job {
    /// ext4lazyinit zeroes inode tables.
    pub const LAZY_INIT: u16 = 1;
    /// The superblock, written by itself.
    pub const SUPERBLOCK: u16 = 2;
    /// Blocks leave the journal for their place.
    pub const CHECKPOINT: u16 = 3;
    /// A fast commit in the caller of fsync.
    pub const FAST_COMMIT: u16 = 4;
    /// Memory reclaim.
    pub const RECLAIM: u16 = 5;
}

/// What was done; the first three count as sectors written in stat.
pub mod op {
    /// An ordinary write.
    pub const WRITE: u8 = 1;
    /// Write zeroes.
    pub const WRITE_ZEROES: u8 = 2;
    /// Secure erase.
    pub const SECURE_ERASE: u8 = 3;
    /// Discard: beside the ledger.
    pub const DISCARD: u8 = 4;
    /// A flush done by the device: beside the ledger.
    pub const FLUSH: u8 = 5;
    /// A completion with an error: beside the ledger, a count of its own.
    pub const FAILED: u8 = 6;
}

/// One row of the ledger.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RowKey {
    /// The stretch of the run it was counted in; see [`control`].
    pub epoch: u32,
    /// Device number of the filesystem or partition, 0 where there is none.
    pub fs_dev: u32,
    /// Number of the file, 0 where there is none.
    pub file: u32,
    /// Process that dirtied the data; 0 unknown, [`RowKey::SHARED`] several.
    pub dirtier: u32,
    /// See [`trig`].
    pub aux: u32,
    /// Index of the disk.
    pub disk: u16,
    /// See [`trig`].
    pub code: u16,
    /// System call number of the trigger, or `CALL_NONE`.
    pub call: u16,
    /// One of [`path`].
    pub path: u8,
    /// One of [`trig`].
    pub trig: u8,
    /// One of [`op`].
    pub op: u8,
    /// 1 when the file was found by the page, not by the context.
    pub by_page: u8,
    /// Always zero.
    pub reserved: u16,
}

impl RowKey {
    /// Several processes dirtied the data: shares decide.
    pub const SHARED: u32 = u32::MAX;
}

const _: () = assert!(size_of::<RowKey>() == 32);

/// What a row has counted.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct RowValue {
    /// Sectors of 512 bytes.
    pub sectors: u64,
    /// Bios (completions for rows beside the ledger).
    pub bios: u64,
    /// Cache flushes asked for by these bios.
    pub flushes: u64,
}

const _: () = assert!(size_of::<RowValue>() == 24);

/// Key of a bio in flight.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct FlightKey {
    /// First sector on the disk.
    pub sector: u64,
    /// Index of the disk.
    pub disk: u16,
    /// One of [`op`].
    pub op: u8,
    /// Which of several bios in flight on one start sector.
    pub slot: u8,
    /// Always zero.
    pub reserved: u32,
}

const _: () = assert!(size_of::<FlightKey>() == 16);

/// A bio in flight: its row, as known when it was submitted. Aligned, for its
/// last two members are exchanged as one number.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default)]
pub struct Flight {
    /// The row; its epoch is filled in at completion.
    pub row: RowKey,
    /// Sectors left; 0 when a program has claimed the bio.
    pub sectors: u32,
    /// The epoch that it was submitted in.
    pub submitted: u32,
}

impl Flight {
    /// `sectors` and `submitted` as they lie in memory, as one number.
    #[inline(always)]
    pub const fn tail(&self) -> u64 {
        if cfg!(target_endian = "little") {
            (self.submitted as u64) << 32 | self.sectors as u64
        } else {
            (self.sectors as u64) << 32 | self.submitted as u64
        }
    }
}

const _: () = assert!(size_of::<Flight>() == 40);

/// A place in the table of bios in flight, for one bio.
///
/// A program takes a free seat by compare-and-exchange of its name, and clears
/// it the same way, so that no bio is counted twice. A bio whose seat is taken
/// is kept in a map.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Seat {
    /// [`Seat::name`] of the bio; 0 free, [`Seat::BUSY`] while it changes.
    pub name: u64,
    /// The bio.
    pub flight: Flight,
}

impl Seat {
    /// It is being filled or cleared.
    pub const BUSY: u64 = u64::MAX;
    /// Seats in the table, a power of two.
    pub const COUNT: u32 = 1 << Self::BITS;
    const BITS: u32 = 15;

    /// The key of a bio in flight but for its slot, as one number.
    #[inline(always)]
    pub const fn name(sector: u64, disk: u16, op: u8) -> u64 {
        (sector << 11) | ((disk as u64) << 3) | op as u64
    }

    /// The seat of a name: its bits well mixed (Knuth's multiplicative hash).
    #[inline(always)]
    pub const fn index(name: u64) -> u32 {
        (name.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - Self::BITS)) as u32
    }

    /// Index of the disk in a name.
    pub const fn disk(name: u64) -> u16 {
        (name >> 3) as u16 & 0xff
    }
}

const _: () = assert!(size_of::<Seat>() == 48);

/// Key of an inode that was seen.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct InodeKey {
    /// Inode number; 0 is the block device itself.
    pub ino: u64,
    /// Device number of the filesystem.
    pub dev: u32,
    /// Always zero.
    pub reserved: u32,
}

const _: () = assert!(size_of::<InodeKey>() == 16);

/// A process as it was first seen.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Process {
    /// Name of the thread that was seen, NUL-terminated.
    pub comm: [u8; 16],
    /// cgroup v2 identifier.
    pub cgroup: u64,
    /// 1 in the tree of the traced command.
    pub marked: u32,
    /// 1 when `comm` is the main thread's, which is the process's name.
    pub main: u32,
}

const _: () = assert!(size_of::<Process>() == 32);

/// Writes by one task to one file on one CPU that are not yet in a share.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Dirtied {
    /// Address of the inode.
    pub inode: u64,
    /// Inode number.
    pub ino: u64,
    /// The kernel's tick.
    pub jiffies: u64,
    /// Bytes gathered.
    pub bytes: u64,
    /// Device number of the filesystem.
    pub dev: u32,
    /// Thread.
    pub tid: u32,
    /// Process.
    pub tgid: u32,
    /// Number of the file; 0 while the inode is of no traced device.
    pub file: u32,
    /// 1 when the last was a write call, whose folio may become dirty next.
    pub write: u32,
    /// Always zero.
    pub reserved: u32,
}

const _: () = assert!(size_of::<Dirtied>() == 56);

/// Programs that are counting on one CPU: begun and ended, so that userspace
/// can read stat while nothing is half counted.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Edge {
    /// Completions begun.
    pub begun: u64,
    /// Completions ended.
    pub ended: u64,
    /// Keeps CPUs on cache lines of their own.
    pub reserved: [u64; 6],
}

const _: () = assert!(size_of::<Edge>() == 64);

/// Indices of the control array.
pub mod control {
    /// The epoch that completions are counted in.
    pub const EPOCH: u32 = 0;
    /// `CLOCK_MONOTONIC` nanoseconds when the block hooks were on.
    pub const STARTED_NS: u32 = 1;
    /// Bios in flight that are kept in the map beside another of their start
    /// sector.
    pub const TWINS: u32 = 2;
    /// Counts changes of the traced devices.
    pub const DEVICES: u32 = 3;
    /// Counts inodes that were freed.
    pub const LIVES: u32 = 4;
    /// Bios in flight that are kept in the map.
    pub const STANDING: u32 = 5;
    /// Size of the array.
    pub const COUNT: u32 = 6;
}

/// Indices of the loss counters; every early return that loses something
/// counts one.
pub mod loss {
    /// A ring buffer record did not fit.
    pub const RING: u32 = 0;
    /// A bio in flight could not be kept.
    pub const FLIGHT: u32 = 1;
    /// A row could not be kept: its sectors are residual.
    pub const ROW: u32 = 2;
    /// The context of a task could not be kept.
    pub const TASK: u32 = 3;
    /// An inode could not be kept.
    pub const INODE: u32 = 4;
    /// A process could not be kept.
    pub const PROCESS: u32 = 5;
    /// A share could not be kept.
    pub const SHARE: u32 = 6;
    /// Records offered to the ring buffer (not a loss).
    pub const RING_OFFERED: u32 = 7;
    /// Size of the array.
    pub const COUNT: u32 = 8;
}

/// Buckets of the age histogram: linear below 8 ms, then eight an octave.
pub const AGE_BUCKETS: u32 = 160;

/// The bucket of an age in milliseconds.
#[inline(always)]
pub const fn age_bucket(ms: u64) -> u32 {
    if ms < 8 {
        return ms as u32;
    }
    let ms = if ms >= 1 << 21 {
        (1 << 21) - 1
    } else {
        ms as u32
    };
    // ms is 8 ..= 2^21 - 1: octave 3 ..= 20.
    // Not ilog2, whose panic the verifier would refuse.
    #[allow(clippy::manual_ilog2)]
    let octave = 31 - ms.leading_zeros();
    let step = (ms >> (octave - 3)) & 7;
    8 + (octave - 3) * 8 + step
}

/// The least age of a bucket, in milliseconds.
pub const fn age_bucket_floor_ms(bucket: u32) -> u64 {
    if bucket < 8 {
        return bucket as u64;
    }
    let octave = (bucket - 8) / 8 + 3;
    let step = (bucket - 8) % 8;
    (8 + step as u64) << (octave - 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn age_buckets_are_ordered_and_close() {
        let mut last = 0;
        for ms in 0..2_000_000_u64 {
            let bucket = age_bucket(ms);
            assert!(bucket >= last && bucket < AGE_BUCKETS, "{ms}");
            let floor = age_bucket_floor_ms(bucket);
            assert!(floor <= ms && (ms - floor) * 8 <= ms.max(8), "{ms} {floor}");
            last = bucket;
        }
    }
}
