//! The JSON of `trace`: its own versioned structures, raw numbers, the unit
//! in the key. Documented in docs/json.md.

use super::escape;
use crate::model::{
    ledger::{
        AgeRow, By, CommitGroup, CommitRow, DeviceLedger, DirtierRow, FileRow, FlushRow, KnobValue,
        Memory, PathRow, PathSectors, ProcessName, ProcessSectors, Run,
    },
    path::Class,
};
use serde::{Serialize, Serializer};
use std::{collections::BTreeMap, io};

/// The schema of [`write`].
pub const SCHEMA: &str = "writepath.trace/1";

/// What is asked of the output.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Rows of `files` and `dirtiers` before the rest is one row.
    pub top: Option<usize>,
    /// Commits one by one.
    pub commits: bool,
}

/// Writes one object and a new line.
pub fn write(out: &mut dyn io::Write, run: &Run, options: Options) -> io::Result<()> {
    serde_json::to_writer(&mut *out, &object(run, options)).map_err(io::Error::from)?;
    out.write_all(b"\n")
}

/// The device objects of a run, for an object that holds them.
pub fn devices(run: &Run, options: Options) -> serde_json::Result<Vec<serde_json::Value>> {
    let devices = object(run, options).devices;
    devices.into_iter().map(serde_json::to_value).collect()
}

#[derive(Serialize)]
struct Object {
    schema: &'static str,
    kernel: String,
    started_at: String,
    duration_s: f64,
    lost: Lost,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    filters: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<Command>,
    devices: Vec<Device>,
}

#[derive(Serialize)]
struct Lost {
    ring: u64,
    maps: u64,
    undecoded: u64,
    by_map: BTreeMap<&'static str, u64>,
    hooks: Vec<LostHook>,
}

#[derive(Serialize)]
struct LostHook {
    hook: String,
    lost: String,
}

#[derive(Serialize)]
struct Command {
    program: String,
    exit_code: Option<i32>,
    signal: Option<i32>,
}

