//! Disks that do nothing, carry another filesystem, go away, or are traced twice.

use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::process::Signal;
use serde_json::Value;

use super::call::{Call, Ended, closes};
use crate::bed::{Bed, Spec};
use crate::harness::{self, Test};
use crate::tracer::{self, Tracer};
use crate::writers::{BLOCK, Step, SyncCall, open, repeat, run};

pub fn tests() -> Vec<Test> {
    let test = |name: &str, body: fn() -> Result<()>| {
        Test::new(format!("bad_input::{name}"), body).needs(tracer::available)
    };
    vec![
        test("nothing_is_written", nothing),
        test("two_tracers_at_once", two_at_once),
        test("device_is_detached", detached),
        test("device_is_removed", removed),
        test("another_filesystem_xfs", || another("xfs", 320))
            .needs(|| harness::has_program("mkfs.xfs"))
            .needs(|| knows("xfs")),
        test("another_filesystem_btrfs", || another("btrfs", 160))
            .needs(|| harness::has_program("mkfs.btrfs"))
            .needs(|| knows("btrfs")),
        test("another_filesystem_vfat", || another("vfat", 64))
            .needs(|| harness::has_program("mkfs.vfat"))
            .needs(|| knows("vfat")),
    ]
}

/// Condition: the kernel has this filesystem.
fn knows(filesystem: &str) -> Result<(), String> {
    let list = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    list.lines()
        .any(|row| row.split_whitespace().last() == Some(filesystem))
        .then_some(())
        .ok_or_else(|| format!("this kernel has no {filesystem}"))
}

fn nothing() -> Result<()> {
    let bed = Bed::new(Spec::ext4(64).mount("noatime"))?;
    let report = Tracer::start(&bed, &["--duration", "1s"])?.wait()?;
    let mut check = report.closed();
    check.eq("sectors_written", report.count("sectors_written"), 0);
    for list in ["paths", "files", "dirtiers", "age_us", "flush_requests"] {
        let rows = report.device()[list].as_array().map(Vec::len);
        check.eq(list, rows, Some(0));
    }
    check.done()?;
    let ended = Call::trace(&bed.node(), &["--duration", "1s"])?.run()?;
    ended.status(&[0])?;
    ensure!(
        !ended.stdout.contains("NaN") && ended.stdout.contains(&bed.name()),
        "{}",
        ended.told()
    );
    Ok(())
}

/// Each sees all of it, and the other's existence changes nothing.
fn two_at_once() -> Result<()> {
    let bed = Bed::new(Spec::ext4(64).mount("noatime,commit=300"))?;
    let first = Call::trace(&bed.node(), &["--json"])?.start()?;
    let second = Call::trace(&bed.node(), &["--json"])?.start()?;
    let before = bed.stat()?;
    run(
        "writer",
        &[
            open(bed.path("file"), "wo creat"),
            repeat(
                17,
                vec![Step::Write { len: BLOCK }, Step::Sync(SyncCall::Fsync)],
            ),
        ],
    )?;
    bed.settle()?;
    let written = bed.stat()?.since(before).write_sectors;
    let paths = |json: &Value| -> Vec<(String, String, u64)> {
        let rows = json["devices"][0]["paths"].as_array();
        let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
        let mut all: Vec<_> = rows
            .into_iter()
            .flatten()
            .map(|row| {
                let sectors = row["sectors"].as_u64().unwrap_or(0);
                (text(row, "path"), text(row, "trigger"), sectors)
            })
            .collect();
        all.sort();
        all
    };
    let mut seen = Vec::new();
    for running in [first, second] {
        running.signal(Signal::INT)?;
        let ended = running.wait()?;
        ended.status(&[0])?;
        let json = ended.json()?;
        closes(&json, &ended.told())?;
        ensure!(
            json["devices"][0]["sectors_written"] == written,
            "not {written} sectors: {}",
            ended.told()
        );
        seen.push(paths(&json));
    }
    ensure!(seen[0] == seen[1], "they differ: {seen:#?}");
    Ok(())
}

