//! Events to the bytes of a section and back: each field in a column of its
//! own kind, as the difference to what is expected, so that it compresses.

use super::{
    event::{CommitEvent, Dirtied, Event, Kind, Memory, What},
    format::{MAX_EVENTS, MAX_NAME},
};
use crate::model::{path::Path, trigger::CommitTrigger};
use std::collections::HashMap;

/// The columns, in the order of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    /// One byte an event: its [`Kind`].
    Kind,
    /// Ticks since the event before.
    Time,
    /// Device, as difference to the one before.
    Dev,
    /// Inode, as difference to the one before.
    Ino,
    /// First block, as difference to the block after the inode's last write.
    Pos,
    /// Blocks after the first; bytes of a text.
    Len,
    /// Process, as difference to the one before.
    Pid,
    /// All other numbers.
    Num,
    /// Texts, one after another.
    Text,
}

impl Column {
    /// Name in docs/recording.md.
    pub const NAMES: [&str; Self::COUNT] = [
        "kind", "time", "dev", "ino", "pos", "len", "pid", "num", "text",
    ];
    /// How many there are.
    pub const COUNT: usize = 9;
}

/// Bytes before the columns: count, base, and the size of each column.
const HEAD: usize = 4 + 8 + 4 * Column::COUNT;

/// What both sides expect next.
#[derive(Default)]
struct Expected {
    tick: u64,
    dev: u32,
    ino: u64,
    pid: u32,
    /// Block after the last write of an inode.
    after: HashMap<(u32, u64), u64>,
}

