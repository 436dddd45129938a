//! The filesystem under load: ext4 on a loop device on an image in memory, so
//! that no real device's noise hides the cost. All of it is in a mount
//! namespace of this process and goes with it, kill -9 included.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::process::Cmd;
use crate::workspace;

/// Size of the image, and of the file that the loads write to.
const IMAGE: &str = "1G";
pub const FILE: &str = "512m";

/// The mounted filesystem.
pub struct Bed {
    dir: PathBuf,
}

impl Bed {
    /// Makes it, with the file of the loads written once, so that overwriting
    /// it allocates nothing.
    pub fn new() -> Result<Self> {
        // SAFETY: unshare takes an integer. It gives this thread, which starts
        // all children, mounts of its own; no memory is touched.
        if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
            bail!("no mount namespace: {}", std::io::Error::last_os_error());
        }
        let dir = workspace::target_dir()?.join("bench");
        fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
        let bed = Self { dir };
        tool(&["mount", "--make-rprivate", "/"])?;
        let top = bed.dir.display().to_string();
        tool(&[
            "mount",
            "-t",
            "tmpfs",
            "-o",
            "size=1536m,mode=0700",
            "bench",
            &top,
        ])?;
        let (image, mount) = (bed.dir.join("image"), bed.mount());
        let (image, mount) = (image.display().to_string(), mount.display().to_string());
        fs::create_dir(&mount)?;
        tool(&["truncate", "-s", IMAGE, &image])?;
        tool(&[
            "mkfs.ext4",
            "-q",
            "-F",
            "-E",
            "lazy_itable_init=0,lazy_journal_init=0",
            &image,
        ])?;
        // mount's own loop device detaches itself with the last mount.
        tool(&["mount", "-o", "loop,nosuid,nodev,noexec", &image, &mount])?;
        let file = bed.file();
        tool(&[
            "fio",
            "--name=make",
            "--rw=write",
            "--bs=1m",
            "--end_fsync=1",
            &format!("--filename={}", file.display()),
            &format!("--size={FILE}"),
        ])?;
        Ok(bed)
    }

    fn mount(&self) -> PathBuf {
        self.dir.join("mount")
    }

    /// The file that the loads write to.
    pub fn file(&self) -> PathBuf {
        self.mount().join("file")
    }

    /// A file in memory beside the filesystem.
    pub fn scratch(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Name of the disk in /sys/block.
    pub fn disk(&self) -> Result<String> {
        let device = fs::metadata(self.mount())?.dev();
        let link = format!(
            "/sys/dev/block/{}:{}",
            libc::major(device),
            libc::minor(device)
        );
        let target = fs::read_link(&link).with_context(|| link.clone())?;
        let name = target.file_name().context("a device without a name")?;
        Ok(name.to_string_lossy().into_owned())
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        for mount in [&self.mount(), &self.dir] {
            let mount = mount.display().to_string();
            if let Err(error) = tool(&["umount", &mount]) {
                eprintln!("bench: {error:#}");
            }
        }
    }
}

fn tool(words: &[&str]) -> Result<()> {
    let program = workspace::find_program(words[0])
        .with_context(|| format!("{} is not installed", words[0]))?;
    Cmd::new(program)
        .args(&words[1..])
        .dir(Path::new("/"))
        .run_quiet()
}
