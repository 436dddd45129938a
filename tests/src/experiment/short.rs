//! An experiment of some seconds: two profiles with short times, few files,
//! an emulated device. Entry: [`Short`].

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::bad_input::call::{Call, Running};
use crate::harness;
use crate::profiles::machine::{SYSCTLS, sysctl};

/// The files of a run.
pub struct Short {
    /// Where the result goes.
    pub out: PathBuf,
    /// Where images lie.
    images: PathBuf,
    profiles: String,
}

/// Condition: a device can be slowed down here.
pub fn can_throttle() -> Result<(), String> {
    let file = "/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device";
    Path::new(file)
        .exists()
        .then_some(())
        .ok_or_else(|| "no blkio controller of cgroup v1".to_owned())
}

impl Short {
    /// Makes the profiles; `number` tells runs of one test apart.
    pub fn new(number: u32) -> Result<Short> {
        let dir = harness::run_dir().join(format!("experiment{number}"));
        let images = dir.join("images");
        fs::create_dir_all(&images)?;
        let mut profiles = Vec::new();
        for (name, expire, commit) in [("fast", 100, 1), ("slow", 250, 2)] {
            let path = dir.join(format!("{name}.toml"));
            let text = format!(
                "name = \"{name}\"\ncommit = {commit}\nvm.dirty_expire_centisecs = {expire}\n\
                 vm.dirty_writeback_centisecs = 50\n"
            );
            fs::write(&path, text)?;
            profiles.push(path.to_string_lossy().into_owned());
        }
        Ok(Short {
            out: dir.join("out"),
            images,
            profiles: profiles.join(","),
        })
    }

    /// `writepath experiment run emmc-dirty-tuning …`
    pub fn call(&self, more: &[&str]) -> Result<Call> {
        let out = self.out.to_string_lossy();
        let images = self.images.to_string_lossy();
        let usual = [
            "experiment",
            "run",
            "emmc-dirty-tuning",
            "--output",
            &out,
            "--image-dir",
            &images,
            "--image",
            "128M",
            "--profiles",
            &self.profiles,
            "--cycles",
            "1",
            "--period",
            "1s",
            "--files",
            "40",
            "--file-kib",
            "16",
            "--mgmt-kib",
            "64",
            "--threads",
            "4",
            "--seed",
            "7",
        ];
        Call::new(usual.iter().chain(more))
    }

    /// Starts it and waits until its first profile is about to settle.
    pub fn settling(&self, more: &[&str]) -> Result<Running> {
        let mut running = self.call(more)?.spawn()?;
        let first = self.out.join("samples-0.jsonl");
        let end = Instant::now() + Duration::from_secs(20);
        while !first.exists() {
            ensure!(
                !running.has_ended()?,
                "it ended: {}",
                running.wait()?.told()
            );
            ensure!(Instant::now() < end, "no block begins");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(running)
    }

    /// What a run could leave in the machine, as text.
    pub fn left(&self) -> Result<String> {
        let mut all = String::new();
        for name in SYSCTLS {
            writeln!(all, "{name} {}", sysctl(name)?)?;
        }
        for file in ["write_bps_device", "write_iops_device"] {
            let path = format!("/sys/fs/cgroup/blkio/blkio.throttle.{file}");
            all += &fs::read_to_string(path).unwrap_or_default();
        }
        all += &fs::read_to_string("/proc/self/mounts")?;
        // Others have loop devices too; ours lie in our directory, and the
        // upper one of two goes before the lower one can.
        let images = self.images.to_string_lossy();
        for entry in fs::read_dir("/sys/block")?.flatten() {
            let file = entry.path().join("loop/backing_file");
            let backing = fs::read_to_string(file).unwrap_or_default();
            if backing.contains(&*images) {
                writeln!(all, "{} {backing}", entry.file_name().display())?;
            }
        }
        for entry in fs::read_dir(&self.images)?.flatten() {
            writeln!(all, "{}", entry.path().display())?;
        }
        Ok(all)
    }

    /// Waits until the machine is as it was, for two seconds at most.
    pub fn comes_back(&self, before: &str) -> Result<()> {
        let began = Instant::now();
        loop {
            let now = self.left()?;
            if now == before {
                return Ok(());
            }
            let took = began.elapsed();
            if took > Duration::from_secs(2) {
                let lines = |text: &str, other: &str| -> String {
                    let differ = text
                        .lines()
                        .filter(|line| !other.lines().any(|l| l == *line));
                    differ.fold(String::new(), |all, line| all + line + "\n")
                };
                let (was, is) = (lines(before, &now), lines(&now, before));
                anyhow::bail!("after {took:?} the machine is not as before: was\n{was}is\n{is}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// `result.json`.
    pub fn result(&self) -> Result<serde_json::Value> {
        let path = self.out.join("result.json");
        let bytes = fs::read(&path).with_context(|| path.display().to_string())?;
        serde_json::from_slice(&bytes).context("result.json")
    }
}
