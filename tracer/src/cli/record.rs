//! `writepath record`: a traced run that is kept in a file, for reports and
//! explanations made later and elsewhere.

use super::{
    run::{RunArgs, Watcher},
    stop::Signals,
    typed::{create, parse_size},
    verdict::verdict,
};
use crate::{
    bed::Bed,
    output::json,
    recording::MAX_LEDGER,
    session::{
        Session,
        record::{Asked, Recorder},
    },
};
use anyhow::Context;
use clap::Args;
use std::{fs::File, os::unix::fs::MetadataExt, path::PathBuf, process::ExitCode, time::Duration};

/// Options of `record`, as typed.
#[derive(Debug, Args)]
pub struct RecordArgs {
    #[command(flatten)]
    run: RunArgs,
    /// The recording (made anew).
    #[arg(short, long, value_name = "FILE", default_value = "writepath.data")]
    output: PathBuf,
    /// Keep every write, so that other settings can be judged afterwards.
    #[arg(long)]
    writes: bool,
    /// Size of the recording at which writes stop being kept.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "256M",
          requires = "writes")]
    max_size: u64,
}

/// Runs `record`.
pub fn run(args: &RecordArgs) -> anyhow::Result<ExitCode> {
    args.run
        .with_bed(async |bed: Option<&Bed>| record(args, bed).await)
}

struct Recording(Recorder<File>);

impl Watcher for Recording {
    fn every(&self) -> Option<Duration> {
        Some(Duration::from_secs(1))
    }

    fn heard(&mut self, session: &mut Session) -> anyhow::Result<()> {
        Ok(self.0.take(session)?)
    }

    fn step(&mut self, session: &mut Session) -> anyhow::Result<()> {
        self.0.sample(session);
        Ok(())
    }

    fn snapshot(&mut self, _: &mut Session) -> anyhow::Result<()> {
        let (bytes, events) = self.0.size();
        eprintln!("writepath: {bytes} bytes with {events} events so far");
        Ok(())
    }
}

async fn record(args: &RecordArgs, bed: Option<&Bed>) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::new().context("cannot catch signals")?;
    let shown = args.output.display();
    let user = args.run.user()?;
    let asked = Asked {
        writes: args.writes,
        max_size_bytes: args.max_size,
    };
    let mut session = Session::begin_recorded(&args.run.devices(bed), asked)?;
    let file = create(&args.output, user)?;
    if file
        .metadata()
        .is_ok_and(|found| session.traces(found.dev()))
    {
        eprintln!(
            "writepath: {shown} is on a traced disk: what it takes is in the ledger as writepath's"
        );
    }
    let recorder = Recorder::begin(&session, asked, file).with_context(|| shown.to_string())?;
    let mut recording = Recording(recorder);
    let followed = args
        .run
        .follow(&mut session, bed, &mut signals, false, &mut recording)
        .await;
    let mut recorder = recording.0;
    let command = followed.with_context(|| shown.to_string())?;
    let mut run = recorder.close(&mut session)?;
    run.command = command;
    let full = recorder.full_ns();
    let (lost, of) = (recorder.lost(), recorder.size().1);
    let mut ledger = Vec::new();
    let options = |commits| json::Options { top: None, commits };
    json::write(&mut ledger, &run, options(true))?;
    if ledger.len() > MAX_LEDGER {
        // Its commits are events of the recording all the same.
        ledger.clear();
        json::write(&mut ledger, &run, options(false))?;
    }
    let file = recorder.end(&ledger).with_context(|| shown.to_string())?;
    let bytes = file.metadata().map_or(0, |found| found.len());
    eprintln!("writepath: {shown}: {bytes} bytes; `writepath report {shown}` reads it");
    if let Some(ns) = full {
        let seconds = Duration::from_nanos(ns).as_secs_f64();
        eprintln!(
            "writepath: --max-size was reached after {seconds:.1} s: no writes from there on"
        );
    }
    Ok(verdict(&args.run, &run, (lost, of)))
}
