//! A tracefs instance: the kernel's own event log beside the tracer's, and
//! the proof that no event was lost. Entry: [`Instance::new`].

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, ensure};

use crate::bed::Bed;
use crate::clean::INSTANCES;
use crate::harness::PREFIX;
use crate::knob;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// An instance of this process; removed when dropped.
pub struct Instance {
    dir: PathBuf,
}

impl Instance {
    /// A stopped, empty instance with a buffer of so many MiB for each CPU.
    pub fn new(mib: u32) -> Result<Instance> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{number}", std::process::id());
        let dir = Path::new(INSTANCES).join(name);
        fs::create_dir(&dir)
            .with_context(|| format!("creating {}: is tracefs mounted?", dir.display()))?;
        let instance = Instance { dir };
        instance.write("tracing_on", "0")?;
        instance.write("buffer_size_kb", &(mib * 1024).to_string())?;
        Ok(instance)
    }

    /// Switches on `GROUP/EVENT` with a filter; an empty one lets all pass.
    pub fn event(&self, event: &str, filter: &str) -> Result<()> {
        if !filter.is_empty() {
            self.write(&format!("events/{event}/filter"), filter)?;
        }
        self.write(&format!("events/{event}/enable"), "1")
    }

    /// Sets one of `options/`.
    pub fn option(&self, option: &str, on: bool) -> Result<()> {
        self.write(&format!("options/{option}"), if on { "1" } else { "0" })
    }

    pub fn start(&self) -> Result<()> {
        self.write("tracing_on", "1")
    }

    /// Stops and returns the text of all events; fails if one was lost.
    pub fn stop(&self) -> Result<String> {
        self.write("tracing_on", "0")?;
        let cpus = self.dir.join("per_cpu");
        for cpu in fs::read_dir(&cpus).with_context(|| format!("reading {}", cpus.display()))? {
            let stats = cpu?.path().join("stats");
            let text = fs::read_to_string(&stats)?;
            for line in text.lines() {
                let Some((key, value)) = line.split_once(": ") else {
                    continue;
                };
                let loss = ["overrun", "commit overrun", "dropped events"].contains(&key);
                ensure!(
                    !loss || value.trim() == "0",
                    "{}: {line}: events were lost, the referee knows nothing",
                    stats.display()
                );
            }
        }
        let trace = self.dir.join("trace");
        let bytes = fs::read(&trace).with_context(|| format!("reading {}", trace.display()))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn write(&self, file: &str, value: &str) -> Result<()> {
        knob::write(&self.dir.join(file), value)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.write("tracing_on", "0");
        let _ = self.write("events/enable", "0");
        if let Err(error) = fs::remove_dir(&self.dir) {
            eprintln!("removing {}: {error}", self.dir.display());
        }
    }
}

/// The filter of block events on the bed's disk.
pub fn disk_filter(bed: &Bed) -> String {
    let (major, minor) = bed.devno();
    format!("dev == {}", (major << 20) | minor)
}
