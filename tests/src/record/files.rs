//! The file: budgets, killed recorders, files that are no recordings, places
//! that cannot be written.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;

use super::kit::{file, read, record, start};
use crate::bad_input::call::Call;
use crate::bed::{Bed, Spec};
use crate::harness::{Test, run_dir};
use crate::tracer;
use crate::writers::{BLOCK, Step, SyncCall, filled, open, repeat, run};

pub fn tests() -> Vec<Test> {
    let test = |name: &str, body: fn() -> Result<()>| {
        Test::new(format!("record::{name}"), body).needs(tracer::available)
    };
    vec![
        test("budget_is_used_up", budget_is_used_up),
        test("killed_recorder", killed_recorder),
        test("losses_are_counted", losses_are_counted),
        test("full_disk", full_disk),
        test("not_a_recording", not_a_recording),
        test("places_that_cannot_be_written", bad_places),
        test("file_is_its_users", file_is_its_users),
    ]
}

fn bed() -> Result<Bed> {
    let bed = Bed::new(Spec::ext4(64).mount("noatime,commit=300"))?;
    run("setup", &filled(bed.path("a"), 4))?;
    bed.settle()?;
    Ok(bed)
}

fn overwrite(count: u64) -> Step {
    repeat(count, vec![Step::Pwrite { at: 0, len: 10 }])
}

/// When the budget is used up, writes stop, the recording says when, and all
/// else goes on.
fn budget_is_used_up() -> Result<()> {
    let bed = bed()?;
    let steps = [
        open(bed.path("a"), "rw"),
        overwrite(40_000),
        Step::Sleep { ms: 500 },
        overwrite(500),
        Step::Sync(SyncCall::Fsync),
    ];
    let (got, _) = record(&bed, &["--writes", "--max-size", "1K"], &steps)?;
    got.whole()?;
    got.ended.says(&["--max-size was reached"])?;
    let until = got.report["writes_until_s"].as_f64();
    let until = until.context("it does not say until when")?;
    ensure!(got.of("full").count() == 1);
    let ino = bed.ino("a")?;
    let writes = got.on("write", ino);
    ensure!(
        writes.len() >= 30_000 && writes.len() <= 40_000,
        "{} writes are kept",
        writes.len()
    );
    let late = writes.iter().filter(|e| e["t_s"].as_f64() > Some(until));
    ensure!(late.count() == 0, "a write after the budget was used up");
    ensure!(got.on("sync", ino).is_empty(), "a sync after it");
    ensure!(got.of("commit").count() == 1, "commits go on");
    Ok(())
}