#[derive(Serialize)]
struct Device {
    name: String,
    dev: String,
    sectors_written: u64,
    sectors_attributed: u64,
    sectors_unattributed: u64,
    in_flight_before: u64,
    residual: i64,
    sectors_unseen: u64,
    edge_completions: u64,
    sectors_zeroed: u64,
    sectors_discarded: u64,
    flushes_requested: u64,
    flushes_done: u64,
    failed: u64,
    sectors_failed: u64,
    still_dirty_bytes: Option<u64>,
    still_dirty_error_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    still_dirty_missing: Option<String>,
    drain_eta_s: Option<f64>,
    vanished: bool,
    classes: BTreeMap<&'static str, u64>,
    paths: Vec<JsonPath>,
    files: Vec<JsonFile>,
    dirtiers: Vec<JsonDirtier>,
    age_us: Vec<Age>,
    flush_requests: Vec<Flush>,
    journal: Journal,
    knobs: Vec<JsonKnob>,
    memory: Option<JsonMemory>,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct Named {
    pid: Option<u32>,
    comm: Option<Text>,
}

#[derive(Serialize)]
struct JsonPath {
    path: &'static str,
    trigger: String,
    class: &'static str,
    op: &'static str,
    sectors: u64,
    bios: u64,
    by: Vec<JsonBy>,
}

#[derive(Serialize)]
struct JsonBy {
    #[serde(flatten)]
    process: Named,
    call: Option<&'static str>,
    sectors: u64,
}

#[derive(Serialize)]
struct JsonPathSectors {
    path: &'static str,
    sectors: u64,
}

#[derive(Serialize)]
struct JsonFile {
    file: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file_hex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    of: Option<&'static str>,
    deleted: bool,
    ino: Option<u64>,
    fs_dev: Option<String>,
    sectors: u64,
    paths: Vec<JsonPathSectors>,
    dirtiers: Vec<JsonProcessSectors>,
}

#[derive(Serialize)]
struct JsonProcessSectors {
    #[serde(flatten)]
    process: Named,
    sectors: u64,
}

#[derive(Serialize)]
struct JsonDirtier {
    #[serde(flatten)]
    process: Named,
    #[serde(skip_serializing_if = "Option::is_none")]
    of: Option<&'static str>,
    cgroup: Option<Text>,
    in_command: bool,
    exited: bool,
    sectors: u64,
    paths: Vec<JsonPathSectors>,
}

#[derive(Serialize)]
struct Age {
    path: &'static str,
    median: u64,
    p99: u64,
    max: u64,
    sectors: u64,
    buckets: Vec<(u64, u64)>,
}

#[derive(Serialize)]
struct Flush {
    path: &'static str,
    trigger: String,
    count: u64,
}

#[derive(Serialize)]
struct JsonKnob {
    knob: &'static str,
    value: u64,
    fs_dev: Option<String>,
}

#[derive(Serialize)]
struct JsonMemory {
    samples: u64,
    dirty_bytes_max: u64,
    background_bytes_min: u64,
    threshold_bytes_min: u64,
}

#[derive(Serialize)]
struct Journal {
    commits: Vec<JsonGroup>,
    #[serde(skip_serializing_if = "Option::is_none")]
    commit_list: Option<Vec<JsonCommit>>,
}

#[derive(Serialize)]
struct JsonGroup {
    fs_dev: String,
    trigger: &'static str,
    by: Option<Text>,
    pid: Option<u32>,
    call: Option<&'static str>,
    file: Option<Text>,
    count: u64,
    handles: u64,
    blocks: u64,
    blocks_logged: u64,
    sectors: u64,
    ordered_sectors: u64,
    duration_us: Spread,
}

#[derive(Serialize)]
struct Spread {
    median: u64,
    max: u64,
}

#[derive(Serialize)]
struct JsonCommit {
    fs_dev: String,
    tid: u32,
    trigger: &'static str,
    by: Option<Text>,
    pid: Option<u32>,
    call: Option<&'static str>,
    file: Option<Text>,
    t_s: f64,
    age_us: u64,
    locked_us: Option<u64>,
    flushing_us: Option<u64>,
    logging_us: Option<u64>,
    duration_us: u64,
    handles: u32,
    blocks: u32,
    blocks_logged: u32,
    sectors: u64,
    ordered_sectors: u64,
}

/// Bytes as lossy text.
struct Text(Vec<u8>);

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&escape::json(&self.0).0)
    }
}

fn text(bytes: &[u8]) -> Option<Text> {
    (!bytes.is_empty()).then(|| Text(bytes.to_vec()))
}

impl From<&ProcessName> for Named {
    fn from(process: &ProcessName) -> Self {
        Self {
            pid: process.pid,
            comm: text(&process.comm),
        }
    }
}

impl From<&By> for JsonBy {
    fn from(by: &By) -> Self {
        Self {
            process: (&by.process).into(),
            call: by.call,
            sectors: by.sectors,
        }
    }
}

impl From<&PathRow> for JsonPath {
    fn from(row: &PathRow) -> Self {
        Self {
            path: row.path.name(),
            trigger: row.trigger.clone(),
            class: row.path.class().name(),
            op: row.op.name(),
            sectors: row.sectors,
            bios: row.bios,
            by: row.by.iter().map(Into::into).collect(),
        }
    }
}

impl From<&PathSectors> for JsonPathSectors {
    fn from(row: &PathSectors) -> Self {
        Self {
            path: row.path.name(),
            sectors: row.sectors,
        }
    }
}

impl From<&ProcessSectors> for JsonProcessSectors {
    fn from(row: &ProcessSectors) -> Self {
        Self {
            process: (&row.process).into(),
            sectors: row.sectors,
        }
    }
}

impl From<&FileRow> for JsonFile {
    fn from(row: &FileRow) -> Self {
        Self {
            file: row.file.as_deref().and_then(text),
            file_hex: row.file.as_deref().and_then(|name| escape::json(name).1),
            of: row.of,
            deleted: row.deleted,
            ino: row.ino,
            fs_dev: row.fs_dev.clone(),
            sectors: row.sectors,
            paths: row.paths.iter().map(Into::into).collect(),
            dirtiers: row.dirtiers.iter().map(Into::into).collect(),
        }
    }
}

