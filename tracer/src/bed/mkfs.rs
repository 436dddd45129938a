//! mkfs.ext4, from a fixed path, with its own words shown when it fails.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::BedError;

/// Where external programs are looked for.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// Finds mkfs.ext4.
pub fn find() -> Result<PathBuf, BedError> {
    PATH.split(':')
        .map(|dir| Path::new(dir).join("mkfs.ext4"))
        .find(|path| path.is_file())
        .ok_or(BedError::NoMkfs { path: PATH })
}

/// Makes an ext4 filesystem on `device`.
pub fn run(mkfs: &Path, args: &[String], device: &str) -> Result<(), BedError> {
    let mut command = Command::new(mkfs);
    command
        .args(["-q", "-F"])
        .args(args)
        .arg(device)
        .env_clear()
        .env("PATH", PATH)
        .env("LC_ALL", "C")
        .current_dir("/")
        .stdin(Stdio::null());
    let line = format!("{} -q -F {} {device}", mkfs.display(), args.join(" "));
    let fail = |status: String, stderr: String| BedError::Mkfs {
        command: line.clone(),
        status,
        stderr,
    };
    let output = command
        .output()
        .map_err(|error| fail(format!("not started: {error}"), String::new()))?;
    if output.status.success() {
        return Ok(());
    }
    // Usage goes to stdout with some options: show both.
    let mut said = String::from_utf8_lossy(&output.stderr).into_owned();
    said.push_str(&String::from_utf8_lossy(&output.stdout));
    Err(fail(output.status.to_string(), said.trim().to_owned()))
}
