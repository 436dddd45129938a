//! `writepath trace`: runs a session until it is told to end, and writes the
//! ledger.

use super::{
    command::{self, Traced},
    status,
    stop::{Asked, Signals},
};
use crate::{
    attribute::summary::Filter,
    bed::{Bed, BedOptions},
    model::ledger::{CommandEnd, Run},
    output::{json, text},
    session::{Session, SessionError},
};
use anyhow::{Context, bail};
use clap::Args;
use std::{
    ffi::OsString,
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::{ExitCode, ExitStatus},
    time::Duration,
};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

/// Options of `trace`, as typed.
#[derive(Debug, Args)]
pub struct TraceArgs {
    /// Disk, partition or directory; repeatable. Default: each disk that is
    /// not loop, ram or zram and not built on another.
    #[arg(short, long, value_name = "DEV|DIR")]
    device: Vec<String>,
    /// Make a throw-away ext4 image of this size, trace it, and run CMD in it.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, conflicts_with = "device")]
    image: Option<u64>,
    /// Mount options of that image.
    #[arg(long, value_name = "OPTIONS", requires = "image", default_value = "")]
    image_mount: String,
    /// End after this time.
    #[arg(long, value_name = "DUR", value_parser = parse_duration)]
    duration: Option<Duration>,
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
    /// After CMD, wait until the device has got its data, at most this long.
    #[arg(long, value_name = "DUR", value_parser = parse_duration, num_args = 0..=1,
          require_equals = true, default_missing_value = "120s")]
    drain: Option<Duration>,
    /// After CMD, call syncfs; its writes are booked to writepath.
    #[arg(long)]
    sync: bool,
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
    /// Make this file once tracing has begun.
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
    /// Exit with 0 although CMD failed.
    #[arg(long)]
    ignore_failure: bool,
    /// Run CMD as this user (default: who called sudo).
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// Ring records that may be lost before the status is 4, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 0.1)]
    max_lost: f64,
    /// Sectors that may be unattributed before the status is 4, in percent;
    /// those in flight before do not count.
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0)]
    max_unattributed: f64,
    /// Say on stderr what was attached.
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Command to trace, after `--`.
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let plain: Result<f64, _> = text.parse();
    let duration = match plain {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())?,
        Err(_) => humantime::parse_duration(text).map_err(|error| error.to_string())?,
    };
    if duration.is_zero() {
        return Err("a duration must be more than 0, such as 60s or 1500ms".to_owned());
    }
    Ok(duration)
}

fn parse_size(text: &str) -> Result<u64, String> {
    let (number, unit) = text.split_at(text.trim_end_matches(char::is_alphabetic).len());
    let shift = match unit {
        "" => 0,
        "K" | "KiB" => 10,
        "M" | "MiB" => 20,
        "G" | "GiB" => 30,
        _ => {
            return Err(format!(
                "unknown unit {unit}; use K, M or G (powers of 1024)"
            ));
        }
    };
    let number: u64 = number
        .parse()
        .map_err(|_| format!("{text} is not a size, such as 512M"))?;
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| "too large".to_owned())
}

/// Runs `trace`.
pub fn run(args: &TraceArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    if args.command.is_empty() && (args.sync || args.drain.is_some()) {
        bail!("--sync and --drain need a command: writepath trace --sync -- CMD");
    }
    // The image's mount is private to this thread and what it starts, so it
    // is made before there are others.
    let bed = args.image.map(|size| make_bed(args, size)).transpose()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the event loop")?;
    let result = runtime.block_on(trace(args, bed.as_ref(), out));
    drop(bed);
    match result {
        Ok(code) => Ok(code),
        Err(error) => match error.downcast_ref::<SessionError>() {
            Some(
                SessionError::Privileges(_) | SessionError::Tracefs(_) | SessionError::Probe(_),
            ) => {
                eprintln!("writepath: {error:#}");
                Ok(ExitCode::from(status::UNABLE))
            }
            _ => Err(error),
        },
    }
}

fn make_bed(args: &TraceArgs, size: u64) -> anyhow::Result<Bed> {
    let user = command::user(args.user.as_deref())?;
    let bed = Bed::new(&BedOptions {
        size_bytes: size,
        mount_options: args.image_mount.clone(),
        owner: user.map(|user| (user.uid, user.gid)),
        ..BedOptions::default()
    })?;
    eprintln!(
        "writepath: ext4 image of {} MiB on {}",
        size >> 20,
        bed.device_name()
    );
    Ok(bed)
}

