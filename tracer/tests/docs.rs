//! Holds docs/json.md against the code: every key that is written, and every
//! word that an enumeration can give, is in the section of its schema.

mod shared;

use serde_json::Value;
use shared::keys_of;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};
use tracer_common::{CALL_NONE, RowKey, RowValue, op, path, trig};
use writepath::{
    attribute::{
        ledger::Accounts,
        names::Names,
        summary::{self, Context, Filter},
    },
    experiment::{
        self,
        result::{Block, Emulated, Experiment, Losses, Machine, Sample, Used, Window, Workload},
    },
    explain::{self, Source},
    model::{
        calls,
        ledger::{
            AgeRow, By, CommandEnd, CommitGroup, CommitRow, DeviceLedger, DirtierRow, FileRow,
            FlushRow, KnobValue, Lost, Memory, PathRow, PathSectors, ProcessName, ProcessSectors,
            Run,
        },
        path::{Op, Path},
        trigger::{self, CommitTrigger},
    },
    output::{explain as explained, json, pictures, profile as shown},
    profile::{Knob, builtins, lint, parse_toml},
    workload::{
        Stop, account,
        iot_files::{self, Files, Fsync, IotFiles, Place, Shape},
        pacing::Spread,
        report::{self, Report},
        tree::Dir,
    },
};

const DOCUMENT: &str = include_str!("../../docs/json.md");

/// The part of the document that is about one schema.
fn section(schema: &str) -> &'static str {
    let heading = format!("\n## `{schema}`\n");
    let (_, rest) = DOCUMENT
        .split_once(&heading)
        .unwrap_or_else(|| panic!("docs/json.md has no section {schema}"));
    rest.split_once("\n## ").map_or(rest, |(own, _)| own)
}

/// Fails with every word that is not there in backquotes.
fn expect(schema: &str, words: impl IntoIterator<Item = impl AsRef<str>>) {
    let text = section(schema);
    let missing: BTreeSet<String> = words
        .into_iter()
        .map(|word| word.as_ref().to_owned())
        .filter(|word| !text.contains(&format!("`{word}`")))
        .collect();
    assert!(missing.is_empty(), "not in docs/json.md: {missing:?}");
}

fn logger() -> ProcessName {
    ProcessName {
        pid: Some(7),
        comm: b"logger".to_vec(),
    }
}

/// A run in which nothing is left out.
fn full_run() -> Run {
    let paths = vec![PathSectors {
        path: Path::Fsync,
        sectors: 8,
    }];
    let file = FileRow {
        deleted: true,
        file: Some(b"log/\xff".to_vec()),
        of: Some("data"),
        ino: Some(12),
        fs_dev: Some("7:0".to_owned()),
        sectors: 8,
        paths: paths.clone(),
        dirtiers: vec![ProcessSectors {
            process: logger(),
            sectors: 8,
        }],
    };
    let dirtier = DirtierRow {
        process: logger(),
        of: Some("journal"),
        cgroup: Some(b"/system.slice".to_vec()),
        in_command: true,
        exited: true,
        sectors: 8,
        paths,
    };
    let commit = CommitRow {
        fs_dev: "7:0".to_owned(),
        tid: 2,
        trigger: CommitTrigger::Fsync.name(),
        by: Some(logger()),
        call: Some("fsync"),
        file: Some(b"log".to_vec()),
        t_s: 1.0,
        age_us: 1,
        locked_us: Some(1),
        flushing_us: Some(1),
        logging_us: Some(1),
        duration_us: 1,
        handles: 1,
        blocks: 1,
        blocks_logged: 1,
        sectors: 8,
        ordered_sectors: 8,
    };
    let group = CommitGroup {
        fs_dev: "7:0".to_owned(),
        trigger: commit.trigger,
        by: Some(logger()),
        call: commit.call,
        file: commit.file.clone(),
        count: 1,
        handles: 1,
        blocks: 1,
        blocks_logged: 1,
        sectors: 8,
        ordered_sectors: 8,
        duration: writepath::model::ledger::Durations::default(),
    };
    let device = DeviceLedger {
        still_dirty_missing: Some("no debugfs".to_owned()),
        paths: vec![PathRow {
            path: Path::Fsync,
            trigger: "fsync".to_owned(),
            op: Op::Write,
            sectors: 8,
            bios: 1,
            by: vec![By {
                process: logger(),
                call: Some("fsync"),
                sectors: 8,
            }],
        }],
        files: vec![file],
        dirtiers: vec![dirtier],
        ages: vec![AgeRow {
            path: Path::Fsync,
            median_us: 1,
            p99_us: 1,
            max_us: 1,
            sectors: 8,
            buckets: vec![(1, 8)],
        }],
        flush_requests: vec![FlushRow {
            path: Path::Journal,
            trigger: "fsync".to_owned(),
            count: 2,
        }],
        commits: vec![group],
        commit_list: Some(vec![commit]),
        knobs: vec![KnobValue {
            knob: "commit",
            value: 5,
            fs_dev: Some("7:0".to_owned()),
        }],
        memory: Some(Memory::default()),
        ..DeviceLedger::default()
    };
    Run {
        lost: Lost {
            maps: ["flights", "rows", "tasks", "inodes", "processes", "shares"]
                .map(|map| (map, 0))
                .to_vec(),
            hooks: vec![("commits".to_owned(), "their causes".to_owned())],
            ..Lost::default()
        },
        filters: vec!["pid=7".to_owned()],
        command: Some(CommandEnd {
            program: "tar".to_owned(),
            code: Some(0),
            signal: None,
        }),
        devices: vec![device],
        ..Run::default()
    }
}

