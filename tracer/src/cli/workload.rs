//! `writepath workload`: list, show and run the workloads.
//!
//! Turns what was typed into a checked [`IotFiles`], drives preparation, run
//! and removal, and writes the account. Account on stdout or in `--output`,
//! talk and progress on stderr.

use std::ffi::CString;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};

use crate::workload::iot_files::files::check_room;
use crate::workload::iot_files::{self, End, Files, Fsync, IotFiles, NAME, Place, Progress, Shape};
use crate::workload::pacing::Spread;
use crate::workload::report::{Report, binary};
use crate::workload::tree::{Dir, Space};
use crate::workload::{self, Stop, WorkloadError};

/// Exit status for what was typed wrong.
const USAGE: u8 = 2;

/// Write in a defined way and account for it.
#[derive(Debug, Args)]
pub struct WorkloadArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the workloads.
    List,
    /// Say what a workload does.
    Show {
        /// Its name, as listed.
        name: String,
    },
    /// Run a workload.
    Run {
        #[command(subcommand)]
        workload: Box<Run>,
    },
}

#[derive(Debug, Subcommand)]
enum Run {
    /// Many small files each updated once a period, one fsynced management file.
    ///
    /// The files are made in a fresh directory below DIR and synced to the
    /// device; then the clock starts. To trace the measured part alone, prepare
    /// first and trace the second command:
    ///
    ///   D=$(writepath workload run iot-files --on DIR --prepare-only)
    ///
    ///   writepath trace -d DIR -- writepath workload run iot-files --reuse "$D"
    #[command(name = NAME, verbatim_doc_comment)]
    IotFiles(IotFilesArgs),
}

/// What was typed; what was not takes the default that its text names, or with
/// `--reuse` what was prepared.
#[derive(Debug, Args)]
struct IotFilesArgs {
    /// Work in a fresh directory below DIR, removed at the end.
    #[arg(long, value_name = "DIR", required_unless_present = "reuse")]
    on: Option<PathBuf>,
    /// Make the files, print their directory and end.
    #[arg(long, conflicts_with_all = ["reuse", "dry_run", "keep", "json", "output"])]
    prepare_only: bool,
    /// Run on the files that --prepare-only made; they are kept.
    #[arg(long, value_name = "SUBDIR", conflicts_with_all = ["on", "keep"])]
    reuse: Option<PathBuf>,
    /// Do not remove the files at the end.
    #[arg(long)]
    keep: bool,
    /// Show duration, bytes to be written and where; write nothing.
    #[arg(long, conflicts_with_all = ["json", "output"])]
    dry_run: bool,

    /// Number of data files [default: 5000].
    #[arg(long, value_name = "N")]
    files: Option<u32>,
    /// Size of a data file in KiB [default: 64].
    #[arg(long, value_name = "KIB")]
    file_kib: Option<u64>,
    /// Size of the management file in KiB, 0 for none [default: 440].
    #[arg(long, value_name = "KIB")]
    mgmt_kib: Option<u64>,
    /// Threads that update data files [default: 100, or one a file].
    #[arg(long, value_name = "N")]
    threads: Option<u32>,
    /// Each file is updated once in this time.
    #[arg(long, value_name = "DUR", default_value = "30s", value_parser = humantime::parse_duration)]
    period: Duration,
    /// Bytes of an update.
    #[arg(long, value_name = "BYTES", default_value_t = 4096)]
    update_bytes: u64,
    /// Where in its file an update goes: fixed, moving, header+moving, random,
    /// append, replace or rename.
    #[arg(long, default_value_t = Place::Fixed)]
    place: Place,
    /// Updates over the period or all at its start: even or burst.
    #[arg(long, default_value_t = Spread::Even)]
    spread: Spread,
    /// fsync of data files: never, update, every=DUR or writeback.
    #[arg(long, value_name = "WHEN", default_value = "never")]
    fsync: String,
    /// fsync of the management file, likewise.
    #[arg(long, value_name = "WHEN", default_value = "update")]
    mgmt_fsync: String,
    /// How long to run [default: 5m].
    #[arg(long, value_name = "DUR", value_parser = humantime::parse_duration, conflicts_with = "periods")]
    duration: Option<Duration>,
    /// How long to run, in periods.
    #[arg(long, value_name = "N")]
    periods: Option<u32>,
    /// Seed of payload and random places.
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Print the account as JSON, schema writepath.workload/1.
    #[arg(short, long)]
    json: bool,
    /// Write the account to FILE instead of stdout.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Runs the sub-command; data goes to `out`.
pub fn run(args: WorkloadArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let done = match args.command {
        Command::List => list(out),
        Command::Show { name } => show(&name, out),
        Command::Run { workload } => match *workload {
            Run::IotFiles(args) => run_iot_files(&args, out),
        },
    };
    match done {
        Err(error) if is_usage(&error) => {
            writeln!(io::stderr(), "error: {error:#}")?;
            Ok(ExitCode::from(USAGE))
        }
        done => done,
    }
}

fn is_usage(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref(),
        Some(WorkloadError::Parameter { .. } | WorkloadError::UnknownWorkload { .. })
    )
}

