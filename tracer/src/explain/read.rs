//! From the bytes of a file to evidence.
//!
//! What is read is hostile: sums saturate, times may be anything, and what is
//! not known in a file is left out rather than made up.

use super::{
    evidence::{Commit, Device, Evidence, Group, Memory, Row, Source},
    lever::Lever,
};
use crate::output::escape::terminal;
use crate::profile::{Knob, Values};
use crate::recording::{self, FormatError};
use serde::Deserialize;
use std::collections::BTreeMap;

mod recorded;
mod result;

/// Why a file cannot be explained.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Not JSON, or not of the form of its schema.
    #[error(
        "not the output of `writepath trace --json`, an experiment's result.json or a recording: {0}"
    )]
    Json(#[from] serde_json::Error),
    /// Of another schema.
    #[error("its schema is {0}; explain reads writepath.trace/1 and writepath.experiment/1")]
    Schema(String),
    /// Several objects.
    #[error(
        "it holds several objects (trace --jsonl or --interval); explain reads one: take a line of it"
    )]
    Several,
    /// No disk in it.
    #[error("it has no device")]
    NoDevice,
    /// No such disk in it.
    #[error("it has no device {asked}; there is {known}")]
    UnknownDevice {
        /// What was asked for.
        asked: String,
        /// What there is.
        known: String,
    },
    /// A recording.
    #[error(transparent)]
    Recording(#[from] FormatError),
    /// A recording that was cut short.
    #[error("the recording has no ledger to explain: {0}")]
    NoLedger(String),
    /// An experiment without a block.
    #[error("the experiment has no finished block")]
    NoBlock,
}

#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    schema: String,
}