/// A file of ours for results: never through a link, for its owner alone.
fn create(path: &Path) -> anyhow::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
        .with_context(|| format!("cannot write {}", path.display()))
}

struct Printer<'a> {
    args: &'a TraceArgs,
    filter: Filter,
}

impl Printer<'_> {
    fn is_json(&self) -> bool {
        self.args.json || self.args.jsonl
    }

    fn print(&self, out: &mut dyn Write, run: &mut Run) -> anyhow::Result<()> {
        run.filters = self.filter_words();
        self.write(out, run)
            .with_context(|| match &self.args.output {
                Some(path) => format!("cannot write {}", path.display()),
                None => "cannot write to stdout".to_owned(),
            })
    }

    fn write(&self, out: &mut dyn Write, run: &Run) -> io::Result<()> {
        if self.is_json() {
            let options = json::Options {
                top: self.args.top,
                commits: self.args.commits,
            };
            json::write(out, run, options)?;
        } else {
            let options = text::Options {
                top: self.args.top.unwrap_or(10),
                commits: self.args.commits,
            };
            text::write(out, run, options)?;
        }
        out.flush()
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

async fn trace(
    args: &TraceArgs,
    bed: Option<&Bed>,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::new().context("cannot catch signals")?;
    let user = command::user(args.user.as_deref())?;
    let mut file = args.output.as_deref().map(create).transpose()?;
    let out: &mut dyn Write = match &mut file {
        Some(file) => file,
        None => out,
    };
    let devices = match bed {
        Some(bed) => vec![bed.device_name().to_owned()],
        None => args.device.clone(),
    };
    let mut session = Session::begin(&devices)?;
    let printer = Printer {
        args,
        filter: Filter {
            pids: args.pid.clone(),
            comms: args.comm.clone(),
            cgroups: args.cgroup.clone(),
            files: args.file.clone(),
        },
    };
    if args.verbose > 0 {
        say_hooks(&session);
    }
    if let Some(path) = &args.ready_file {
        create(path)?;
    }
    let mut traced = if args.command.is_empty() {
        eprintln!(
            "writepath: tracing {}; Ctrl-C ends",
            session.disk_names().join(" ")
        );
        None
    } else {
        let taken = printer.is_json() && args.output.is_none();
        let dir = bed.map(Bed::mount_point);
        Some(session.marking(|| command::start(&args.command, user, dir, taken))??)
    };
    let ended = follow(args, &mut session, &mut traced, &mut signals, &printer, out).await?;
    if let Some(ended) = &ended
        && ended.status.is_some()
    {
        settle_down(args, bed, &mut session).await?;
    }
    let mut run = if args.interval.is_some() {
        session.interval(&printer.filter)?
    } else {
        session.finish(&printer.filter)?
    };
    run.command = ended.and_then(|ended| ended.end);
    printer.print(out, &mut run)?;
    Ok(verdict(args, &run))
}

/// How following ended, where there was a command.
struct Ended {
    status: Option<ExitStatus>,
    end: Option<CommandEnd>,
}

/// How long a command's group has to end after a signal.
const MANNERS: Duration = Duration::from_secs(10);

async fn follow(
    args: &TraceArgs,
    session: &mut Session,
    traced: &mut Option<Traced>,
    signals: &mut Signals,
    printer: &Printer<'_>,
    out: &mut dyn Write,
) -> anyhow::Result<Option<Ended>> {
    let mut ring = interval(Duration::from_millis(100));
    let mut tick = interval(Duration::from_millis(500));
    for timer in [&mut ring, &mut tick] {
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    }
    let far = Duration::from_hours(24 * 365);
    let mut step = interval(args.interval.unwrap_or(far));
    step.tick().await;
    let mut until = Instant::now() + args.duration.unwrap_or(far);
    let mut told_to_end = false;
    loop {
        tokio::select! {
            asked = signals.next() => match asked {
                Asked::Snapshot => printer.print(out, &mut session.snapshot(&printer.filter)?)?,
                Asked::End(signal) => {
                    let Some(traced) = traced.as_ref().filter(|_| !told_to_end) else {
                        return Ok(None);
                    };
                    traced.signal(signal);
                    told_to_end = true;
                    until = Instant::now() + MANNERS;
                }
            },
            status = ended(traced) => {
                let status = status.context("cannot wait for the command")?;
                let end = traced.as_ref().map(|traced| traced.end(status));
                // A command that was told to end did as it was told.
                let status = (!told_to_end).then_some(status);
                return Ok(Some(Ended { status, end: end.filter(|_| !told_to_end) }));
            }
            _ = ring.tick() => session.read_ring(),
            _ = tick.tick() => {
                if !session.tick()? {
                    eprintln!("writepath: a traced device vanished; ending");
                    return Ok(None);
                }
            }
            _ = step.tick() => printer.print(out, &mut session.interval(&printer.filter)?)?,
            () = sleep_until(until) => {
                let Some(traced) = traced.as_ref() else {
                    return Ok(None);
                };
                if told_to_end {
                    eprintln!("writepath: the command does not end; killing its group");
                    traced.signal(rustix::process::Signal::KILL);
                    return Ok(None);
                }
                traced.signal(rustix::process::Signal::TERM);
                told_to_end = true;
                until = Instant::now() + MANNERS;
            }
        }
    }
}

async fn ended(traced: &mut Option<Traced>) -> io::Result<ExitStatus> {
    match traced {
        Some(traced) => traced.wait().await,
        None => std::future::pending().await,
    }
}

/// After the command: `--sync` and `--drain`.
async fn settle_down(
    args: &TraceArgs,
    bed: Option<&Bed>,
    session: &mut Session,
) -> anyhow::Result<()> {
    if args.sync {
        let mut points: Vec<PathBuf> = session.mount_points();
        points.extend(bed.map(|bed| bed.mount_point().to_owned()));
        for point in points {
            let dir =
                File::open(&point).with_context(|| format!("cannot sync {}", point.display()))?;
            rustix::fs::syncfs(&dir).with_context(|| format!("syncfs of {}", point.display()))?;
        }
    }
    let Some(drain) = args.drain else {
        return Ok(());
    };
    let until = Instant::now() + drain;
    while Instant::now() < until {
        match session.dirty_bytes() {
            Ok(0) => return Ok(()),
            Ok(left) => eprint!("\rwritepath: {} KiB still dirty   ", left / 1024),
            Err(why) => bail!("--drain cannot see what is dirty: {why}"),
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        session.tick()?;
    }
    eprintln!("\nwritepath: --drain gave up: the rest is in still_dirty_bytes");
    Ok(())
}

fn say_hooks(session: &Session) {
    for hook in session.hooks() {
        let by = hook.by.map_or("missing", |candidate| candidate.program);
        eprintln!("writepath: {:<34} {by}", hook.step.hook.name);
        for failure in &hook.failures {
            eprintln!("writepath:   passed over: {failure}");
        }
    }
}

/// The exit status that a run deserves; says why on stderr.
fn verdict(args: &TraceArgs, run: &Run) -> ExitCode {
    let mut open = Vec::new();
    for device in &run.devices {
        if device.residual != 0 {
            open.push(format!("{}: residual {}", device.name, device.residual));
        }
        let unknown = device.sectors_unattributed - device.in_flight_before;
        let share = unknown as f64 * 100.0 / device.sectors_written.max(1) as f64;
        if share > args.max_unattributed {
            open.push(format!("{}: {share:.1} % unattributed", device.name));
        }
    }
    let in_maps = run.lost.in_maps();
    if in_maps > 0 {
        open.push(format!("{in_maps} map entries lost"));
    }
    let lost = run.lost.ring as f64 * 100.0 / run.lost.ring_offered.max(1) as f64;
    if lost > args.max_lost {
        open.push(format!("{lost:.2} % of ring records lost"));
    }
    if let Some(command) = &run.command {
        let how = match (command.code, command.signal) {
            (Some(0), _) => None,
            (Some(code), _) => Some(format!("exit status {code}")),
            (None, Some(signal)) => Some(format!("signal {signal}")),
            (None, None) => Some("unknown end".to_owned()),
        };
        if let Some(how) = how {
            eprintln!("writepath: {} failed: {how}", command.program);
            if !args.ignore_failure {
                return ExitCode::from(status::FAILURE);
            }
        }
    }
    if run.devices.iter().any(|device| device.vanished) {
        eprintln!("writepath: a device vanished: the ledger ends with its last reading");
        return ExitCode::from(status::FAILURE);
    }
    if open.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!("writepath: the books do not close: {}", open.join("; "));
    ExitCode::from(status::OPEN_BOOKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations() {
        assert_eq!(parse_size("512M"), Ok(512 << 20));
        assert_eq!(parse_size("1GiB"), Ok(1 << 30));
        assert!(parse_size("1T").is_err());
        assert!(parse_size("M").is_err());
        assert_eq!(parse_duration("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_duration("2min"), Ok(Duration::from_mins(2)));
        assert!(parse_duration("0").is_err());
        assert!(parse_duration("-1").is_err());
    }
}
