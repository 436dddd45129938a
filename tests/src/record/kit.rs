//! Records a known sequence and reads the recording by `writepath report`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;

use crate::bad_input::call::{Call, Ended, Running};
use crate::bed::Bed;
use crate::writers::{Done, Step, Writer};

/// What a recording holds, as `report` tells it.
pub struct Recorded {
    /// How the recorder ended.
    pub ended: Ended,
    /// The recording's object of `writepath.report/1`.
    pub report: Value,
    /// Its events, oldest first.
    pub events: Vec<Value>,
}

/// Starts a recorder of a bed's disk, which writes to the host's disk.
pub fn start(bed: &Bed, file: &Path, extra: &[&str]) -> Result<Running> {
    let node = bed.node();
    let mut args = vec!["record", "-d", text(&node)?, "-o", text(file)?];
    args.extend(extra);
    Call::new(args)?.start()
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path that is no text")
}

/// Where a test's recording goes.
pub fn file(bed: &Bed) -> PathBuf {
    bed.scratch("writepath.data")
}

/// Records a writer that has its files open already: its steps follow a wait.
pub fn record(bed: &Bed, extra: &[&str], steps: &[Step]) -> Result<(Recorded, Done)> {
    let mut all = vec![Step::Say("there".to_owned()), Step::Wait];
    all.extend_from_slice(steps);
    let mut writer = Writer::spawn("recorded", &all)?;
    writer.hear()?;
    bed.settle()?;
    let file = file(bed);
    let running = start(bed, &file, extra)?;
    writer.go()?;
    let done = writer.wait()?;
    running.signal(Signal::INT)?;
    let ended = running.wait()?;
    ended.status(&[0])?;
    // What was recorded can be explained, too.
    Call::new(["explain", text(&file)?])?.run()?.status(&[0])?;
    Ok((read(ended, &file)?, done))
}

/// Reads a recording back.
pub fn read(ended: Ended, file: &Path) -> Result<Recorded> {
    let report = Call::new(["report", "--json", text(file)?])?.run()?;
    report.status(&[0])?;
    let report = report.json()?["recordings"][0].clone();
    let told = Call::new(["report", "--events", text(file)?])?.run()?;
    told.status(&[0])?;
    let events = told.stdout.lines().skip(1);
    let events: Result<Vec<Value>, _> = events.map(serde_json::from_str).collect();
    let events = events.with_context(|| told.told())?;
    let times: Vec<f64> = events.iter().filter_map(|e| e["t_s"].as_f64()).collect();
    ensure!(times.is_sorted(), "events are not in order of time");
    Ok(Recorded {
        ended,
        report,
        events,
    })
}

impl Recorded {
    /// Events of a kind.
    pub fn of<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.events
            .iter()
            .filter(move |event| event["event"] == kind)
    }

    /// Events of a kind on an inode.
    pub fn on<'a>(&'a self, kind: &'a str, ino: u64) -> Vec<&'a Value> {
        self.of(kind).filter(|event| event["ino"] == ino).collect()
    }

    /// First and last blocks of an inode's events of a kind.
    pub fn blocks(&self, kind: &str, ino: u64) -> Vec<(u64, u64)> {
        let number = |event: &Value, key: &str| event[key].as_u64().unwrap_or(u64::MAX);
        let events = self.on(kind, ino).into_iter();
        events
            .map(|event| (number(event, "first"), number(event, "last")))
            .collect()
    }

    /// It ended as it should, and nothing is lost.
    pub fn whole(&self) -> Result<()> {
        let lost = self.report["lost"]
            .as_object()
            .map_or(1, serde_json::Map::len);
        ensure!(
            self.report["whole"] == true && lost == 0,
            "not whole, or events lost: {}\n{}",
            self.report,
            self.ended.told()
        );
        let device = &self.report["ledger"]["devices"][0];
        ensure!(
            device["residual"] == 0,
            "its ledger does not close: {device}"
        );
        Ok(())
    }
}
