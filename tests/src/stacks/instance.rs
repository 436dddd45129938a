//! A private trace buffer of tracefs: events of one device, with the kernel
//! stack of those where it is asked for. What it records is complete or an
//! error. Entry: [`Instance::new`].

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, ensure};

use crate::clean::INSTANCES;
use crate::harness::{PREFIX, scaled};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// An event to record: `block/block_bio_queue`, only of device `dev`.
#[derive(Debug, Clone)]
pub struct Wanted {
    pub event: &'static str,
    /// Major and minor number, as the event's `dev` field has them.
    pub dev: (u32, u32),
    pub stack: bool,
}

/// A recording buffer; removed when dropped.
pub struct Instance {
    dir: PathBuf,
}

impl Instance {
    /// Starts to record `events`.
    pub fn new(events: &[Wanted]) -> Result<Instance> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = Path::new(INSTANCES).join(format!("{PREFIX}{}-{number}", std::process::id()));
        fs::create_dir(&dir).with_context(|| format!("creating {}", dir.display()))?;
        let instance = Instance { dir };
        instance.write("trace_clock", "mono")?;
        instance.write("buffer_size_kb", scaled("98304", "16384"))?;
        for wanted in events {
            let at = format!("events/{}", wanted.event);
            // The kernel's own dev_t: twelve bits of major above twenty of minor.
            let dev = (wanted.dev.0 << 20) | wanted.dev.1;
            instance.write(&format!("{at}/filter"), &format!("dev == {dev}"))?;
            if wanted.stack {
                // Without a condition it fires for events that the filter drops.
                instance.write(
                    &format!("{at}/trigger"),
                    &format!("stacktrace if dev == {dev}"),
                )?;
            }
            instance.write(&format!("{at}/enable"), "1")?;
        }
        Ok(instance)
    }

    /// Stops and gives the text of all that was recorded.
    pub fn finish(self) -> Result<String> {
        self.write("tracing_on", "0")?;
        for cpu in fs::read_dir(self.dir.join("per_cpu"))?.flatten() {
            let path = cpu.path().join("stats");
            let stats = fs::read_to_string(&path)?;
            for row in stats.lines() {
                let Some((name, value)) = row.split_once(": ") else {
                    continue;
                };
                let counts_losses = matches!(name, "overrun" | "commit overrun" | "dropped events");
                ensure!(
                    !counts_losses || value.trim() == "0",
                    "{}: {row}: the recording is not complete",
                    path.display()
                );
            }
        }
        let path = self.dir.join("trace");
        let bytes = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn write(&self, file: &str, value: &str) -> Result<()> {
        let path = self.dir.join(file);
        fs::write(&path, value).with_context(|| format!("writing {value:?} to {}", path.display()))
    }
}

/// Major and minor number of a device node.
pub fn devno(node: &Path) -> Result<(u32, u32)> {
    let meta = fs::metadata(node).with_context(|| format!("looking at {}", node.display()))?;
    let number = meta.rdev();
    Ok((rustix::fs::major(number), rustix::fs::minor(number)))
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
