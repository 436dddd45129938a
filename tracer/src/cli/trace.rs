//! `writepath trace`: runs a session until it is told to end, and writes the
//! ledger.

use super::{
    run::{RunArgs, Watcher},
    stop::Signals,
    typed::{create, parse_duration},
    verdict::verdict,
};
use crate::{
    attribute::summary::Filter,
    bed::Bed,
    model::ledger::Run,
    output::{json, text},
    session::Session,
};
use anyhow::Context;
use clap::Args;
use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

/// Options of `trace`, as typed.
#[derive(Debug, Args)]
pub struct TraceArgs {
    #[command(flatten)]
    run: RunArgs,
    /// Print one ledger each interval.
    #[arg(short, long, value_name = "DUR", value_parser = parse_duration)]
    interval: Option<Duration>,
    /// Print one JSON object.
    #[arg(short, long)]
    json: bool,
    /// Print JSON, one object a line.
    #[arg(long)]
    jsonl: bool,
    /// Write to this file (made anew) instead of stdout.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Rows of files and of dirtiers before the rest is one row.
    #[arg(long, value_name = "N")]
    top: Option<usize>,
    /// Show commits one by one.
    #[arg(long)]
    commits: bool,
    /// Show only what this process dirtied; repeatable.
    #[arg(short, long, value_name = "PID")]
    pid: Vec<u32>,
    /// Show only what processes of this name dirtied; repeatable.
    #[arg(long, value_name = "NAME")]
    comm: Vec<String>,
    /// Show only what cgroups with this in their path dirtied; repeatable.
    #[arg(long, value_name = "PART")]
    cgroup: Vec<String>,
    /// Show only files with this in their name; repeatable.
    #[arg(long, value_name = "PART")]
    file: Vec<String>,
}

/// Runs `trace`.
pub fn run(args: &TraceArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    args.run
        .with_bed(async |bed: Option<&Bed>| trace(args, bed, out).await)
}

struct Printer<'a> {
    args: &'a TraceArgs,
    filter: Filter,
    out: &'a mut dyn Write,
}

impl Printer<'_> {
    fn is_json(&self) -> bool {
        self.args.json || self.args.jsonl
    }

    fn print(&mut self, run: &mut Run) -> anyhow::Result<()> {
        run.filters = self.filter_words();
        self.write(run).with_context(|| match &self.args.output {
            Some(path) => format!("cannot write {}", path.display()),
            None => "cannot write to stdout".to_owned(),
        })
    }

    fn write(&mut self, run: &Run) -> io::Result<()> {
        if self.is_json() {
            let options = json::Options {
                top: self.args.top,
                commits: self.args.commits,
            };
            json::write(self.out, run, options)?;
        } else {
            let options = text::Options {
                top: self.args.top.unwrap_or(10),
                commits: self.args.commits,
            };
            text::write(self.out, run, options)?;
        }
        self.out.flush()
    }

    fn filter_words(&self) -> Vec<String> {
        let filter = &self.filter;
        let pids = filter.pids.iter().map(|pid| format!("pid={pid}"));
        let comms = filter.comms.iter().map(|comm| format!("comm={comm}"));
        let cgroups = filter.cgroups.iter().map(|part| format!("cgroup={part}"));
        let files = filter.files.iter().map(|part| format!("file={part}"));
        pids.chain(comms).chain(cgroups).chain(files).collect()
    }
}

impl Watcher for Printer<'_> {
    fn every(&self) -> Option<Duration> {
        self.args.interval
    }

    fn heard(&mut self, _: &mut Session) -> anyhow::Result<()> {
        Ok(())
    }

    fn step(&mut self, session: &mut Session) -> anyhow::Result<()> {
        self.print(&mut session.interval(&self.filter)?)
    }

    fn snapshot(&mut self, session: &mut Session) -> anyhow::Result<()> {
        self.print(&mut session.snapshot(&self.filter)?)
    }
}

async fn trace(
    args: &TraceArgs,
    bed: Option<&Bed>,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::new().context("cannot catch signals")?;
    let user = args.run.user()?;
    let output = args.output.as_deref();
    let mut file = output.map(|path| create(path, user)).transpose()?;
    let out: &mut dyn Write = match &mut file {
        Some(file) => file,
        None => out,
    };
    let mut session = Session::begin(&args.run.devices(bed))?;
    let mut printer = Printer {
        args,
        filter: Filter {
            pids: args.pid.clone(),
            comms: args.comm.clone(),
            cgroups: args.cgroup.clone(),
            files: args.file.clone(),
        },
        out,
    };
    let taken = printer.is_json() && args.output.is_none();
    let command = args
        .run
        .follow(&mut session, bed, &mut signals, taken, &mut printer)
        .await?;
    let mut run = if args.interval.is_some() {
        session.interval(&printer.filter)?
    } else {
        session.finish(&printer.filter)?
    };
    run.command = command;
    printer.print(&mut run)?;
    Ok(verdict(&args.run, &run, (0, 0)))
}
