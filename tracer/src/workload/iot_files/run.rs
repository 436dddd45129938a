//! The measured part of `iot-files`: threads that keep to their deadlines.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::OFlags;

use super::files::{Files, MGMT_NAME, data_name, new_name};
use super::place::{self, Mode, Piece, Update};
use super::spec::{Fsync, IotFiles};
use crate::workload::account::{Account, Call, Entry};
use crate::workload::pacing::{Slot, Slots, Ticks, is_late, share};
use crate::workload::payload::{MGMT, Payload};
use crate::workload::tree::Dir;
use crate::workload::{Stop, WorkloadError};

/// The name of the threads that update data files, as a tracer shows it.
pub const DATA_THREAD: &str = "iot-data";
/// The name of the thread that updates the management file.
pub const MGMT_THREAD: &str = "iot-mgmt";

/// How soon a raised stop is seen, and how often progress is told.
const TICK: Duration = Duration::from_millis(100);
const STACK_BYTES: usize = 256 << 10;

/// How a run ended.
#[derive(Debug)]
pub enum End {
    /// Its time was over and every update made.
    Complete,
    /// It was asked to stop.
    Stopped,
    /// A call failed; the account stands for what was done until then.
    Failed(WorkloadError),
}

/// What a run did.
#[derive(Debug)]
pub struct Outcome {
    /// When the clock started.
    pub started_at: SystemTime,
    /// From then to the end.
    pub elapsed: Duration,
    /// Data files.
    pub data: Account,
    /// The management file.
    pub mgmt: Account,
    /// How it ended.
    pub end: End,
}

/// How far a run has come.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// Since the start.
    pub elapsed: Duration,
    /// Updates made.
    pub updates: u64,
    /// Updates that were late.
    pub late: u64,
}

/// Runs `spec` on prepared files until its time is over or `stop` is raised.
pub fn run(
    spec: &IotFiles,
    files: &Files,
    stop: &Stop,
    progress: &mut dyn FnMut(Progress),
) -> Result<Outcome, WorkloadError> {
    let plan = spec.plan();
    let data = Mutex::new(Account::new(plan.data_updates));
    let mgmt = Mutex::new(Account::new(plan.mgmt_updates));
    let failure = Mutex::new(None);
    let halt = Stop::new();
    let start = OnceLock::new();
    let mut started_at = SystemTime::now();
    let mut elapsed = Duration::ZERO;

    thread::scope(|scope| {
        let mut threads = Vec::new();
        let with_mgmt = spec.shape.mgmt_bytes > 0;
        let count = spec.threads + u32::from(with_mgmt);
        for number in 0..count {
            let role = if number < spec.threads {
                Role::Data(number)
            } else {
                Role::Mgmt
            };
            let account = if role == Role::Mgmt { &mgmt } else { &data };
            let (halt, start, failure) = (&halt, &start, &failure);
            let worker = move || {
                let start = *start.wait();
                let mut worker = Worker::new(spec, files, role, account, start, halt);
                if let Err(error) = worker.run() {
                    lock(failure).get_or_insert(error);
                    halt.raise();
                }
            };
            let spawned = thread::Builder::new()
                .name(role.thread_name().to_owned())
                .stack_size(STACK_BYTES)
                .spawn_scoped(scope, worker);
            match spawned {
                Ok(handle) => threads.push(handle),
                Err(reason) => {
                    halt.raise();
                    start.get_or_init(Instant::now);
                    return Err(WorkloadError::Thread {
                        number: number + 1,
                        of: count,
                        reason,
                    });
                }
            }
        }
        started_at = SystemTime::now();
        let start = *start.get_or_init(Instant::now);
        loop {
            elapsed = start.elapsed();
            let done = threads.iter().all(thread::ScopedJoinHandle::is_finished);
            if stop.is_raised() || halt.is_raised() || (done && elapsed >= spec.duration) {
                break;
            }
            progress(progress_of(elapsed, &lock(&data), &lock(&mgmt)));
            let left = spec.duration.saturating_sub(elapsed);
            thread::sleep(if left.is_zero() { TICK } else { TICK.min(left) });
        }
        halt.raise();
        for handle in &threads {
            handle.thread().unpark();
        }
        Ok(())
    })?;

    let end = match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => End::Failed(error),
        None if stop.is_raised() => End::Stopped,
        None => End::Complete,
    };
    Ok(Outcome {
        started_at,
        elapsed,
        data: data.into_inner().unwrap_or_else(PoisonError::into_inner),
        mgmt: mgmt.into_inner().unwrap_or_else(PoisonError::into_inner),
        end,
    })
}

