//! Writes a recording as it goes: what is sealed is whole in the file.

use super::{
    codec,
    event::{Event, Kind, What},
    format::{self, End, Header, MAX_EVENTS, MAX_LEDGER, write_section},
    start::Start,
};
use std::{
    collections::BTreeMap,
    io::{self, Write},
};

/// Bytes of the ledger in one section.
const LEDGER_PART: usize = 1 << 20;

/// Bytes of an event without its texts, at most: the longest is a commit.
const EVENT: usize = 180;
/// Bytes of a section's events, with room to [`format::MAX_RAW`].
const ROOM: usize = 12 << 20;

/// How many events fit a section.
fn fitting(events: &[Event]) -> usize {
    let mut bytes = 0;
    let fits = events.iter().take(MAX_EVENTS).take_while(|event| {
        bytes += EVENT
            + match &event.what {
                What::Name { name, .. } => name.len(),
                What::Process { comm, .. } => comm.len(),
                _ => 0,
            };
        bytes <= ROOM
    });
    fits.count().max(1)
}

/// A recording that is being written.
pub struct Writer<W: Write> {
    out: W,
    tick_ns: u32,
    pending: Vec<Event>,
    bytes: u64,
    events: u64,
    lost: BTreeMap<Kind, u64>,
    full_ns: u64,
}

impl<W: Write> Writer<W> {
    /// Writes the header and the start.
    pub fn new(mut out: W, header: Header, start: &Start) -> io::Result<Self> {
        out.write_all(&header.to_bytes())?;
        let json = serde_json::to_vec(start).map_err(io::Error::from)?;
        let bytes = write_section(&mut out, format::START, &json)?;
        out.flush()?;
        Ok(Self {
            out,
            tick_ns: header.tick_ns,
            pending: Vec::new(),
            bytes: format::HEADER_BYTES as u64 + bytes,
            events: 0,
            lost: BTreeMap::new(),
            full_ns: 0,
        })
    }

    /// Takes an event; events may come a little out of order.
    pub fn push(&mut self, event: Event) {
        match &event.what {
            What::Lost { kind, count } => *self.lost.entry(*kind).or_default() += count,
            What::Full => self.full_ns = event.t_ns.max(1),
            _ => {}
        }
        self.pending.push(event);
    }

    /// Events that are not sealed yet.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Events that are sealed.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// When writes stopped being kept, in nanoseconds from the start.
    pub fn full_ns(&self) -> Option<u64> {
        (self.full_ns != 0).then_some(self.full_ns)
    }

    /// Bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Events lost so far, by kind.
    pub fn lost(&self) -> &BTreeMap<Kind, u64> {
        &self.lost
    }

    /// Writes what was before `before_ns`, in order of time.
    pub fn seal(&mut self, before_ns: u64) -> io::Result<()> {
        self.pending.sort_by_key(|event| event.t_ns);
        let count = self.pending.partition_point(|event| event.t_ns < before_ns);
        let rest = self.pending.split_off(count);
        let sealed = std::mem::replace(&mut self.pending, rest);
        let mut left = sealed.as_slice();
        while !left.is_empty() {
            let (chunk, rest) = left.split_at(fitting(left));
            left = rest;
            let raw = codec::encode(chunk, self.tick_ns);
            self.bytes += write_section(&mut self.out, format::EVENTS, &raw)?;
            self.events += chunk.len() as u64;
        }
        self.out.flush()
    }

    /// Writes what is left, the ledger of the whole run (JSON text of
    /// `writepath.trace/1`), and the end.
    pub fn finish(mut self, ledger: &[u8], duration_ns: u64) -> io::Result<W> {
        self.seal(u64::MAX)?;
        if ledger.len() > MAX_LEDGER {
            return Err(io::Error::other("the ledger is too large for a recording"));
        }
        for part in ledger.chunks(LEDGER_PART) {
            write_section(&mut self.out, format::LEDGER, part)?;
        }
        let end = End {
            duration_ns,
            events: self.events,
            lost: self.lost.values().sum(),
            full_ns: self.full_ns,
        };
        write_section(&mut self.out, format::END, &end.to_bytes())?;
        self.out.flush()?;
        Ok(self.out)
    }
}
