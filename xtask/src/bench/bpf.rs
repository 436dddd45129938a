//! Time and runs of eBPF programs, as the kernel counts them while
//! `kernel.bpf_stats_enabled` is set. Which programs are a tracer's own is in
//! /proc/PID/fdinfo; their names only the bpf system call tells.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result};

const SWITCH: &str = "/proc/sys/kernel/bpf_stats_enabled";

/// Commands of bpf(2), from linux/bpf.h.
const BPF_PROG_GET_FD_BY_ID: libc::c_int = 13;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_int = 15;
/// Place of the name in struct `bpf_prog_info`.
const NAME: std::ops::Range<usize> = 64..80;

/// The switch, on; put back as it was when dropped.
pub struct Statistics {
    before: String,
}

impl Statistics {
    /// Turns the kernel's counting on.
    pub fn on() -> Result<Self> {
        let before = fs::read_to_string(SWITCH).context(SWITCH)?;
        fs::write(SWITCH, "1").context(SWITCH)?;
        Ok(Self { before })
    }
}

impl Drop for Statistics {
    fn drop(&mut self) {
        if let Err(error) = fs::write(SWITCH, self.before.trim()) {
            eprintln!("bench: {SWITCH} is left at 1: {error}");
        }
    }
}

/// What a program has done so far.
#[derive(Clone, Default)]
pub struct Program {
    /// Its name in the kernel, of at most 15 bytes.
    pub name: String,
    /// Runs.
    pub runs: u64,
    /// Time in it, in nanoseconds.
    pub ns: u64,
}

/// The programs that a process holds, by id.
pub fn programs_of(pid: u32) -> Result<BTreeMap<u32, Program>> {
    let dir = format!("/proc/{pid}/fdinfo");
    let mut programs = BTreeMap::new();
    for entry in fs::read_dir(&dir).with_context(|| dir.clone())? {
        // The process opens and closes files meanwhile.
        let Ok(text) = fs::read_to_string(entry?.path()) else {
            continue;
        };
        let field = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key))?;
            line.trim().parse::<u64>().ok()
        };
        let (Some(id), Some(ns), Some(runs)) =
            (field("prog_id:"), field("run_time_ns:"), field("run_cnt:"))
        else {
            continue;
        };
        let name = name_of(id as u32).unwrap_or_else(|| format!("#{id}"));
        programs.insert(id as u32, Program { name, runs, ns });
    }
    Ok(programs)
}

/// What they did between two readings; those that never ran are left out.
pub fn difference(before: &BTreeMap<u32, Program>, after: &BTreeMap<u32, Program>) -> Vec<Program> {
    let zero = Program::default();
    let mut programs: Vec<Program> = after
        .iter()
        .map(|(id, program)| {
            let before = before.get(id).unwrap_or(&zero);
            Program {
                name: program.name.clone(),
                runs: program.runs.saturating_sub(before.runs),
                ns: program.ns.saturating_sub(before.ns),
            }
        })
        .filter(|program| program.runs > 0)
        .collect();
    programs.sort_by_key(|program| std::cmp::Reverse(program.ns));
    programs
}

fn name_of(id: u32) -> Option<String> {
    let mut request = [id, 0, 0];
    let fd = bpf(BPF_PROG_GET_FD_BY_ID, &mut request);
    if fd < 0 {
        return None;
    }
    let mut info = [0u8; NAME.end];
    let address = info.as_mut_ptr() as u64;
    let mut question = [
        fd as u32,
        info.len() as u32,
        address as u32,
        (address >> 32) as u32,
    ];
    let got = bpf(BPF_OBJ_GET_INFO_BY_FD, &mut question);
    // SAFETY: the descriptor is ours: the kernel just gave it to us.
    unsafe { libc::close(fd as libc::c_int) };
    if got < 0 {
        return None;
    }
    let name = info[NAME].split(|byte| *byte == 0).next()?;
    Some(String::from_utf8_lossy(name).into_owned())
}

/// bpf(2) with an attribute of 32-bit words in little-endian order.
fn bpf(command: libc::c_int, attribute: &mut [u32]) -> libc::c_long {
    let size = size_of_val(attribute);
    // SAFETY: the attribute is valid for its size, and what it points to, the
    // buffer of an info request, lives in the caller and is as long as it says.
    unsafe { libc::syscall(libc::SYS_bpf, command, attribute.as_mut_ptr(), size) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_leave_out_what_did_not_run() {
        let program = |name: &str, runs, ns| Program {
            name: name.to_owned(),
            runs,
            ns,
        };
        let before = BTreeMap::from([(1, program("a", 5, 500)), (2, program("b", 1, 10))]);
        let after = BTreeMap::from([
            (1, program("a", 8, 800)),
            (2, program("b", 1, 10)),
            (3, program("c", 2, 4000)),
        ]);
        let rows = difference(&before, &after);
        let rows: Vec<_> = rows
            .iter()
            .map(|p| (p.name.as_str(), p.runs, p.ns))
            .collect();
        assert_eq!(rows, [("c", 2, 4000), ("a", 3, 300)]);
    }
}
