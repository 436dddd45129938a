//! What /proc says of a process while it lives.

use std::{fs, io, os::unix::ffi::OsStringExt};

/// Name of a process (its main thread's), if it lives.
pub fn comm(pid: u32) -> Option<Vec<u8>> {
    let mut name = fs::read(format!("/proc/{pid}/comm")).ok()?;
    name.truncate(name.trim_ascii_end().len());
    Some(name)
}

/// Its cgroup: of v2, else of the blkio or memory hierarchy of v1.
pub fn cgroup(pid: u32) -> Option<Vec<u8>> {
    let text = fs::read(format!("/proc/{pid}/cgroup")).ok()?;
    let lines: Vec<Vec<&[u8]>> = text
        .split(|byte| *byte == b'\n')
        .map(|line| line.splitn(3, |byte| *byte == b':').collect())
        .filter(|parts: &Vec<&[u8]>| parts.len() == 3)
        .collect();
    let of = |controller: &[u8]| {
        lines.iter().find(|parts| {
            parts[1]
                .split(|byte| *byte == b',')
                .any(|name| name == controller)
        })
    };
    let found = of(b"blkio").or_else(|| of(b"memory")).or_else(|| of(b""))?;
    Some(found[2].to_vec())
}

/// Whether it lives.
pub fn lives(pid: u32) -> bool {
    fs::metadata(format!("/proc/{pid}")).is_ok()
}

/// The running kernel's release.
pub fn kernel_release() -> String {
    let uname = rustix::system::uname();
    uname.release().to_string_lossy().into_owned()
}

/// The kernel's tick rate: from its configuration, else 250.
pub fn tick_hz() -> u64 {
    let release = kernel_release();
    let text = fs::read_to_string(format!("/boot/config-{release}")).unwrap_or_default();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("CONFIG_HZ="));
    line.and_then(|number| number.parse().ok()).unwrap_or(250)
}

/// Working directory of this process as bytes.
pub fn current_dir() -> Vec<u8> {
    std::env::current_dir()
        .map(|path| path.into_os_string().into_vec())
        .unwrap_or_default()
}

/// Makes a command die with the thread that starts it, however that ends. It
/// would otherwise keep the mount namespace of a killed run alive.
pub fn dies_with_us(command: &mut std::process::Command) {
    use std::os::unix::process::CommandExt;
    // SAFETY: between fork and exec only a system call is made, after the
    // change of user, which would take the setting back.
    unsafe {
        command.pre_exec(|| {
            let kill = Some(rustix::process::Signal::KILL);
            rustix::process::set_parent_process_death_signal(kill).map_err(io::Error::from)
        });
    }
}
