//! A traced run that is recorded: what the session hears becomes events, and
//! goes to the file as it happens.

use super::{Session, SessionError};
use crate::{
    attribute::{commits::Cause, summary::Filter},
    kernel::{
        block::DevNumber,
        pagecache,
        probe::{ProbeError, monotonic_ns},
        writes::Lost,
    },
    model::{
        ledger::Run,
        path::Path,
        record::{Commit, FastCommit, Name},
    },
    recording::{
        CommitEvent, Event, Header, Kind, Memory, What, Writer,
        kept::{self, Sizes},
    },
};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    io::{self, Write},
    time::{SystemTime, UNIX_EPOCH},
};
use tracer_common::{CALL_NONE, loss};

/// Why a recording could not go on.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file.
    #[error("cannot write the recording: {0}; what was sealed before can be read")]
    Write(#[from] io::Error),
    /// The probes.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// The session.
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// What a session heard that a recording keeps.
#[derive(Debug)]
pub(super) enum Heard {
    Name(Name),
    Freed(u32),
    Commit(Box<Commit>, Cause),
    FastCommit(FastCommit, Cause),
}

/// What is asked of a recording.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    /// Every write.
    pub writes: bool,
    /// Size of the file at which writes stop being kept.
    pub max_size_bytes: u64,
}

/// Step of the times of events.
const TICK_NS: u32 = 4_000_000;
/// What is not sealed when the recorder is killed is lost: seal this often.
const SEAL_NS: u64 = 10_000_000_000;
/// And as soon as so many events wait.
const SEAL_EVENTS: usize = 1 << 15;
/// How late an event may come into the ring after its time was taken.
const LATE_NS: u64 = 100_000_000;

impl Session {
    /// Begins a session that is recorded.
    pub fn begin_recorded(devices: &[String], asked: Asked) -> Result<Self, SessionError> {
        let mut session = Self::begin_with(devices, asked.writes)?;
        session.heard = Some(Vec::new());
        Ok(session)
    }

    pub(super) fn hear(&mut self, what: impl FnOnce() -> Heard) {
        if let Some(heard) = &mut self.heard {
            heard.push(what());
        }
    }

    /// Whether a device number is traced, as `stat(2)` has it.
    pub fn traces(&self, dev: u64) -> bool {
        self.devices
            .contains_key(&DevNumber::from_stat(dev).kernel())
    }
}

/// A recording that is being made of a session.
pub struct Recorder<W: Write> {
    writer: Writer<W>,
    asked: Asked,
    page: u64,
    /// Zero of all times.
    zero_ns: u64,
    sealed_ns: u64,
    full: bool,
    comms: HashMap<u32, Vec<u8>>,
    named: HashSet<u32>,
    sectors: BTreeMap<(u16, Path), u64>,
    lost: Lost,
    ring_lost: u64,
}

