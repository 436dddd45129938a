//! Where results go: full disks, read-only places, links, closed pipes.

use std::ffi::CString;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use rustix::mount::{MountFlags, mount, mount_remount};

use super::call::{Call, closes};
use crate::bed::{Bed, Spec};
use crate::harness::{self, Test};
use crate::tracer;

pub fn tests() -> Vec<Test> {
    let test = |name: &str, body: fn() -> Result<()>| {
        Test::new(format!("bad_input::{name}"), body).needs(tracer::available)
    };
    vec![
        test("output_on_a_full_disk", full_disk),
        test("stdout_on_a_full_disk", full_stdout),
        test("stdout_closed", closed_stdout),
        test("output_in_a_read_only_directory", read_only),
        test("output_in_no_directory", no_directory),
        test("output_through_a_link", link),
        test("output_is_private", private),
    ]
}

fn bed() -> Result<Bed> {
    Bed::new(Spec::ext4(64).mount("noatime"))
}

/// A tmpfs of one page in this test's namespace, gone with it.
fn small_tmpfs(name: &str) -> Result<PathBuf> {
    let dir = harness::run_dir().join(name);
    fs::create_dir(&dir)?;
    let options = CString::new("size=4096")?;
    mount(
        "tmpfs",
        &dir,
        "tmpfs",
        MountFlags::NODEV,
        options.as_c_str(),
    )
    .with_context(|| format!("mounting a tmpfs on {}", dir.display()))?;
    Ok(dir)
}

fn unmount(dir: &Path) {
    let _ = rustix::mount::unmount(dir, rustix::mount::UnmountFlags::DETACH);
}

fn full_disk() -> Result<()> {
    let bed = bed()?;
    let dir = small_tmpfs("full")?;
    fs::write(dir.join("filler"), vec![1_u8; 4096])?;
    let out = dir.join("out.json");
    let shown = out.to_string_lossy().into_owned();
    for format in ["--json", "--jsonl"] {
        let ended = Call::trace(
            &bed.node(),
            &[format, "--duration", "1s", "--output", &shown],
        )?
        .run()?;
        ended
            .status(&[1])?
            .says(&["space", "full"])?
            .says(&[&shown])?;
    }
    unmount(&dir);
    Ok(())
}

fn full_stdout() -> Result<()> {
    let bed = bed()?;
    for args in [&["--duration", "1s"][..], &["--duration", "1s", "--json"]] {
        let full = fs::File::options().write(true).open("/dev/full")?;
        let ended = Call::trace(&bed.node(), args)?.stdout(full).run()?;
        ended.status(&[1])?.says(&["space", "full"])?;
    }
    Ok(())
}

/// A reader that goes away, as `| head -1` does, is not an error to cry about.
fn closed_stdout() -> Result<()> {
    let bed = bed()?;
    for args in [
        &["--duration", "1s"][..],
        &["-i", "200ms", "--duration", "2s"],
    ] {
        let (reader, writer) = std::io::pipe()?;
        drop(reader);
        let ended = Call::trace(&bed.node(), args)?.stdout(writer).run()?;
        let status = ended.status;
        let quiet =
            matches!(status.code(), Some(0 | 1 | 141)) || status.signal() == Some(libc::SIGPIPE);
        ensure!(quiet, "a closed pipe: {}", ended.told());
    }
    Ok(())
}

fn read_only() -> Result<()> {
    let bed = bed()?;
    let dir = small_tmpfs("readonly")?;
    mount_remount(&dir, MountFlags::RDONLY, c"")?;
    let ran = harness::run_dir().join("ran");
    let path = dir.join("file").to_string_lossy().into_owned();
    let touch = ["--", "touch", &ran.to_string_lossy()].map(str::to_owned);
    for option in ["--output", "--ready-file"] {
        let mut args = vec!["--json", option, &path];
        args.extend(touch.iter().map(String::as_str));
        let ended = Call::trace(&bed.node(), &args)?.run()?;
        ended
            .status(&[1])?
            .silent()?
            .says(&[&path])?
            .says(&["read-only"])?;
        ensure!(
            !ran.exists(),
            "CMD ran although its result had no place: {}",
            ended.told()
        );
    }
    unmount(&dir);
    Ok(())
}

fn no_directory() -> Result<()> {
    let bed = bed()?;
    let path = harness::run_dir().join("missing/out");
    let path = path.to_string_lossy();
    for option in ["--output", "--ready-file"] {
        let ended =
            Call::trace(&bed.node(), &["--json", "--duration", "1s", option, &path])?.run()?;
        ended.status(&[1, 2])?.silent()?.says(&[&path])?;
    }
    Ok(())
}

/// Root's outputs never follow a link that somebody else may have laid.
fn link() -> Result<()> {
    let bed = bed()?;
    let victim = harness::run_dir().join("victim");
    fs::write(&victim, "precious")?;
    for option in ["--output", "--ready-file"] {
        let link = harness::run_dir().join(format!("link{option}"));
        std::os::unix::fs::symlink(&victim, &link)?;
        let shown = link.to_string_lossy().into_owned();
        let ended =
            Call::trace(&bed.node(), &["--json", "--duration", "1s", option, &shown])?.run()?;
        ended.status(&[1, 2])?.says(&[&shown])?;
        ensure!(
            fs::read_to_string(&victim)? == "precious",
            "it wrote through a link: {}",
            ended.told()
        );
    }
    Ok(())
}

fn private() -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let bed = bed()?;
    let path = harness::run_dir().join("out.json");
    let shown = path.to_string_lossy().into_owned();
    let ended = Call::trace(
        &bed.node(),
        &["--json", "--duration", "1s", "--output", &shown],
    )?
    .run()?;
    ended.status(&[0])?.silent()?;
    let mode = fs::metadata(&path)?.permissions().mode() & 0o777;
    ensure!(mode == 0o600, "mode {mode:o} of {shown}");
    let json = serde_json::from_str(&fs::read_to_string(&path)?)?;
    closes(&json, &ended.told())
}
