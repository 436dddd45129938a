//! What a short run measured agrees with itself, and what it prints.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::short::{Short, can_throttle};
use crate::bad_input::call::Call;
use crate::harness::Test;

pub fn tests() -> Vec<Test> {
    vec![
        Test::new("experiment::short_run", short_run)
            .needs(can_throttle)
            .limit(120),
        Test::new("experiment::dry_run_does_nothing", dry_run),
    ]
}

fn number(value: &Value, key: &str) -> Result<f64> {
    value[key]
        .as_f64()
        .with_context(|| format!("{key} in {value}"))
}

fn short_run() -> Result<()> {
    let short = Short::new(0)?;
    let before = short.left()?;
    let ended = short
        .call(&["--blocks", "2", "--emulate", "30MB/s"])?
        .run()?;
    ended.status(&[0])?;
    short.comes_back(&before)?;
    for word in ["fast", "slow", "MiB/min"] {
        ensure!(ended.stdout.contains(word), "no {word}: {}", ended.told());
    }
    for line in ended.stdout.lines() {
        ensure!(line.chars().count() <= 80, "wider than a terminal: {line}");
    }
    let result = short.result()?;
    ensure!(result["schema"] == "writepath.experiment/1");
    ensure!(result["seed"] == 7, "{}", result["seed"]);
    let blocks = result["blocks"].as_array().context("blocks")?;
    ensure!(blocks.len() == 4, "{} blocks", blocks.len());
    let mut count: BTreeMap<&str, u32> = BTreeMap::new();
    for (order, block) in blocks.iter().enumerate() {
        agrees(&short, block, order)?;
        *count
            .entry(block["profile"].as_str().context("profile")?)
            .or_default() += 1;
    }
    ensure!(
        count == BTreeMap::from([("fast", 2), ("slow", 2)]),
        "{count:?}"
    );
    // The first round has each once.
    ensure!(
        blocks[0]["profile"] != blocks[1]["profile"],
        "not interleaved"
    );
    let account = &result["workload"]["account"];
    ensure!(account["schema"] == "writepath.workload/1", "{account}");
    private(&short)?;
    // The same table from the file.
    let out = short.out.to_string_lossy().into_owned();
    let shown = Call::new(["experiment", "show", &out])?.run()?;
    shown.status(&[0])?;
    ensure!(
        ended.stdout.contains(shown.stdout.trim()) || shown.stdout.contains(ended.stdout.trim()),
        "show differs from the run:\n{}\n---\n{}",
        shown.stdout,
        ended.stdout
    );
    Call::new(["experiment", "compare", &out, &out])?
        .run()?
        .status(&[0])?;
    let explained = Call::new(["explain", &out])?.run()?;
    explained.status(&[0])?;
    ensure!(
        explained.stdout.contains("what a knob can act on"),
        "{}",
        explained.told()
    );
    // A result is not written over.
    let again = short.call(&["--quick"])?.run()?;
    again.status(&[1, 2])?.says(&["out"])?;
    short.comes_back(&before)
}

/// One block: its parts sum up, and the books of its trace close.
fn agrees(short: &Short, block: &Value, order: usize) -> Result<()> {
    let told = format!("block {order}");
    let sectors = block["sectors"].as_u64().context("sectors")?;
    let rate = sectors as f64 / 2048.0 / (number(block, "duration_s")? / 60.0);
    ensure!(
        (number(block, "mib_per_min")? - rate).abs() < 0.01,
        "{told}: {rate} MiB/min by its sectors"
    );
    ensure!(sectors > 0, "{told}: nothing was written");
    let trace = &block["trace"];
    ensure!(
        trace["residual"] == 0,
        "{told}: residual {}",
        trace["residual"]
    );
    ensure!(
        trace["sectors_written"] == block["sectors"],
        "{told}: two counts"
    );
    let rows = trace["paths"].as_array().context("paths")?;
    let sum: u64 = rows.iter().filter_map(|row| row["sectors"].as_u64()).sum();
    ensure!(sum == sectors, "{told}: paths sum up to {sum} of {sectors}");
    let windows = block["windows"].as_array().context("windows")?;
    ensure!(!windows.is_empty(), "{told}: no window");
    let drawn: u64 = windows.iter().filter_map(|w| w["sectors"].as_u64()).sum();
    ensure!(
        drawn == sectors,
        "{told}: windows hold {drawn} of {sectors}"
    );
    for key in ["dirty_before_bytes", "dirty_after_bytes"] {
        ensure!(block[key].is_u64() || block[key].is_null(), "{told}: {key}");
    }
    let samples = short
        .out
        .join(block["samples_file"].as_str().context("samples")?);
    let text = fs::read_to_string(&samples).with_context(|| samples.display().to_string())?;
    ensure!(text.lines().count() >= 2, "{told}: few samples");
    for line in text.lines() {
        let sample: Value = serde_json::from_str(line)?;
        ensure!(
            number(&sample, "threshold_bytes")? > 0.0,
            "{told}: {sample}"
        );
    }
    Ok(())
}

/// Results are their owner's alone.
fn private(short: &Short) -> Result<()> {
    let mode = |path: &std::path::Path| -> Result<u32> {
        Ok(fs::metadata(path)?.permissions().mode() & 0o777)
    };
    ensure!(mode(&short.out)? == 0o700, "the result is open to others");
    for entry in fs::read_dir(&short.out)?.flatten() {
        let found = mode(&entry.path())?;
        ensure!(
            found == 0o600,
            "{} has mode {found:o}",
            entry.path().display()
        );
    }
    Ok(())
}

fn dry_run() -> Result<()> {
    let short = Short::new(0)?;
    let before = short.left()?;
    let ended = short.call(&["--dry-run", "--emulate", "30MB/s"])?.run()?;
    ended.status(&[0])?;
    for word in ["MiB", "fast", "vm.dirty_expire_centisecs=100", "commit=2"] {
        ensure!(ended.stdout.contains(word), "no {word}: {}", ended.told());
    }
    ensure!(!short.out.exists(), "a dry run has made a result");
    short.comes_back(&before)
}
