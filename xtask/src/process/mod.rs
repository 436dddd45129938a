//! Children: each with a time-out, in a process group of its own that ends
//! with it, with its output shown, kept or scanned line by line.

mod group;
mod lines;
mod running;

use std::ffi::{OsStr, OsString};
use std::io::PipeReader;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use group::Group;
use lines::{Tail, read_lines};

pub use group::{catch_signals, is_root, signalled};
pub use running::Running;

/// Longest command in a message, in characters.
const NAME_LENGTH: usize = 120;

/// A command with a time-out.
pub struct Cmd {
    command: Command,
    timeout: Duration,
}

impl Cmd {
    /// A command that reads nothing and may take ten minutes.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        let mut command = Command::new(program);
        command.stdin(Stdio::null());
        Self {
            command,
            timeout: Duration::from_mins(10),
        }
    }

    /// Adds arguments.
    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.command.args(args);
        self
    }

    /// Adds an argument.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, key: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.command.env(key, value);
        self
    }

    /// Sets the working directory.
    pub fn dir(mut self, dir: impl AsRef<Path>) -> Self {
        self.command.current_dir(dir);
        self
    }

    /// Sets the time-out, in seconds.
    pub fn timeout_s(mut self, seconds: u64) -> Self {
        self.timeout = Duration::from_secs(seconds);
        self
    }

    /// Runs with xtask's own output; fails unless it ends with status 0.
    pub fn run(mut self) -> Result<()> {
        let child = self.spawn()?;
        let status = self.wait(child)?;
        self.succeeded(status)
    }

    /// Runs with its standard output going to a file.
    pub fn run_into(mut self, file: std::fs::File) -> Result<()> {
        self.command.stdout(file);
        self.run()
    }

    /// Runs without showing the output, unless the command fails.
    pub fn run_quiet(self) -> Result<()> {
        let mut kept = Tail::default();
        let name = self.name();
        match self.scan(|line| kept.push(line)) {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => bail!("{}{name} {}", kept.text(), ended(status)),
            Err(error) => Err(error.context(kept.text())),
        }
    }

    /// Runs and gives the standard output; standard error is xtask's own.
    pub fn output(mut self) -> Result<String> {
        let (reader, writer) = std::io::pipe().context("pipe")?;
        self.command.stdout(writer);
        let mut text = String::new();
        let status = self.follow(reader, |line| {
            text.push_str(line);
            text.push('\n');
        })?;
        self.succeeded(status)?;
        Ok(text)
    }

    /// Runs and hands over each line of both outputs, in order, as it comes.
    /// A non-zero status is the caller's to judge.
    pub fn scan(mut self, each: impl FnMut(&str)) -> Result<ExitStatus> {
        let (reader, writer) = std::io::pipe().context("pipe")?;
        self.command
            .stdout(writer.try_clone().context("pipe")?)
            .stderr(writer);
        self.follow(reader, each)
    }

    /// Starts in the background; both outputs are kept to be waited for.
    pub fn start(mut self) -> Result<Running> {
        let (reader, writer) = std::io::pipe().context("pipe")?;
        self.command
            .stdout(writer.try_clone().context("pipe")?)
            .stderr(writer);
        let child = self.spawn()?;
        let name = self.name();
        // Closes the writing ends in here, so that the reader ends.
        drop(self);
        Ok(Running::new(child, name, reader))
    }

    fn follow(&mut self, reader: PipeReader, mut each: impl FnMut(&str)) -> Result<ExitStatus> {
        let child = self.spawn()?;
        // The writing ends in here must close, or the reader never ends.
        self.command.stdout(Stdio::null()).stderr(Stdio::inherit());
        let lines = read_lines(reader);
        let group = Group::of(&child);
        let mut child = child;
        let start = Instant::now();
        let mut open = true;
        loop {
            if open {
                match lines.recv_timeout(Duration::from_millis(50)) {
                    Ok(line) => each(&line),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => open = false,
                }
            } else {
                std::thread::sleep(Duration::from_millis(5));
            }
            if let Some(status) = child.try_wait().context("wait")? {
                group.kill();
                // What is in the pipe still counts; a process that left the
                // group may hold it open, so do not wait for its end.
                while let Ok(line) = lines.recv_timeout(Duration::from_secs(2)) {
                    each(&line);
                }
                return Ok(status);
            }
            self.check_end(&mut child, &group, start)?;
        }
    }

    fn wait(&self, mut child: Child) -> Result<ExitStatus> {
        let group = Group::of(&child);
        let start = Instant::now();
        loop {
            if let Some(status) = child.try_wait().context("wait")? {
                group.kill();
                return Ok(status);
            }
            self.check_end(&mut child, &group, start)?;
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends the child on time-out or when xtask was told to end.
    fn check_end(&self, child: &mut Child, group: &Group, start: Instant) -> Result<()> {
        if let Some(signal) = signalled() {
            group.end(child, signal);
            bail!("{}: stopped by signal {signal}", self.name());
        }
        if start.elapsed() > self.timeout {
            group.end(child, libc::SIGTERM);
            bail!(
                "{}: not done after {} s, killed",
                self.name(),
                self.timeout.as_secs()
            );
        }
        Ok(())
    }

    fn spawn(&mut self) -> Result<Child> {
        self.command.process_group(0);
        self.command
            .spawn()
            .with_context(|| format!("{} cannot be started", self.name()))
    }

    fn succeeded(&self, status: ExitStatus) -> Result<()> {
        if status.success() {
            return Ok(());
        }
        bail!("{} {}", self.name(), ended(status))
    }

    /// The command as one would type it, cut when it is long.
    pub fn name(&self) -> String {
        let program = Path::new(self.command.get_program());
        let mut name = program
            .file_name()
            .map_or_else(OsString::new, OsString::from);
        for arg in self.command.get_args() {
            name.push(" ");
            name.push(arg);
        }
        let name = name.to_string_lossy();
        match name.char_indices().nth(NAME_LENGTH) {
            Some((end, _)) => format!("{}…", &name[..end]),
            None => name.into_owned(),
        }
    }
}

/// How a child ended, as words after its name.
pub fn ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with status {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended in an unknown way".to_owned(),
    }
}