/// kill -9 leaves what was sealed; it reads, and says that it is cut short.
fn killed_recorder() -> Result<()> {
    let bed = bed()?;
    let file = file(&bed);
    let running = start(&bed, &file, &["--writes"])?;
    run("recorded", &[open(bed.path("a"), "rw"), overwrite(80_000)])?;
    // A section is sealed at the latest a moment after so many events.
    for _ in 0..100 {
        if fs::metadata(&file)?.len() > 8192 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    running.signal(Signal::KILL)?;
    let ended = running.wait()?;
    let got = read(ended, &file)?;
    ensure!(got.report["whole"] == false && got.report["ledger"].is_null());
    let cut = got.report["cut"]
        .as_str()
        .context("it is not said to be cut")?;
    ensure!(cut.contains("killed"), "{cut}");
    let writes = got.on("write", bed.ino("a")?).len();
    ensure!(writes >= 30_000, "{writes} writes are left");
    // Cut inside a section, it reads to the one before.
    let bytes = fs::read(&file)?;
    fs::write(&file, &bytes[..bytes.len() - 7])?;
    let told = Call::new(["report".as_ref(), file.as_os_str()])?.run()?;
    told.status(&[0])?;
    ensure!(told.stdout.contains("cut short"), "{}", told.told());
    Ok(())
}

/// A recorder that does not get to its ring loses events, and says how many.
fn losses_are_counted() -> Result<()> {
    let bed = bed()?;
    let file = file(&bed);
    let running = start(&bed, &file, &["--writes"])?;
    // More than the ring holds: 4 MiB at 56 bytes a record.
    let made = 150_000;
    running.signal(Signal::STOP)?;
    run("recorded", &[open(bed.path("a"), "rw"), overwrite(made)])?;
    running.signal(Signal::CONT)?;
    running.signal(Signal::INT)?;
    let ended = running.wait()?;
    ended.status(&[4])?.says(&["events lost"])?;
    let got = read(ended, &file)?;
    let lost = got.report["lost"]["write"].as_u64().unwrap_or(0);
    let kept = got.on("write", bed.ino("a")?).len() as u64;
    ensure!(lost > 0 && kept > 0, "{lost} lost, {kept} kept");
    ensure!(lost + kept == made, "{lost} lost and {kept} kept of {made}");
    Ok(())
}

/// Where the recording cannot be written the run fails, and names the file.
fn full_disk() -> Result<()> {
    let bed = bed()?;
    let node = bed.node();
    let node = node.to_string_lossy();
    let dir = run_dir().join("full");
    fs::create_dir(&dir)?;
    let flags = rustix::mount::MountFlags::NODEV;
    rustix::mount::mount("tmpfs", &dir, "tmpfs", flags, c"size=4096")?;
    fs::write(dir.join("filler"), vec![1_u8; 4096])?;
    let place = dir.join("out.data");
    let shown = place.to_string_lossy();
    let ran = run_dir().join("ran").to_string_lossy().into_owned();
    let args = ["record", "-d", &node, "-o", &shown, "--", "touch", &ran];
    let ended = Call::new(args)?.run()?;
    ended.status(&[1])?.silent()?.says(&[&shown])?;
    ended.says(&["space", "full"])?;
    ensure!(!Path::new(&ran).exists(), "CMD was started all the same");
    let _ = rustix::mount::unmount(&dir, rustix::mount::UnmountFlags::DETACH);
    Ok(())
}

fn report(path: &Path) -> Result<crate::bad_input::call::Ended> {
    Call::new(["report".as_ref(), path.as_os_str()])?.run()
}

fn not_a_recording() -> Result<()> {
    let dir = run_dir();
    let path = dir.join("bad");
    report(&path)?
        .status(&[1])?
        .silent()?
        .says(&["no such file"])?;
    report(&dir)?.status(&[1])?.silent()?.says(&["directory"])?;
    fs::write(&path, "")?;
    report(&path)?
        .status(&[1])?
        .silent()?
        .says(&["not a recording"])?;
    fs::write(&path, vec![b'x'; 5000])?;
    report(&path)?
        .status(&[1])?
        .silent()?
        .says(&["not a recording"])?;
    let mut header = b"WPATHREC\x09\x00\x40\x00".to_vec();
    header.resize(64, 0);
    fs::write(&path, &header)?;
    report(&path)?
        .status(&[1])?
        .silent()?
        .says(&["version 9"])?;
    header[8] = 1;
    fs::write(&path, &header)?;
    report(&path)?.status(&[1])?.silent()?.says(&["damaged"])?;
    fs::write(&path, &header[..20])?;
    report(&path)?
        .status(&[1])?
        .silent()?
        .says(&["cut short"])?;
    Ok(())
}

/// Never through a link, never without a word; and CMD is not started.
fn bad_places() -> Result<()> {
    let bed = bed()?;
    let node = bed.node();
    let node = node.to_string_lossy();
    let dir = run_dir();
    let link = dir.join("link");
    symlink(dir.join("target"), &link)?;
    let ran = dir.join("ran");
    let ran = ran.to_string_lossy();
    for place in [link, dir.join("none").join("file"), dir.clone()] {
        let shown = place.to_string_lossy();
        let args = ["record", "-d", &node, "-o", &shown, "--", "touch", &ran];
        Call::new(args)?
            .run()?
            .status(&[1])?
            .silent()?
            .says(&[&shown])?;
        ensure!(!dir.join("ran").exists(), "CMD was started for {shown}");
    }
    ensure!(!dir.join("target").exists(), "it wrote through a link");
    for wrong in [["--max-size", "1G"], ["--max-size", "x"]] {
        let args = ["record", "-d", &node, wrong[0], wrong[1]];
        Call::new(args)?.run()?.status(&[2])?.silent()?;
    }
    Ok(())
}

/// 0600, and it belongs to the user that CMD runs as.
fn file_is_its_users() -> Result<()> {
    let bed = bed()?;
    let node = bed.node();
    let node = node.to_string_lossy();
    let file = run_dir().join("mine.data");
    let shown = file.to_string_lossy();
    let args = [
        "record", "-d", &node, "-o", &shown, "--user", "65534", "--", "true",
    ];
    Call::new(args)?.run()?.status(&[0])?;
    let found = fs::metadata(&file)?;
    ensure!(
        found.mode() & 0o7777 == 0o600 && found.uid() == 65534,
        "mode {:o}, owner {}",
        found.mode(),
        found.uid()
    );
    ensure!(
        BLOCK > found.len() / 16,
        "{} bytes for nothing",
        found.len()
    );
    Ok(())
}
