//! A run of `writepath profile apply`, from its command line to its end.
//! Entry: [`Held`].

use std::ffi::OsStr;
use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::bad_input::call::{Call, Ended, Running};
use crate::bed::Bed;
use crate::harness::{self, scaled};

/// What the guard of a run calls itself.
const GUARD: &str = "writepath-guard";

/// A profile that is in force.
pub struct Held {
    running: Running,
    pub guard: u32,
}

/// `writepath profile ARGS…`
pub fn profile<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Result<Call> {
    let args: Vec<_> = args.into_iter().map(|a| a.as_ref().to_owned()).collect();
    Call::new([OsStr::new("profile").to_owned()].into_iter().chain(args))
}

/// Arguments of `apply`, with the bed's filesystem.
fn arguments(name: &str, bed: &Bed, more: &[&str]) -> Vec<String> {
    let mnt = bed.mnt().to_string_lossy().into_owned();
    let mut args = vec![
        "apply".to_owned(),
        name.to_owned(),
        "--mount".to_owned(),
        mnt,
    ];
    args.extend(more.iter().map(|&arg| arg.to_owned()));
    args
}

/// `writepath profile apply NAME --mount BED MORE…`, not waited for.
pub fn spawn(name: &str, bed: &Bed, more: &[&str]) -> Result<Running> {
    profile(arguments(name, bed, more))?.spawn()
}

/// As [`spawn`], to its end.
pub fn apply(name: &str, bed: &Bed, more: &[&str]) -> Result<Ended> {
    profile(arguments(name, bed, more))?.run()
}

impl Held {
    /// Applies a profile and waits until it is in force.
    pub fn new(name: &str, bed: &Bed, more: &[&str]) -> Result<Held> {
        let number = std::time::UNIX_EPOCH.elapsed()?.as_nanos();
        let ready = harness::run_dir().join(format!("ready{number}"));
        let text = ready.to_string_lossy().into_owned();
        let more: Vec<&str> = ["--ready-file", &text]
            .into_iter()
            .chain(more.iter().copied())
            .collect();
        let mut running = spawn(name, bed, &more)?;
        let end = Instant::now() + Duration::from_secs(20) * scaled(1, 5);
        while !ready.exists() {
            if running.has_ended()? {
                bail!(
                    "it ended before the profile was in force: {}",
                    running.wait()?.told()
                );
            }
            ensure!(Instant::now() < end, "the profile does not come into force");
            std::thread::sleep(Duration::from_millis(1));
        }
        let guard = guard_of(running.pid()).context("the run has no guard")?;
        Ok(Held { running, guard })
    }

    pub fn pid(&self) -> u32 {
        self.running.pid()
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.running.signal(signal)
    }

    /// Waits for its end.
    pub fn wait(self) -> Result<Ended> {
        self.running.wait()
    }

    /// Ends it by SIGINT.
    pub fn end(self) -> Result<Ended> {
        self.signal(Signal::INT)?;
        self.wait()
    }

    /// `kill -9` of its guard.
    pub fn kill_guard(&self) -> Result<()> {
        kill(self.guard, Signal::KILL)
    }
}

/// Sends a signal to a process that the test knows.
pub fn kill(pid: u32, signal: Signal) -> Result<()> {
    let pid = Pid::from_raw(pid.cast_signed()).context("a pid")?;
    kill_process(pid, signal).context("signalling")
}

/// The guard of a run: its child of that name.
pub fn guard_of(run: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{run}/task/{run}/children"));
    let listed = children.unwrap_or_default();
    let is_guard = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == GUARD)
    };
    listed
        .split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .find(is_guard)
}
