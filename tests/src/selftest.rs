//! The harness tried on itself: a settled bed is quiet, and a killed test
//! leaves nothing behind. None of it needs a tracer.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::bed::{Bed, Spec};
use crate::clean;
use crate::disk::DiskStat;
use crate::harness::{self, Test};
use crate::knob::{self, Knob};
use crate::stacks::instance::Instance;
use crate::writers::{Step, Writer, open};

/// The test that is only run to be killed.
const MESS: &str = "harness::mess";

pub fn tests() -> Vec<Test> {
    vec![
        Test::new("harness::bed_is_quiet", bed_is_quiet).guest(),
        Test::new("harness::killed_test_leaves_nothing", killed).guest(),
        Test::new(MESS, mess).hidden(),
    ]
}

/// A settled bed writes nothing, so that every sector of a test is the test's.
fn bed_is_quiet() -> Result<()> {
    let bed = Bed::new(Spec::ext4(64))?;
    let before = bed.stat()?;
    std::thread::sleep(std::time::Duration::from_secs(7));
    let written = bed.stat()?.since(before).write_sectors;
    ensure!(written == 0, "a settled bed wrote {written} sectors");
    Ok(())
}

/// Takes one of everything, says where, and waits to be killed.
fn mess() -> Result<()> {
    let mut bed = Bed::new(Spec::ext4(32).partition(7))?;
    bed.queue("nomerges", "1")?;
    let _instance = Instance::new(&[])?;
    let _knob = Knob::set("/proc/sys/vm/dirty_expire_centisecs", "2999")?;
    let steps = [
        open(bed.path("busy"), "wo creat"),
        Step::Say("up".to_owned()),
        Step::Sleep { ms: 600_000 },
    ];
    let mut writer = Writer::spawn("messy", &steps)?;
    writer.hear()?;
    std::fs::write(harness::run_dir().join("up"), bed.name())?;
    std::thread::sleep(std::time::Duration::from_mins(10));
    Ok(())
}

/// Kills such a test in the middle and cleans up as a run does.
fn killed() -> Result<()> {
    let expire = std::path::Path::new("/proc/sys/vm/dirty_expire_centisecs");
    let before = knob::read(expire)?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let dir = harness::run_dir().join("victim");
    std::fs::create_dir_all(&dir)?;
    let mut victim = Command::new("/proc/self/exe")
        .args(["run-one", MESS])
        .env(harness::RUN_DIR, &dir)
        .stdout(Stdio::null())
        .process_group(0)
        .spawn()
        .context("starting the victim")?;
    let up = dir.join("up");
    let name = loop {
        match std::fs::read_to_string(&up) {
            Ok(name) if !name.is_empty() => break name,
            _ => ensure!(victim.try_wait()?.is_none(), "the victim ended by itself"),
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    };
    ensure!(knob::read(expire)? == "2999", "the victim changed no knob");
    victim.kill()?;
    victim.wait()?;
    let ended = clean::end_orphans();
    let left = clean::run(&harness::run_dir());
    ensure!(ended.len() == 1, "ended {ended:?}, not the writer alone");
    for what in ["trace instance", "knob /proc", "knob /sys"] {
        let found = left.iter().any(|item| item.starts_with(what));
        ensure!(found, "{what} was not found in {left:?}");
    }
    ensure!(knob::read(expire)? == before, "the sysctl is not back");
    let attached = std::path::Path::new("/sys/block").join(&name).join("loop");
    ensure!(!attached.exists(), "{name} is still attached");
    ensure!(DiskStat::read(&name)?.in_flight == 0);
    let partition = std::path::Path::new("/sys/block")
        .join(&name)
        .join(format!("{name}p1"));
    ensure!(!partition.exists(), "{name} still has its partition");
    ensure!(
        clean::run(&harness::run_dir()).is_empty(),
        "not all was cleaned"
    );
    Ok(())
}
