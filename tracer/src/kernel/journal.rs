//! Journal threads: `jbd2/DEV-INO`, found by their names in /proc.

use super::block::DevNumber;
use std::fs;

/// A journal's thread and the device of its filesystem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalThread {
    /// Thread id.
    pub tid: u32,
    /// Device of the filesystem.
    pub dev: DevNumber,
}

/// All journal threads that run now.
pub fn threads() -> Vec<JournalThread> {
    let Ok(processes) = procfs::process::all_processes() else {
        return Vec::new();
    };
    processes
        .flatten()
        .filter_map(|process| {
            let stat = process.stat().ok()?;
            // Kernel threads have no parent but kthreadd, which is 2.
            (stat.ppid == 2).then_some(())?;
            let name = fs::read_to_string(format!("/proc/{}/comm", stat.pid)).ok()?;
            let dev = device_of(name.trim())?;
            Some(JournalThread {
                tid: u32::try_from(stat.pid).ok()?,
                dev,
            })
        })
        .collect()
}

/// `jbd2/mmcblk0p2-8` is the journal of `mmcblk0p2`. Names are cut at 15
/// bytes, so a long one may lack the inode's number.
fn device_of(name: &str) -> Option<DevNumber> {
    let device = name.strip_prefix("jbd2/")?;
    let device = device.rsplit_once('-').map_or(device, |(device, _)| device);
    let text = fs::read_to_string(format!("/sys/class/block/{device}/dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(DevNumber {
        major: major.parse().ok()?,
        minor: minor.parse().ok()?,
    })
}
