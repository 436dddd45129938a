//! A child in the background.

use std::io::PipeReader;
use std::process::{Child, ExitStatus};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::ended;
use super::group::{Group, signalled};
use super::lines::{Tail, read_lines};

/// How long a command in the background may take to be ready.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// A command in the background. Dropping it kills it.
pub struct Running {
    child: Child,
    group: Group,
    name: String,
    lines: Receiver<String>,
    kept: Tail,
}

impl Running {
    /// Takes over a child whose outputs go to a pipe.
    pub(super) fn new(child: Child, name: String, output: PipeReader) -> Self {
        Self {
            group: Group::of(&child),
            child,
            name,
            lines: read_lines(output),
            kept: Tail::default(),
        }
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until `ready` says so of a line of the output, or of the empty
    /// line that comes every few milliseconds of silence.
    pub fn wait_until(&mut self, ready: impl Fn(&str) -> bool) -> Result<()> {
        let end = Instant::now() + START_TIMEOUT;
        loop {
            let line = self.lines.recv_timeout(Duration::from_millis(5));
            let line = line.unwrap_or_default();
            if ready(&line) {
                return Ok(());
            }
            if !line.is_empty() {
                self.kept.push(&line);
            }
            if let Some(status) = self.child.try_wait().context("wait")? {
                bail!("{}{} {}", self.output(), self.name, ended(status));
            }
            if signalled().is_some() || Instant::now() > end {
                bail!("{}{} is not ready", self.output(), self.name);
            }
        }
    }

    /// Interrupts it as Ctrl-C does and gives its status and last output.
    pub fn interrupt(mut self) -> Result<(ExitStatus, String)> {
        self.group.end(&mut self.child, libc::SIGINT);
        let status = self.child.wait().context("wait")?;
        Ok((status, self.output()))
    }

    /// The last lines of output that no one waited for.
    fn output(&mut self) -> String {
        while let Ok(line) = self.lines.recv_timeout(Duration::from_millis(200)) {
            self.kept.push(&line);
        }
        self.kept.text()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // After an interrupt it is gone, and its number may be another's.
        if matches!(self.child.try_wait(), Ok(None)) {
            self.group.end(&mut self.child, libc::SIGTERM);
        }
    }
}