impl From<&DirtierRow> for JsonDirtier {
    fn from(row: &DirtierRow) -> Self {
        Self {
            process: (&row.process).into(),
            of: row.of,
            cgroup: row.cgroup.as_deref().and_then(text),
            in_command: row.in_command,
            exited: row.exited,
            sectors: row.sectors,
            paths: row.paths.iter().map(Into::into).collect(),
        }
    }
}

impl From<&AgeRow> for Age {
    fn from(row: &AgeRow) -> Self {
        Self {
            path: row.path.name(),
            median: row.median_us,
            p99: row.p99_us,
            max: row.max_us,
            sectors: row.sectors,
            buckets: row.buckets.clone(),
        }
    }
}

impl From<&FlushRow> for Flush {
    fn from(row: &FlushRow) -> Self {
        Self {
            path: row.path.name(),
            trigger: row.trigger.clone(),
            count: row.count,
        }
    }
}

impl From<&KnobValue> for JsonKnob {
    fn from(knob: &KnobValue) -> Self {
        Self {
            knob: knob.knob,
            value: knob.value,
            fs_dev: knob.fs_dev.clone(),
        }
    }
}

impl From<&Memory> for JsonMemory {
    fn from(memory: &Memory) -> Self {
        Self {
            samples: memory.samples,
            dirty_bytes_max: memory.dirty_bytes_max,
            background_bytes_min: memory.background_bytes_min,
            threshold_bytes_min: memory.threshold_bytes_min,
        }
    }
}

impl From<&CommitGroup> for JsonGroup {
    fn from(group: &CommitGroup) -> Self {
        Self {
            fs_dev: group.fs_dev.clone(),
            trigger: group.trigger,
            by: group.by.as_ref().and_then(|by| text(&by.comm)),
            pid: group.by.as_ref().and_then(|by| by.pid),
            call: group.call,
            file: group.file.as_deref().and_then(text),
            count: group.count,
            handles: group.handles,
            blocks: group.blocks,
            blocks_logged: group.blocks_logged,
            sectors: group.sectors,
            ordered_sectors: group.ordered_sectors,
            duration_us: Spread {
                median: group.duration.median_us,
                max: group.duration.max_us,
            },
        }
    }
}

impl From<&CommitRow> for JsonCommit {
    fn from(row: &CommitRow) -> Self {
        Self {
            fs_dev: row.fs_dev.clone(),
            tid: row.tid,
            trigger: row.trigger,
            by: row.by.as_ref().and_then(|by| text(&by.comm)),
            pid: row.by.as_ref().and_then(|by| by.pid),
            call: row.call,
            file: row.file.as_deref().and_then(text),
            t_s: row.t_s,
            age_us: row.age_us,
            locked_us: row.locked_us,
            flushing_us: row.flushing_us,
            logging_us: row.logging_us,
            duration_us: row.duration_us,
            handles: row.handles,
            blocks: row.blocks,
            blocks_logged: row.blocks_logged,
            sectors: row.sectors,
            ordered_sectors: row.ordered_sectors,
        }
    }
}

fn cut<T>(rows: Vec<T>, top: Option<usize>, rest: impl Fn(&[T]) -> T) -> Vec<T> {
    match top {
        Some(top) if rows.len() > top => {
            let mut rows = rows;
            let tail = rows.split_off(top);
            rows.push(rest(&tail));
            rows
        }
        _ => rows,
    }
}

fn sum_paths<'a>(rows: impl Iterator<Item = &'a JsonPathSectors>) -> Vec<JsonPathSectors> {
    let mut sums: BTreeMap<&'static str, u64> = BTreeMap::new();
    for row in rows {
        *sums.entry(row.path).or_default() += row.sectors;
    }
    sums.into_iter()
        .map(|(path, sectors)| JsonPathSectors { path, sectors })
        .collect()
}

