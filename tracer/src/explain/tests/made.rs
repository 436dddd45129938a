//! Made traces: rows, commits and knobs as a test wants them.

use crate::explain::{read, *};
use serde_json::{Value, json};

/// A row of `paths`.
pub fn row(path: &str, trigger: &str, sectors: u64, by: &Value) -> Value {
    json!({"path": path, "trigger": trigger, "class": "x", "op": "write",
           "sectors": sectors, "bios": 1, "by": by})
}

pub fn by(comm: &str, call: &str) -> Value {
    json!([{"pid": 7, "comm": comm, "call": call, "sectors": 1}])
}

/// One commit, `every` seconds after the one before.
pub fn commits(trigger: &str, count: u32, every: f64, sectors: u64, who: &Value) -> Vec<Value> {
    (1..=count)
        .map(|n| {
            let mut one = json!({"fs_dev": "7:0", "tid": n, "trigger": trigger,
                "by": null, "pid": null, "call": null, "file": null,
                "t_s": f64::from(n) * every, "age_us": (every * 0.98e6) as u64,
                "sectors": sectors, "ordered_sectors": 0});
            merge(&mut one, who);
            one
        })
        .collect()
}

pub fn merge(into: &mut Value, more: &Value) {
    for (key, value) in more.as_object().into_iter().flatten() {
        into[key] = value.clone();
    }
}

pub fn group(trigger: &str, count: u64, sectors: u64, who: &Value) -> Value {
    let mut one = json!({"fs_dev": "7:0", "trigger": trigger, "by": null, "pid": null,
        "call": null, "file": null, "count": count, "sectors": sectors});
    merge(&mut one, who);
    one
}

/// A trace of one disk; its sectors are the sum of its rows.
pub struct Made {
    pub rows: Vec<Value>,
    pub groups: Vec<Value>,
    pub list: Option<Vec<Value>>,
    pub files: Value,
    pub duration_s: f64,
    pub memory: Value,
    pub knobs: Vec<(&'static str, u64)>,
    pub still_dirty: u64,
}

pub const MIB: u64 = 1 << 20;

impl Made {
    pub fn new(duration_s: f64, rows: Vec<Value>) -> Self {
        Self {
            rows,
            groups: Vec::new(),
            list: Some(Vec::new()),
            files: json!([]),
            duration_s,
            memory: json!({"samples": 120, "dirty_bytes_max": 20 * MIB,
                "background_bytes_min": 100 * MIB, "threshold_bytes_min": 200 * MIB}),
            knobs: vec![
                ("vm.dirty_background_bytes", 0),
                ("vm.dirty_background_ratio", 10),
                ("vm.dirty_bytes", 0),
                ("vm.dirty_expire_centisecs", 3000),
                ("vm.dirty_ratio", 20),
                ("vm.dirty_writeback_centisecs", 500),
                ("commit", 5),
            ],
            still_dirty: 0,
        }
    }

    pub fn commits(mut self, groups: Vec<Value>, list: Vec<Value>) -> Self {
        self.groups = groups;
        self.list = Some(list);
        self
    }

    pub fn knob(mut self, name: &str, to: u64) -> Self {
        for (own, value) in &mut self.knobs {
            if *own == name {
                *value = to;
            }
        }
        self
    }

    pub fn sectors(&self) -> u64 {
        let sectors = self.rows.iter().map(|row| row["sectors"].as_u64().unwrap());
        sectors.sum()
    }

    pub fn device(&self) -> Value {
        let knobs: Vec<Value> = self
            .knobs
            .iter()
            .map(|(knob, value)| {
                let fs_dev = (*knob == "commit").then_some("7:0");
                json!({"knob": knob, "value": value, "fs_dev": fs_dev})
            })
            .collect();
        json!({"name": "loop0", "dev": "7:0", "sectors_written": self.sectors(),
            "residual": 0, "still_dirty_bytes": self.still_dirty, "paths": self.rows,
            "files": self.files, "age_us": [],
            "journal": {"commits": self.groups, "commit_list": self.list},
            "knobs": knobs, "memory": self.memory, "notes": []})
    }

    pub fn json(&self) -> Vec<u8> {
        json!({"schema": "writepath.trace/1", "kernel": "6.12.0", "duration_s": self.duration_s,
            "lost": {}, "devices": [self.device()]})
        .to_string()
        .into_bytes()
    }

