//! The command ended, the file is gone, the device is slow: the sectors and
//! their owners stay.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;

use super::run::{Answers, bed, case, holds, percent, traced, within};
use crate::bad_input::call::Call;
use crate::bed::Bed;
use crate::harness::{Test, run_dir};
use crate::knob::Knob;
use crate::report::Report;
use crate::writers::{BLOCK, Step, SyncCall, Writer, open, repeat, run};

pub fn tests() -> Vec<Test> {
    vec![
        case(49, "copy_to_a_slow_stick", slow_stick).needs(can_throttle),
        case(61, "the_command_ended", command_ended),
        case(61, "sync_by_another", sync_by_another),
        case(62, "short_lived_files", short_lived),
    ]
}

/// A flusher that comes every quarter of a second for data older than one.
fn hasty_flusher() -> Result<[Knob; 2]> {
    Ok([
        Knob::set("/proc/sys/vm/dirty_expire_centisecs", "100")?,
        Knob::set("/proc/sys/vm/dirty_writeback_centisecs", "25")?,
    ])
}

fn copy(path: &Path, mib: u64) -> Vec<Step> {
    vec![
        open(path, "wo creat"),
        repeat(mib, vec![Step::Write { len: 1 << 20 }]),
    ]
}

/// Where version 1 of the blkio controller is mounted.
fn throttle_file() -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/mounts").ok()?;
    mounts.lines().find_map(|row| {
        let fields: Vec<&str> = row.split(' ').collect();
        let [_, point, "cgroup", options, ..] = fields[..] else {
            return None;
        };
        let file = Path::new(point).join("blkio.throttle.write_bps_device");
        (options.split(',').any(|o| o == "blkio") && file.exists()).then_some(file)
    })
}

fn can_throttle() -> Result<(), String> {
    throttle_file()
        .map(drop)
        .ok_or_else(|| "no cgroup v1 blkio controller to throttle with".to_owned())
}

/// The device writes so many MiB a second until the knob is dropped.
fn throttle(bed: &Bed, mib: u64) -> Result<Knob> {
    let file = throttle_file().context("no blkio controller")?;
    let (major, minor) = bed.devno();
    Knob::set_with_undo(
        file,
        &format!("{major}:{minor} {}", mib << 20),
        &format!("{major}:{minor} 0"),
    )
}

/// 100 % in two seconds, then it hangs: how much is left, and until when?
fn slow_stick() -> Result<()> {
    const MIB: u64 = 100;
    let bed = bed("noatime")?;
    let _slow = throttle(&bed, 10)?;
    // At the end of the copy, nearly all of it is still in memory.
    // Small writes, or the throttle lets go of eight mebibytes at a time.
    let small = repeat(MIB << 8, vec![Step::Write { len: BLOCK }]);
    let steps = [open(bed.path("x"), "wo creat"), small];
    let (dirty, _) = traced(&bed, || run("cp", &steps))?;
    let left = dirty.count("still_dirty_bytes") as f64 / f64::from(1 << 20);
    within(&dirty, "MiB still dirty after the copy", left, 80.0..=102.0)?;
    // While it drains, the intervals tell how long it will take.
    let out = run_dir().join("intervals.jsonl");
    let shown = out.to_string_lossy().into_owned();
    let args = ["-i", "1s", "--jsonl", "--output", &shown];
    let tracer = Call::trace(&bed.node(), &args)?.start()?;
    let began = Instant::now();
    let pid = run(
        "unplug",
        &[open(bed.mnt(), "ro"), Step::Sync(SyncCall::Syncfs)],
    )?
    .pid;
    let took = began.elapsed().as_secs_f64();
    tracer.signal(Signal::INT)?;
    tracer.wait()?.status(&[0])?;
    let lines = intervals(&out)?;
    ensure!(
        lines.len() >= 8,
        "only {} intervals in {took} s",
        lines.len()
    );
    // From two seconds on, by the tracer's own word; a bio of the flusher is
    // a second's worth here, so one interval alone is too coarse.
    let mut elapsed = 0.0;
    let mut errors = Vec::new();
    for line in &lines[..7] {
        elapsed += line["duration_s"].as_f64().unwrap_or(f64::NAN);
        let really = took - elapsed;
        let eta = line["devices"][0]["drain_eta_s"].as_f64();
        errors.push((eta.unwrap_or(f64::NAN) - really).abs() / really);
    }
    let mut later = errors[1..].to_vec();
    later.sort_by(f64::total_cmp);
    ensure!(
        later[later.len() / 2] <= 0.2,
        "the time to go is off by {errors:.2?} in {took:.1} s: {lines:#?}"
    );
    let by_sync = lines.iter().any(|line| {
        let rows = line["devices"][0]["paths"].as_array();
        rows.into_iter().flatten().any(|row| {
            let by = row["by"].as_array();
            row["path"] == "writeback"
                && row["trigger"] == "sync"
                && by.into_iter().flatten().any(|by| by["pid"] == pid)
        })
    });
    ensure!(
        by_sync,
        "no interval says that {pid} asked for it: {lines:#?}"
    );
    Ok(())
}

