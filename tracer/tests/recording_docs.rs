//! Holds docs/recording.md, and its part of docs/json.md, against the code:
//! every number, letter, key and word of the format is there.

mod shared;

use serde_json::Value;
use shared::keys_of;
use std::collections::BTreeSet;
use tracer_common::path;
use writepath::{
    model::{path::Path, trigger::CommitTrigger},
    output::{
        events,
        report::{self, Report},
    },
    recording::{
        self, Column, CommitEvent, Dirtied, Event, Header, Kind, Memory, Reader, Start, What,
        Writer, start,
    },
};

const DOCUMENT: &str = include_str!("../../docs/recording.md");
const JSON: &str = include_str!("../../docs/json.md");

/// Fails with every text that the document lacks.
fn expect(document: &str, texts: impl IntoIterator<Item = String>) {
    let missing: BTreeSet<String> = texts
        .into_iter()
        .filter(|text| !document.contains(text.as_str()))
        .collect();
    assert!(missing.is_empty(), "not in the document: {missing:?}");
}

fn quoted(keys: BTreeSet<String>) -> impl Iterator<Item = String> {
    keys.into_iter().map(|key| format!("`{key}`"))
}

/// A start in which nothing is left out, without what is named by the machine.
fn full_start() -> Start {
    Start {
        schema: start::SCHEMA.to_owned(),
        devices: vec![start::Device {
            filesystems: vec![start::Filesystem::default()],
            ..start::Device::default()
        }],
        lost_hooks: vec![start::LostHook::default()],
        ..Start::default()
    }
}

fn one_of_each() -> Vec<What> {
    let (fs, ino, pid) = (1, 2, 3);
    let dirtied = Dirtied {
        fs,
        ino,
        first: 0,
        last: 1,
        pid,
    };
    let commit = CommitEvent {
        fs,
        tid: 1,
        opened_ns: 0,
        start_ns: 1,
        locking_ns: None,
        flushing_ns: None,
        logging_ns: None,
        end_ns: 2,
        handles: 1,
        blocks: 1,
        blocks_logged: 1,
        trigger: CommitTrigger::Timer,
        pid,
        call: 0,
        ino,
    };
    vec![
        What::Name {
            fs,
            ino,
            name: b"\xff".to_vec(),
            whole: true,
        },
        What::Process {
            pid,
            comm: b"x".to_vec(),
        },
        What::Freed { fs, ino },
        What::Commit(Box::new(commit)),
        What::Memory(Memory::default()),
        What::Sectors {
            disk: fs,
            path: Path::Fsync,
            sectors: 8,
        },
        What::Lost {
            kind: Kind::Write,
            count: 1,
        },
        What::Full,
        What::Write(dirtied),
        What::Store(dirtied),
        What::Touch { fs, ino },
        What::Sync {
            fs,
            ino,
            pid,
            data_only: true,
        },
        What::SyncFs { fs, pid },
        What::Flush {
            fs,
            ino,
            path: Path::Writeback,
            code: 3,
            pages: 1,
        },
        What::Truncate {
            fs,
            ino,
            size: None,
        },
        What::Evict { fs, ino },
        What::Wake {
            disk: fs,
            reason: 3,
        },
    ]
}

#[test]
fn numbers_of_the_format_are_documented() {
    let kinds = Kind::ALL.iter().map(|kind| {
        let mark = if kind.of_writes() { " *w* " } else { " " };
        format!("\n| {} | `{}` |{mark}|", *kind as u8, kind.name())
    });
    expect(DOCUMENT, kinds);
    let columns = Column::NAMES.iter();
    expect(DOCUMENT, columns.map(|name| format!("\n| `{name}` |")));
    let at: Vec<usize> = Column::NAMES
        .iter()
        .filter_map(|name| DOCUMENT.find(&format!("\n| `{name}` |")))
        .collect();
    assert!(at.is_sorted(), "columns are in the order of the file");
    expect(
        DOCUMENT,
        (0..path::COUNT as u8).map(|code| format!("{code} `{}`", Path::from_code(code).name())),
    );
    let triggers = CommitTrigger::ALL.iter();
    expect(
        DOCUMENT,
        triggers.map(|trigger| format!("{} `{}`", trigger.code(), trigger.name())),
    );
}