    pub fn explain(&self, asked: &[&str]) -> DeviceFindings {
        let evidence = read::any(&self.json(), None).unwrap();
        let asked: Vec<Asked> = asked.iter().map(|text| text.parse().unwrap()).collect();
        let found = explain(&evidence, &asked).devices.remove(0);
        holds(&found);
        found
    }
}

/// What is true of every explanation.
pub fn holds(found: &DeviceFindings) {
    let tenths: u64 = found.parts.iter().map(|part| part.tenths).sum();
    assert!(found.parts.is_empty() || tenths == 1000, "{tenths}");
    for finding in &found.findings {
        assert!(finding.ceiling <= found.sectors_written);
        assert!(finding.ceiling + finding.indirect <= found.sectors_written);
        for value in &finding.named {
            assert!(value.ceiling <= finding.ceiling, "{value:?}");
        }
    }
}

pub fn of(found: &DeviceFindings, lever: Lever) -> &Finding {
    let own = found.findings.iter().find(|own| own.lever == lever);
    own.unwrap()
}

pub fn ceilings(found: &DeviceFindings) -> [u64; 5] {
    Lever::ALL.map(|lever| of(found, lever).ceiling)
}

pub fn says(found: &DeviceFindings, lever: Lever, parts: &[&str]) {
    let sentence = &of(found, lever).sentence;
    for part in parts {
        assert!(sentence.contains(part), "no {part:?} in: {sentence}");
    }
}

/// A logger that syncs once a second.
pub fn synced(count: u32) -> Made {
    let who = json!({"by": "logger", "pid": 7, "call": "fsync", "file": "log"});
    let n = u64::from(count);
    let made = Made::new(
        f64::from(count) + 0.5,
        vec![
            row("journal", "fsync", 24 * n, &by("logger", "fsync")),
            row("fsync", "fsync", 8 * n, &by("logger", "fsync")),
            row("journal", "unknown", 8, &json!([])),
        ],
    );
    made.commits(
        vec![group("fsync", n, 24 * n, &who)],
        commits("fsync", count, 1.0, 24, &who),
    )
}

/// A logger that never syncs: only the journal's timer writes.
pub fn unsynced(commit_s: f64, count: u32) -> Made {
    let n = u64::from(count);
    let every = commit_s + 0.2;
    Made::new(
        f64::from(count) * every + 1.0,
        vec![row("journal", "timer", 24 * n, &json!([]))],
    )
    .knob("commit", commit_s as u64)
    .commits(
        vec![group("timer", n, 24 * n, &json!({}))],
        commits("timer", count, every, 24, &json!({})),
    )
}

/// The published workload: many small files and one that is synced.
pub fn board() -> Made {
    let who = json!({"by": "iot-files", "pid": 7, "call": "fsync", "file": "mgmt"});
    let mut list = commits("fsync", 10, 30.0, 40, &who);
    for round in 0..10 {
        let more = commits("timer", 5, 5.1, 40, &json!({}));
        list.extend(more.into_iter().map(|mut one| {
            let t_s = one["t_s"].as_f64().unwrap() + f64::from(round) * 30.0;
            one["t_s"] = json!(t_s);
            one
        }));
        // What is left until the fsync was opened after the last timer's.
        list[round as usize]["age_us"] = json!(4_000_000);
    }
    Made::new(
        300.0,
        vec![
            row("writeback", "periodic", 8000, &json!([])),
            row("metadata", "periodic", 400, &json!([])),
            row("journal", "timer", 2000, &json!([])),
            row("journal", "fsync", 400, &by("iot-files", "fsync")),
            row("fsync", "fsync", 800, &by("iot-files", "fsync")),
        ],
    )
    .commits(
        vec![
            group("timer", 50, 2000, &json!({})),
            group("fsync", 10, 400, &who),
        ],
        list,
    )
}

impl Made {
    /// An experiment: blocks of two profiles, at these sectors a second.
    pub fn experiment(&self, name: &str, knob: &str, value: u64, rates: &[f64]) -> Vec<u8> {
        let block = |profile: &str, sectors: f64| {
            json!({"profile": profile, "order": 0, "duration_s": self.duration_s,
            "sectors": sectors as u64, "trace": self.device()})
        };
        let whole = self.sectors() as f64;
        let mut blocks: Vec<Value> = [0.99, 1.0, 1.01]
            .map(|part| block("default", whole * part))
            .to_vec();
        blocks.extend(rates.iter().map(|part| block(name, whole * part)));
        json!({"schema": "writepath.experiment/1", "name": "x", "kernel": "6.12.0",
        "profiles": [{"name": "default", "knobs": {"commit": 5}},
            {"name": name, "knobs": {"commit": 5, knob: value}}],
        "blocks": blocks})
        .to_string()
        .into_bytes()
    }
}
