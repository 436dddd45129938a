//! Recordings there and back, cut at any byte, and with bytes turned around.

use super::{
    CommitEvent, Dirtied, End, Event, FormatError, Header, Kind, Memory, Reader, Start, What,
    Writer, codec, format,
};
use crate::model::{path::Path, trigger::CommitTrigger};
use proptest::{collection::vec, prelude::*};

const TICK_NS: u32 = 4_000_000;

fn header() -> Header {
    Header {
        started_at_ns: 1_790_000_000_000_000_000,
        started_ns: 77,
        tick_ns: TICK_NS,
    }
}

fn start() -> Start {
    Start {
        schema: super::start::SCHEMA.to_owned(),
        kernel: "6.1.0".to_owned(),
        ..Start::default()
    }
}

const LEDGER: &str = "{\"schema\": \"writepath.trace/1\"}";

/// A recording with these events, sealed in two parts.
fn recording(events: &[Event]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), header(), &start()).unwrap();
    for event in events {
        writer.push(event.clone());
    }
    let middle = events.get(events.len() / 2).map_or(0, |event| event.t_ns);
    writer.seal(middle).unwrap();
    writer.finish(LEDGER.as_bytes(), 5).unwrap()
}

/// Reads to the end; what was read, and the reader.
fn read(bytes: &[u8]) -> Result<(Vec<Event>, Reader<&[u8]>), FormatError> {
    let mut reader = Reader::open(bytes)?;
    let events = reader.by_ref().collect::<Result<Vec<_>, _>>()?;
    Ok((events, reader))
}

fn dirtied() -> impl Strategy<Value = Dirtied> {
    (
        any::<u32>(),
        any::<u64>(),
        any::<u64>(),
        0..300_u64,
        any::<u32>(),
    )
        .prop_map(|(fs, ino, first, len, pid)| Dirtied {
            fs,
            ino,
            first,
            last: first.saturating_add(len),
            pid,
        })
}

fn commit() -> impl Strategy<Value = CommitEvent> {
    let phases = any::<[Option<u32>; 3]>();
    let numbers = any::<(u32, u32, u32, u32, u32, u16, u64)>();
    let times = (1_u64 << 40..1_u64 << 60, any::<(u32, u32)>());
    (numbers, times, phases, any::<u8>()).prop_map(|(numbers, times, phases, trigger)| {
        let (fs, tid, handles, blocks, pid, call, ino) = numbers;
        let (end_ns, (opened, began)) = times;
        let phase = |at: usize| phases[at].map(|before| end_ns - u64::from(before));
        CommitEvent {
            fs,
            tid,
            opened_ns: end_ns - u64::from(opened),
            start_ns: end_ns - u64::from(began),
            locking_ns: phase(0),
            flushing_ns: phase(1),
            logging_ns: phase(2),
            end_ns,
            handles,
            blocks,
            blocks_logged: blocks.wrapping_add(2),
            trigger: CommitTrigger::from_code(trigger),
            pid,
            call,
            ino,
        }
    })
}

fn what() -> impl Strategy<Value = What> {
    let inode = (any::<u32>(), any::<u64>());
    let path = (0..20_u8).prop_map(Path::from_code);
    let name = (inode, vec(any::<u8>(), 0..40), any::<bool>());
    let sync = (inode, any::<u32>(), any::<bool>());
    let flush = (inode, path.clone(), any::<(u16, u64)>());
    prop_oneof![
        dirtied().prop_map(What::Write),
        dirtied().prop_map(What::Store),
        inode.prop_map(|(fs, ino)| What::Touch { fs, ino }),
        inode.prop_map(|(fs, ino)| What::Evict { fs, ino }),
        inode.prop_map(|(fs, ino)| What::Freed { fs, ino }),
        name.prop_map(|((fs, ino), name, whole)| What::Name {
            fs,
            ino,
            name,
            whole
        }),
        (any::<u32>(), vec(any::<u8>(), 0..16)).prop_map(|(pid, comm)| What::Process { pid, comm }),
        sync.prop_map(|((fs, ino), pid, data_only)| What::Sync {
            fs,
            ino,
            pid,
            data_only
        }),
        any::<(u32, u32)>().prop_map(|(fs, pid)| What::SyncFs { fs, pid }),
        flush.prop_map(|((fs, ino), path, (code, pages))| What::Flush {
            fs,
            ino,
            path,
            code,
            pages
        }),
        (inode, proptest::option::of(0..u64::MAX - 1))
            .prop_map(|((fs, ino), size)| What::Truncate { fs, ino, size }),
        any::<(u32, u16)>().prop_map(|(disk, reason)| What::Wake { disk, reason }),
        (any::<u32>(), path, any::<u64>()).prop_map(|(disk, path, sectors)| What::Sectors {
            disk,
            path,
            sectors
        }),
        any::<[u64; 4]>().prop_map(|[dirty, writeback, threshold, background]| {
            What::Memory(Memory {
                dirty,
                writeback,
                threshold,
                background,
            })
        }),
        commit().prop_map(|commit| What::Commit(Box::new(commit))),
        any::<u32>().prop_map(|count| What::Lost {
            kind: Kind::Write,
            count: count.into()
        }),
        Just(What::Full),
    ]
}