fn list(out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    for entry in workload::CATALOGUE {
        writeln!(out, "{:12} {}", entry.name, entry.summary)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn show(name: &str, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let entry = workload::find(name)?;
    writeln!(out, "{}: {}\n", entry.name, entry.summary)?;
    write!(out, "{}", entry.description)?;
    writeln!(out, "\nParameters: writepath workload run {name} --help")?;
    Ok(ExitCode::SUCCESS)
}

impl IotFilesArgs {
    /// The checked parameters; `prepared` is what `--reuse` found.
    fn resolve(&self, prepared: Option<Shape>) -> Result<IotFiles, WorkloadError> {
        let typed = [
            ("--files", self.files.map(u64::from), 5000),
            ("--file-kib", self.file_kib.map(kib), kib(64)),
            ("--mgmt-kib", self.mgmt_kib.map(kib), kib(440)),
        ];
        let [files, file_bytes, mgmt_bytes] = match prepared {
            None => typed.map(|(_, typed, default)| typed.unwrap_or(default)),
            Some(shape) => {
                let there = [u64::from(shape.files), shape.file_bytes, shape.mgmt_bytes];
                for ((option, typed, _), there) in typed.into_iter().zip(there) {
                    if typed.is_some_and(|typed| typed != there) {
                        return Err(WorkloadError::Parameter {
                            option,
                            why: "differs from what was prepared; leave it out".into(),
                        });
                    }
                }
                there
            }
        };
        let files = files as u32;
        let timer = || std::fs::read_to_string("/proc/sys/vm/dirty_writeback_centisecs");
        let spec = IotFiles {
            shape: Shape {
                files,
                file_bytes,
                mgmt_bytes,
            },
            threads: self.threads.unwrap_or(files.min(100)),
            period: self.period,
            update_bytes: self.update_bytes,
            place: self.place,
            spread: self.spread,
            fsync: Fsync::parse(&self.fsync, timer)?,
            mgmt_fsync: Fsync::parse(&self.mgmt_fsync, timer)?,
            duration: match self.periods {
                Some(periods) => self.period.saturating_mul(periods),
                None => self.duration.unwrap_or(Duration::from_mins(5)),
            },
            seed: self.seed,
        };
        spec.check()?;
        Ok(spec)
    }
}

fn kib(value: u64) -> u64 {
    value.saturating_mul(1024)
}

fn run_iot_files(args: &IotFilesArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    // Ledgers shall name the workload, not the program that it comes with.
    if let Ok(name) = CString::new(NAME) {
        rustix::thread::set_name(&name).context("cannot take the workload's name")?;
    }
    let stop = stop_on_signals()?;
    let Some(parent) = &args.on else {
        let path = args.reuse.as_deref().unwrap_or(Path::new("."));
        let files = Files::reuse(path)?;
        let spec = args.resolve(Some(files.shape()))?;
        check_room(files.top(), &spec, true)?;
        if args.dry_run {
            return dry_run(&spec, files.top(), args, out);
        }
        let mut output = Output::open(args, out)?;
        return measure(args, &spec, &files, 0, &stop, &mut output);
    };

    let spec = args.resolve(None)?;
    let parent = Dir::typed(parent)?;
    check_room(&parent, &spec, false)?;
    if args.dry_run {
        return dry_run(&spec, &parent, args, out);
    }
    let mut output = Output::open(args, out)?;
    let files = prepare(&parent, &spec, &stop)?;
    if args.prepare_only {
        output.write(&format!("{}\n", files.top().path().display()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let measured = measure(args, &spec, &files, spec.shape.bytes(), &stop, &mut output);
    if args.keep {
        writeln!(io::stderr(), "kept {}", files.top().path().display())?;
        return measured;
    }
    let removed = files.remove(&parent).context("cannot remove what was made");
    measured.and_then(|status| removed.map(|()| status))
}

fn prepare(parent: &Dir, spec: &IotFiles, stop: &Stop) -> anyhow::Result<Files> {
    let bar = bar(u64::from(spec.shape.files), "making files");
    let files = Files::prepare(parent, spec, stop, &mut |made| {
        bar.set_position(u64::from(made));
        if made == spec.shape.files {
            bar.set_message("syncing");
        }
    });
    bar.finish_and_clear();
    Ok(files?)
}

/// The measured part and its account.
fn measure(
    args: &IotFilesArgs,
    spec: &IotFiles,
    files: &Files,
    prepared_bytes: u64,
    stop: &Stop,
    output: &mut Output,
) -> anyhow::Result<ExitCode> {
    writeln!(
        io::stderr(),
        "{NAME} in {} for {}, seed {}",
        files.top().path().display(),
        humantime::format_duration(spec.duration),
        spec.seed
    )?;
    let bar = bar(spec.duration.as_millis() as u64, "updating");
    let outcome = iot_files::run(spec, files, stop, &mut |at: Progress| {
        bar.set_position(at.elapsed.as_millis() as u64);
        bar.set_message(format!("{} updates, {} late", at.updates, at.late));
    });
    bar.finish_and_clear();
    let outcome = outcome?;
    let report = Report::new(spec, files, prepared_bytes, &outcome);
    let text = if args.json {
        serde_json::to_string_pretty(&report)? + "\n"
    } else {
        report.text()
    };
    output.write(&text)?;
    match outcome.end {
        End::Complete | End::Stopped => Ok(ExitCode::SUCCESS),
        End::Failed(error) => Err(error.into()),
    }
}

fn dry_run(
    spec: &IotFiles,
    dir: &Dir,
    args: &IotFilesArgs,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let plan = spec.plan();
    let space = Space::of(dir).context("statvfs")?;
    let mb = |bytes: u64| format!("{:.3} MB", bytes as f64 / 1e6);
    let mut text = String::new();
    writeln!(
        text,
        "{NAME}: would run for {} with seed {} and change no knob",
        humantime::format_duration(spec.duration),
        spec.seed
    )?;
    if args.on.is_some() {
        writeln!(
            text,
            "in a fresh directory {}/{NAME}-XXXXXX, {} at the end\n\
             before the clock starts: {} in {} files of {} and one of {}, synced",
            dir.path().display(),
            if args.keep { "kept" } else { "removed" },
            mb(plan.prepare_bytes),
            spec.shape.files,
            binary(spec.shape.file_bytes),
            binary(spec.shape.mgmt_bytes)
        )?;
    } else {
        writeln!(text, "in {}, kept at the end", dir.path().display())?;
    }
    writeln!(
        text,
        "then: {} in {} updates of data files\n      {} in {} updates of the management file",
        mb(plan.data_bytes),
        plan.data_updates,
        mb(plan.mgmt_bytes),
        plan.mgmt_updates
    )?;
    writeln!(
        text,
        "free now: {} of {}",
        mb(space.available),
        mb(space.total)
    )?;
    out.write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// A bar on stderr, shown only on a terminal.
fn bar(length: u64, message: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("[{bar:30}] {percent:>3}% {msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ");
    let bar = ProgressBar::new(length).with_style(style);
    bar.set_message(message);
    bar
}

/// Where the account goes.
enum Output<'a> {
    Stdout(&'a mut dyn Write),
    File(std::fs::File),
}

impl<'a> Output<'a> {
    /// Opens FILE before anything is made or measured: only its owner may read
    /// it, a link is not followed, and what is there must be a plain file.
    fn open(args: &IotFilesArgs, out: &'a mut dyn Write) -> anyhow::Result<Self> {
        use rustix::fs::{Mode, OFlags};
        let Some(path) = &args.output else {
            return Ok(Output::Stdout(out));
        };
        let open = || -> io::Result<std::fs::File> {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let fd = rustix::fs::open(path, flags | OFlags::NONBLOCK, Mode::RUSR | Mode::WUSR)?;
            let file = std::fs::File::from(fd);
            if !file.metadata()?.is_file() {
                return Err(io::Error::other("not a plain file"));
            }
            file.set_len(0)?;
            Ok(file)
        };
        let file = open().with_context(|| format!("--output {}", path.display()))?;
        Ok(Output::File(file))
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        match self {
            Output::Stdout(out) => {
                out.write_all(text.as_bytes())?;
                out.flush()
            }
            Output::File(file) => file.write_all(text.as_bytes()),
        }
    }
}

/// A flag that SIGINT, SIGTERM and SIGHUP raise.
fn stop_on_signals() -> anyhow::Result<Stop> {
    use tokio::signal::unix::{SignalKind, signal};
    let stop = Stop::new();
    let raised = stop.clone();
    let (ready, is_ready) = std::sync::mpsc::channel();
    // A thread of its own, so that it does not matter whether the caller is
    // inside a runtime.
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            let watch = || -> io::Result<()> {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()?;
                runtime.block_on(async {
                    let mut interrupt = signal(SignalKind::interrupt())?;
                    let mut terminate = signal(SignalKind::terminate())?;
                    let mut hangup = signal(SignalKind::hangup())?;
                    let _ = ready.send(Ok(()));
                    tokio::select! {
                        _ = interrupt.recv() => {}
                        _ = terminate.recv() => {}
                        _ = hangup.recv() => {}
                    }
                    raised.raise();
                    Ok(())
                })
            };
            if let Err(error) = watch() {
                let _ = ready.send(Err(error));
            }
        })
        .context("cannot start the thread for signals")?;
    is_ready
        .recv()
        .map_err(io::Error::other)
        .and_then(|ready| ready)
        .context("cannot watch for signals")?;
    Ok(stop)
}

#[cfg(test)]
mod tests;
