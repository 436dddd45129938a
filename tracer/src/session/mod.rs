//! A traced run: the one place that joins the kernel's edge and the domain.
//!
//! Entry type: [`Session`]. It neither prints nor parses.

mod devices;
mod finish;
mod names;
pub mod record;
mod start;

pub use devices::TracedDevice;

use self::record::Heard;
use crate::{
    attribute::{
        commits::{self, Cause},
        ledger::Accounts,
        names::Names,
    },
    decode,
    kernel::{
        block::{self, DeviceError, Disk},
        debugfs::Dirty,
        facts::KernelFacts,
        journal,
        mapped::{EdgeReading, HASTY, PATIENT},
        pagecache,
        probe::{self, Attached, Probe, ProbeError, monotonic_ns},
        processes,
        symbols::Symbols,
        tracefs::Tracefs,
    },
    model::{
        ledger::Memory,
        record::{Commit, FastCommit, Record, Waker, WakerKind},
        trigger::CommitTrigger,
    },
    plan,
};
use std::{
    collections::{BTreeMap, HashMap},
    io,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

/// Why a run could not begin or go on.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// Privileges.
    #[error("cannot trace: {0}; run it with sudo")]
    Privileges(io::Error),
    /// No tracefs.
    #[error("cannot open tracefs: {0}; the kernel needs CONFIG_FTRACE, see `writepath doctor`")]
    Tracefs(io::Error),
    /// A device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// No disk to trace.
    #[error("no disk to trace: all are loop, ram or zram; name one with -d")]
    NoDisk,
    /// More disks than the tracer keeps apart.
    #[error("{0} disks are more than the 256 that can be traced at once; name them with -d")]
    TooManyDisks(usize),
    /// The probes.
    #[error(transparent)]
    Probe(#[from] ProbeError),
}

/// A moment at which a disk's count was read.
#[derive(Debug, Clone, Copy)]
pub struct Edge {
    /// When.
    pub at: Instant,
    /// Sectors of 512 bytes written since boot, by stat.
    pub sectors_written: u64,
}

/// A run that is being traced.
pub struct Session {
    probe: Probe,
    facts: KernelFacts,
    symbols: Symbols,
    disks: Vec<Disk>,
    devices: HashMap<u32, TracedDevice>,
    dirty: Result<Dirty, String>,
    accounts: Accounts,
    names: Names,
    undecoded: u64,
    /// Least size of a transaction that was too large, in blocks, by
    /// filesystem.
    full_at: HashMap<u32, u32>,
    began: EdgeReading,
    last: EdgeReading,
    vanished: bool,
    /// An interval has ended: bios whose completion was not seen are gone.
    swept: bool,
    started_at: u64,
    started_ns: u64,
    tick_ns: u64,
    /// Knobs of write-back when the run, or this interval, began.
    knobs: Vec<(&'static str, u64)>,
    memory: Memory,
    /// Ages that were counted before the run or this interval.
    ages_before: finish::Ages,
    /// Ages at the last look.
    ages_last: finish::Ages,
    /// What recordings keep of the ring; none where nobody records.
    heard: Option<Vec<record::Heard>>,
}

impl Session {
    /// Sets the probes on these devices (as typed; none for the default) and
    /// begins to count.
    pub fn begin(devices: &[String]) -> Result<Self, SessionError> {
        Self::begin_with(devices, false)
    }

    /// The same with the hooks of every write, where `writes` asks for them.
    fn begin_with(devices: &[String], writes: bool) -> Result<Self, SessionError> {
        probe::privileges().map_err(SessionError::Privileges)?;
        let disks = open_disks(devices)?;
        let tracefs = Tracefs::open().map_err(SessionError::Tracefs)?;
        let facts = KernelFacts::gather(&tracefs);
        let mut probe = Probe::load_for(&facts, writes)?;
        let mut known = HashMap::new();
        devices::refresh(&mut probe, &disks, &mut known)?;
        for thread in journal::threads() {
            if known.contains_key(&thread.dev.kernel()) {
                probe.set_journal_thread(thread)?;
            }
        }
        let mut steps = plan::make(&facts);
        if writes {
            steps.extend(plan::writes(&facts));
        }
        probe.attach(steps)?;
        let began = probe.edges.turn(&disks, PATIENT);
        let last = EdgeReading::same(&began);
        let mut session = Self {
            symbols: Symbols::read(commits::FUNCTIONS),
            probe,
            facts,
            disks,
            devices: known,
            dirty: Dirty::open().map_err(|error| error.to_string()),
            accounts: Accounts::default(),
            names: Names::default(),
            undecoded: 0,
            full_at: HashMap::new(),
            began,
            last,
            vanished: false,
            swept: false,
            started_at: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map(|since| since.as_secs())
                .unwrap_or_default(),
            started_ns: monotonic_ns(),
            tick_ns: 1_000_000_000 / processes::tick_hz().max(1),
            knobs: pagecache::knobs(),
            memory: Memory::default(),
            ages_before: finish::Ages::new(),
            ages_last: finish::Ages::new(),
            heard: None,
        };
        session.sample_memory();
        Ok(session)
    }

    /// Every hook and how it is attached.
    pub fn hooks(&self) -> &[Attached] {
        &self.probe.hooks
    }

    /// Names of the traced disks.
    pub fn disk_names(&self) -> Vec<String> {
        self.disks.iter().map(|disk| disk.name.clone()).collect()
    }

    /// Where the last interval of a disk ended.
    pub fn edge(&self, disk: usize) -> Edge {
        let stat = self.last.stats.get(disk);
        Edge {
            at: self.last.at,
            sectors_written: match stat {
                Some(Ok(stat)) => stat.sectors_written,
                _ => 0,
            },
        }
    }

    /// Sectors of a disk by path since the run or the interval began, as far
    /// as they are drained.
    pub fn sectors_by_path(&self, disk: usize) -> BTreeMap<String, u64> {
        let sums = self.accounts.by_path().into_iter();
        sums.filter(|((of, _), _)| usize::from(*of) == disk)
            .map(|((_, path), sectors)| (path.name().to_owned(), sectors))
            .collect()
    }

    /// Runs `start`, whose new process and all its children are the traced
    /// command's tree.
    pub fn marking<T>(&mut self, start: impl FnOnce() -> T) -> Result<T, SessionError> {
        self.probe.mark_own(true)?;
        let started = start();
        self.probe.mark_own(false)?;
        Ok(started)
    }

    /// Reads the ring; to be called several times a second.
    pub fn read_ring(&mut self) {
        let mut records = Vec::new();
        let undecoded = &mut self.undecoded;
        self.probe.drain_ring(|bytes| match decode::decode(bytes) {
            Ok(record) => records.push(record),
            Err(_) => *undecoded += 1,
        });
        for record in records {
            match record {
                Record::Name(name) => {
                    self.hear(|| Heard::Name(name.clone()));
                    self.names.file_seen(name);
                }
                Record::Commit(commit) => self.commit_ended(*commit),
                Record::Freed(file) => {
                    self.hear(|| Heard::Freed(file));
                    self.names.file_deleted(file);
                }
                Record::FastCommit(fast) => self.fast_commit_ended(&fast),
            }
        }
    }

    fn commit_ended(&mut self, commit: Commit) {
        let functions: Vec<&str> = commit
            .waker
            .iter()
            .flat_map(|waker| &waker.stack)
            .filter_map(|address| self.symbols.name(*address))
            .collect();
        let interval_s = self
            .devices
            .get(&commit.dev)
            .and_then(|device| device.commit_s)
            .unwrap_or(5);
        // The kernel's timer fires within a tick of the interval.
        let age_ns = commit.running_ticks * self.tick_ns;
        let too_old = age_ns + self.tick_ns >= u64::from(interval_s) * 1_000_000_000;
        let full_at = self.full_at.get(&commit.dev).copied();
        let cause = commits::cause(&commit, &functions, too_old, full_at);
        if cause.trigger == CommitTrigger::Space && commits::too_large(&functions) {
            let blocks = full_at.map_or(commit.blocks, |least| least.min(commit.blocks));
            self.full_at.insert(commit.dev, blocks);
        }
        self.hear(|| Heard::Commit(Box::new(commit.clone()), cause.clone()));
        self.accounts.take_commit(commit, cause);
    }

    fn fast_commit_ended(&mut self, fast: &FastCommit) {
        // A fast commit that failed is followed by a full one, in the books.
        if fast.status != 0 {
            return;
        }
        let by = Waker {
            kind: WakerKind::Fsync,
            tgid: fast.tgid,
            tid: fast.tgid,
            file: fast.file,
            call: fast.call,
            comm: fast.comm.clone(),
            ns: fast.start_ns,
            stack: Vec::new(),
        };
        let cause = Cause {
            trigger: CommitTrigger::FastCommit,
            by: Some(by),
        };
        let shift = self
            .devices
            .get(&fast.dev)
            .map_or(3, |device| device.block_shift);
        self.hear(|| Heard::FastCommit(fast.clone(), cause.clone()));
        self.accounts.take_fast_commit(fast, cause, 1 << shift);
    }

    /// Drains what was counted and looks at mounts and processes; to be
    /// called about twice a second. Says whether a device is still there.
    pub fn tick(&mut self) -> Result<bool, SessionError> {
        self.read_ring();
        self.sample_memory();
        let reading = self.probe.edges.turn(&self.disks, HASTY);
        self.take(reading)?;
        devices::refresh(&mut self.probe, &self.disks, &mut self.devices)?;
        for thread in journal::threads() {
            if self.devices.contains_key(&thread.dev.kernel()) {
                self.probe.set_journal_thread(thread)?;
            }
        }
        names::refresh(&self.probe, &mut self.names)?;
        Ok(!self.vanished)
    }

    /// Where /proc/vmstat cannot be read, the ledger says that it was not.
    fn sample_memory(&mut self) {
        if let Ok(now) = pagecache::sample() {
            self.memory.add(now.dirty, now.background, now.threshold);
        }
    }

    /// Books what came before an edge. A device that has vanished keeps its
    /// last reading: what completed after it cannot be checked any more.
    fn take(&mut self, mut reading: EdgeReading) -> Result<(), SessionError> {
        for (index, disk) in self.disks.iter().enumerate() {
            if reading.stats[index].is_err() || !disk.exists() {
                self.vanished = true;
                reading.stats[index] = copy(&self.last.stats[index]);
            }
        }
        let rows = self.probe.drain_rows(reading.epoch)?;
        let from = self.began.epoch;
        let rows = rows.into_iter().filter(|(key, _)| key.epoch >= from);
        self.accounts.take_rows(rows);
        self.accounts.settle(false);
        self.last = reading;
        Ok(())
    }
}

fn copy(stat: &io::Result<block::DiskStat>) -> io::Result<block::DiskStat> {
    match stat {
        Ok(stat) => Ok(*stat),
        Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
    }
}

impl EdgeReading {
    /// The same reading, for a run that begins where it was taken.
    fn same(other: &Self) -> Self {
        Self {
            epoch: other.epoch,
            at: other.at,
            stats: other.stats.iter().map(copy).collect(),
            blurred_by: other.blurred_by,
        }
    }

    /// Seconds since another reading.
    fn seconds_since(&self, other: &Self) -> f64 {
        let elapsed: Instant = self.at;
        elapsed.duration_since(other.at).as_secs_f64()
    }
}

fn open_disks(typed: &[String]) -> Result<Vec<Disk>, SessionError> {
    let mut names = Vec::new();
    for text in typed {
        let name = block::resolve(text)?;
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if typed.is_empty() {
        names = block::default_disks();
    }
    if names.is_empty() {
        return Err(SessionError::NoDisk);
    }
    if names.len() > 256 {
        return Err(SessionError::TooManyDisks(names.len()));
    }
    let disks: Result<Vec<Disk>, DeviceError> = names.iter().map(|name| Disk::open(name)).collect();
    Ok(disks?)
}