#[test]
fn sizes_and_letters_are_documented() {
    let header = Header {
        started_at_ns: 1,
        started_ns: 1,
        tick_ns: 4_000_000,
    };
    let mut writer = Writer::new(Vec::new(), header, &full_start()).unwrap();
    writer.push(Event {
        t_ns: 0,
        what: What::Full,
    });
    let bytes = writer.finish(b"{}", 1).unwrap();
    // The letters of the sections that the writer really wrote.
    let mut at = 64;
    let mut letters = Vec::new();
    while at < bytes.len() {
        letters.push(String::from_utf8(bytes[at..at + 4].to_vec()).unwrap());
        let stored: [u8; 4] = bytes[at + 4..at + 8].try_into().unwrap();
        at += 24 + u32::from_le_bytes(stored) as usize;
    }
    assert_eq!(letters, ["STRT", "EVNT", "LEDG", "END "]);
    let rows = letters.iter().map(|letters| format!("\n| `{letters}` |"));
    expect(DOCUMENT, rows);
    let name = String::from_utf8(bytes[..8].to_vec()).unwrap();
    let facts = [
        format!("`{name}`"),
        format!("version, {}", bytes[8]),
        format!("Header, {} bytes", bytes[10]),
        format!("at most {}", recording::MAX_EVENTS),
        format!("at most {} MiB", recording::MAX_LEDGER >> 20),
        format!("a text, at most {}", recording::MAX_NAME),
        format!("in nanoseconds; {}", header.tick_ns),
    ];
    expect(DOCUMENT, facts);
}

#[test]
fn keys_of_start_and_events_are_documented() {
    let start = serde_json::to_value(full_start()).unwrap();
    expect(DOCUMENT, quoted(keys_of(&start)));
    let mut text = Vec::new();
    events::write_head(&mut text).unwrap();
    let all = one_of_each();
    let kinds: BTreeSet<Kind> = all.iter().map(What::kind).collect();
    assert_eq!(kinds.len(), Kind::ALL.len(), "one of each kind");
    for what in all {
        let event = Event { t_ns: 0, what };
        events::write(&mut text, &event, &full_start()).unwrap();
    }
    let mut found = BTreeSet::new();
    for line in text.split(|byte| *byte == b'\n').filter(|l| !l.is_empty()) {
        found.extend(keys_of(&serde_json::from_slice(line).unwrap()));
    }
    expect(DOCUMENT, quoted(found));
    expect(DOCUMENT, [format!("## `{}`", events::SCHEMA)]);
    expect(DOCUMENT, [format!("## `{}`", start::SCHEMA)]);
}

#[test]
fn keys_of_report_are_documented() {
    let header = Header {
        started_at_ns: 1,
        started_ns: 1,
        tick_ns: 4_000_000,
    };
    let bytes = Writer::new(Vec::new(), header, &full_start())
        .and_then(|writer| writer.finish(b"{}", 1))
        .unwrap();
    let mut reader = Reader::open(bytes.as_slice()).unwrap();
    assert_eq!(reader.by_ref().count(), 0);
    let report = Report {
        file: b"\xff".to_vec(),
        header: *reader.header(),
        start: Start::default(),
        totals: reader.totals().clone(),
        ledger: None,
    };
    let mut text = Vec::new();
    report::write_json(&mut text, &[report]).unwrap();
    let mut value: Value = serde_json::from_slice(&text).unwrap();
    value["recordings"][0]["start"] = Value::Null;
    let found = keys_of(&value);
    assert!(found.contains("file_hex"));
    let (_, section) = JSON.split_once("\n## `writepath.report/1`\n").unwrap();
    expect(section, quoted(found));
}