fn zigzag(number: i64) -> u64 {
    (number << 1 ^ number >> 63) as u64
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

/// Encodes events, which are in order of time. At most [`MAX_EVENTS`].
pub fn encode(events: &[Event], tick_ns: u32) -> Vec<u8> {
    let base = events.first().map_or(0, |event| tick(event, tick_ns));
    let mut encoder = Encoder {
        columns: Default::default(),
        expected: Expected {
            tick: base,
            ..Expected::default()
        },
    };
    for event in events {
        encoder.event(event, tick_ns);
    }
    let mut bytes = (events.len() as u32).to_le_bytes().to_vec();
    bytes.extend(base.to_le_bytes());
    for column in &encoder.columns {
        bytes.extend((column.len() as u32).to_le_bytes());
    }
    bytes.extend(encoder.columns.concat());
    bytes
}

fn tick(event: &Event, tick_ns: u32) -> u64 {
    event.t_ns / u64::from(tick_ns.max(1))
}

struct Encoder {
    columns: [Vec<u8>; Column::COUNT],
    expected: Expected,
}

impl Encoder {
    fn put(&mut self, column: Column, mut number: u64) {
        let bytes = &mut self.columns[column as usize];
        while number >= 0x80 {
            bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        bytes.push(number as u8);
    }

    fn num(&mut self, number: impl Into<u64>) {
        self.put(Column::Num, number.into());
    }

    fn dev(&mut self, dev: u32) {
        let difference = i64::from(dev) - i64::from(self.expected.dev);
        self.expected.dev = dev;
        self.put(Column::Dev, zigzag(difference));
    }

    fn ino(&mut self, ino: u64) {
        let difference = ino.wrapping_sub(self.expected.ino) as i64;
        self.expected.ino = ino;
        self.put(Column::Ino, zigzag(difference));
    }

    fn inode(&mut self, fs: u32, ino: u64) {
        self.dev(fs);
        self.ino(ino);
    }

    fn pid(&mut self, pid: u32) {
        let difference = i64::from(pid) - i64::from(self.expected.pid);
        self.expected.pid = pid;
        self.put(Column::Pid, zigzag(difference));
    }

    fn text(&mut self, text: &[u8]) {
        let text = &text[..text.len().min(MAX_NAME)];
        self.put(Column::Len, text.len() as u64);
        self.columns[Column::Text as usize].extend(text);
    }

    fn dirtied(&mut self, dirtied: &Dirtied) {
        self.inode(dirtied.fs, dirtied.ino);
        let after = self.expected.after.entry((dirtied.fs, dirtied.ino));
        let after = after.or_default();
        let difference = dirtied.first.wrapping_sub(*after) as i64;
        *after = dirtied.last.wrapping_add(1);
        self.put(Column::Pos, zigzag(difference));
        self.put(Column::Len, dirtied.last.wrapping_sub(dirtied.first));
        self.pid(dirtied.pid);
    }

    fn event(&mut self, event: &Event, tick_ns: u32) {
        self.columns[Column::Kind as usize].push(event.what.kind() as u8);
        let now = tick(event, tick_ns);
        self.put(Column::Time, now.wrapping_sub(self.expected.tick));
        self.expected.tick = now;
        match &event.what {
            What::Name {
                fs,
                ino,
                name,
                whole,
            } => {
                self.inode(*fs, *ino);
                self.num(*whole);
                self.text(name);
            }
            What::Process { pid, comm } => {
                self.pid(*pid);
                self.text(comm);
            }
            What::Freed { fs, ino } | What::Touch { fs, ino } | What::Evict { fs, ino } => {
                self.inode(*fs, *ino);
            }
            What::Commit(commit) => self.commit(commit),
            What::Memory(memory) => {
                self.num(memory.dirty);
                self.num(memory.writeback);
                self.num(memory.threshold);
                self.num(memory.background);
            }
            What::Sectors {
                disk,
                path,
                sectors,
            } => {
                self.dev(*disk);
                self.num(path.code());
                self.num(*sectors);
            }
            What::Write(dirtied) | What::Store(dirtied) => self.dirtied(dirtied),
            What::Sync {
                fs,
                ino,
                pid,
                data_only,
            } => {
                self.inode(*fs, *ino);
                self.pid(*pid);
                self.num(*data_only);
            }
            What::SyncFs { fs, pid } => {
                self.dev(*fs);
                self.pid(*pid);
            }
            What::Flush {
                fs,
                ino,
                path,
                code,
                pages,
            } => {
                self.inode(*fs, *ino);
                self.num(path.code());
                self.num(*code);
                self.num(*pages);
            }
            What::Truncate { fs, ino, size } => {
                self.inode(*fs, *ino);
                self.num(size.map_or(0, |size| size.saturating_add(1)));
            }
            What::Wake { disk, reason } => {
                self.dev(*disk);
                self.num(*reason);
            }
            What::Lost { kind, count } => {
                self.num(*kind as u8);
                self.num(*count);
            }
            What::Full => {}
        }
    }

    fn commit(&mut self, commit: &CommitEvent) {
        self.inode(commit.fs, commit.ino);
        self.pid(commit.pid);
        self.num(commit.tid);
        self.num(commit.end_ns);
        self.num(commit.end_ns.wrapping_sub(commit.opened_ns));
        self.num(commit.end_ns.wrapping_sub(commit.start_ns));
        for phase in [commit.locking_ns, commit.flushing_ns, commit.logging_ns] {
            let before_end = |at: u64| commit.end_ns.wrapping_sub(at).saturating_add(1);
            self.num(phase.map_or(0, before_end));
        }
        self.num(commit.handles);
        self.num(commit.blocks);
        self.num(commit.blocks_logged);
        self.num(commit.trigger.code());
        self.num(commit.call);
    }
}

/// Decodes a section's events; none where the bytes are not a section's.
pub fn decode(bytes: &[u8], tick_ns: u32) -> Option<Vec<Event>> {
    let (head, mut rest) = bytes.split_at_checked(HEAD)?;
    let (count, head) = head.split_first_chunk()?;
    let count = u32::from_le_bytes(*count) as usize;
    let (base, sizes) = head.split_first_chunk()?;
    let mut columns: [&[u8]; Column::COUNT] = [&[]; Column::COUNT];
    for (column, size) in columns.iter_mut().zip(sizes.chunks_exact(4)) {
        let size = u32::from_le_bytes(*size.first_chunk()?) as usize;
        (*column, rest) = rest.split_at_checked(size)?;
    }
    // The bound of what is allocated: an event has a byte of its own.
    if count > MAX_EVENTS || columns[Column::Kind as usize].len() != count || !rest.is_empty() {
        return None;
    }
    let mut decoder = Decoder {
        columns,
        expected: Expected {
            tick: u64::from_le_bytes(*base),
            ..Expected::default()
        },
        tick_ns,
    };
    let mut events = Vec::with_capacity(count);
    for _ in 0..count {
        events.push(decoder.event()?);
    }
    let all_used = decoder.columns.iter().all(|column| column.is_empty());
    all_used.then_some(events)
}

struct Decoder<'a> {
    columns: [&'a [u8]; Column::COUNT],
    expected: Expected,
    tick_ns: u32,
}

impl Decoder<'_> {
    fn take(&mut self, column: Column) -> Option<u64> {
        let bytes = &mut self.columns[column as usize];
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = bytes.split_first()?;
            *bytes = rest;
            let part = u64::from(byte & 0x7f);
            if shift == 63 && part > 1 {
                return None;
            }
            number |= part << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn num(&mut self) -> Option<u64> {
        self.take(Column::Num)
    }

    fn small<T: TryFrom<u64>>(&mut self) -> Option<T> {
        T::try_from(self.num()?).ok()
    }

    fn flag(&mut self) -> Option<bool> {
        match self.num()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn path(&mut self) -> Option<Path> {
        self.small().map(Path::from_code)
    }

    fn dev(&mut self) -> Option<u32> {
        let difference = unzigzag(self.take(Column::Dev)?);
        let dev = i64::from(self.expected.dev).checked_add(difference)?;
        self.expected.dev = u32::try_from(dev).ok()?;
        Some(self.expected.dev)
    }

    fn inode(&mut self) -> Option<(u32, u64)> {
        let dev = self.dev()?;
        let difference = unzigzag(self.take(Column::Ino)?);
        self.expected.ino = self.expected.ino.wrapping_add(difference as u64);
        Some((dev, self.expected.ino))
    }

    fn pid(&mut self) -> Option<u32> {
        let difference = unzigzag(self.take(Column::Pid)?);
        let pid = i64::from(self.expected.pid).checked_add(difference)?;
        self.expected.pid = u32::try_from(pid).ok()?;
        Some(self.expected.pid)
    }

    fn text(&mut self) -> Option<Vec<u8>> {
        let len = usize::try_from(self.take(Column::Len)?).ok()?;
        let column = &mut self.columns[Column::Text as usize];
        if len > MAX_NAME {
            return None;
        }
        let (text, rest) = column.split_at_checked(len)?;
        *column = rest;
        Some(text.to_vec())
    }

    fn dirtied(&mut self) -> Option<Dirtied> {
        let (fs, ino) = self.inode()?;
        let difference = unzigzag(self.take(Column::Pos)?);
        let len = self.take(Column::Len)?;
        let after = self.expected.after.entry((fs, ino)).or_default();
        let first = after.wrapping_add(difference as u64);
        let last = first.checked_add(len)?;
        *after = last.wrapping_add(1);
        let pid = self.pid()?;
        Some(Dirtied {
            fs,
            ino,
            first,
            last,
            pid,
        })
    }

    fn event(&mut self) -> Option<Event> {
        let (kind, rest) = self.columns[Column::Kind as usize].split_first()?;
        self.columns[Column::Kind as usize] = rest;
        let kind = Kind::from_code(*kind)?;
        let ticks = self.take(Column::Time)?;
        self.expected.tick = self.expected.tick.checked_add(ticks)?;
        let t_ns = self.expected.tick.checked_mul(self.tick_ns.into())?;
        let what = match kind {
            Kind::Name => {
                let (fs, ino) = self.inode()?;
                What::Name {
                    fs,
                    ino,
                    whole: self.flag()?,
                    name: self.text()?,
                }
            }
            Kind::Process => What::Process {
                pid: self.pid()?,
                comm: self.text()?,
            },
            Kind::Freed => self.inode().map(|(fs, ino)| What::Freed { fs, ino })?,
            Kind::Touch => self.inode().map(|(fs, ino)| What::Touch { fs, ino })?,
            Kind::Evict => self.inode().map(|(fs, ino)| What::Evict { fs, ino })?,
            Kind::Commit => What::Commit(Box::new(self.commit()?)),
            Kind::Memory => What::Memory(Memory {
                dirty: self.num()?,
                writeback: self.num()?,
                threshold: self.num()?,
                background: self.num()?,
            }),
            Kind::Sectors => What::Sectors {
                disk: self.dev()?,
                path: self.path()?,
                sectors: self.num()?,
            },
            Kind::Write => What::Write(self.dirtied()?),
            Kind::Store => What::Store(self.dirtied()?),
            Kind::Sync => {
                let (fs, ino) = self.inode()?;
                What::Sync {
                    fs,
                    ino,
                    pid: self.pid()?,
                    data_only: self.flag()?,
                }
            }
            Kind::SyncFs => What::SyncFs {
                fs: self.dev()?,
                pid: self.pid()?,
            },
            Kind::Flush => {
                let (fs, ino) = self.inode()?;
                What::Flush {
                    fs,
                    ino,
                    path: self.path()?,
                    code: self.small()?,
                    pages: self.num()?,
                }
            }
            Kind::Truncate => {
                let (fs, ino) = self.inode()?;
                let size = self.num()?.checked_sub(1);
                What::Truncate { fs, ino, size }
            }
            Kind::Wake => What::Wake {
                disk: self.dev()?,
                reason: self.small()?,
            },
            Kind::Lost => What::Lost {
                kind: Kind::from_code(self.small()?)?,
                count: self.num()?,
            },
            Kind::Full => What::Full,
        };
        Some(Event { t_ns, what })
    }

    fn commit(&mut self) -> Option<CommitEvent> {
        let (fs, ino) = self.inode()?;
        let pid = self.pid()?;
        let tid = self.small()?;
        let end_ns = self.num()?;
        let opened_ns = end_ns.wrapping_sub(self.num()?);
        let start_ns = end_ns.wrapping_sub(self.num()?);
        let mut phases = [None; 3];
        for phase in &mut phases {
            let before_end = self.num()?.checked_sub(1);
            *phase = before_end.map(|before| end_ns.wrapping_sub(before));
        }
        let [locking_ns, flushing_ns, logging_ns] = phases;
        Some(CommitEvent {
            fs,
            tid,
            opened_ns,
            start_ns,
            locking_ns,
            flushing_ns,
            logging_ns,
            end_ns,
            handles: self.small()?,
            blocks: self.small()?,
            blocks_logged: self.small()?,
            trigger: CommitTrigger::from_code(self.small()?),
            pid,
            call: self.small()?,
            ino,
        })
    }
}
