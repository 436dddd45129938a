//! The edges of the ledger: arrays that the programs and we share by mapping,
//! so that stat is read while nothing is half counted.

use super::block::{Disk, DiskStat};
use aya::maps::MapData;
use std::{
    io,
    os::fd::{AsFd, AsRawFd},
    ptr::{NonNull, read_volatile, write_volatile},
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};
use tracer_common::{Edge, control};

/// An array map in our address space.
pub(super) struct Mapping<T> {
    start: NonNull<T>,
    len: usize,
}

impl<T: Copy> Mapping<T> {
    pub(super) fn new(map: &MapData, len: usize, writable: bool) -> io::Result<Self> {
        let protection = if writable {
            libc::PROT_READ | libc::PROT_WRITE
        } else {
            libc::PROT_READ
        };
        // SAFETY: a new mapping of a map that was made for it (BPF_F_MMAPABLE),
        // at an address that the kernel chooses.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len * size_of::<T>(),
                protection,
                libc::MAP_SHARED,
                map.fd().as_fd().as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { start, len })
    }

    pub(super) fn read(&self, index: usize) -> T {
        assert!(index < self.len);
        // SAFETY: inside the mapping; the kernel writes whole integers.
        unsafe { read_volatile(self.start.as_ptr().add(index)) }
    }

    /// The first eight bytes of an entry, which are a number that programs
    /// change at the same time.
    pub(super) fn atomic(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.len && size_of::<T>() >= 8 && align_of::<T>() == 8);
        // SAFETY: inside the mapping, which is writable where this is called,
        // and aligned, since arrays of the kernel are.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(index).cast()) }
    }

    fn write(&self, index: usize, value: T) {
        assert!(index < self.len);
        // SAFETY: inside the mapping, which is writable where this is called.
        unsafe { write_volatile(self.start.as_ptr().add(index), value) }
    }
}

impl<T> Drop for Mapping<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` and is not used any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len * size_of::<T>()) };
    }
}

/// What the disks had counted when an epoch began.
#[derive(Debug)]
pub struct EdgeReading {
    /// The epoch that begins here.
    pub epoch: u32,
    /// When.
    pub at: Instant,
    /// One for each disk.
    pub stats: Vec<io::Result<DiskStat>>,
    /// Completions that passed while stat was read; 0 for an exact edge.
    pub blurred_by: u64,
}

/// The mapped control and edge arrays.
pub struct Edges {
    control: Mapping<u64>,
    edges: Mapping<Edge>,
}

/// How long to look for a moment without completions where the ledger ends.
pub const PATIENT: Duration = Duration::from_millis(500);
/// Longer than it takes from the program to the kernel's own count.
const SETTLE: Duration = Duration::from_micros(50);
/// Between two attempts.
const BETWEEN: Duration = Duration::from_micros(100);
/// The same within a run, where it only bounds what a vanished device costs.
pub const HASTY: Duration = Duration::from_micros(300);

impl Edges {
    /// Maps the arrays of a loaded object; `cpus` entries are in use.
    pub fn new(control: &MapData, edges: &MapData, cpus: usize) -> io::Result<Self> {
        Ok(Self {
            control: Mapping::new(control, control::COUNT as usize, true)?,
            edges: Mapping::new(edges, cpus, false)?,
        })
    }

    /// Tells the programs when the probes were on.
    pub fn set_started(&self, ns: u64) {
        self.control.write(control::STARTED_NS as usize, ns);
    }

    /// Tells the programs to look devices up anew.
    pub fn devices_changed(&self) {
        let changes = self.control.read(control::DEVICES as usize) + 1;
        self.control.write(control::DEVICES as usize, changes);
    }

    /// Tells the programs that a bio was taken out of the map, and whether
    /// another of its start sector was there.
    pub fn bio_left_the_map(&self, twin: bool) {
        let down = |index: u32| {
            self.control
                .atomic(index as usize)
                .fetch_sub(1, Ordering::Relaxed)
        };
        down(control::STANDING);
        if twin {
            down(control::TWINS);
        }
    }

    /// Completions counted so far.
    pub fn completions(&self) -> u64 {
        self.sums().1
    }

    fn sums(&self) -> (u64, u64) {
        (0..self.edges.len).fold((0, 0), |(begun, ended), cpu| {
            let edge = self.edges.read(cpu);
            (begun + edge.begun, ended + edge.ended)
        })
    }

    /// Begins a new epoch, and reads stat at a moment when no completion was
    /// being counted. Attempts that a completion crossed leave epochs behind,
    /// which belong to the stretch before.
    ///
    /// The kernel adds to stat a moment after the program has counted, so the
    /// best moment is one with nothing in flight; next best one after which
    /// stat stays as it is for a while; on a disk that is busier than that, any
    /// at which no program runs.
    pub fn turn(&self, disks: &[Disk], patience: Duration) -> EdgeReading {
        let started = Instant::now();
        let read = || -> Vec<io::Result<DiskStat>> { disks.iter().map(Disk::stat).collect() };
        let is_idle = |stats: &[io::Result<DiskStat>]| {
            let mut known = stats.iter().flatten();
            known.all(|stat| stat.in_flight == 0)
        };
        loop {
            let waited = started.elapsed();
            if waited < patience / 5 && !is_idle(&read()) {
                std::thread::sleep(BETWEEN);
                continue;
            }
            let before = self.quiet(started + patience);
            let epoch = self.bump();
            let mut stats = read();
            let after = self.sums();
            let mut exact = before.0 == before.1 && after == before;
            if exact && waited < patience * 3 / 5 && !is_idle(&stats) {
                std::thread::sleep(SETTLE);
                stats = read();
                exact = self.sums() == before;
            }
            // Without such a moment the last attempt stands, and says so.
            if exact || waited > patience {
                return EdgeReading {
                    epoch,
                    at: Instant::now(),
                    stats,
                    blurred_by: after.0 - before.1,
                };
            }
            std::thread::sleep(BETWEEN);
        }
    }

    /// Waits for a moment when nothing is being counted, for a crossed attempt
    /// costs an epoch, and rows; gives what had begun and ended by then.
    fn quiet(&self, until: Instant) -> (u64, u64) {
        let mut sums = self.sums();
        while sums.0 != sums.1 && Instant::now() < until {
            std::hint::spin_loop();
            sums = self.sums();
        }
        sums
    }

    /// Begins a new epoch.
    fn bump(&self) -> u32 {
        let epoch = self.control.read(control::EPOCH as usize) + 1;
        self.control.write(control::EPOCH as usize, epoch);
        epoch as u32
    }
}
