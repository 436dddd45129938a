//! The maps: what the programs keep, and what userspace reads.

use crate::globals::Head;
use aya_ebpf::{
    bindings::{BPF_F_MMAPABLE, BPF_F_NO_PREALLOC},
    macros::map,
    maps::{Array, HashMap, PerCpuArray, RingBuf},
};
use core::intrinsics::{AtomicOrdering, atomic_xadd};
use tracer_common::{
    AGE_BUCKETS, CommitRecord, DeviceInfo, Dirtied, Edge, Flight, FlightKey, InodeKey, Process,
    RowKey, RowValue, Seat, Waker, control, loss, path,
};

/// What a task is inside of.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Task {
    /// Device of the file being synced, 0 outside `ext4_sync_file`.
    pub sync_dev: u32,
    pub sync_file: u32,
    pub sync_depth: u32,
    /// Device of the file being written back, 0 outside `ext4_writepages`.
    pub pages_dev: u32,
    pub pages_file: u32,
    /// Who dirtied it, and when first and last.
    pub pages_owner: u32,
    /// The row of its bios.
    pub pages_row: RowKey,
    pub pages_first: u64,
    pub pages_last: u64,
    /// Device of the journal that this thread commits.
    pub commit_dev: u32,
    pub commit_tid: u32,
    /// File whose ordered data was announced last.
    pub ordered_file: u32,
    /// Device of a fast commit.
    pub fast_dev: u32,
    pub fast_ns: u64,
    /// Direct I/O: bytes of the call that are still to come, and the file.
    pub dio_left: u64,
    pub dio_inode: u64,
    pub dio_ino: u64,
    pub dio_dev: u32,
    pub dio_file: u32,
    pub dio_disk: u32,
    /// The extent that this task looked up last, in blocks of `extent_dev`.
    pub extent_dev: u32,
    pub extent_ino: u64,
    pub extent_start: u64,
    pub extent_len: u64,
    /// The work that the flusher took from its queue last, and its requester.
    pub work: u64,
    pub work_by: u32,
    pub work_call: u16,
    pub work_reason: u16,
    pub sync_call: u16,
    pub dio_call: u16,
    /// Inside a round of the flusher.
    pub flusher: u8,
    /// The commit is before its log writes.
    pub flushing: u8,
    /// The next metadata bio is the journal's superblock.
    pub journal_superblock: u8,
    /// A checkpoint was made in this task since its last handle.
    pub checkpoint: u8,
    /// The last handle was synchronous.
    pub sync_handle: u8,
    /// `ext4_sync_fs` was called since the last sync of a file.
    pub sync_fs: u8,
    pub reserved: [u8; 2],
}

/// An inode, and who dirtied it since it was last written back.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Inode {
    pub file: u32,
    /// 0 when nothing is known to be dirty.
    pub owner: u32,
    pub first_ns: u64,
    pub last_ns: u64,
    /// Bytes that a single owner dirtied.
    pub bytes: u64,
    /// The stretch before: what a write-back now carries.
    pub before_owner: u32,
    /// Context of the last write-back, for bios that a worker submits later.
    pub aux: u32,
    pub before_first: u64,
    pub before_last: u64,
    pub code: u16,
    pub call: u16,
    pub path: u8,
    pub trig: u8,
    pub reserved: u16,
}

/// The journal of a filesystem.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Journal {
    pub record: CommitRecord,
    /// Who entered `ext4_sync_file` first since the last commit started.
    pub waiting: Waker,
    /// Who entered `ext4_sync_fs` last since the last commit started.
    pub sync_fs: Waker,
    /// Who entered `ext4_sync_file` last.
    pub latest: Waker,
    /// Its thread, 0 unknown.
    pub thread: u32,
    /// A commit is running.
    pub open: u32,
    /// Somebody woke it since its last commit.
    pub woken: u32,
    /// Tasks inside `ext4_sync_file`.
    pub syncing: u32,
    /// Last transaction that was committed.
    pub last_tid: u32,
    pub reserved: u32,
}

/// Who queued work for the flusher.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Requester {
    pub tgid: u32,
    pub call: u32,
}