/// Events in order, at whole ticks.
fn events(most: usize) -> impl Strategy<Value = Vec<Event>> {
    vec((0..5_u64, what()), 0..most).prop_map(|steps| {
        let mut tick = 3;
        let event = |(step, what)| {
            tick += step;
            Event {
                t_ns: tick * u64::from(TICK_NS),
                what,
            }
        };
        steps.into_iter().map(event).collect()
    })
}

fn write(t_ns: u64, ino: u64, first: u64, last: u64) -> Event {
    let dirtied = Dirtied {
        fs: 7 << 20,
        ino,
        first,
        last,
        pid: 42,
    };
    Event {
        t_ns,
        what: What::Write(dirtied),
    }
}

#[test]
fn every_kind_has_a_code_and_a_word_of_its_own() {
    for kind in Kind::ALL {
        assert_eq!(Kind::from_code(*kind as u8), Some(*kind));
        let same = Kind::ALL.iter().filter(|other| other.name() == kind.name());
        assert_eq!(same.count(), 1, "{}", kind.name());
    }
}

#[test]
fn events_are_sorted_and_quantised() {
    let mut writer = Writer::new(Vec::new(), header(), &start()).unwrap();
    writer.push(write(9_000_001, 2, 0, 0));
    writer.push(write(5_000_000, 1, 0, 0));
    writer.push(write(20_000_000, 3, 0, 0));
    writer.seal(10_000_000).unwrap();
    assert_eq!(writer.pending(), 1);
    let bytes = writer.finish(LEDGER.as_bytes(), 30_000_000).unwrap();
    let (events, reader) = read(&bytes).unwrap();
    let times: Vec<u64> = events.iter().map(|event| event.t_ns).collect();
    assert_eq!(times, [4_000_000, 8_000_000, 20_000_000]);
    assert_eq!(reader.ledger(), Some(LEDGER));
    let end = reader.totals().end.unwrap();
    assert_eq!((end.events, end.duration_ns), (3, 30_000_000));
    assert_eq!(reader.totals().cut, None);
    let sum: u64 = reader.totals().bytes.values().sum();
    assert_eq!(sum, bytes.len() as u64);
}

#[test]
fn a_steady_writer_costs_about_a_byte_a_write() {
    // Each of 50 files once a period, the same page again.
    let events: Vec<Event> = (0..10_000_u64)
        .map(|n| write(n * 3_000_000, 13 + n * 7 % 50, 4, 4))
        .collect();
    let raw = codec::encode(&events, TICK_NS);
    let mut bytes = Vec::new();
    let size = format::write_section(&mut bytes, format::EVENTS, &raw).unwrap();
    assert!(size < 10_000, "{size}");
}

#[test]
fn losses_and_the_full_budget_are_counted() {
    let lost = |count| Event {
        t_ns: 8_000_000,
        what: What::Lost {
            kind: Kind::Write,
            count,
        },
    };
    let full = Event {
        t_ns: 12_000_000,
        what: What::Full,
    };
    let bytes = recording(&[lost(3), lost(4), full]);
    let (_, reader) = read(&bytes).unwrap();
    let totals = reader.totals();
    assert_eq!(totals.lost[&Kind::Write], 7);
    assert_eq!(totals.full_ns, Some(12_000_000));
    let end = totals.end.unwrap();
    assert_eq!((end.lost, end.full_ns), (7, 12_000_000));
}

#[test]
fn what_is_no_recording_is_told() {
    let open = |bytes: &[u8]| Reader::open(bytes).err().unwrap();
    assert!(matches!(open(b""), FormatError::NotOurs));
    assert!(matches!(open(&[b'x'; 100]), FormatError::NotOurs));
    let mut bytes = recording(&[]);
    bytes[8] = 9;
    assert!(matches!(open(&bytes), FormatError::Version(9)));
    bytes[8] = 1;
    bytes[17] ^= 1;
    assert!(matches!(open(&bytes), FormatError::Header(_)));
    let none = Header {
        tick_ns: 0,
        ..header()
    };
    assert!(matches!(open(&none.to_bytes()), FormatError::Header(_)));
    assert!(matches!(open(&header().to_bytes()), FormatError::Start(_)));
}

