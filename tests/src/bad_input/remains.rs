//! `kill -9` of the tracer leaves nothing: the kernel closes what it held.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::process::Signal;

use super::call::Call;
use crate::bed::{Bed, Spec};
use crate::harness::Test;
use crate::tracer;

pub fn tests() -> Vec<Test> {
    vec![
        Test::new("bad_input::killed_tracer_leaves_nothing", killed).needs(tracer::available),
        Test::new("bad_input::ended_tracer_leaves_nothing", ended).needs(tracer::available),
    ]
}

const BPF_PROG_GET_FD_BY_ID: libc::c_long = 13;
const BPF_MAP_GET_FD_BY_ID: libc::c_long = 14;

/// What `/proc/PID/fdinfo` says of programs and maps: their numbers.
fn objects(pid: u32, key: &str) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    let entries = fs::read_dir(format!("/proc/{pid}/fdinfo"));
    for entry in entries.into_iter().flatten().flatten() {
        let text = fs::read_to_string(entry.path()).unwrap_or_default();
        for row in text.lines() {
            if let Some(id) = row.strip_prefix(key).and_then(|id| id.trim().parse().ok()) {
                found.insert(id);
            }
        }
    }
    found
}

/// Whether the kernel still has a program or map of this number.
fn exists(command: libc::c_long, id: u32) -> bool {
    let mut attr = [0_u32; 32];
    attr[0] = id;
    // SAFETY: the union that bpf(2) reads, zeroed beyond the number.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            attr.as_mut_ptr(),
            size_of_val(&attr),
        )
    };
    if fd < 0 {
        return false;
    }
    // SAFETY: a descriptor that the call above has opened.
    unsafe { libc::close(fd as i32) };
    true
}

/// What a tracer could leave in the machine, as text.
fn traces() -> Result<String> {
    let mut all = String::new();
    // In this test's own namespace: mounts of the tracer would show up here
    // only if it made them for everybody.
    all += &fs::read_to_string("/proc/mounts")?;
    all += &fs::read_to_string("/proc/swaps")?;
    for file in [
        "kprobe_events",
        "uprobe_events",
        "dynamic_events",
        "set_event",
    ] {
        let path = format!("/sys/kernel/tracing/{file}");
        all += &fs::read_to_string(path).unwrap_or_default();
    }
    for dir in [
        "/sys/kernel/tracing/instances",
        "/sys/fs/bpf",
        "/run/writepath",
    ] {
        let mut names: Vec<_> = fs::read_dir(dir)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .collect();
        names.sort();
        let _ = writeln!(all, "{dir}: {names:?}");
    }
    Ok(all)
}

fn leaves_nothing(signal: Signal) -> Result<()> {
    let bed = Bed::new(Spec::ext4(64).mount("noatime"))?;
    let before = traces()?;
    let running = Call::trace(&bed.node(), &["--json"])?.start()?;
    let programs = objects(running.pid(), "prog_id:");
    let maps = objects(running.pid(), "map_id:");
    ensure!(
        !programs.is_empty() || !maps.is_empty(),
        "fdinfo shows no program and no map of the tracer"
    );
    running.signal(signal)?;
    let _ = running.wait()?;
    let end = Instant::now() + Duration::from_secs(5);
    loop {
        let left: Vec<u32> = programs
            .iter()
            .filter(|id| exists(BPF_PROG_GET_FD_BY_ID, **id))
            .chain(maps.iter().filter(|id| exists(BPF_MAP_GET_FD_BY_ID, **id)))
            .copied()
            .collect();
        if left.is_empty() {
            break;
        }
        ensure!(
            Instant::now() < end,
            "programs or maps {left:?} outlive the tracer"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    let after = traces()?;
    ensure!(
        before == after,
        "the machine is not as before:\n{before}\n--- after:\n{after}"
    );
    Ok(())
}

fn killed() -> Result<()> {
    leaves_nothing(Signal::KILL)
}

fn ended() -> Result<()> {
    leaves_nothing(Signal::TERM)
}
