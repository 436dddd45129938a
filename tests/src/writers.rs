//! Starts the known writers of [`crate::script`] and talks to them.
//! Entry: [`run`], [`Writer::spawn`].

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

pub use crate::script::{Queue, Random, Step, SyncCall};

/// Bytes of a filesystem block in these beds.
pub const BLOCK: u64 = 4096;
/// Sectors of a filesystem block.
pub const BLOCK_SECTORS: u64 = BLOCK / 512;

/// Who wrote: as the tracer must name it.
#[derive(Clone, Debug)]
pub struct Done {
    pub pid: u32,
    pub comm: String,
}

/// A running writer.
pub struct Writer {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    comm: String,
}

impl Writer {
    /// Starts a process named `comm` (15 bytes at most) with these steps.
    pub fn spawn(comm: &str, steps: &[Step]) -> Result<Writer> {
        Writer::start(comm, steps, Command::new("/proc/self/exe"))
    }

    /// The same in a process group of its own: it lives on when the test is
    /// killed, for as long as it takes to see that its standard input ended.
    pub fn spawn_apart(comm: &str, steps: &[Step]) -> Result<Writer> {
        let mut command = Command::new("/proc/self/exe");
        command.process_group(0);
        Writer::start(comm, steps, command)
    }

    fn start(comm: &str, steps: &[Step], mut command: Command) -> Result<Writer> {
        ensure!(comm.len() <= 15, "the kernel would cut the name {comm}");
        let mut child = command
            .args(["writer", comm])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting writer {comm}"))?;
        let mut stdin = child.stdin.take().context("no pipe to the writer")?;
        let mut line = serde_json::to_string(steps)?;
        line.push('\n');
        stdin.write_all(line.as_bytes())?;
        let stdout = child.stdout.take().context("no pipe from the writer")?;
        Ok(Writer {
            child,
            stdin: Some(stdin),
            stdout: BufReader::new(stdout),
            comm: comm.to_owned(),
        })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets it pass one [`Step::Wait`], or end a `RandomUntilTold`.
    pub fn go(&mut self) -> Result<()> {
        let stdin = self.stdin.as_mut().context("already told to end")?;
        stdin.write_all(b"\n").context("telling the writer")
    }

    /// The next line that it says; fails when it ends instead.
    pub fn hear(&mut self) -> Result<String> {
        let mut line = String::new();
        let got = self.stdout.read_line(&mut line)?;
        ensure!(got > 0, "writer {} ended without a word", self.comm);
        Ok(line.trim_end().to_owned())
    }

    /// Waits for its end, which must be a success.
    pub fn wait(mut self) -> Result<Done> {
        self.stdin = None;
        let status = self.child.wait()?;
        ensure!(status.success(), "writer {}: {status}", self.comm);
        Ok(Done {
            pid: self.child.id(),
            comm: self.comm.clone(),
        })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Its end may be all that it needs to tidy up.
        self.stdin = None;
        let end = Instant::now() + Duration::from_secs(1);
        while Instant::now() < end && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(5));
        }
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Runs a writer to its end.
pub fn run(comm: &str, steps: &[Step]) -> Result<Done> {
    Writer::spawn(comm, steps)?.wait()
}

/// The command line of a writer, for `writepath trace -- CMD…`, and the file
/// that must be its standard input.
pub fn command(comm: &str, steps: &[Step], script: &Path) -> Result<(Vec<String>, File)> {
    let mut line = serde_json::to_string(steps)?;
    line.push('\n');
    std::fs::write(script, line)?;
    let exe = std::fs::read_link("/proc/self/exe")?;
    let args = vec![
        exe.to_string_lossy().into_owned(),
        "writer".to_owned(),
        comm.to_owned(),
    ];
    Ok((args, File::open(script)?))
}

/// Blocks that hold bytes `at .. at + len`.
pub fn blocks(at: u64, len: u64) -> u64 {
    (at + len).div_ceil(BLOCK) - at / BLOCK
}

/// Sectors that appends of `len` bytes cost when each is written back alone.
pub fn append_sectors(from: u64, len: u64, count: u64) -> u64 {
    (0..count)
        .map(|n| blocks(from + n * len, len) * BLOCK_SECTORS)
        .sum()
}

pub fn open(path: impl Into<PathBuf>, flags: &str) -> Step {
    Step::Open {
        path: path.into(),
        flags: flags.to_owned(),
    }
}

pub fn repeat(count: u64, steps: Vec<Step>) -> Step {
    Step::Repeat { count, steps }
}

/// A file of `blocks` blocks, written, synced and closed.
pub fn filled(path: impl Into<PathBuf>, blocks: u64) -> Vec<Step> {
    vec![
        open(path, "rw creat trunc"),
        repeat(blocks, vec![Step::Write { len: BLOCK }]),
        Step::Sync(SyncCall::Fsync),
        Step::Close,
    ]
}