#[test]
fn a_damaged_section_is_passed_over_and_counted() {
    let events = [write(4_000_000, 1, 0, 0), write(8_000_000, 2, 0, 0)];
    let bytes = recording(&events);
    // The first section of events follows the header and the start.
    let mut start = &bytes[format::HEADER_BYTES..];
    let format::Next::Whole(format::START, _, size) = format::read_section(&mut start).unwrap()
    else {
        panic!("no start");
    };
    let mut damaged = bytes.clone();
    damaged[format::HEADER_BYTES + size as usize + format::SECTION_BYTES + 2] ^= 0xff;
    let (left, reader) = read(&damaged).unwrap();
    assert_eq!(left, events[1..]);
    assert_eq!(reader.totals().damaged, 1);
}

#[test]
fn an_inflating_bomb_is_stopped_at_its_stated_size() {
    let zeroes = vec![0; format::MAX_RAW as usize];
    let mut bytes = Vec::new();
    format::write_section(&mut bytes, format::EVENTS, &zeroes).unwrap();
    // It says that it is small.
    bytes[8..12].copy_from_slice(&64_u32.to_le_bytes());
    let sum = crc32fast::hash(&bytes[..20]);
    bytes[20..24].copy_from_slice(&sum.to_le_bytes());
    let next = format::read_section(&mut bytes.as_slice()).unwrap();
    assert!(matches!(next, format::Next::Damaged(..)), "{next:?}");
}

#[test]
fn many_long_names_are_split_over_sections() {
    let name = |n: u64| Event {
        t_ns: n * 4_000_000,
        what: What::Name {
            fs: 1,
            ino: n,
            name: vec![b'x'; format::MAX_NAME],
            whole: true,
        },
    };
    let events: Vec<Event> = (0..5_000).map(name).collect();
    let (back, reader) = {
        let bytes = recording(&events);
        let (back, reader) = read(&bytes).unwrap();
        (back, reader.totals().clone())
    };
    assert_eq!(back, events);
    assert_eq!(reader.cut, None);
}

proptest! {
    #[test]
    fn events_come_back(events in events(60)) {
        let bytes = recording(&events);
        let (back, reader) = read(&bytes).unwrap();
        prop_assert_eq!(back, events);
        prop_assert_eq!(reader.start(), &start());
        prop_assert_eq!(reader.ledger(), Some(LEDGER));
    }

    #[test]
    fn a_cut_recording_reads_to_its_last_whole_section(events in events(30), at in 0..4000_usize) {
        let bytes = recording(&events);
        let at = at.min(bytes.len());
        match read(&bytes[..at]) {
            Err(_) => prop_assert!(at < bytes.len()),
            Ok((back, reader)) => {
                prop_assert!(events.starts_with(&back));
                prop_assert_eq!(reader.totals().cut.is_some(), at < bytes.len());
                prop_assert_eq!(reader.ledger().is_some(), at == bytes.len());
                prop_assert_eq!(reader.totals().damaged, 0);
            }
        }
    }

    #[test]
    fn turned_bytes_are_told_and_never_a_panic(
        events in events(30),
        turns in vec((0..4000_usize, 1..=255_u8), 1..4),
    ) {
        let whole = recording(&events);
        let mut bytes = whole.clone();
        for (at, turn) in turns {
            let len = bytes.len();
            bytes[at % len] ^= turn;
        }
        if let Ok((back, reader)) = read(&bytes) {
            let totals = reader.totals();
            let told = totals.cut.is_some() || totals.damaged > 0;
            prop_assert!(told || bytes == whole);
            prop_assert!(back.len() <= events.len());
        }
    }

    #[test]
    fn sections_with_right_checksums_and_wrong_bytes_decode_or_do_not(
        events in events(30),
        turns in vec((0..4000_usize, 1..=255_u8), 1..6),
    ) {
        let mut raw = codec::encode(&events, TICK_NS);
        for (at, turn) in turns {
            let len = raw.len();
            raw[at % len] ^= turn;
        }
        if let Some(back) = codec::decode(&raw, TICK_NS) {
            prop_assert_eq!(back.len(), events.len());
        }
    }

    #[test]
    fn any_bytes_are_taken(bytes in vec(any::<u8>(), 0..400)) {
        let _ = codec::decode(&bytes, TICK_NS);
        let _ = read(&bytes);
        let _ = read(&[&header().to_bytes()[..], &bytes].concat());
        let _ = End::from_bytes(&bytes);
    }
}
