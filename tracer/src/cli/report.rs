//! `writepath report`: says what is in recordings, on any machine.

use crate::{
    output::{
        events,
        report::{self, Report},
    },
    recording::Reader,
};
use anyhow::Context;
use clap::Args;
use std::{
    fs::File,
    io::{BufReader, BufWriter, Write},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Options of `report`, as typed.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Recordings.
    #[arg(value_name = "FILE", default_value = "writepath.data")]
    files: Vec<PathBuf>,
    /// Print one JSON object, schema writepath.report/1.
    #[arg(short, long)]
    json: bool,
    /// Print every event, one JSON object a line, schema writepath.events/1.
    #[arg(long, conflicts_with = "json")]
    events: bool,
}

/// Runs `report`.
pub fn run(args: &ReportArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let shown = |file: &PathBuf| file.display().to_string();
    if args.events {
        for file in &args.files {
            events(file, out).with_context(|| shown(file))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut reports = Vec::new();
    for file in &args.files {
        reports.push(read(file).with_context(|| shown(file))?);
    }
    if args.json {
        report::write_json(out, &reports)?;
    } else {
        for report in &reports {
            report::write_text(out, report)?;
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn open(path: &Path) -> anyhow::Result<Reader<BufReader<File>>> {
    let file = File::open(path).context("cannot open the recording")?;
    Ok(Reader::open(BufReader::new(file))?)
}

fn events(path: &Path, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut reader = open(path)?;
    let mut out = BufWriter::new(out);
    events::write_head(&mut out)?;
    let start = reader.start().clone();
    for event in reader.by_ref() {
        events::write(&mut out, &event?, &start)?;
    }
    out.flush()?;
    if let Some(cut) = &reader.totals().cut {
        eprintln!("writepath: {} is cut short: {cut}", path.display());
    }
    Ok(())
}

fn read(path: &Path) -> anyhow::Result<Report> {
    let mut reader = open(path)?;
    for event in reader.by_ref() {
        event?;
    }
    Ok(Report {
        file: path.as_os_str().as_bytes().to_vec(),
        header: *reader.header(),
        start: reader.start().clone(),
        totals: reader.totals().clone(),
        ledger: reader.ledger().map(str::to_owned),
    })
}
