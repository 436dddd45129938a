//! What people read, letter by letter: each sentence must be true of the made
//! numbers, and fit for a bug report.

use super::made::*;
use crate::explain::{read, *};
use serde_json::json;

fn shown(text: &[u8], asked: &[&str]) -> String {
    let asked: Vec<Asked> = asked.iter().map(|text| text.parse().unwrap()).collect();
    let explanation = explain(&read::any(text, None).unwrap(), &asked);
    let mut out = Vec::new();
    crate::output::explain::write(&mut out, &explanation).unwrap();
    String::from_utf8(out).unwrap()
}

fn golden(found: &str, expected: &str) {
    assert!(
        found == expected,
        "another text than the golden one:\n{found}"
    );
}

/// Many small files, and one that is synced every 30 s.
#[test]
fn a_board() {
    let made = board();
    let found = shown(&made.json(), &["commit=30", "commit=60"]);
    golden(
        &found,
        include_str!("../../../tests/fixtures/explain/board.golden"),
    );
}

/// The same under two more profiles.
#[test]
fn an_experiment() {
    let made = board();
    let found = shown(
        &made.experiment("commit-60", "commit", 60, &[0.96, 0.965, 0.955]),
        &[],
    );
    golden(
        &found,
        include_str!("../../../tests/fixtures/explain/experiment.golden"),
    );
}

/// A camera: more is dirty than the threshold, and some is written directly.
#[test]
fn a_camera() {
    let mut made = Made::new(
        120.0,
        vec![
            row("writeback", "background", 900_000, &json!([])),
            row("direct", "pwrite64", 300_000, &by("recorder", "pwrite64")),
            row("forced", "rename", 2_000, &by("settings", "renameat2")),
            row("metadata", "background", 1_200, &json!([])),
            row("journal", "space", 800, &json!([])),
            row("unattributed", "unknown", 16, &json!([])),
        ],
    );
    made.groups = vec![group("space", 4, 800, &json!({}))];
    made.memory["dirty_bytes_max"] = json!(130 * MIB);
    made.files = json!([{"file": "etc/settings.json", "sectors": 2000,
        "paths": [{"path": "forced", "sectors": 2000}]}]);
    let found = shown(
        &made.json(),
        &["dirty_background_ratio=15", "dirty_expire_centisecs=6000"],
    );
    golden(
        &found,
        include_str!("../../../tests/fixtures/explain/camera.golden"),
    );
}
