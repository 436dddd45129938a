//! Names from userspace's side: processes while they live, inodes that the
//! kernel's side could not name.

use super::TracedDevice;
use crate::{
    attribute::names::Names,
    kernel::{
        handles::Inodes,
        probe::{Probe, ProbeError},
        processes,
    },
};
use std::collections::HashMap;

/// Takes processes that are new, and names that changed by exec.
pub fn refresh(probe: &Probe, names: &mut Names) -> Result<(), ProbeError> {
    for (pid, seen) in probe.processes()? {
        let new = names.program(pid).is_none();
        let program = names.program_mut(pid);
        let end = seen.comm.iter().position(|byte| *byte == 0);
        let thread = &seen.comm[..end.unwrap_or(seen.comm.len())];
        if seen.main != 0 {
            program.comm = thread.to_vec();
        } else if new {
            // A thread's name is not its process's.
            program.comm = processes::comm(pid).unwrap_or_else(|| thread.to_vec());
        }
        program.in_command = seen.marked != 0;
        if new {
            program.cgroup = processes::cgroup(pid);
        }
    }
    Ok(())
}

/// Asks the filesystems for the files that have no name yet.
pub fn ask_filesystems(names: &mut Names, devices: &HashMap<u32, TracedDevice>) {
    let nameless: Vec<(u32, u32, u64)> = names
        .nameless()
        .map(|(number, file)| (number, file.dev, file.ino))
        .collect();
    let mut open: HashMap<u32, Option<Inodes>> = HashMap::new();
    for (number, dev, ino) in nameless {
        let inodes = open.entry(dev).or_insert_with(|| {
            let mount = devices.get(&dev)?.mount.as_ref()?;
            Inodes::open(mount.point.as_ref()?).ok()
        });
        if let Some(name) = inodes.as_ref().and_then(|inodes| inodes.name(ino)) {
            names.name_file(number, name);
        }
    }
}
