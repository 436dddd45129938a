//! The four loads, as fio runs them.

use anyhow::{Context, Result};
use serde_json::Value;

use super::bed::{Bed, FILE};
use crate::process::Cmd;

/// A load.
pub struct Load {
    /// For `--load` and the raw figures.
    pub name: &'static str,
    /// For people.
    pub title: &'static str,
    args: &'static [&'static str],
}

/// The loads of the bar.
pub const LOADS: &[Load] = &[
    Load {
        name: "direct",
        title: "4 KiB random writes, O_DIRECT, depth 32",
        args: &[
            "--rw=randwrite",
            "--bs=4k",
            "--direct=1",
            "--ioengine=libaio",
            "--iodepth=32",
            "--norandommap",
        ],
    },
    Load {
        name: "buffered",
        title: "4 KiB random overwrites, buffered, one fsync at the end",
        args: &[
            "--rw=randwrite",
            "--bs=4k",
            "--ioengine=psync",
            "--norandommap",
            "--end_fsync=1",
        ],
    },
    Load {
        name: "fsync",
        title: "4 KiB random write + fsync",
        args: &[
            "--rw=randwrite",
            "--bs=4k",
            "--ioengine=psync",
            "--norandommap",
            "--fsync=1",
        ],
    },
    Load {
        name: "sequential",
        title: "1 MiB sequential, buffered, one fsync at the end",
        args: &["--rw=write", "--bs=1m", "--ioengine=psync", "--end_fsync=1"],
    },
];

/// What a run of a load did.
#[derive(Clone, Copy)]
pub struct Done {
    /// Writes per second, the time of the last fsync included.
    pub iops: f64,
    /// Writes.
    pub ios: f64,
}

impl Load {
    /// Runs it for so many seconds.
    pub fn run(&self, bed: &Bed, seconds: f64) -> Result<Done> {
        let text = Cmd::new("fio")
            .args(["--name=load", "--output-format=json", "--time_based"])
            .arg(format!("--runtime={}ms", (seconds * 1000.0) as u64))
            .arg(format!("--filename={}", bed.file().display()))
            .arg(format!("--size={FILE}"))
            .args(self.args)
            .timeout_s(120 + seconds as u64)
            .output()?;
        // fio may talk before the object.
        let json = text.find('{').map_or("", |start| &text[start..]);
        let json: Value = serde_json::from_str(json).context("fio's JSON")?;
        let write = &json["jobs"][0]["write"];
        let number = |key: &str| {
            write[key]
                .as_f64()
                .filter(|number| *number > 0.0)
                .with_context(|| format!("fio's write.{key} is {}", write[key]))
        };
        Ok(Done {
            iops: number("iops")?,
            ios: number("total_ios")?,
        })
    }
}