impl<W: Write> Recorder<W> {
    /// Writes the beginning of a recording.
    pub fn begin(session: &Session, asked: Asked, out: W) -> Result<Self, RecordError> {
        let start = session.start(asked.writes, asked.max_size_bytes);
        let elapsed_ns = monotonic_ns().saturating_sub(session.started_ns);
        let now_ns = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_nanos() as u64);
        let header = Header {
            started_at_ns: now_ns.saturating_sub(elapsed_ns),
            started_ns: session.started_ns,
            tick_ns: TICK_NS,
        };
        Ok(Self {
            writer: Writer::new(out, header, &start)?,
            asked,
            page: start.page_bytes,
            zero_ns: session.started_ns,
            sealed_ns: monotonic_ns(),
            full: false,
            comms: HashMap::new(),
            named: HashSet::new(),
            sectors: BTreeMap::new(),
            lost: [0; tracer_common::kept::COUNT as usize],
            ring_lost: 0,
        })
    }

    fn push(&mut self, ns: u64, what: What) {
        self.writer.push(Event {
            t_ns: ns.saturating_sub(self.zero_ns),
            what,
        });
    }

    /// Takes what the session has heard; to be called several times a second.
    pub fn take(&mut self, session: &mut Session) -> Result<(), RecordError> {
        let now = monotonic_ns();
        self.hear(session, now);
        self.drain(session);
        if now.saturating_sub(self.sealed_ns) >= SEAL_NS || self.writer.pending() >= SEAL_EVENTS {
            self.losses(session, now)?;
            self.seal(session, now)?;
        }
        Ok(())
    }

    fn hear(&mut self, session: &mut Session, now: u64) {
        let heard = session.heard.as_mut().map(std::mem::take);
        for heard in heard.into_iter().flatten() {
            match heard {
                Heard::Name(name) => {
                    if let Some(text) = name.name {
                        self.named.insert(name.file);
                        let what = What::Name {
                            fs: name.dev,
                            ino: name.ino,
                            name: text,
                            whole: name.whole,
                        };
                        self.push(now, what);
                    }
                }
                Heard::Freed(number) => {
                    if let Some(file) = session.names.file(number) {
                        let (fs, ino) = (file.dev, file.ino);
                        self.push(now, What::Freed { fs, ino });
                    }
                }
                Heard::Commit(commit, cause) => self.commit(session, &commit, &cause),
                Heard::FastCommit(fast, cause) => self.fast_commit(session, &fast, &cause),
            }
        }
    }

    fn drain(&mut self, session: &mut Session) {
        let mut taken = Vec::new();
        let (devices, disks) = (&session.devices, &session.disks);
        let page = self.page;
        let sizes = |dev: u32| Sizes {
            page,
            block: 512 << devices.get(&dev).map_or(3, |device| device.block_shift),
        };
        let disk = |name: &str| {
            let found = disks.iter().find(|disk| disk.dev.to_string() == name);
            found.map(|disk| disk.dev.kernel())
        };
        let probe = &mut session.probe;
        probe.drain_writes(|bytes| taken.extend(kept::decode(bytes, sizes, disk)));
        // What the ring still held when the budget was used up is not kept.
        if !self.full {
            for (ns, what) in taken {
                self.push(ns, what);
            }
        }
    }

    /// Once a second: the page cache, sectors by path, new processes.
    pub fn sample(&mut self, session: &Session) {
        let now = monotonic_ns();
        // Where it cannot be read, there is no sample.
        if let Ok(cache) = pagecache::sample() {
            let memory = Memory {
                dirty: cache.dirty,
                writeback: cache.writeback,
                threshold: cache.threshold,
                background: cache.background,
            };
            self.push(now, What::Memory(memory));
        }
        let sums = session.accounts.by_path();
        for ((disk, path), sum) in &sums {
            let before = self.sectors.get(&(*disk, *path)).copied();
            let sectors = sum.saturating_sub(before.unwrap_or_default());
            if sectors > 0 {
                let disk = session.disks[usize::from(*disk)].dev.kernel();
                let path = *path;
                let what = What::Sectors {
                    disk,
                    path,
                    sectors,
                };
                self.push(now, what);
            }
        }
        self.sectors = sums;
        for pid in session.names.pids() {
            let Some(program) = session.names.program(pid) else {
                continue;
            };
            if self.comms.get(&pid) != Some(&program.comm) {
                self.comms.insert(pid, program.comm.clone());
                let comm = program.comm.clone();
                self.push(now, What::Process { pid, comm });
            }
        }
    }

    fn losses(&mut self, session: &Session, now: u64) -> Result<(), RecordError> {
        let lost = session.probe.writes_lost()?;
        let new = lost.iter().zip(self.lost).enumerate();
        let new: Vec<(usize, u64)> = new
            .map(|(kind, (sum, before))| (kind, sum - before))
            .collect();
        self.lost = lost;
        for (code, count) in new {
            if let (Some(kind), 1..) = (Kind::from_code(code as u8), count) {
                self.push(now, What::Lost { kind, count });
            }
        }
        let ring = session.probe.losses()?[loss::RING as usize];
        let count = ring - self.ring_lost;
        self.ring_lost = ring;
        if count > 0 {
            // Names and commits share a ring.
            let kind = Kind::Commit;
            self.push(now, What::Lost { kind, count });
        }
        Ok(())
    }

    fn seal(&mut self, session: &mut Session, now: u64) -> Result<(), RecordError> {
        let before = now.saturating_sub(self.zero_ns).saturating_sub(LATE_NS);
        self.writer.seal(before)?;
        self.sealed_ns = now;
        let used_up = self.writer.bytes() >= self.asked.max_size_bytes;
        if self.asked.writes && !self.full && used_up {
            self.full = true;
            session.probe.detach_writes()?;
            self.push(now, What::Full);
        }
        Ok(())
    }

    fn commit(&mut self, session: &Session, commit: &Commit, cause: &Cause) {
        let open_ns = commit.running_ticks * session.tick_ns;
        let seen = |ns: u64| (ns != 0).then(|| ns.saturating_sub(self.zero_ns));
        let event = CommitEvent {
            fs: commit.dev,
            tid: commit.tid,
            opened_ns: commit.start_ns.saturating_sub(self.zero_ns + open_ns),
            start_ns: commit.start_ns.saturating_sub(self.zero_ns),
            locking_ns: seen(commit.locking_ns),
            flushing_ns: seen(commit.flushing_ns),
            logging_ns: seen(commit.logging_ns),
            end_ns: commit.end_ns.saturating_sub(self.zero_ns),
            handles: commit.handles,
            blocks: commit.blocks,
            blocks_logged: commit.blocks_logged,
            ..by(session, cause)
        };
        self.push(commit.end_ns, What::Commit(Box::new(event)));
    }

    fn fast_commit(&mut self, session: &Session, fast: &FastCommit, cause: &Cause) {
        let start_ns = fast.start_ns.saturating_sub(self.zero_ns);
        let event = CommitEvent {
            fs: fast.dev,
            opened_ns: start_ns,
            start_ns,
            end_ns: fast.end_ns.saturating_sub(self.zero_ns),
            blocks_logged: fast.blocks,
            ..by(session, cause)
        };
        self.push(fast.end_ns, What::Commit(Box::new(event)));
    }

    /// Closes the books of the run, and takes what is left of it.
    pub fn close(&mut self, session: &mut Session) -> Result<Run, RecordError> {
        let run = session.finish(&Filter::default())?;
        let now = monotonic_ns();
        self.hear(session, now);
        self.drain(session);
        self.late_names(session, now);
        self.sample(session);
        self.losses(session, now)?;
        Ok(run)
    }

    /// Bytes in the file, and events in it and on their way.
    pub fn size(&self) -> (u64, u64) {
        let events = self.writer.events() + self.writer.pending() as u64;
        (self.writer.bytes(), events)
    }

    /// When the budget was used up, in nanoseconds from the start.
    pub fn full_ns(&self) -> Option<u64> {
        self.writer.full_ns()
    }

    /// Events lost so far, over all kinds.
    pub fn lost(&self) -> u64 {
        self.writer.lost().values().sum()
    }

    /// Ends the recording with the ledger of the run (JSON text of
    /// `writepath.trace/1`); gives the file back.
    pub fn end(self, ledger: &[u8]) -> Result<W, RecordError> {
        let duration_ns = monotonic_ns().saturating_sub(self.zero_ns);
        Ok(self.writer.finish(ledger, duration_ns)?)
    }

    /// Names that filesystems told at the end.
    fn late_names(&mut self, session: &Session, now: u64) {
        for (number, file) in session.names.files() {
            if let Some(name) = &file.name
                && self.named.insert(number)
                && !file.deleted
            {
                let what = What::Name {
                    fs: file.dev,
                    ino: file.ino,
                    name: name.clone(),
                    whole: true,
                };
                self.push(now, what);
            }
        }
    }
}

/// A commit of this cause, with nothing else known.
fn by(session: &Session, cause: &Cause) -> CommitEvent {
    let by = cause.by.as_ref();
    let file = by.and_then(|by| session.names.file(by.file));
    CommitEvent {
        fs: 0,
        tid: 0,
        opened_ns: 0,
        start_ns: 0,
        locking_ns: None,
        flushing_ns: None,
        logging_ns: None,
        end_ns: 0,
        handles: 0,
        blocks: 0,
        blocks_logged: 0,
        trigger: cause.trigger,
        pid: by.map_or(0, |by| by.tgid),
        call: by.map_or(CALL_NONE, |by| by.call),
        ino: file.map_or(0, |file| file.ino),
    }
}
