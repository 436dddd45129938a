//! Everything that a profile can change, as the kernel tells it, and values
//! of our own to come back to. Entry: [`Machine`], [`Originals`].

use std::fmt::Write as _;
use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::bed::Bed;
use crate::harness;
use crate::knob::Knob;

/// What the kernel has in /proc/sys/vm.
pub const SYSCTLS: [&str; 6] = [
    "dirty_background_bytes",
    "dirty_background_ratio",
    "dirty_bytes",
    "dirty_expire_centisecs",
    "dirty_ratio",
    "dirty_writeback_centisecs",
];

/// The promise.
const PROMISE: Duration = Duration::from_secs(2);
/// Where runs keep their state.
pub const STATE: &str = "/run/writepath";

/// Reads /proc/sys/vm/NAME.
pub fn sysctl(name: &str) -> Result<u64> {
    let path = format!("/proc/sys/vm/{name}");
    let text = fs::read_to_string(&path).with_context(|| path.clone())?;
    text.trim().parse().with_context(|| path)
}

/// As somebody else would.
pub fn set_sysctl(name: &str, value: u64) -> Result<()> {
    let path = format!("/proc/sys/vm/{name}");
    fs::write(&path, value.to_string()).with_context(|| path)
}

/// ext4's own list of a filesystem's options.
pub fn options(bed: &Bed) -> Result<String> {
    let node = bed.fs_node();
    let name = node.file_name().context("no name")?.to_string_lossy();
    let path = format!("/proc/fs/ext4/{name}/options");
    fs::read_to_string(&path).with_context(|| path)
}

/// `commit=` as ext4 has it.
pub fn commit(bed: &Bed) -> Result<u64> {
    let options = options(bed)?;
    let value = options
        .lines()
        .find_map(|line| line.strip_prefix("commit="));
    Ok(value.context("no commit= in ext4's options")?.parse()?)
}

/// The whole line of the mount table.
pub fn line(bed: &Bed) -> Result<String> {
    let table = fs::read_to_string("/proc/self/mountinfo")?;
    let mnt = bed.mnt();
    let mnt = mnt.to_string_lossy();
    let mut lines = table
        .lines()
        .filter(|line| line.split(' ').nth(4) == Some(&mnt));
    Ok(lines.next().context("the bed is not mounted")?.to_owned())
}

/// All that a profile can change, and all options that it must not.
#[derive(Clone, PartialEq, Eq)]
pub struct Machine(String);

impl Machine {
    pub fn read(bed: &Bed) -> Result<Machine> {
        let mut all = String::new();
        for name in SYSCTLS {
            writeln!(all, "{name} {}", sysctl(name)?)?;
        }
        writeln!(all, "{}", line(bed)?)?;
        all += &options(bed)?;
        for file in ["write_bps_device", "write_iops_device"] {
            let path = format!("/sys/fs/cgroup/blkio/blkio.throttle.{file}");
            all += &fs::read_to_string(path).unwrap_or_default();
        }
        Ok(Machine(all))
    }

    /// Fails with every line that is not as it was.
    pub fn is_still(&self, bed: &Bed) -> Result<()> {
        let now = Machine::read(bed)?;
        if now == *self {
            return Ok(());
        }
        let mut text = String::from("the machine is not as before:\n");
        for (old, new) in self.0.lines().zip(now.0.lines()) {
            if old != new {
                writeln!(text, "was {old}\nis  {new}")?;
            }
        }
        bail!("{text}")
    }

    /// Waits until it is as it was, and fails after the promised time.
    pub fn comes_back(&self, bed: &Bed) -> Result<Duration> {
        let began = Instant::now();
        let promise = PROMISE * harness::scaled(1, 5);
        loop {
            let still = self.is_still(bed);
            let took = began.elapsed();
            match still {
                Ok(()) => return Ok(took),
                Err(error) if took > promise => {
                    return Err(error.context(format!("after {took:?}")));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(2)),
            }
        }
    }
}

/// Waits until no state is there.
pub fn no_state() -> Result<()> {
    let end = Instant::now() + PROMISE * harness::scaled(1, 5);
    while fs::symlink_metadata(STATE).is_ok() {
        let names: Vec<_> = fs::read_dir(STATE)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.file_name())
            .collect();
        ensure!(Instant::now() < end, "{STATE} is left, with {names:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Values of our own, unlike any profile's, to come back to; the machine's
/// are back when this is dropped, or when the test is killed.
pub struct Originals(#[expect(dead_code, reason = "dropped to put back")] Vec<Knob>);

impl Originals {
    pub fn set() -> Result<Originals> {
        let mut knobs = Vec::new();
        for name in ["dirty_bytes", "dirty_background_bytes"] {
            if sysctl(name)? != 0 {
                return Err(harness::skip(format!("vm.{name} is in force here")));
            }
        }
        for (name, value) in [
            ("dirty_background_ratio", "11"),
            ("dirty_ratio", "23"),
            ("dirty_writeback_centisecs", "510"),
            ("dirty_expire_centisecs", "3100"),
        ] {
            knobs.push(Knob::set(format!("/proc/sys/vm/{name}"), value)?);
        }
        Ok(Originals(knobs))
    }
}
