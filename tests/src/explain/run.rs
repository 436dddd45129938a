//! Traces a stretch with its commits one by one, and has it explained.
//! Entry: [`explained`].

use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::bed::Bed;
use crate::report::Report;
use crate::tracer::{self, Tracer};

/// A trace and its explanation.
pub struct Explained {
    pub trace: Report,
    /// The object of `explain --json`.
    json: Value,
    /// What `explain` prints.
    pub text: String,
}

/// Runs `writepath explain` with these arguments.
pub fn explain(args: &[&str]) -> Result<Output> {
    Command::new(tracer::binary()?)
        .arg("explain")
        .args(args)
        .output()
        .context("running explain")
}

/// Traces `body` on a settled bed and explains it; `knobs` are `--knob`s.
pub fn explained(
    bed: &Bed,
    knobs: &[&str],
    body: impl FnOnce() -> Result<()>,
) -> Result<Explained> {
    bed.settle()?;
    let tracer = Tracer::start(bed, &["--commits"])?;
    body()?;
    let trace = tracer.stop()?;
    trace.balanced().done()?;
    let file = bed.scratch("explained.json");
    std::fs::write(&file, trace.json.to_string())?;
    let file = file.to_string_lossy().into_owned();
    let mut args: Vec<&str> = knobs.iter().flat_map(|knob| ["--knob", knob]).collect();
    args.push(&file);
    let text = said(explain(&args)?)?;
    args.push("--json");
    let json: Value = serde_json::from_str(&said(explain(&args)?)?)?;
    let made = Explained { trace, json, text };
    made.sound()?;
    Ok(made)
}

fn said(output: Output) -> Result<String> {
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(
        output.status.success(),
        "explain: {}\n{errors}",
        output.status
    );
    Ok(String::from_utf8(output.stdout)?)
}

impl Explained {
    fn device(&self) -> &Value {
        &self.json["devices"][0]
    }

    /// The finding of a knob.
    pub fn knob(&self, name: &str) -> &Value {
        let knobs = self.device()["knobs"]
            .as_array()
            .map_or(&[][..], Vec::as_slice);
        knobs
            .iter()
            .find(|own| own["knob"] == name)
            .unwrap_or(&Value::Null)
    }

    /// Sectors that a knob can act on.
    pub fn ceiling(&self, name: &str) -> Result<u64> {
        let found = self.knob(name)["ceiling_sectors"].as_u64();
        found.with_context(|| format!("no ceiling of {name}: {}", self.json))
    }

    /// What a value that was asked for saves at most.
    pub fn ceiling_of(&self, name: &str, value: u64) -> Result<u64> {
        let values = self.knob(name)["values"].as_array();
        let found = values.and_then(|all| all.iter().find(|own| own["value"] == value));
        found
            .and_then(|own| own["ceiling_sectors"].as_u64())
            .with_context(|| format!("no ceiling of {name}={value}: {}", self.json))
    }

    /// Commits of one trigger in the list: how many, and their sectors.
    pub fn listed(&self, trigger: &str) -> (u64, u64) {
        let list = self.trace.device()["journal"]["commit_list"].as_array();
        let own = list
            .into_iter()
            .flatten()
            .filter(|one| one["trigger"] == trigger);
        own.fold((0, 0), |(count, sum), one| {
            let sectors = |key: &str| one[key].as_u64().unwrap_or(0);
            (
                count + 1,
                sum + sectors("sectors") + sectors("ordered_sectors"),
            )
        })
    }

    /// Fails unless all of the knobs have nothing to act on.
    pub fn nothing_acts(&self) -> Result<()> {
        for own in self.device()["knobs"].as_array().into_iter().flatten() {
            ensure!(own["ceiling_sectors"] == 0, "{own}\n{}", self.text);
        }
        Ok(())
    }

    /// Fails unless the sentence of a knob has all of these.
    pub fn says(&self, name: &str, parts: &[&str]) -> Result<()> {
        let sentence = self.knob(name)["sentence"].as_str().unwrap_or_default();
        for part in parts {
            ensure!(sentence.contains(part), "no {part:?} in: {sentence}");
        }
        Ok(())
    }

    /// What is true of every explanation.
    fn sound(&self) -> Result<()> {
        let device = self.device();
        let written = self.trace.count("sectors_written");
        ensure!(device["sectors_written"] == written, "{device}");
        let parts = device["parts"].as_array().map_or(&[][..], Vec::as_slice);
        let sectors: u64 = parts
            .iter()
            .filter_map(|part| part["sectors"].as_u64())
            .sum();
        ensure!(
            sectors == written,
            "parts have {sectors} of {written}: {device}"
        );
        let percent: f64 = parts
            .iter()
            .filter_map(|part| part["percent"].as_f64())
            .sum();
        ensure!(
            parts.is_empty() || (percent - 100.0).abs() < 1e-6,
            "parts add up to {percent} %"
        );
        for own in device["knobs"].as_array().into_iter().flatten() {
            ensure!(own["ceiling_sectors"].as_u64() <= Some(written), "{own}");
        }
        let wide: Vec<&str> = self
            .text
            .lines()
            .filter(|line| line.chars().count() > 80)
            .collect();
        ensure!(wide.is_empty(), "wider than 80 columns: {wide:?}");
        Ok(())
    }
}
