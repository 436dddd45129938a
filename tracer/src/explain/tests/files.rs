//! Whatever a file says: refused, or explained soundly.

use super::made::*;
use crate::explain::{read, *};
use crate::recording::{Dirtied, Event, Header, Start, What, Writer};
use proptest::prelude::*;
use serde_json::{Value, json};

#[test]
fn files_of_others_are_refused() {
    let errors = [
        (&b""[..], "schema is none"),
        (b"{}", "schema is "),
        (b"\x7fELF", "not the output"),
        (
            b"{\"schema\": \"writepath.doctor/1\"}",
            "writepath.doctor/1",
        ),
        (b"{\"schema\": \"writepath.trace/1\"}", "no device"),
        (
            b"{\"schema\": \"writepath.trace/1\"}\n{\"schema\": \"writepath.trace/1\"}",
            "several",
        ),
        (
            b"{\"schema\": \"writepath.experiment/1\"}",
            "no finished block",
        ),
        (
            b"{\"schema\": \"writepath.trace/1\", \"devices\": [{\"sectors_written\": -1}]}",
            "not the output",
        ),
    ];
    for (text, part) in errors {
        let error = read::any(text, None).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    let error = read::any(&synced(3).json(), Some("sda"))
        .unwrap_err()
        .to_string();
    assert!(error.contains("no device sda; there is loop0"), "{error}");
    assert!(read::any(&synced(3).json(), Some("/dev/loop0")).is_ok());
}

/// A recording of one page that is written again every 20 s, with this ledger.
fn recording(ledger: &[u8]) -> Vec<u8> {
    let header = Header {
        started_at_ns: 1,
        started_ns: 1,
        tick_ns: 4_000_000,
    };
    let start = Start {
        writes: true,
        reasons: [(3, "periodic".to_owned())].into(),
        ..Start::default()
    };
    let mut writer = Writer::new(Vec::new(), header, &start).unwrap();
    for n in 0..15 {
        let dirtied = Dirtied {
            fs: 7 << 20,
            ino: 12,
            first: 0,
            last: 0,
            pid: 7,
        };
        writer.push(Event {
            t_ns: n * 20_000_000_000,
            what: What::Write(dirtied),
        });
    }
    writer.seal(300_000_000_000).unwrap();
    writer.finish(ledger, 300_000_000_000).unwrap()
}

#[test]
fn a_recording_has_an_estimate_beside_the_ceiling() {
    let bytes = recording(&board().json());
    let evidence = read::any(&bytes, None).unwrap();
    assert_eq!(evidence.source, Source::Recording);
    let asked = ["dirty_expire_centisecs=6000".parse().unwrap()];
    let found = explain(&evidence, &asked).devices.remove(0);
    holds(&found);
    let value = &of(&found, Lever::Expire).named[0];
    let estimate = value.estimate.unwrap();
    assert!(estimate > 0 && estimate <= value.ceiling, "{value:?}");
    says(
        &found,
        Lever::Expire,
        &["The writes that were recorded tell of"],
    );
    // The same ledger without writes has none.
    assert_eq!(
        of(
            &board().explain(&["dirty_expire_centisecs=6000"]),
            Lever::Expire
        )
        .named[0]
            .estimate,
        None
    );
    for cut in 0..bytes.len() {
        assert!(read::any(&bytes[..cut], None).is_err(), "cut at {cut}");
    }
}

fn any_row() -> impl Strategy<Value = Value> {
    let paths = prop::sample::select(vec![
        "writeback",
        "fsync",
        "ordered",
        "journal",
        "metadata",
        "direct",
        "forced",
        "swap",
        "fs",
        "raw",
        "other",
        "unattributed",
        "in_flight_before",
        "new",
    ]);
    let triggers = prop::sample::select(vec![
        "periodic",
        "background",
        "sync",
        "timer",
        "fsync",
        "space",
        "unknown",
        "close",
        "checkpoint",
        "reason-9",
        "\u{1b}[2J",
    ]);
    let sectors = prop_oneof![0u64..100_000, Just(u64::MAX)];
    (paths, triggers, sectors)
        .prop_map(|(path, trigger, sectors)| row(path, trigger, sectors, &by("a\nb", "x")))
}

proptest! {
    /// Whatever a file says, the explanation is sound.
    #[test]
    fn explanations_are_sound(
        rows in prop::collection::vec(any_row(), 0..12),
        written in prop_oneof![0u64..1_000_000, Just(u64::MAX)],
        times in prop::collection::vec((-1e9f64..1e9, 0u64..u64::MAX, 0u64..u64::MAX), 0..12),
        duration in prop_oneof![Just(0.0), -1e300f64..1e300],
        expire in 0u64..u64::MAX, tick in 0u64..10_000, commit in 0u64..10_000,
    ) {
        let list: Vec<Value> = times
            .iter()
            .enumerate()
            .map(|(index, (t_s, age_us, sectors))| json!({
                "fs_dev": "7:0", "trigger": (["timer", "fsync", "unknown"][index % 3]),
                "by": "x", "file": null, "t_s": t_s, "age_us": age_us, "sectors": sectors,
                "ordered_sectors": sectors}))
            .collect();
        let mut made = Made::new(duration, rows)
            .knob("vm.dirty_expire_centisecs", expire)
            .knob("vm.dirty_writeback_centisecs", tick)
            .knob("commit", commit)
            .commits(vec![group("timer", u64::MAX, 8, &json!({})),
                group("fsync", u64::MAX, 8, &json!({}))], list);
        made.memory = json!({"samples": 1, "dirty_bytes_max": expire,
            "background_bytes_min": tick, "threshold_bytes_min": commit});
        let device = {
            let rows = std::mem::take(&mut made.rows);
            let mut device = made.device();
            device["paths"] = json!(rows);
            device["sectors_written"] = json!(written);
            device
        };
        let text = json!({"schema": "writepath.trace/1", "duration_s": duration,
            "devices": [device]}).to_string();
        let evidence = read::any(text.as_bytes(), None).unwrap();
        let asked: Vec<Asked> = ["commit=30", "dirty_expire_centisecs=6000", "dirty_writeback_centisecs=0",
            "dirty_ratio=100", "dirty_background_bytes=1"].map(|text| text.parse().unwrap()).to_vec();
        let explanation = explain(&evidence, &asked);
        holds(&explanation.devices[0]);
        let mut out = Vec::new();
        crate::output::explain::write(&mut out, &explanation).unwrap();
        let out = String::from_utf8(out).unwrap();
        for line in out.lines() {
            prop_assert!(line.chars().count() <= 80, "{}", line);
            prop_assert!(!line.contains(char::is_control), "{}", line);
        }
    }

    /// Other numbers, other statements.
    #[test]
    fn statements_follow_the_numbers(a in 10u32..400, b in 10u32..400) {
        prop_assume!(a != b);
        let (one, two) = (synced(a).explain(&[]), synced(b).explain(&[]));
        prop_assert_ne!(&one.sentence, &two.sentence);
        prop_assert_ne!(&of(&one, Lever::Commit).sentence, &of(&two, Lever::Commit).sentence);
    }

    /// Bytes that are no file of ours are an error, never a panic.
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200),
                                     cut in 0usize..4000) {
        let _ = read::any(&bytes, None);
        let text = board().json();
        let _ = read::any(&text[..cut.min(text.len())], None);
    }
}
