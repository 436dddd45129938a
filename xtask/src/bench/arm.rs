//! The arms of the comparison: nothing, writepath, and a script that only
//! counts sectors per thread.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::bed::Bed;
use crate::process::{Cmd, Running};

/// The least that a tracer of writes can do, by the hook where the thread is
/// still the one that writes. The interval says that all is attached: bpftrace
/// attaches in the order of the text.
pub const SCRIPT: &str = "tracepoint:block:block_bio_queue { @[comm] = sum(args->nr_sector); } \
     interval:ms:250 { printf(\"attached\\n\"); }";

/// Who traces.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Arm {
    /// No one.
    Untraced,
    /// We.
    Writepath,
    /// bpftrace.
    Script,
}

/// All arms.
pub const ARMS: [Arm; 3] = [Arm::Untraced, Arm::Writepath, Arm::Script];

/// What writepath said of a run: 0, or too much or too little was counted.
#[derive(Clone, Copy, Default)]
pub struct Loss {
    /// Records lost in the ring, and entries for which a map had no room.
    pub lost: u64,
    /// Sectors of the ledger's residual, without its sign.
    pub residual: u64,
    /// Sectors without a path.
    pub unattributed: u64,
    /// Sectors written.
    pub sectors: u64,
    /// Largest resident memory of the process, in KiB (`VmHWM`).
    pub memory_kib: u64,
}

impl Loss {
    /// Adds another run: sums, and the larger memory.
    pub fn add(&mut self, other: Self) {
        self.lost += other.lost;
        self.residual += other.residual;
        self.unattributed += other.unattributed;
        self.sectors += other.sectors;
        self.memory_kib = self.memory_kib.max(other.memory_kib);
    }
}

/// A tracer that has begun.
pub struct Tracing {
    tracer: Option<Running>,
    json: Option<PathBuf>,
}

impl Arm {
    /// For the raw figures.
    pub fn name(self) -> &'static str {
        match self {
            Arm::Untraced => "untraced",
            Arm::Writepath => "writepath",
            Arm::Script => "script",
        }
    }

    /// Starts the tracer and waits until it traces.
    pub fn start(self, bed: &Bed, writepath: &PathBuf, disk: &str) -> Result<Tracing> {
        match self {
            Arm::Untraced => Ok(Tracing {
                tracer: None,
                json: None,
            }),
            Arm::Script => {
                let mut tracer = Cmd::new("bpftrace")
                    .args(["-B", "line", "-e", SCRIPT])
                    .start()?;
                tracer.wait_until(|line| line == "attached")?;
                Ok(Tracing {
                    tracer: Some(tracer),
                    json: None,
                })
            }
            Arm::Writepath => {
                let (json, ready) = (bed.scratch("trace.json"), bed.scratch("ready"));
                for file in [&json, &ready] {
                    if file.exists() {
                        fs::remove_file(file).with_context(|| file.display().to_string())?;
                    }
                }
                let mut tracer = Cmd::new(writepath)
                    .args(["trace", "-d", disk, "--json", "--output"])
                    .arg(&json)
                    .arg("--ready-file")
                    .arg(&ready)
                    .start()?;
                tracer.wait_until(|_| ready.exists())?;
                Ok(Tracing {
                    tracer: Some(tracer),
                    json: Some(json),
                })
            }
        }
    }
}

impl Tracing {
    /// The tracer's process.
    pub fn pid(&self) -> Option<u32> {
        self.tracer.as_ref().map(Running::pid)
    }

    /// Ends it; writepath's own account of the run, if it was that.
    pub fn stop(self) -> Result<Option<Loss>> {
        let Some(tracer) = self.tracer else {
            return Ok(None);
        };
        let memory_kib = memory_kib(tracer.pid())?;
        let (status, output) = tracer.interrupt()?;
        let Some(json) = self.json else {
            return Ok(None);
        };
        // 4 says that something was lost: the figures tell what.
        if !matches!(status.code(), Some(0 | 4)) {
            bail!("{output}writepath {}", crate::process::ended(status));
        }
        let text = fs::read_to_string(&json).with_context(|| json.display().to_string())?;
        let json: Value = serde_json::from_str(&text).context("writepath's JSON")?;
        loss(&json, memory_kib).map(Some)
    }
}

fn loss(json: &Value, memory_kib: u64) -> Result<Loss> {
    let number = |value: &Value, key: &str| {
        value[key]
            .as_i64()
            .with_context(|| format!("writepath's JSON has no number {key}"))
    };
    let device = &json["devices"][0];
    let lost = &json["lost"];
    Ok(Loss {
        lost: (number(lost, "ring")? + number(lost, "maps")?) as u64,
        residual: number(device, "residual")?.unsigned_abs(),
        unattributed: number(device, "sectors_unattributed")?.unsigned_abs(),
        sectors: number(device, "sectors_written")?.unsigned_abs(),
        memory_kib,
    })
}

fn memory_kib(pid: u32) -> Result<u64> {
    let file = format!("/proc/{pid}/status");
    let text = fs::read_to_string(&file).with_context(|| file.clone())?;
    text.lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .and_then(|value| value.split_whitespace().next()?.parse().ok())
        .with_context(|| format!("{file} has no VmHWM"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_read_and_missing_ones_noticed() {
        let text = r#"{"lost": {"ring": 2, "maps": 1}, "devices": [{"residual": -8,
            "sectors_unattributed": 16, "sectors_written": 4096}]}"#;
        let loss = loss(&serde_json::from_str(text).unwrap(), 5).unwrap();
        assert_eq!((loss.lost, loss.residual), (3, 8));
        assert_eq!(
            (loss.unattributed, loss.sectors, loss.memory_kib),
            (16, 4096, 5)
        );
        assert!(super::loss(&serde_json::json!({"lost": {}}), 0).is_err());
    }
}