#[test]
fn keys_of_trace_are_documented() {
    let mut text = Vec::new();
    let options = json::Options {
        top: None,
        commits: true,
    };
    json::write(&mut text, &full_run(), options).unwrap();
    let value: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(value["schema"], json::SCHEMA);
    let found = keys_of(&value);
    // Guards against a sample that stopped to be full.
    for key in [
        "file_hex",
        "commit_list",
        "still_dirty_missing",
        "signal",
        "dirty_bytes_max",
    ] {
        assert!(found.contains(key), "{key}");
    }
    expect(json::SCHEMA, found);
}

#[test]
fn words_of_paths_are_documented() {
    let paths: Vec<Path> = (0..=u8::MAX).map(Path::from_code).collect();
    expect(json::SCHEMA, paths.iter().map(|path| path.name()));
    expect(json::SCHEMA, paths.iter().map(|path| path.class().name()));
    expect(
        json::SCHEMA,
        (0..=u8::MAX).map(|code| Op::from_code(code).name()),
    );
}

#[test]
fn words_of_triggers_are_documented() {
    // A match without a default: a new trigger must be added here.
    let all = |trigger| match trigger {
        CommitTrigger::Timer => CommitTrigger::Fsync,
        CommitTrigger::Fsync => CommitTrigger::Sync,
        CommitTrigger::Sync => CommitTrigger::Umount,
        CommitTrigger::Umount => CommitTrigger::Remount,
        CommitTrigger::Remount => CommitTrigger::Freeze,
        CommitTrigger::Freeze => CommitTrigger::Space,
        CommitTrigger::Space => CommitTrigger::NoSpace,
        CommitTrigger::NoSpace => CommitTrigger::SyncHandle,
        CommitTrigger::SyncHandle => CommitTrigger::FastCommit,
        CommitTrigger::FastCommit => CommitTrigger::Unknown,
        CommitTrigger::Unknown => CommitTrigger::Timer,
    };
    let mut trigger = CommitTrigger::Timer;
    loop {
        expect(json::SCHEMA, [trigger.name()]);
        trigger = all(trigger);
        if trigger == CommitTrigger::Timer {
            break;
        }
    }
    expect(json::SCHEMA, (0..=u16::MAX).map(trigger::of_job));
    let known: Vec<u16> = (0..=u16::MAX)
        .filter(|call| calls::name(*call).is_some())
        .collect();
    assert!(known.len() > 50);
    expect(json::SCHEMA, known.iter().filter_map(|c| calls::name(*c)));
    for path in (0..path::COUNT as u8).map(Path::from_code) {
        let calls = known.iter().copied().chain([CALL_NONE, 0x7ff]);
        expect(json::SCHEMA, calls.map(|call| trigger::of_call(path, call)));
    }
}

#[test]
fn words_of_rows_without_file_or_process_are_documented() {
    let mut accounts = Accounts::default();
    accounts.take_rows((0..path::COUNT as u8).map(|path| {
        let key = RowKey {
            path,
            op: op::WRITE,
            trig: trig::UNKNOWN,
            ..RowKey::default()
        };
        let value = RowValue {
            sectors: 8,
            bios: 1,
            flushes: 0,
        };
        (key, value)
    }));
    let (names, shares) = (Names::default(), HashMap::new());
    let context = Context {
        blocks: &HashMap::new(),
        names: &names,
        shares: &shares,
        reasons: &[],
        dev_name: &|dev| dev.to_string(),
        started_ns: 0,
        tick_ns: 0,
        fs_devs: &|_| None,
    };
    let mut ledger = DeviceLedger::default();
    summary::fill(&mut ledger, 0, &accounts, &context, &Filter::default());
    let of = ledger.files.iter().map(|row| row.of);
    let of = of.chain(ledger.dirtiers.iter().map(|row| row.of));
    let words: BTreeSet<&str> = of.map(|of| of.expect("neither file nor process")).collect();
    assert!(words.len() > 5, "{words:?}");
    expect(json::SCHEMA, words);
    expect(json::SCHEMA, ["rest"]);
}