#[derive(Deserialize)]
struct Object {
    #[serde(default)]
    kernel: String,
    #[serde(default)]
    duration_s: f64,
    #[serde(default)]
    filters: Vec<String>,
    #[serde(default)]
    devices: Vec<JsonDevice>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct JsonDevice {
    name: String,
    dev: String,
    sectors_written: u64,
    residual: i64,
    still_dirty_bytes: Option<u64>,
    paths: Vec<JsonPath>,
    files: Vec<JsonFile>,
    age_us: Vec<JsonAge>,
    journal: JsonJournal,
    knobs: Vec<JsonKnob>,
    memory: Option<JsonMemory>,
    notes: Vec<String>,
}

#[derive(Deserialize)]
struct JsonPath {
    path: String,
    trigger: String,
    sectors: u64,
    #[serde(default)]
    by: Vec<JsonBy>,
}

#[derive(Deserialize)]
struct JsonBy {
    comm: Option<String>,
    call: Option<String>,
}

#[derive(Deserialize)]
struct JsonFile {
    file: Option<String>,
    #[serde(default)]
    paths: Vec<JsonPathSectors>,
}

#[derive(Deserialize)]
struct JsonPathSectors {
    path: String,
    sectors: u64,
}

#[derive(Deserialize)]
struct JsonAge {
    path: String,
    #[serde(default)]
    buckets: Vec<(u64, u64)>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct JsonJournal {
    commits: Vec<JsonGroup>,
    commit_list: Option<Vec<JsonCommit>>,
}

#[derive(Deserialize)]
struct JsonGroup {
    trigger: String,
    by: Option<String>,
    call: Option<String>,
    file: Option<String>,
    count: u64,
    #[serde(default)]
    sectors: u64,
}

#[derive(Deserialize)]
struct JsonCommit {
    #[serde(default)]
    fs_dev: String,
    trigger: String,
    by: Option<String>,
    file: Option<String>,
    t_s: f64,
    #[serde(default)]
    age_us: u64,
    #[serde(default)]
    sectors: u64,
    #[serde(default)]
    ordered_sectors: u64,
}

#[derive(Deserialize)]
struct JsonKnob {
    knob: String,
    value: u64,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct JsonMemory {
    samples: u64,
    dirty_bytes_max: u64,
    background_bytes_min: u64,
    threshold_bytes_min: u64,
}

/// Reads any file that can be explained; `device` chooses among its disks.
pub fn any(text: &[u8], device: Option<&str>) -> Result<Evidence, ReadError> {
    let mut evidence = if text.starts_with(&recording::MAGIC) {
        recorded::recording(text)?
    } else {
        json(text)?
    };
    if let Some(asked) = device {
        let name = asked.strip_prefix("/dev/").unwrap_or(asked);
        let is = |own: &Device| own.name == name || own.dev == name;
        let known: Vec<&str> = evidence
            .devices
            .iter()
            .map(|own| own.name.as_str())
            .collect();
        if !evidence.devices.iter().any(is) {
            return Err(ReadError::UnknownDevice {
                asked: asked.to_owned(),
                known: known.join(", "),
            });
        }
        evidence.devices.retain(is);
    }
    Ok(evidence)
}

/// Reads one JSON object, by its schema.
fn json(text: &[u8]) -> Result<Evidence, ReadError> {
    let mut objects = serde_json::Deserializer::from_slice(text).into_iter::<Head>();
    let head = objects.next().transpose()?;
    let Some(Head { schema }) = head else {
        return Err(ReadError::Schema("none".to_owned()));
    };
    if objects.next().is_some() {
        return Err(ReadError::Several);
    }
    match schema.as_str() {
        "writepath.trace/1" => trace(text),
        "writepath.experiment/1" => result::experiment(text),
        _ => Err(ReadError::Schema(schema.chars().take(80).collect())),
    }
}

fn trace(text: &[u8]) -> Result<Evidence, ReadError> {
    let object: Object = serde_json::from_slice(text)?;
    if object.devices.is_empty() {
        return Err(ReadError::NoDevice);
    }
    let devices = object.devices.into_iter().map(|json| {
        let mut device = device(json, object.duration_s);
        device.filters = object.filters.iter().map(|text| word(text)).collect();
        device
    });
    Ok(Evidence {
        source: Source::Trace,
        kernel: object.kernel,
        devices: devices.collect(),
        profiles: Vec::new(),
        base: None,
        writes: None,
    })
}

/// One device object, watched for so long.
fn device(json: JsonDevice, duration_s: f64) -> Device {
    let (knobs, ambiguous) = in_force(&json.knobs);
    let mut files: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
    for row in json.files {
        let Some(name) = row.file else { continue };
        for part in row.paths {
            let own = files.entry(part.path).or_default();
            let sum = own.entry(name.clone()).or_default();
            *sum = sum.saturating_add(part.sectors);
        }
    }
    // An operation makes rows of its own; what can act on them is the same.
    let mut rows: Vec<Row> = Vec::new();
    for row in json.paths {
        let (path, trigger) = (word(&row.path), word(&row.trigger));
        let same = |own: &&mut Row| own.path == path && own.trigger == trigger;
        if let Some(own) = rows.iter_mut().find(same) {
            own.sectors = own.sectors.saturating_add(row.sectors);
            continue;
        }
        let by = row
            .by
            .into_iter()
            .take(4)
            .map(|by| (by.comm, by.call.as_deref().map(word)));
        rows.push(Row {
            path,
            trigger,
            sectors: row.sectors,
            by: by.collect(),
        });
    }
    let ages = json
        .age_us
        .into_iter()
        .filter(|row| row.path == "writeback");
    Device {
        name: json.name,
        dev: json.dev,
        duration_s: if duration_s.is_finite() {
            duration_s.max(0.0)
        } else {
            0.0
        },
        sectors_written: json.sectors_written,
        residual: json.residual,
        rows,
        files,
        groups: json.journal.commits.into_iter().map(group).collect(),
        lists: json
            .journal
            .commit_list
            .map(|list| vec![list.into_iter().map(commit).collect()]),
        knobs,
        ambiguous,
        memory: json
            .memory
            .filter(|memory| memory.samples > 0)
            .map(|memory| Memory {
                samples: memory.samples,
                dirty_max: memory.dirty_bytes_max,
                background_min: memory.background_bytes_min,
                threshold_min: memory.threshold_bytes_min,
            }),
        ages: ages
            .flat_map(|row| row.buckets)
            .map(|(us, sectors)| (us as f64 / 1e6, sectors))
            .collect(),
        still_dirty: json.still_dirty_bytes,
        filters: Vec::new(),
        notes: json.notes,
    }
}

/// A word of an enumeration: as short as those are, and harmless.
fn word(text: &str) -> String {
    terminal(text.chars().take(40).collect::<String>().as_bytes())
}

/// Knobs by their names; what differs between filesystems is not known.
fn in_force(json: &[JsonKnob]) -> (Values, Vec<Knob>) {
    let mut knobs = Values::new();
    let mut ambiguous = Vec::new();
    for row in json {
        let Some(knob) = Knob::from_name(&row.knob).filter(|knob| Lever::of(*knob).is_some())
        else {
            continue;
        };
        if knobs
            .insert(knob, row.value)
            .is_some_and(|other| other != row.value)
        {
            ambiguous.push(knob);
        }
    }
    for knob in &ambiguous {
        knobs.remove(knob);
    }
    ambiguous.dedup();
    (knobs, ambiguous)
}

fn group(json: JsonGroup) -> Group {
    Group {
        trigger: word(&json.trigger),
        by: json.by,
        call: json.call.as_deref().map(word),
        file: json.file,
        count: json.count,
        sectors: json.sectors,
    }
}

fn commit(json: JsonCommit) -> Commit {
    Commit {
        fs_dev: json.fs_dev,
        trigger: word(&json.trigger),
        by: json.by,
        file: json.file,
        t_s: json.t_s,
        age_s: json.age_us as f64 / 1e6,
        sectors: json.sectors,
        ordered: json.ordered_sectors,
    }
}
