//! `writepath explain`: reads a file and says which knob can act on what.

use crate::{
    explain::{self, Asked, read},
    output,
};
use anyhow::{Context, bail};
use clap::Args;
use std::{
    fs::File,
    io::{Read, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Options of `explain`, as typed.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// Also say what this value would save at most; repeatable.
    #[arg(long, value_name = "NAME=VALUE")]
    knob: Vec<Asked>,
    /// Explain this disk of those in the file.
    #[arg(short, long, value_name = "DEV")]
    device: Option<String>,
    /// Print one JSON object.
    #[arg(short, long)]
    json: bool,
    /// Output of `trace --json --commits`, a recording (`record`), or the directory or
    /// result.json of an experiment.
    #[arg(value_name = "FILE|RESULT")]
    path: PathBuf,
}

/// Larger files are none of ours: an hour of busy tracing is some 20 MB.
const MOST_BYTES: u64 = 256 << 20;

/// Runs `explain`.
pub fn run(args: &ExplainArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let path = if args.path.is_dir() {
        args.path.join("result.json")
    } else {
        args.path.clone()
    };
    let bytes = bounded(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let evidence = read::any(&bytes, args.device.as_deref())
        .with_context(|| format!("cannot explain {}", path.display()))?;
    drop(bytes);
    let explanation = explain::explain(&evidence, &args.knob);
    if args.json {
        output::explain::json::write(out, &explanation)?;
    } else {
        output::explain::write(out, &explanation)?;
    }
    for device in &explanation.devices {
        for contradiction in &device.contradictions {
            eprintln!("writepath: CONTRADICTION: {contradiction}");
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn bounded(path: &Path) -> anyhow::Result<Vec<u8>> {
    let file = File::open(path)?;
    let mut bytes = Vec::new();
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST_BYTES {
        bail!("it has more than {} MiB", MOST_BYTES >> 20);
    }
    Ok(bytes)
}