#[map]
pub static CONTROL: Array<u64> = Array::with_max_entries(control::COUNT, BPF_F_MMAPABLE);
#[map]
pub static EDGES: Array<Edge> = Array::with_max_entries(1024, BPF_F_MMAPABLE);
#[map]
pub static DEVICES: HashMap<u32, DeviceInfo> = HashMap::with_max_entries(1024, 0);
#[map]
pub static ROWS: HashMap<RowKey, RowValue> = HashMap::with_max_entries(65536, BPF_F_NO_PREALLOC);
#[map]
pub static SEATS: Array<Seat> = Array::with_max_entries(Seat::COUNT, BPF_F_MMAPABLE);
#[map]
pub static FLIGHTS: HashMap<FlightKey, Flight> = HashMap::with_max_entries(65536, 0);
#[map]
pub static TASKS: HashMap<u32, Task> = HashMap::with_max_entries(32768, BPF_F_NO_PREALLOC);
#[map]
pub static INODES: HashMap<InodeKey, Inode> = HashMap::with_max_entries(262_144, BPF_F_NO_PREALLOC);
#[map]
pub static SHARES: HashMap<u64, u64> = HashMap::with_max_entries(262_144, BPF_F_NO_PREALLOC);
/// Metadata blocks dirtied, by (device, process).
#[map]
pub static BLOCKS: HashMap<u64, u64> = HashMap::with_max_entries(65536, BPF_F_NO_PREALLOC);
#[map]
pub static PROCESSES: HashMap<u32, Process> = HashMap::with_max_entries(65536, BPF_F_NO_PREALLOC);
#[map]
pub static MARKED: HashMap<u32, u32> = HashMap::with_max_entries(65536, BPF_F_NO_PREALLOC);
#[map]
pub static JOURNALS: HashMap<u32, Journal> = HashMap::with_max_entries(256, BPF_F_NO_PREALLOC);
/// One bit for each thread id (modulo) that is a journal's thread.
#[map]
pub static JOURNAL_BITS: Array<u64> = Array::with_max_entries(512, 0);
#[map]
pub static JOURNAL_THREADS: HashMap<u32, u32> = HashMap::with_max_entries(256, 0);
#[map]
pub static WORKS: HashMap<u64, Requester> = HashMap::with_max_entries(4096, BPF_F_NO_PREALLOC);
#[map]
pub static DIRTIED: PerCpuArray<Dirtied> = PerCpuArray::with_max_entries(1, 0);
#[map]
pub static FILE_SEQUENCE: PerCpuArray<u32> = PerCpuArray::with_max_entries(1, 0);
#[map]
pub static AGES: PerCpuArray<u64> =
    PerCpuArray::with_max_entries(16 * path::COUNT as u32 * AGE_BUCKETS, 0);
#[map]
pub static LOSSES: PerCpuArray<u64> = PerCpuArray::with_max_entries(loss::COUNT, 0);
#[map]
pub static RING: RingBuf = RingBuf::with_byte_size(1 << 21, 0);

/// Counts a loss.
#[inline(always)]
pub fn lose(which: u32) {
    if let Some(counter) = LOSSES.get_ptr_mut(which) {
        // SAFETY: a pointer into a per-CPU map value, checked not null.
        unsafe { *counter += 1 };
    }
}

/// Adds to a counter that other CPUs add to as well.
#[inline(always)]
pub fn add(counter: *mut u64, value: u64) {
    // SAFETY: the pointer is to an aligned u64 inside a map value. The core
    // library offers no fetch_add on a target without compare-and-swap; the
    // instruction itself exists on every kernel.
    unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(counter, value) };
}

/// The walk over a completed range, from one bio to the next. It lies in a
/// map: of what is on the stack, the verifier would follow each value apart.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Walk {
    pub key: FlightKey,
    pub left: u64,
    pub missed: u64,
    /// The part of the last bio that has not completed.
    pub cut: Flight,
    pub epoch: u32,
    pub slots: u8,
    /// The last slot seen with a bio of another length than what is left.
    pub other: u8,
    /// Its length.
    pub other_sectors: u32,
}

