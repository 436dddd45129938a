//! One run of the program, from its command line to what it left on its
//! outputs. Entry: [`Call`].

use std::ffi::OsStr;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::harness::{self, scaled};
use crate::tracer;

/// No run of these tests takes longer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A command line under construction.
pub struct Call {
    command: Command,
    shown: String,
}

/// A run that has begun.
pub struct Running {
    child: Child,
    shown: String,
    ready: PathBuf,
}

/// A run that has ended.
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
    shown: String,
}

impl Call {
    /// `writepath ARGS…`
    pub fn new<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Result<Call> {
        let mut command = Command::new(tracer::binary()?);
        command
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let shown = format!("{command:?}");
        Ok(Call { command, shown })
    }

    /// `writepath trace -d DEV ARGS…`
    pub fn trace(dev: &std::path::Path, args: &[&str]) -> Result<Call> {
        let mut all: Vec<&OsStr> = vec!["trace".as_ref(), "-d".as_ref(), dev.as_os_str()];
        all.extend(args.iter().map(|arg| OsStr::new(*arg)));
        Call::new(all)
    }

    /// As this user and group, without any capability.
    pub fn by_user(mut self, uid: u32, program: &std::path::Path) -> Call {
        let args: Vec<_> = self.command.get_args().map(OsStr::to_owned).collect();
        let mut command = Command::new(program);
        command
            .args(args)
            .uid(uid)
            .gid(uid)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        self.command = command;
        self
    }

    /// Standard output goes there.
    pub fn stdout(mut self, to: impl Into<Stdio>) -> Call {
        self.command.stdout(to);
        self
    }

    /// Starts it without waiting for anything.
    pub fn spawn(mut self) -> Result<Running> {
        let child = self
            .command
            .spawn()
            .with_context(|| format!("starting {}", self.shown))?;
        Ok(Running {
            child,
            shown: self.shown,
            ready: PathBuf::new(),
        })
    }

    /// Starts it and waits until it traces.
    pub fn start(mut self) -> Result<Running> {
        let number = std::time::UNIX_EPOCH.elapsed()?.as_nanos();
        let ready = harness::run_dir().join(format!("ready{number}"));
        // Options end where CMD begins, so this one goes in front.
        let args: Vec<_> = self.command.get_args().map(OsStr::to_owned).collect();
        let mut command = Command::new(self.command.get_program());
        command
            .arg(&args[0])
            .arg("--ready-file")
            .arg(&ready)
            .args(&args[1..])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        self.command = command;
        let mut running = self.spawn()?;
        let end = Instant::now() + PATIENCE * scaled(1, 5);
        while !ready.exists() {
            if running.child.try_wait()?.is_some() {
                let ended = running.wait()?;
                bail!("it ended before it was ready: {}", ended.told());
            }
            ensure!(Instant::now() < end, "it is not ready: {}", running.shown);
            std::thread::sleep(Duration::from_millis(2));
        }
        running.ready = ready;
        Ok(running)
    }

    /// Runs it to its end.
    pub fn run(self) -> Result<Ended> {
        self.spawn()?.wait()
    }
}

impl Running {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it is over.
    pub fn has_ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(self.child.id() as i32).context("the program's pid")?;
        kill_process(pid, signal).context("signalling the program")
    }

    /// Waits for the end; kills and fails when it does not come.
    pub fn wait(mut self) -> Result<Ended> {
        use std::io::Read;
        let pipe = |stream: Option<Box<dyn Read + Send>>| {
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                if let Some(mut stream) = stream {
                    let _ = stream.read_to_end(&mut bytes);
                }
                String::from_utf8_lossy(&bytes).into_owned()
            })
        };
        let boxed = |s: Option<_>| s.map(|s| Box::new(s) as Box<dyn Read + Send>);
        let stdout = pipe(boxed(self.child.stdout.take()));
        let stderr = pipe(
            self.child
                .stderr
                .take()
                .map(|s| Box::new(s) as Box<dyn Read + Send>),
        );
        let end = Instant::now() + PATIENCE * scaled(1, 5);
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            if Instant::now() > end {
                let _ = self.child.kill();
                let _ = self.child.wait();
                bail!("no end after {PATIENCE:?}: {}", self.shown);
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let join = |thread: std::thread::JoinHandle<String>| thread.join().unwrap_or_default();
        let ended = Ended {
            status,
            stdout: join(stdout),
            stderr: join(stderr),
            shown: std::mem::take(&mut self.shown),
        };
        ended.civil()?;
        Ok(ended)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

impl Ended {
    /// Everything about it, for a person.
    pub fn told(&self) -> String {
        let Ended {
            status,
            stdout,
            stderr,
            shown,
        } = self;
        format!("{shown}: {status}\nstdout: {stdout}\nstderr: {stderr}")
    }

    /// No panic, and no control character that a name could have smuggled in.
    fn civil(&self) -> Result<()> {
        ensure!(
            !self.stderr.contains("panicked at"),
            "a panic: {}",
            self.told()
        );
        for (stream, text) in [("stdout", &self.stdout), ("stderr", &self.stderr)] {
            let bad = text
                .chars()
                .find(|c| c.is_control() && !"\n\r\t".contains(*c));
            ensure!(bad.is_none(), "{stream} holds {bad:?}: {}", self.told());
        }
        Ok(())
    }

    /// It ended with one of these statuses.
    pub fn status(&self, allowed: &[i32]) -> Result<&Ended> {
        let code = self.status.code();
        ensure!(
            code.is_some_and(|code| allowed.contains(&code)),
            "status {code:?} (signal {:?}), not one of {allowed:?}: {}",
            self.status.signal(),
            self.told()
        );
        Ok(self)
    }

    /// Standard error has one of these words, whatever their case.
    pub fn says(&self, words: &[&str]) -> Result<&Ended> {
        let text = self.stderr.to_lowercase();
        ensure!(
            words.iter().any(|word| text.contains(&word.to_lowercase())),
            "standard error names none of {words:?}: {}",
            self.told()
        );
        Ok(self)
    }

    /// Nothing on standard output: a failure is not dressed up as a result.
    pub fn silent(&self) -> Result<&Ended> {
        ensure!(
            self.stdout.trim().is_empty(),
            "it printed a result: {}",
            self.told()
        );
        Ok(self)
    }

    /// The object on standard output.
    pub fn json(&self) -> Result<Value> {
        serde_json::from_str(&self.stdout).with_context(|| format!("no JSON: {}", self.told()))
    }
}

/// The ledger of the only device of a report closes.
pub fn closes(json: &Value, told: &str) -> Result<()> {
    let device = &json["devices"][0];
    let number = |key: &str| device[key].as_i64().unwrap_or(-1);
    ensure!(
        number("residual") == 0
            && number("sectors_attributed") + number("sectors_unattributed")
                == number("sectors_written"),
        "the ledger does not close: {told}"
    );
    Ok(())
}
