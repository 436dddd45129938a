//! What the machine lets a tracer do, beside its tracepoints and types: for
//! `doctor`. Each answer says where it was read.

use super::debugfs::detached_mount;
use rustix::process::{Resource, getrlimit};
use std::{fs, io};

/// Capabilities that tracing takes, and their bits (capability.h).
const CAPABILITIES: [(&str, u32); 3] =
    [("CAP_BPF", 39), ("CAP_PERFMON", 38), ("CAP_SYS_ADMIN", 21)];

/// Hardware name, as `uname -m` has it.
pub fn architecture() -> String {
    let uname = rustix::system::uname();
    uname.machine().to_string_lossy().into_owned()
}

/// Memory of the machine.
pub fn memory_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Effective user id.
pub fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Capabilities that tracing takes and this process has not got.
pub fn missing_capabilities() -> Vec<&'static str> {
    let status = procfs::process::Process::myself().and_then(|process| process.status());
    // Who cannot read its own status is not told anything here.
    let effective = status.map_or(u64::MAX, |status| status.capeff);
    CAPABILITIES
        .iter()
        .filter(|(_, bit)| effective & (1 << bit) == 0)
        .map(|(name, _)| *name)
        .collect()
}

/// Whether the kernel's types can be read.
pub fn btf() -> io::Result<()> {
    fs::File::open("/sys/kernel/btf/vmlinux").map(drop)
}

/// The lockdown mode in force. securityfs is opened without a mount point
/// where nobody mounted it.
pub fn lockdown() -> io::Result<String> {
    let text = fs::read_to_string("/sys/kernel/security/lockdown").or_else(|error| {
        let (root, _mount) = detached_mount(c"securityfs").map_err(|_| error)?;
        fs::read_to_string(root.join("lockdown"))
    })?;
    chosen(&text).ok_or_else(|| io::Error::other("unknown form"))
}

/// The word in brackets of `none [integrity] confidentiality`.
fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

/// Bytes of memory that may be locked; none for no limit.
pub fn memory_lock() -> Option<u64> {
    getrlimit(Resource::Memlock).current
}

/// Versions of cgroups that are mounted.
pub fn cgroups() -> Vec<&'static str> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let has = |kind: &str| {
        mounts
            .lines()
            .any(|line| line.split(' ').nth(2) == Some(kind))
    };
    [("cgroup", "v1"), ("cgroup2", "v2")]
        .into_iter()
        .filter(|(kind, _)| has(kind))
        .map(|(_, version)| version)
        .collect()
}

/// Whether cgroups have write-back of their own: where the root of version 2
/// hands both controllers down (Documentation/admin-guide/cgroup-v2.rst).
pub fn cgroups_write_back() -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let roots = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let point = words.next()?;
        (words.next() == Some("cgroup2")).then_some(point)
    });
    roots.into_iter().any(|root| {
        let path = format!("{root}/cgroup.subtree_control");
        let handed = fs::read_to_string(path).unwrap_or_default();
        let has = |name| handed.split_whitespace().any(|word| word == name);
        has("io") && has("memory")
    })
}

/// Whether the kernel has ext4 now, built in or loaded.
pub fn has_ext4() -> bool {
    fs::read_to_string("/proc/filesystems").is_ok_and(|text| {
        text.lines()
            .any(|line| line.split_whitespace().next_back() == Some("ext4"))
    })
}

/// Disks whose `queue/iostats` is 0, so that stat stands still; not those in
/// memory, for which that is usual.
pub fn not_counting() -> Vec<String> {
    let entries = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| !name.starts_with("ram") && !name.starts_with("zram"))
        .filter(|name| {
            fs::read_to_string(format!("/sys/block/{name}/queue/iostats"))
                .is_ok_and(|text| text.trim() == "0")
        })
        .collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_in_force_is_in_brackets() {
        let text = "none [integrity] confidentiality\n";
        assert_eq!(chosen(text).as_deref(), Some("integrity"));
        assert_eq!(chosen("integrity"), None);
    }
}
