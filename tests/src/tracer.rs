//! Runs `writepath trace` beside a test. Entry: [`Tracer::start`] for the
//! background, [`Tracer::command`] for `-- CMD`. The test's own reading of
//! `/sys/block/DEV/stat` goes with every report.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::bed::Bed;
use crate::disk::DiskStat;
use crate::harness;
use crate::report::Report;

/// How long it may take to load, and to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// The tracer under test.
pub fn binary() -> Result<PathBuf> {
    let path = std::env::var_os("WRITEPATH_BIN")
        .map(PathBuf::from)
        .context("WRITEPATH_BIN must name the tracer's binary")?;
    path.canonicalize()
        .with_context(|| format!("WRITEPATH_BIN={}", path.display()))
}

/// Condition: there is a tracer to test.
pub fn available() -> Result<(), String> {
    binary().map(drop).map_err(|error| format!("{error:#}"))
}

/// A running `writepath trace`.
pub struct Tracer {
    child: Child,
    files: Files,
    before: DiskStat,
    device: String,
}

/// What a run leaves: standard output and error.
struct Files {
    stdout: PathBuf,
    stderr: PathBuf,
}

impl Files {
    fn new(bed: &Bed) -> Files {
        Files {
            stdout: bed.scratch("trace.json"),
            stderr: bed.scratch("trace.err"),
        }
    }

    fn report(&self, status: ExitStatus, stat: DiskStat) -> Result<Report> {
        let read = |path: &PathBuf| {
            let bytes = std::fs::read(path).with_context(|| format!("reading {}", path.display()));
            bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        };
        Report::new(status, &read(&self.stdout)?, read(&self.stderr)?, stat)
    }
}

fn arguments(bed: &Bed, extra: &[&str]) -> Vec<String> {
    let device = bed.node().to_string_lossy().into_owned();
    let mut args: Vec<String> = ["trace", "--json", "-d", &device]
        .map(str::to_owned)
        .to_vec();
    args.extend(extra.iter().map(|&arg| arg.to_owned()));
    args
}

impl Tracer {
    /// Starts it on the bed's disk and waits until it traces.
    pub fn start(bed: &Bed, extra: &[&str]) -> Result<Tracer> {
        let files = Files::new(bed);
        let ready = bed.scratch("ready");
        let _ = std::fs::remove_file(&ready);
        let before = bed.stat()?;
        let child = Command::new(binary()?)
            .args(arguments(bed, extra))
            .arg("--ready-file")
            .arg(&ready)
            .stdin(Stdio::null())
            .stdout(File::create(&files.stdout)?)
            .stderr(File::create(&files.stderr)?)
            .spawn()
            .context("starting the tracer")?;
        let mut tracer = Tracer {
            child,
            files,
            before,
            device: bed.name(),
        };
        let end = Instant::now() + PATIENCE * harness::scaled(1, 5);
        while !ready.exists() {
            if let Some(status) = tracer.child.try_wait()? {
                bail!(
                    "the tracer ended before it was ready: {status}\n{}",
                    tracer.errors()
                );
            }
            if Instant::now() > end {
                bail!(
                    "the tracer is not ready after {PATIENCE:?}\n{}",
                    tracer.errors()
                );
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(tracer)
    }

    /// Sends `signal` without waiting for what follows.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(self.child.id() as i32).context("the tracer's pid")?;
        kill_process(pid, signal).context("signalling the tracer")
    }

    /// Ends it by SIGINT and reads what it says.
    pub fn stop(self) -> Result<Report> {
        self.signal(Signal::INT)?;
        self.wait()
    }

    /// Waits for its end by itself (`--duration`, or a signal already sent).
    pub fn wait(mut self) -> Result<Report> {
        let end = Instant::now() + PATIENCE * harness::scaled(1, 5);
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            if Instant::now() > end {
                bail!("the tracer does not end\n{}", self.errors());
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let stat = DiskStat::read(&self.device)?.since(self.before);
        self.files.report(status, stat)
    }

    /// `writepath trace … -- COMMAND`, with `stdin` for the command.
    pub fn command(bed: &Bed, extra: &[&str], command: &[String], stdin: File) -> Result<Report> {
        let files = Files::new(bed);
        let before = bed.stat()?;
        let status = Command::new(binary()?)
            .args(arguments(bed, extra))
            .arg("--")
            .args(command)
            .stdin(stdin)
            .stdout(File::create(&files.stdout)?)
            .stderr(File::create(&files.stderr)?)
            .status()
            .context("running the tracer")?;
        let stat = bed.stat()?.since(before);
        files.report(status, stat)
    }

    fn errors(&self) -> String {
        std::fs::read_to_string(&self.files.stderr).unwrap_or_default()
    }
}

/// Traces `body` on a bed at rest, and what follows until it is at rest again.
pub fn traced<T>(bed: &Bed, body: impl FnOnce() -> Result<T>) -> Result<(T, Report)> {
    bed.settle()?;
    let tracer = Tracer::start(bed, &[])?;
    let result = body()?;
    bed.settle()?;
    Ok((result, tracer.stop()?))
}

impl Drop for Tracer {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