/// Starts a trace, writes a little, and gives both back.
fn begun() -> Result<(Bed, super::call::Running)> {
    let bed = Bed::new(Spec::ext4(64).mount("noatime"))?;
    let running = Call::trace(&bed.node(), &["--json"])?.start()?;
    run(
        "writer",
        &[
            open(bed.path("file"), "wo creat"),
            Step::Write { len: 5 * BLOCK },
            Step::Sync(SyncCall::Fsync),
        ],
    )?;
    Ok((bed, running))
}

/// `losetup -d` under the tracer: the disk is still there, without a medium.
fn detached() -> Result<()> {
    let (bed, running) = begun()?;
    bed.settle()?;
    drop(bed);
    let ended = ending(running)?;
    ended.status(&[0])?;
    closes(&ended.json()?, &ended.told())
}

fn ending(running: super::call::Running) -> Result<Ended> {
    std::thread::sleep(std::time::Duration::from_millis(300));
    running.signal(Signal::INT)?;
    running.wait()
}

/// The disk itself goes, with its directory in sysfs: there is no total to
/// compare with any more, and that must be said.
fn removed() -> Result<()> {
    const LOOP_CTL_REMOVE: libc::c_ulong = 0x4C81;
    let (bed, running) = begun()?;
    bed.settle()?;
    let name = bed.name();
    let number: libc::c_long = name.trim_start_matches("loop").parse()?;
    drop(bed);
    let control = std::fs::File::open("/dev/loop-control")?;
    let mut gone = false;
    for _ in 0..100 {
        // SAFETY: the argument of this request is a number.
        gone = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_REMOVE as _, number) } >= 0;
        if gone {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    ensure!(
        gone && !Path::new("/sys/block").join(&name).exists(),
        "{name} cannot be removed: {}",
        std::io::Error::last_os_error()
    );
    let ended = ending(running)?;
    // Put the number back for the next user.
    // SAFETY: as above.
    unsafe { libc::ioctl(control.as_raw_fd(), 0x4C80 as _, number) };
    ended.status(&[1, 4])?.says(&[&name])?;
    Ok(())
}

/// A filesystem that the tracer has no words for: the ledger closes, and what
/// it cannot know is said.
fn another(filesystem: &str, mib: u64) -> Result<()> {
    let bed = Bed::raw(Spec::ext4(mib))?;
    let mut mkfs = Command::new(format!("mkfs.{filesystem}"));
    if filesystem != "vfat" {
        mkfs.args(["-f", "-q"]);
    }
    let output = mkfs.arg(bed.node()).output().context("running mkfs")?;
    ensure!(output.status.success(), "mkfs.{filesystem}: {output:?}");
    let at = bed.mnt();
    rustix::mount::mount(bed.node(), &at, filesystem, MountFlags::NOATIME, None)
        .with_context(|| format!("mounting {filesystem}"))?;
    let result = traced(&bed, filesystem);
    let _ = rustix::mount::unmount(&at, UnmountFlags::empty());
    result
}

fn traced(bed: &Bed, filesystem: &str) -> Result<()> {
    bed.settle()?;
    let running = Call::trace(&bed.node(), &["--json"])?.start()?;
    let before = bed.stat()?;
    run(
        "stranger",
        &[
            open(bed.path("file"), "wo creat"),
            repeat(
                11,
                vec![Step::Write { len: 3 * BLOCK }, Step::Sync(SyncCall::Fsync)],
            ),
            open(bed.path("other"), "wo creat"),
            Step::Write { len: 29 * BLOCK },
            Step::Sync(SyncCall::Syncfs),
        ],
    )?;
    std::thread::sleep(std::time::Duration::from_secs(1));
    bed.settle()?;
    let written = bed.stat()?.since(before).write_sectors;
    running.signal(Signal::INT)?;
    let ended = running.wait()?;
    // Sectors without a path are over a percent here: that is status 4.
    ended.status(&[0, 4])?;
    let json = ended.json()?;
    closes(&json, &ended.told())?;
    ensure!(
        json["devices"][0]["sectors_written"] == written,
        "not {written} sectors: {}",
        ended.told()
    );
    let told = format!("{json}{}", ended.stderr);
    ensure!(
        told.contains(filesystem),
        "it does not say that {filesystem} is not known: {}",
        ended.told()
    );
    Ok(())
}