fn progress_of(elapsed: Duration, data: &Account, mgmt: &Account) -> Progress {
    Progress {
        elapsed,
        updates: data.updates() + mgmt.updates(),
        late: data.late + mgmt.late,
    }
}

/// A poisoned lock guards counters that are still right.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Which files a thread updates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Its share of the data files, by thread number.
    Data(u32),
    /// The management file.
    Mgmt,
}

impl Role {
    fn thread_name(self) -> &'static str {
        match self {
            Role::Data(_) => DATA_THREAD,
            Role::Mgmt => MGMT_THREAD,
        }
    }
}

/// One thread.
struct Worker<'a> {
    spec: &'a IotFiles,
    files: &'a Files,
    role: Role,
    fsync: Fsync,
    first: u32,
    slots: Slots,
    ticks: Option<Ticks>,
    account: &'a Mutex<Account>,
    start: Instant,
    halt: &'a Stop,
    payload: Payload,
    buffer: Vec<u8>,
    entry: Entry,
    /// Files updated since their last fsync, where a timer does that.
    unsynced: BTreeSet<u32>,
}

impl<'a> Worker<'a> {
    fn new(
        spec: &'a IotFiles,
        files: &'a Files,
        role: Role,
        account: &'a Mutex<Account>,
        start: Instant,
        halt: &'a Stop,
    ) -> Self {
        let (fsync, first, slots) = match role {
            Role::Data(thread) => (
                spec.fsync,
                share(spec.shape.files, spec.threads, thread).start,
                spec.slots(thread),
            ),
            Role::Mgmt => (spec.mgmt_fsync, 0, spec.mgmt_slots()),
        };
        Self {
            spec,
            files,
            role,
            fsync,
            first,
            slots,
            ticks: fsync
                .interval()
                .map(|every| Ticks::new(every, spec.duration)),
            account,
            start,
            halt,
            payload: Payload::new(spec.seed),
            buffer: Vec::new(),
            entry: Entry::default(),
            unsynced: BTreeSet::new(),
        }
    }

    /// Takes slots and ticks in order of time until there are none.
    fn run(&mut self) -> Result<(), WorkloadError> {
        loop {
            let slot = self.slots.peek();
            let tick = self.ticks.as_ref().and_then(Ticks::peek);
            let done = match (slot, tick) {
                (Some(slot), tick) if tick.is_none_or(|tick| slot.at <= tick) => {
                    if !self.wait_until(slot.at) {
                        return Ok(());
                    }
                    self.slots.next();
                    self.update(slot)
                }
                (_, Some(tick)) => {
                    if !self.wait_until(tick) {
                        return Ok(());
                    }
                    if let Some(ticks) = &mut self.ticks {
                        ticks.pass(self.start.elapsed());
                    }
                    self.fsync_all()
                }
                (_, None) => return Ok(()),
            };
            lock(self.account).add(&self.entry);
            self.entry.clear();
            done?;
        }
    }

    /// Waits for `at` from the start; false when the run is to end.
    fn wait_until(&self, at: Duration) -> bool {
        loop {
            if self.halt.is_raised() {
                return false;
            }
            let left = at.saturating_sub(self.start.elapsed());
            if left.is_zero() {
                return true;
            }
            thread::park_timeout(left);
        }
    }