fn intervals(path: &Path) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(path)?;
    let lines = text.lines().map(serde_json::from_str);
    lines
        .collect::<Result<_, _>>()
        .with_context(|| format!("{} is not a line of JSON each: {text}", path.display()))
}

/// Nothing runs any more, and yet the disk writes: whose data is it?
fn command_ended() -> Result<()> {
    let _knobs = hasty_flusher()?;
    let bed = bed("noatime")?;
    let (report, done) = traced(&bed, || {
        let done = run("cron", &copy(&bed.path("x"), 20))?;
        std::thread::sleep(Duration::from_secs(4));
        Ok(done)
    })?;
    let mut check = report.check();
    check.eq("its file", report.file_named("x").path("writeback"), 40960);
    check.dirtier_by(&done, "writeback", 40960);
    check.eq(
        "by the flusher's own clock",
        report.trigger("writeback", "periodic"),
        40960,
    );
    let rows = report.device()["dirtiers"].as_array();
    let exited = rows
        .into_iter()
        .flatten()
        .any(|row| row["pid"] == done.pid && row["exited"] == true);
    check.is("it has exited, and is still named", exited);
    check.done()
}

/// The bytes are the dirtier's, the moment is the caller's: show both.
fn sync_by_another() -> Result<()> {
    let bed = bed("noatime")?;
    let write = vec![Step::Write { len: 2 << 20 }, Step::Sleep { ms: 200 }];
    let steps = [open(bed.path("A"), "wo creat"), repeat(20, write)];
    let sync = vec![Step::Sync(SyncCall::Syncfs), Step::Sleep { ms: 450 }];
    let (report, (writer, syncer)) = traced(&bed, || {
        let writer = Writer::spawn("dd", &steps)?;
        let syncer = run("watchdog", &[open(bed.mnt(), "ro"), repeat(10, sync)])?;
        let done = writer.wait()?;
        bed.syncfs()?;
        Ok((done, syncer))
    })?;
    let file = report.file_named("A");
    within(
        &report,
        "percent of file A",
        percent(file.sectors, report.total()),
        97.0..=100.0,
    )?;
    let mut check = report.check();
    check.eq("all of A", file.sectors, 40 << 11);
    check.dirtier_by(&writer, "writeback", file.sectors);
    check.eq(
        "because of a sync",
        report.trigger("writeback", "sync"),
        file.sectors,
    );
    check.done()?;
    let asked = asked_by(&report, syncer.pid);
    within(
        &report,
        "percent of them asked for by the watchdog",
        percent(asked, file.sectors),
        60.0..=100.0,
    )
}

/// Sectors of `writeback` because of a sync by this process.
fn asked_by(report: &Report, pid: u32) -> u64 {
    let rows = report.device()["paths"].as_array();
    rows.into_iter()
        .flatten()
        .filter(|row| row["path"] == "writeback" && row["trigger"] == "sync")
        .flat_map(|row| row["by"].as_array().into_iter().flatten())
        .filter(|by| by["pid"] == pid)
        .map(|by| by["sectors"].as_u64().unwrap_or(0))
        .sum()
}

/// Unlinked before the flusher came: did it reach the flash?
fn short_lived() -> Result<()> {
    const MIB: u64 = 60;
    let _knobs = hasty_flusher()?;
    for wait_s in [0, 4] {
        let bed = bed("noatime")?;
        let mut steps = copy(&bed.path("t"), MIB);
        steps.extend([
            Step::Close,
            Step::Sleep { ms: wait_s * 1000 },
            Step::Unlink {
                path: bed.path("t"),
            },
        ]);
        let (report, done) = traced(&bed, || {
            let done = run("ffmpeg", &steps)?;
            std::thread::sleep(Duration::from_secs(2));
            Ok(done)
        })?;
        let sectors = report.file_named("t").sectors;
        if wait_s == 0 {
            holds(
                &report,
                "no data reached the device",
                sectors == 0 && report.path("writeback") == 0 && report.total() <= 256,
            )?;
            continue;
        }
        let mut check = report.check();
        check.eq("all of it, under its name", sectors, MIB << 11);
        check.dirtier_by(&done, "writeback", MIB << 11);
        let rows = report.device()["files"].as_array();
        let deleted = rows
            .into_iter()
            .flatten()
            .any(|row| row["file"] == "t" && row["deleted"] == true);
        check.is("marked as deleted", deleted);
        check.done()?;
    }
    Ok(())
}
