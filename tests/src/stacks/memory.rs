//! Swap: a file of the traced filesystem takes the anonymous memory of a
//! process in a small memory cgroup.

use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::watch::agree;
use crate::bed::{Bed, Spec};
use crate::harness::Test;
use crate::tracer;

pub fn tests() -> Vec<Test> {
    vec![
        // Reclaim may go on after the writer has ended.
        Test::new("stacks::swap", swap)
            .full()
            .needs(tracer::available)
            .needs(has_memory_cgroup),
    ]
}

const GROUP: &str = "writepath-test-swap";

/// Where the memory controller is mounted, and the name of its limit.
fn controller() -> Option<(PathBuf, &'static str)> {
    let mounts = fs::read_to_string("/proc/mounts").ok()?;
    for row in mounts.lines() {
        let fields: Vec<&str> = row.split(' ').collect();
        let [_, point, kind, options, ..] = fields[..] else {
            continue;
        };
        let point = PathBuf::from(point);
        if kind == "cgroup" && options.split(',').any(|o| o == "memory") {
            return Some((point, "memory.limit_in_bytes"));
        }
        let controllers = fs::read_to_string(point.join("cgroup.controllers")).unwrap_or_default();
        if kind == "cgroup2" && controllers.split_whitespace().any(|c| c == "memory") {
            return Some((point, "memory.max"));
        }
    }
    None
}

fn has_memory_cgroup() -> Result<(), String> {
    controller()
        .map(drop)
        .ok_or_else(|| "no memory cgroup controller is mounted".to_owned())
}

/// A cgroup of our own; what is left in it moves up when it is dropped.
struct Group {
    dir: PathBuf,
    root: PathBuf,
}

impl Group {
    fn new(limit: u64) -> Result<Group> {
        let (root, file) = controller().context("no memory controller")?;
        if file == "memory.max" {
            // Already on where another manager uses it.
            let _ = fs::write(root.join("cgroup.subtree_control"), "+memory");
        }
        let dir = root.join(GROUP);
        let _ = fs::remove_dir(&dir);
        fs::create_dir(&dir).with_context(|| format!("creating {}", dir.display()))?;
        let group = Group { dir, root };
        let path = group.dir.join(file);
        fs::write(&path, limit.to_string())
            .with_context(|| format!("writing {}", path.display()))?;
        Ok(group)
    }

    /// This process joins.
    fn join(&self) -> Result<()> {
        fs::write(self.dir.join("cgroup.procs"), "0").context("joining the memory cgroup")
    }

    fn leave(&self) -> Result<()> {
        fs::write(self.root.join("cgroup.procs"), "0").context("leaving the memory cgroup")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = self.leave();
        let end = Instant::now() + Duration::from_secs(2);
        while fs::remove_dir(&self.dir).is_err() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A swap file in use; switched off when dropped.
struct Swap {
    path: PathBuf,
}

impl Swap {
    /// A file of `mib` MiB, without holes, with a swap header.
    fn file(path: PathBuf, mib: u64) -> Result<Swap> {
        let mut file = fs::File::create(&path)?;
        let block = vec![0_u8; 1 << 20];
        for _ in 0..mib {
            file.write_all(&block)?;
        }
        let mut header = [0_u8; 4096];
        header[1024..1028].copy_from_slice(&1_u32.to_ne_bytes());
        let last_page = (mib << 8) as u32 - 1;
        header[1028..1032].copy_from_slice(&last_page.to_ne_bytes());
        header[4086..].copy_from_slice(b"SWAPSPACE2");
        std::os::unix::fs::FileExt::write_all_at(&file, &header, 0)?;
        file.sync_all()?;
        Ok(Swap { path })
    }

    fn on(&self) -> Result<()> {
        // SAFETY: a system call with a terminated string.
        let result = unsafe { libc::swapon(c_path(&self.path)?.as_ptr(), 0) };
        ensure!(result == 0, "swapon: {}", std::io::Error::last_os_error());
        Ok(())
    }

    fn off(&self) -> Result<()> {
        // SAFETY: as above.
        let result = unsafe { libc::swapoff(c_path(&self.path)?.as_ptr()) };
        ensure!(result == 0, "swapoff: {}", std::io::Error::last_os_error());
        Ok(())
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        let _ = self.off();
    }
}

fn c_path(path: &Path) -> Result<std::ffi::CString> {
    Ok(std::ffi::CString::new(path.as_os_str().as_bytes())?)
}

fn swap() -> Result<()> {
    let mut bed = Bed::new(Spec::ext4(256).mount("noatime"))?;
    let file = Swap::file(bed.path("swapfile"), 128)?;
    bed.settle()?;
    file.on()?;
    bed.settle()?;
    let (recorded, _) = agree(&mut bed, &["swap"], |_| {
        let group = Group::new(32 << 20)?;
        group.join()?;
        let mut memory = vec![0_u8; 72 << 20];
        for page in memory.chunks_mut(4096) {
            page[0] = 1;
        }
        group.leave()?;
        let sum: u64 = memory.chunks(4096).map(|page| u64::from(page[0])).sum();
        ensure!(sum == 72 << 8, "the memory lost its content");
        drop(memory);
        file.off()
    })?;
    let sectors = recorded.referee.paths["swap"];
    ensure!(
        sectors > 20 << 11,
        "only {sectors} sectors were swapped out"
    );
    Ok(())
}