fn device(ledger: &DeviceLedger, options: Options) -> Device {
    let classes = [
        Class::Async,
        Class::Sync,
        Class::Journal,
        Class::Metadata,
        Class::Other,
    ];
    let files: Vec<JsonFile> = ledger.files.iter().map(Into::into).collect();
    let dirtiers: Vec<JsonDirtier> = ledger.dirtiers.iter().map(Into::into).collect();
    let list = ledger.commit_list.as_ref().filter(|_| options.commits);
    Device {
        name: ledger.name.clone(),
        dev: ledger.dev.clone(),
        sectors_written: ledger.sectors_written,
        sectors_attributed: ledger.sectors_attributed,
        sectors_unattributed: ledger.sectors_unattributed,
        in_flight_before: ledger.in_flight_before,
        residual: ledger.residual,
        sectors_unseen: ledger.sectors_unseen,
        edge_completions: ledger.edge_completions,
        sectors_zeroed: ledger.sectors_zeroed,
        sectors_discarded: ledger.sectors_discarded,
        flushes_requested: ledger.flushes_requested,
        flushes_done: ledger.flushes_done,
        failed: ledger.failed,
        sectors_failed: ledger.sectors_failed,
        still_dirty_bytes: ledger.still_dirty_bytes,
        still_dirty_error_bytes: ledger.still_dirty_error_bytes,
        still_dirty_missing: ledger.still_dirty_missing.clone(),
        drain_eta_s: ledger.drain_eta_s,
        vanished: ledger.vanished,
        classes: classes
            .iter()
            .map(|class| (class.name(), ledger.of_class(*class)))
            .collect(),
        paths: ledger.paths.iter().map(Into::into).collect(),
        files: cut(files, options.top, |tail| JsonFile {
            file: None,
            file_hex: None,
            of: Some("rest"),
            deleted: false,
            ino: None,
            fs_dev: None,
            sectors: tail.iter().map(|row| row.sectors).sum(),
            paths: sum_paths(tail.iter().flat_map(|row| &row.paths)),
            dirtiers: Vec::new(),
        }),
        dirtiers: cut(dirtiers, options.top, |tail| JsonDirtier {
            process: Named {
                pid: None,
                comm: None,
            },
            of: Some("rest"),
            cgroup: None,
            in_command: false,
            exited: false,
            sectors: tail.iter().map(|row| row.sectors).sum(),
            paths: sum_paths(tail.iter().flat_map(|row| &row.paths)),
        }),
        age_us: ledger.ages.iter().map(Into::into).collect(),
        flush_requests: ledger.flush_requests.iter().map(Into::into).collect(),
        journal: Journal {
            commits: ledger.commits.iter().map(Into::into).collect(),
            commit_list: list.map(|rows| rows.iter().map(Into::into).collect()),
        },
        knobs: ledger.knobs.iter().map(Into::into).collect(),
        memory: ledger.memory.as_ref().map(Into::into),
        notes: ledger.notes.clone(),
    }
}

fn object(run: &Run, options: Options) -> Object {
    let started = std::time::UNIX_EPOCH + std::time::Duration::from_secs(run.started_at);
    Object {
        schema: SCHEMA,
        kernel: run.kernel.clone(),
        started_at: humantime::format_rfc3339_seconds(started).to_string(),
        duration_s: run.duration_s,
        lost: Lost {
            ring: run.lost.ring,
            maps: run.lost.in_maps(),
            undecoded: run.lost.undecoded,
            by_map: run.lost.maps.iter().copied().collect(),
            hooks: run
                .lost
                .hooks
                .iter()
                .map(|(hook, lost)| LostHook {
                    hook: hook.clone(),
                    lost: lost.clone(),
                })
                .collect(),
        },
        filters: run.filters.clone(),
        command: run.command.as_ref().map(|command| Command {
            program: command.program.clone(),
            exit_code: command.code,
            signal: command.signal,
        }),
        devices: run
            .devices
            .iter()
            .map(|ledger| device(ledger, options))
            .collect(),
    }
}