    fn update(&mut self, slot: Slot) -> Result<(), WorkloadError> {
        let file = self.first + slot.file;
        let (number, update) = match self.role {
            Role::Data(_) => {
                let sizes = self.spec.sizes();
                let payload = &mut self.payload;
                let update = place::update(self.spec.place, sizes, file, slot.period, payload);
                (file, update)
            }
            Role::Mgmt => (
                MGMT,
                Update {
                    mode: Mode::InPlace,
                    pieces: vec![Piece {
                        offset: 0,
                        bytes: self.spec.shape.mgmt_bytes,
                    }],
                },
            ),
        };
        let bytes: u64 = update.pieces.iter().map(|piece| piece.bytes).sum();
        self.buffer.resize(bytes as usize, 0);
        self.payload.fill(number, slot.period, &mut self.buffer);

        let started = self.start.elapsed();
        self.entry.started_after = Some(started.saturating_sub(slot.at));
        self.entry.late = is_late(slot.at, started, self.spec.period);
        self.write(file, &update)?;
        let took = self.start.elapsed().saturating_sub(started);
        self.entry.calls.push((Call::Update, took));
        if self.ticks.is_some() {
            self.unsynced.insert(file);
        }
        Ok(())
    }

    /// The calls of one update, each timed.
    fn write(&mut self, file: u32, update: &Update) -> Result<(), WorkloadError> {
        let (dir, name) = self.place_of(file);
        let new = new_name(file);
        let entry = &mut self.entry;
        let fd = timed(entry, Call::Open, || match update.mode {
            Mode::InPlace => dir.open_file(&name, OFlags::WRONLY),
            Mode::Append => dir.open_file(&name, OFlags::WRONLY | OFlags::APPEND),
            Mode::Truncate => dir.open_file(&name, OFlags::WRONLY | OFlags::TRUNC),
            Mode::Rename => dir.make_file(&new),
        })?;
        entry.truncates = u64::from(update.mode == Mode::Truncate);
        let fd = File::from(fd);
        let written = match update.mode {
            Mode::Rename => &new,
            _ => &name,
        };
        let mut from = 0;
        for piece in &update.pieces {
            let to = from + piece.bytes as usize;
            write_piece(entry, &fd, piece.offset, &self.buffer[from..to])
                .map_err(|error| dir.fail("write", written, error))?;
            from = to;
        }
        if self.fsync == Fsync::Update {
            timed(entry, Call::Fsync, || fd.sync_all())
                .map_err(|error| dir.fail("fsync", written, error))?;
        }
        timed(entry, Call::Close, || drop(fd));
        if update.mode == Mode::Rename {
            timed(entry, Call::Rename, || dir.rename(&new, &name))?;
        }
        Ok(())
    }

    /// A tick: every file updated since its last fsync.
    fn fsync_all(&mut self) -> Result<(), WorkloadError> {
        while let Some(file) = self.unsynced.pop_first() {
            if self.halt.is_raised() {
                return Ok(());
            }
            let (dir, name) = self.place_of(file);
            let entry = &mut self.entry;
            let fd: OwnedFd = timed(entry, Call::Open, || dir.open_file(&name, OFlags::WRONLY))?;
            let fd = File::from(fd);
            timed(entry, Call::Fsync, || fd.sync_all())
                .map_err(|error| dir.fail("fsync", &name, error))?;
            timed(entry, Call::Close, || drop(fd));
        }
        Ok(())
    }

    fn place_of(&self, file: u32) -> (&'a Dir, String) {
        match self.role {
            Role::Data(_) => (self.files.data(), data_name(file)),
            Role::Mgmt => (self.files.top(), MGMT_NAME.to_owned()),
        }
    }
}

/// Writes all of `bytes` at `offset` (to the end if opened for appending: Linux
/// ignores the offset then). A short write is continued and counts as a call.
fn write_piece(
    entry: &mut Entry,
    file: &File,
    offset: u64,
    mut bytes: &[u8],
) -> std::io::Result<()> {
    let mut at = offset;
    while !bytes.is_empty() {
        let wrote = timed(entry, Call::Write, || rustix::io::pwrite(file, bytes, at));
        match wrote {
            Ok(0) => return Err(std::io::ErrorKind::WriteZero.into()),
            Ok(wrote) => {
                entry.bytes += wrote as u64;
                at += wrote as u64;
                bytes = &bytes[wrote..];
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

fn timed<T>(entry: &mut Entry, call: Call, what: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let result = what();
    entry.calls.push((call, started.elapsed()));
    result
}