#[test]
fn keys_and_words_of_workload_are_documented() {
    let spec = IotFiles {
        shape: Shape {
            files: 3,
            file_bytes: 4096,
            mgmt_bytes: 4096,
        },
        threads: 1,
        period: Duration::from_millis(20),
        update_bytes: 4096,
        place: Place::Rename,
        spread: Spread::Even,
        fsync: Fsync::Update,
        mgmt_fsync: Fsync::Update,
        duration: Duration::from_millis(40),
        seed: 1,
    };
    let temp = tempfile::tempdir().unwrap();
    let parent = Dir::typed(temp.path()).unwrap();
    let stop = Stop::new();
    let files = Files::prepare(&parent, &spec, &stop, &mut |_| {}).unwrap();
    let outcome = iot_files::run(&spec, &files, &stop, &mut |_| {}).unwrap();
    let report = Report::new(&spec, &files, spec.shape.bytes(), &outcome);
    let value = serde_json::to_value(&report).unwrap();
    assert_eq!(value["schema"], report::SCHEMA);
    let found = keys_of(&value);
    assert!(found.contains("rename"));
    expect(report::SCHEMA, found);
    expect(report::SCHEMA, account::Call::ALL.map(|(_, name)| name));
    expect(report::SCHEMA, Place::ALL.map(|(_, name)| name));
    expect(
        report::SCHEMA,
        [Spread::Even, Spread::Burst].map(|s| s.to_string()),
    );
    expect(report::SCHEMA, ["complete", "stopped", "failed"]);
}

#[test]
fn keys_and_words_of_profiles_are_documented() {
    let mut text = Vec::new();
    shown::list_json(&mut text, &builtins()).unwrap();
    let value: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(value["schema"], shown::LIST_SCHEMA);
    expect(shown::LIST_SCHEMA, keys_of(&value));
    expect(shown::LIST_SCHEMA, Knob::of_profiles().map(Knob::name));

    let profile = parse_toml("name = \"x\"\ncommit = 600\nvm.dirty_bytes = 5\n").unwrap();
    let one = shown::Shown {
        findings: lint(&profile),
        profile,
        as_ram_bytes: Some(1 << 30),
        time_scale: 1,
    };
    let mut text = Vec::new();
    shown::show_json(&mut text, &one).unwrap();
    let value: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(value["schema"], shown::SHOW_SCHEMA);
    let found = keys_of(&value);
    assert!(found.contains("severity"));
    expect(shown::SHOW_SCHEMA, found);
    expect(shown::SHOW_SCHEMA, ["error", "warning"]);
    expect(shown::SHOW_SCHEMA, Knob::of_profiles().map(Knob::name));

    let change = shown::Changed {
        on: shown::Where::default(),
        from: (Knob::Commit, 5),
        to: (Knob::Commit, 60),
    };
    let active = shown::Active {
        machine: builtins()[0].values.clone(),
        filesystems: vec![(b"/".to_vec(), Knob::Commit, 5)],
        profiles: vec![shown::Match {
            name: "default".to_owned(),
            mounts: vec![b"/".to_vec()],
        }],
        run: Some((7, vec![change.clone()])),
        kept: vec![change],
        looked: true,
    };
    let mut text = Vec::new();
    shown::active_json(&mut text, &active).unwrap();
    let value: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(value["schema"], shown::ACTIVE_SCHEMA);
    let found = keys_of(&value);
    assert!(found.contains("pid") && found.contains("to"));
    expect(shown::ACTIVE_SCHEMA, found);
    expect(
        shown::ACTIVE_SCHEMA,
        Knob::all().filter(|k| *k != Knob::Commit).map(Knob::name),
    );
    expect(shown::ACTIVE_SCHEMA, ["commit"]);
}