/// What a program builds up outside its stack.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Scratch {
    pub flight: Flight,
    pub op: u32,
    pub flags: u32,
    pub head: Head,
    pub walk: Walk,
}

/// One for each program that uses it: none of them is interrupted by itself.
#[map]
pub static SCRATCH: PerCpuArray<Scratch> = PerCpuArray::with_max_entries(3, 0);

/// Indices of [`SCRATCH`].
pub mod scratch {
    pub const QUEUE: u32 = 0;
    pub const SPLIT: u32 = 1;
    pub const COMPLETE: u32 = 2;
}

/// The scratch of a program.
#[inline(always)]
pub fn scratch(index: u32) -> Option<&'static mut Scratch> {
    // SAFETY: a per-CPU map value, used by one program at a time.
    SCRATCH
        .get_ptr_mut(index)
        .map(|scratch| unsafe { &mut *scratch })
}

/// A kernel object of a device, and what is known of it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Cached {
    /// Address of the object, 0 for none.
    pub object: u64,
    /// When the devices were last told of.
    pub generation: u64,
    pub info: DeviceInfo,
    pub dev: u32,
    /// 1 when it is traced.
    pub traced: u32,
}

/// The block device of the last bio, and the queue of the last request.
#[map]
pub static CACHED: PerCpuArray<Cached> = PerCpuArray::with_max_entries(2, 0);

/// The file and the task of the last bio of direct I/O.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct LastDirect {
    /// Thread and process.
    pub task: u64,
    /// Address of the inode, and its number.
    pub inode: u64,
    pub ino: u64,
    /// Inodes that had been freed by then.
    pub lives: u64,
    pub dev: u32,
    pub file: u32,
    /// One of [`crate::current::kind`]'s numbers.
    pub kind: u32,
    pub reserved: u32,
}

#[map]
pub static LAST_DIRECT: PerCpuArray<LastDirect> = PerCpuArray::with_max_entries(1, 0);

/// Index of the last bio's block device in [`CACHED`].
pub const OF_BIO: u32 = 0;
/// Index of the last request's queue.
pub const OF_REQUEST: u32 = 1;

/// The traced device of a kernel object; its number is found by `dev_of` when
/// the object is another than last time.
#[inline(always)]
pub fn device_of(slot: u32, object: u64, dev_of: impl Fn(u64) -> u32) -> Option<(u32, DeviceInfo)> {
    let cached = CACHED.get_ptr_mut(slot)?;
    // SAFETY: a per-CPU map value, checked not null.
    let cached = unsafe { &mut *cached };
    let generation = control_value(control::DEVICES);
    if cached.object != object || cached.generation != generation {
        let dev = dev_of(object);
        let found = device(dev);
        cached.object = object;
        cached.generation = generation;
        cached.dev = dev;
        cached.traced = u32::from(found.is_some());
        if let Some(info) = found {
            cached.info = info;
        }
    }
    if cached.traced == 0 {
        return None;
    }
    Some((cached.dev, cached.info))
}

/// A value that userspace or a program keeps for all.
#[inline(always)]
pub fn control_value(index: u32) -> u64 {
    match CONTROL.get_ptr(index) {
        // SAFETY: whole integers are written.
        Some(value) => unsafe { core::ptr::read_volatile(value) },
        None => 0,
    }
}

/// The traced device of this number.
#[inline(always)]
pub fn device(dev: u32) -> Option<DeviceInfo> {
    // SAFETY: the value is copied out; userspace replaces it as a whole.
    unsafe { DEVICES.get(&dev) }.copied()
}

/// Offers a record to the ring; wakes the reader only when much has gathered.
#[inline(always)]
pub fn ring_flags() -> u64 {
    use aya_ebpf::bindings::{BPF_RB_AVAIL_DATA, BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP};
    lose(loss::RING_OFFERED);
    if RING.query(u64::from(BPF_RB_AVAIL_DATA)) > 256 * 1024 {
        u64::from(BPF_RB_FORCE_WAKEUP)
    } else {
        u64::from(BPF_RB_NO_WAKEUP)
    }
}
