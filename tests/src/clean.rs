//! Puts the machine back as it was: processes, mounts, loop devices, knobs,
//! tracefs instances and directories of this run, or of one that was killed.
//! It touches only what carries the name of the tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

use crate::harness::PREFIX;
use crate::{disk, knob};

/// Where trace instances are made.
pub const INSTANCES: &str = "/sys/kernel/tracing/instances";

/// Gives this process mounts of its own, which end with its last child.
pub fn private_mounts() -> Result<()> {
    // SAFETY: the process has a single thread here and shares no file table.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }
        .context("a private mount namespace")?;
    rustix::mount::mount_change(
        "/",
        rustix::mount::MountPropagationFlags::PRIVATE | rustix::mount::MountPropagationFlags::REC,
    )
    .context("making mounts private")
}

/// Ends the processes that a test left: they have become our children.
pub fn end_orphans() -> Vec<String> {
    let mut ended = Vec::new();
    while let Some((pid, comm)) = child() {
        // A process that is on its way out gets a moment to go by itself.
        let until = Instant::now() + Duration::from_secs(2);
        let mut gone = false;
        while Instant::now() < until {
            let options = rustix::process::WaitOptions::NOHANG;
            if !matches!(rustix::process::waitpid(Some(pid), options), Ok(None)) {
                gone = true;
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        if !gone {
            ended.push(format!("{} {comm}", pid.as_raw_nonzero()));
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
        }
    }
    ended
}

/// A child of this process, with its name.
fn child() -> Option<(rustix::process::Pid, String)> {
    let own = std::process::id();
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|s| s.parse().ok()) else {
            continue;
        };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        // pid (comm) state ppid: the name may hold anything, even ')'.
        let Some((head, tail)) = stat.rsplit_once(')') else {
            continue;
        };
        let parent = tail.split_whitespace().nth(1).and_then(|p| p.parse().ok());
        if parent == Some(own) {
            let comm = head.split_once('(').map_or("", |(_, comm)| comm);
            return Some((rustix::process::Pid::from_raw(pid)?, comm.to_owned()));
        }
    }
    None
}

/// Everything that the running or any earlier run left.
pub fn everything(base: &Path) -> Vec<anyhow::Error> {
    let mut faults = Vec::new();
    for dir in runs(base) {
        faults.extend(run(&dir).into_iter().map(|left| anyhow!("left: {left}")));
        if let Err(error) = fs::remove_dir_all(&dir) {
            faults.push(anyhow!("removing {}: {error}", dir.display()));
        }
    }
    faults
}

fn runs(base: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(base).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX))
        .map(|entry| entry.path())
        .collect()
}

/// What was left of the tests of one run, which is then gone.
pub fn run(dir: &Path) -> Vec<String> {
    let mut left = Vec::new();
    left.extend(mounts(dir));
    left.extend(instances());
    for undo in fs::read_dir(dir).into_iter().flatten().flatten() {
        left.extend(knob::undo(&undo.path()));
    }
    left.extend(disk::detach_left_over(PREFIX));
    left
}

fn mounts(dir: &Path) -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mut points: Vec<&str> = table
        .lines()
        .filter_map(|line| line.split(' ').nth(1))
        .filter(|point| Path::new(point).starts_with(dir))
        .collect();
    points.reverse();
    for point in &points {
        let _ = rustix::mount::unmount(*point, rustix::mount::UnmountFlags::DETACH);
    }
    points.iter().map(|p| format!("mount {p}")).collect()
}

fn instances() -> Vec<String> {
    let entries = fs::read_dir(INSTANCES).into_iter().flatten().flatten();
    let mut left = Vec::new();
    for entry in entries {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(PREFIX) {
            let _ = fs::write(entry.path().join("tracing_on"), "0");
            let _ = fs::write(entry.path().join("events/enable"), "0");
            let _ = fs::remove_dir(entry.path());
            left.push(format!("trace instance {name}"));
        }
    }
    left
}