/// An experiment whose explanation leaves nothing out.
const EXPERIMENT: &str = r#"{"schema": "writepath.experiment/1", "kernel": "6.12.0",
 "profiles": [{"name": "default", "knobs": {"commit": 5}},
              {"name": "commit-60", "knobs": {"commit": 60}}],
 "blocks": [
  {"profile": "default", "duration_s": 60.0, "sectors": 100, "trace":
   {"name": "loop0", "dev": "7:0", "sectors_written": 108, "paths":
    [{"path": "journal", "trigger": "timer", "sectors": 100}],
    "journal": {"commits": [{"trigger": "timer", "count": 2, "sectors": 100}],
     "commit_list": [{"trigger": "timer", "t_s": 5.1, "age_us": 5100000, "sectors": 50},
                     {"trigger": "timer", "t_s": 10.3, "age_us": 5100000, "sectors": 50}]}}},
  {"profile": "commit-60", "duration_s": 60.0, "sectors": 1, "trace": {}}]}"#;

#[test]
fn keys_and_words_of_explain_are_documented() {
    let evidence = explain::read::any(EXPERIMENT.as_bytes(), None).unwrap();
    let explanation = explain::explain(&evidence, &[]);
    let mut text = Vec::new();
    explained::json::write(&mut text, &explanation).unwrap();
    let value: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(value["schema"], explained::json::SCHEMA);
    let found = keys_of(&value);
    for key in ["ceiling_sectors", "contradicts", "every_s", "low_percent"] {
        assert!(found.contains(key), "{key}");
    }
    expect(explained::json::SCHEMA, found);
    expect(
        explained::json::SCHEMA,
        [Source::Trace, Source::Experiment, Source::Recording].map(Source::name),
    );
    expect(explained::json::SCHEMA, ["filtered", "residual"]);
}

#[test]
fn keys_of_experiment_are_documented() {
    let block = Block {
        profile: "default".to_owned(),
        order: 0,
        settle_s: 70.0,
        duration_s: 360.0,
        sectors: 2048,
        mib_per_min: 0.17,
        dirty_before_bytes: None,
        dirty_after_bytes: None,
        windows: vec![Window {
            t_s: 30.0,
            sectors: 8,
        }],
        samples_file: "samples-0.jsonl".to_owned(),
        lost: Losses::default(),
        trace: Value::Null,
    };
    let experiment = Experiment {
        schema: experiment::result::SCHEMA.to_owned(),
        name: "emmc-dirty-tuning".to_owned(),
        kernel: "6.1.0".to_owned(),
        machine: Machine {
            arch: "x86_64".to_owned(),
            cpus: 2,
            memory_bytes: 1 << 30,
            device: "loop0".to_owned(),
        },
        started_at: "2026-11-30T12:00:00Z".to_owned(),
        seed: 1,
        time_scale: 5,
        cycles: 10,
        as_ram_bytes: None,
        emulate: Some(Emulated {
            bytes_per_s: 30_000_000,
            iops: None,
        }),
        tbw_gib: 122_880.0,
        workload: Workload {
            name: "iot-files".to_owned(),
            place: "fixed".to_owned(),
            files: 5000,
            file_kib: 64,
            threads: 100,
            period_s: 6.0,
            account: None,
        },
        profiles: vec![Used {
            name: "default".to_owned(),
            knobs: BTreeMap::new(),
            nominal: BTreeMap::new(),
        }],
        blocks: vec![block],
        planned: 2,
    };
    let schema = experiment::result::SCHEMA;
    expect(schema, keys_of(&serde_json::to_value(experiment).unwrap()));
    let sample = Sample {
        t_s: 1.0,
        settled: true,
        dirty_bytes: 0,
        writeback_bytes: 0,
        background_bytes: 0,
        threshold_bytes: 0,
        sectors: BTreeMap::new(),
    };
    expect(schema, keys_of(&serde_json::to_value(sample).unwrap()));
    for (name, _) in pictures::draw(&made()) {
        expect(schema, [name]);
    }
}

/// An experiment without blocks.
fn made() -> Experiment {
    serde_json::from_value(serde_json::json!({
        "schema": "writepath.experiment/1", "name": "x", "kernel": "6.1", "seed": 1,
        "machine": {"arch": "x86_64", "cpus": 1, "memory_bytes": 1, "device": "loop0"},
        "started_at": "", "time_scale": 1, "cycles": 10, "as_ram_bytes": null,
        "emulate": null, "tbw_gib": 1.0, "profiles": [], "blocks": [], "planned": 0,
        "workload": {"name": "x", "place": "fixed", "files": 1, "file_kib": 4,
                     "threads": 1, "period_s": 1.0, "account": null},
    }))
    .unwrap()
}
