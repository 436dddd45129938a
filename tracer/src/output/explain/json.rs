//! The JSON of `explain`: its own versioned structures. Documented in
//! docs/json.md.

use crate::{
    explain::{DeviceFindings, Explanation, Finding, Lever, Measured, Named, Part},
    profile::Knob,
};
use serde::Serialize;
use std::io;

/// The schema of [`write`].
pub const SCHEMA: &str = "writepath.explain/1";

/// Writes one object and a new line.
pub fn write(out: &mut dyn io::Write, explanation: &Explanation) -> io::Result<()> {
    let object = Object {
        schema: SCHEMA,
        source: explanation.source.name(),
        kernel: &explanation.kernel,
        profile: explanation.profile.as_deref(),
        devices: explanation.devices.iter().map(device).collect(),
    };
    serde_json::to_writer(&mut *out, &object).map_err(io::Error::from)?;
    out.write_all(b"\n")
}

#[derive(Serialize)]
struct Object<'a> {
    schema: &'static str,
    source: &'static str,
    kernel: &'a str,
    profile: Option<&'a str>,
    devices: Vec<Device<'a>>,
}

#[derive(Serialize)]
struct Device<'a> {
    name: &'a str,
    dev: &'a str,
    duration_s: f64,
    sectors_written: u64,
    sectors_out_of_reach: u64,
    sectors_not_known: u64,
    sentence: &'a str,
    knobs: Vec<JsonFinding<'a>>,
    parts: Vec<JsonPart<'a>>,
    contradictions: &'a [String],
    notes: &'a [String],
}

#[derive(Serialize)]
struct JsonFinding<'a> {
    knob: &'static str,
    value: Option<u64>,
    ceiling_sectors: u64,
    ceiling_percent: f64,
    indirect_sectors: u64,
    decided_sectors: Option<u64>,
    saturates_at: Option<u64>,
    values: Vec<JsonNamed<'a>>,
    measured: Vec<JsonMeasured<'a>>,
    sentence: &'a str,
}

#[derive(Serialize)]
struct JsonNamed<'a> {
    knob: &'static str,
    value: u64,
    asked: bool,
    ceiling_sectors: u64,
    ceiling_percent: f64,
    estimate_sectors: Option<u64>,
    why: &'a str,
}

#[derive(Serialize)]
struct JsonMeasured<'a> {
    profile: &'a str,
    value: u64,
    alone: bool,
    blocks: usize,
    base_blocks: usize,
    change_percent: f64,
    low_percent: Option<f64>,
    high_percent: Option<f64>,
    ceiling_sectors: u64,
    contradicts: bool,
}

#[derive(Serialize)]
struct JsonPart<'a> {
    path: &'a str,
    trigger: &'a str,
    sectors: u64,
    percent: f64,
    knobs: Vec<&'static str>,
    known: bool,
    why: &'a str,
    by: Option<&'a str>,
    file: Option<&'a str>,
    every_s: Option<f64>,
}

fn percent(part: u64, whole: u64) -> f64 {
    part as f64 * 100.0 / whole.max(1) as f64
}

fn device(device: &DeviceFindings) -> Device<'_> {
    let name = |lever: &Lever| {
        let own = device.findings.iter().find(|own| own.lever == *lever);
        own.map_or("", |own| own.knob.name())
    };
    let whole = device.sectors_written;
    Device {
        name: &device.name,
        dev: &device.dev,
        duration_s: device.duration_s,
        sectors_written: whole,
        sectors_out_of_reach: device.out_of_reach,
        sectors_not_known: device.not_known,
        sentence: &device.sentence,
        knobs: device
            .findings
            .iter()
            .map(|own| finding(own, whole))
            .collect(),
        parts: device
            .parts
            .iter()
            .map(|own| part(own, own.levers.iter().map(name).collect()))
            .collect(),
        contradictions: &device.contradictions,
        notes: &device.notes,
    }
}

fn finding(own: &Finding, whole: u64) -> JsonFinding<'_> {
    JsonFinding {
        knob: Knob::name(own.knob),
        value: own.value,
        ceiling_sectors: own.ceiling,
        ceiling_percent: percent(own.ceiling, whole),
        indirect_sectors: own.indirect,
        decided_sectors: own.decided,
        saturates_at: own.saturates_at,
        values: own.named.iter().map(|one| named(one, whole)).collect(),
        measured: own.measured.iter().map(measured).collect(),
        sentence: &own.sentence,
    }
}

fn named(own: &Named, whole: u64) -> JsonNamed<'_> {
    JsonNamed {
        knob: own.knob.name(),
        value: own.value,
        asked: own.asked,
        ceiling_sectors: own.ceiling,
        ceiling_percent: percent(own.ceiling, whole),
        estimate_sectors: own.estimate,
        why: &own.why,
    }
}

fn measured(own: &Measured) -> JsonMeasured<'_> {
    JsonMeasured {
        profile: &own.profile,
        value: own.value,
        alone: own.alone,
        blocks: own.blocks.0,
        base_blocks: own.blocks.1,
        change_percent: own.change * 100.0,
        low_percent: own.interval.map(|(low, _)| low * 100.0),
        high_percent: own.interval.map(|(_, high)| high * 100.0),
        ceiling_sectors: own.ceiling,
        contradicts: own.contradicts,
    }
}

fn part<'a>(own: &'a Part, knobs: Vec<&'static str>) -> JsonPart<'a> {
    JsonPart {
        path: &own.path,
        trigger: &own.trigger,
        sectors: own.sectors,
        percent: own.tenths as f64 / 10.0,
        knobs,
        known: own.known,
        why: &own.why,
        by: own.by.as_deref(),
        file: own.file.as_deref(),
        every_s: own.every_s,
    }
}
