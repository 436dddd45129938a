//! Reads a recording: an iterator of its events in order of time.

use super::{
    codec,
    event::{Event, Kind, What},
    format::{self, End, FormatError, HEADER_BYTES, Header, MAX_LEDGER, Next, fill, read_section},
    start::Start,
};
use std::{collections::BTreeMap, io::Read, vec};

/// What was found so far; complete when the iterator has ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Totals {
    /// Events by kind.
    pub events: BTreeMap<Kind, u64>,
    /// Lost events by kind.
    pub lost: BTreeMap<Kind, u64>,
    /// When writes stopped being kept: the budget was used up.
    pub full_ns: Option<u64>,
    /// Time of the last event.
    pub last_ns: u64,
    /// Bytes of the file by kind of section, headers with them.
    pub bytes: BTreeMap<&'static str, u64>,
    /// How it ended; none where the recording was cut short.
    pub end: Option<End>,
    /// Why nothing could be read beyond a place: it was cut short or damaged.
    pub cut: Option<String>,
    /// Sections that were passed over because they are damaged.
    pub damaged: u64,
    /// Sections of a later version that were passed over.
    pub unknown: u64,
}

/// A recording that is being read.
pub struct Reader<R: Read> {
    from: R,
    header: Header,
    start: Start,
    at: u64,
    events: vec::IntoIter<Event>,
    ledger: Vec<u8>,
    whole_ledger: bool,
    totals: Totals,
    done: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the header and the start.
    pub fn open(mut from: R) -> Result<Self, FormatError> {
        let mut bytes = [0; HEADER_BYTES];
        if fill(&mut from, &mut bytes)? < HEADER_BYTES {
            let ours = bytes.starts_with(&format::MAGIC);
            return Err(if ours {
                FormatError::Header("it is cut short")
            } else {
                FormatError::NotOurs
            });
        }
        let header = Header::from_bytes(&bytes)?;
        let unreadable = |why: &str| FormatError::Start(why.to_owned());
        let (json, size) = match read_section(&mut from)? {
            Next::Whole(format::START, json, size) => (json, size),
            Next::Whole(..) => return Err(unreadable("another section is in its place")),
            Next::Damaged(why, _) | Next::Cut(why) => return Err(unreadable(why)),
            Next::Nothing => return Err(unreadable("the file ends before it")),
        };
        let start: Start =
            serde_json::from_slice(&json).map_err(|error| unreadable(&error.to_string()))?;
        let mut totals = Totals::default();
        totals.bytes.insert("header", HEADER_BYTES as u64);
        totals.bytes.insert("start", size);
        Ok(Self {
            from,
            header,
            start,
            at: HEADER_BYTES as u64 + size,
            events: Vec::new().into_iter(),
            ledger: Vec::new(),
            whole_ledger: true,
            totals,
            done: false,
        })
    }

    /// The file's header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The machine when the recording began.
    pub fn start(&self) -> &Start {
        &self.start
    }

    /// What was found so far.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// JSON text of `writepath.trace/1` for the whole run, once all events
    /// were taken; none where the recording was cut short.
    pub fn ledger(&self) -> Option<&str> {
        let whole = self.whole_ledger && self.totals.end.is_some() && !self.ledger.is_empty();
        whole
            .then(|| std::str::from_utf8(&self.ledger).ok())
            .flatten()
    }

    fn cut(&mut self, why: &str) {
        self.totals.cut = Some(format!("{why}, at byte {}", self.at));
        self.done = true;
    }

    /// Takes the next section; an error is one of the file beneath.
    fn section(&mut self) -> Result<(), FormatError> {
        match read_section(&mut self.from)? {
            Next::Nothing => {
                if self.totals.end.is_none() {
                    self.cut("it ends without an end: the recorder was killed");
                }
                self.done = true;
            }
            Next::Cut(why) => self.cut(why),
            Next::Damaged(_, size) => {
                self.totals.damaged += 1;
                // It may have been a part of the ledger.
                self.whole_ledger = false;
                self.at += size;
            }
            Next::Whole(tag, payload, size) => {
                self.payload(tag, payload, size);
                self.at += size;
            }
        }
        Ok(())
    }

    fn payload(&mut self, tag: format::Tag, payload: Vec<u8>, size: u64) {
        let name = match tag {
            format::EVENTS => match codec::decode(&payload, self.header.tick_ns) {
                Some(events) => {
                    self.events = events.into_iter();
                    "events"
                }
                None => return self.totals.damaged += 1,
            },
            format::LEDGER => {
                if self.ledger.len() + payload.len() > MAX_LEDGER {
                    self.whole_ledger = false;
                } else {
                    self.ledger.extend(payload);
                }
                "ledger"
            }
            format::END => match End::from_bytes(&payload) {
                Some(end) => {
                    self.totals.end = Some(end);
                    self.done = true;
                    "end"
                }
                None => return self.totals.damaged += 1,
            },
            _ => return self.totals.unknown += 1,
        };
        *self.totals.bytes.entry(name).or_default() += size;
    }

    fn count(&mut self, event: &Event) {
        let totals = &mut self.totals;
        *totals.events.entry(event.what.kind()).or_default() += 1;
        totals.last_ns = totals.last_ns.max(event.t_ns);
        match &event.what {
            What::Lost { kind, count } => {
                let lost = totals.lost.entry(*kind).or_default();
                *lost = lost.saturating_add(*count);
            }
            What::Full if totals.full_ns.is_none() => totals.full_ns = Some(event.t_ns),
            _ => {}
        }
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Event, FormatError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(event) = self.events.next() {
                self.count(&event);
                return Some(Ok(event));
            }
            if self.done {
                return None;
            }
            if let Err(error) = self.section() {
                self.done = true;
                return Some(Err(error));
            }
        }
    }
}
