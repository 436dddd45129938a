//! The state of runs that died: put back from anywhere, discarded with its
//! boot, and trusted only where it is root's alone and of the table.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;

use super::held::{Held, profile};
use super::machine::{self, Machine, Originals, STATE, sysctl};
use crate::bed::{Bed, Spec};
use crate::harness::{self, Test};
use crate::knob;
use crate::tracer;

pub fn tests() -> Vec<Test> {
    vec![
        Test::new("profiles::next_run_repairs_first", next_run).full(),
        Test::new("profiles::restore_reaches_other_namespaces", elsewhere),
        Test::new("profiles::state_of_another_boot_is_discarded", another_boot),
        Test::new("profiles::state_that_is_not_to_be_trusted", distrusted),
        Test::new("profiles::guard_removes_throttles", throttle),
        Test::new("profiles::full_run_directory", full_run),
    ]
}

/// A run that was killed together with its guard.
fn dead_run(bed: &Bed) -> Result<()> {
    let held = Held::new("coalescing-commit-60", bed, &[])?;
    held.kill_guard()?;
    held.signal(Signal::KILL)?;
    held.wait()?;
    ensure!(machine::commit(bed)? == 60, "it was put back by nobody");
    Ok(())
}

fn next_run() -> Result<()> {
    let _originals = Originals::set()?;
    let bed = Bed::new(Spec::ext4(64))?;
    let before = Machine::read(&bed)?;
    dead_run(&bed)?;
    let held = Held::new("commit-60", &bed, &[])?;
    held.end()?
        .status(&[0])?
        .says(&["an earlier run had died"])?;
    before.is_still(&bed)?;
    machine::no_state()
}

/// From a namespace that does not have the mount.
fn elsewhere() -> Result<()> {
    harness::has_program("unshare").map_err(harness::skip)?;
    let _originals = Originals::set()?;
    let bed = Bed::new(Spec::ext4(64).mount("sync,lazytime"))?;
    let before = Machine::read(&bed)?;
    dead_run(&bed)?;
    let script = format!(
        "umount {} && exec {} profile restore",
        bed.mnt().display(),
        tracer::binary()?.display()
    );
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", &script])
        .output()
        .context("running unshare")?;
    ensure!(
        output.status.success(),
        "{}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    before.is_still(&bed)
}

/// A /run of the test's own, so that what is put there harms nobody.
fn own_run() -> Result<()> {
    mount_run("mode=0755")?;
    ensure!(!Path::new(STATE).exists());
    Ok(())
}

fn mount_run(options: &str) -> Result<()> {
    let status = Command::new("mount")
        .args(["-t", "tmpfs", "-o", options, "none", "/run"])
        .status()
        .context("running mount")?;
    ensure!(status.success(), "a tmpfs on /run: {status}");
    Ok(())
}

fn end_run() -> Result<()> {
    rustix::mount::unmount("/run", rustix::mount::UnmountFlags::DETACH).context("/run")
}

/// State that asks for a `dirty_ratio` of 7.
fn state(boot: &str, knob: &str, original: u64, ours: u64) -> String {
    format!(
        r#"{{"version":1,"boot":"{boot}","pid":4194304,"entries":[{{"on":"machine","original":{{"knob":"{knob}","value":{original}}},"ours":[{{"knob":"{knob}","value":{ours}}}]}}]}}"#
    )
}

fn boot() -> Result<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(text.trim().to_owned())
}

fn plant(text: &str) -> Result<()> {
    let _ = fs::remove_dir_all(STATE);
    fs::create_dir(STATE)?;
    fs::set_permissions(STATE, fs::Permissions::from_mode(0o700))?;
    let file = format!("{STATE}/state.json");
    fs::write(&file, text)?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600))?;
    Ok(())
}

fn another_boot() -> Result<()> {
    let _originals = Originals::set()?;
    own_run()?;
    let now = sysctl("dirty_ratio")?;
    plant(&state("another", "vm.dirty_ratio", 7, now))?;
    profile(["restore"])?.run()?.status(&[0])?;
    ensure!(
        sysctl("dirty_ratio")? == now,
        "state of another boot was put back"
    );
    machine::no_state()?;
    // Of this boot it is: the state is as this program writes it.
    plant(&state(&boot()?, "vm.dirty_ratio", 7, now))?;
    profile(["restore"])?.run()?.status(&[0])?;
    ensure!(
        sysctl("dirty_ratio")? == 7,
        "state of this boot was not put back"
    );
    end_run()
}

fn distrusted() -> Result<()> {
    let _originals = Originals::set()?;
    own_run()?;
    let now = sysctl("dirty_ratio")?;
    let good = state(&boot()?, "vm.dirty_ratio", 7, now);
    let refused = |what: &str| -> Result<()> {
        for args in [vec!["restore"], vec!["apply", "balanced", "--", "true"]] {
            let ended = profile(&args)?.run()?;
            ended.status(&[5]).with_context(|| what.to_owned())?;
            ended.says(&[STATE]).with_context(|| what.to_owned())?;
            ensure!(sysctl("dirty_ratio")? == now, "{what}: it was trusted");
        }
        Ok(())
    };
    let file = format!("{STATE}/state.json");
    for (what, text) in [
        ("no JSON", "{".to_owned()),
        ("empty", String::new()),
        ("another knob", state(&boot()?, "kernel.panic", 7, now)),
        (
            "a path for a knob",
            state(&boot()?, "../kernel/panic", 7, now),
        ),
        ("out of range", state(&boot()?, "vm.dirty_ratio", 700, now)),
        ("endless", "[".repeat(300 << 10)),
    ] {
        plant(&text)?;
        refused(what)?;
    }
    plant(&good)?;
    std::os::unix::fs::chown(&file, Some(65534), None)?;
    refused("a file of somebody else")?;
    plant(&good)?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o622))?;
    refused("a file that others may write")?;
    plant(&good)?;
    fs::rename(&file, "/run/real")?;
    std::os::unix::fs::symlink("/run/real", &file)?;
    refused("a link")?;
    plant(&good)?;
    fs::hard_link(&file, "/run/second")?;
    refused("a file with two names")?;
    plant(&good)?;
    std::os::unix::fs::chown(STATE, Some(65534), None)?;
    refused("a directory of somebody else")?;
    plant(&good)?;
    fs::set_permissions(STATE, fs::Permissions::from_mode(0o777))?;
    refused("a directory that others may write")?;
    plant(&good)?;
    fs::rename(STATE, "/run/elsewhere")?;
    std::os::unix::fs::symlink("/run/elsewhere", STATE)?;
    refused("a link to a directory")?;
    fs::remove_file(STATE)?;
    fs::write(STATE, "")?;
    refused("a file in place of the directory")?;
    end_run()
}

/// A throttle that a run has noted goes with it, whoever puts it back.
fn throttle() -> Result<()> {
    const FILE: &str = "/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device";
    if !Path::new(FILE).exists() {
        return Err(harness::skip("no blkio controller of cgroup v1"));
    }
    let _originals = Originals::set()?;
    let bed = Bed::new(Spec::ext4(64))?;
    let (major, minor) = bed.devno();
    let before = Machine::read(&bed)?;
    let device = format!(r#"{{"device":{{"dev":[{major},{minor}]}}}}"#);
    let name = "blkio.throttle.write_bps_device";
    let entry = state(&boot()?, name, 0, 20_000_000).replace(r#""machine""#, &device);
    // Of a dead run.
    plant(&entry)?;
    let line = format!("{major}:{minor} 20000000");
    let _undo = knob::Knob::set_with_undo(FILE, &line, &format!("{major}:{minor} 0"))?;
    ensure!(fs::read_to_string(FILE)?.contains(&line), "it was not set");
    profile(["restore"])?.run()?.status(&[0])?;
    before.is_still(&bed)?;
    machine::no_state()?;
    // By a guard: the run's state gets the entry as if it had set it.
    let held = Held::new("coalescing", &bed, &[])?;
    plant_again(&entry)?;
    knob::write(Path::new(FILE), &line)?;
    let ours = [
        ("dirty_background_ratio", 11),
        ("dirty_ratio", 23),
        ("dirty_writeback_centisecs", 510),
        ("dirty_expire_centisecs", 3100),
    ];
    for (name, value) in ours {
        machine::set_sysctl(name, value)?;
    }
    held.signal(Signal::KILL)?;
    before.comes_back(&bed)?;
    held.wait()?;
    machine::no_state()
}

fn plant_again(text: &str) -> Result<()> {
    let file = format!("{STATE}/state.json");
    fs::write(&file, text).with_context(|| file)
}

/// Where the state cannot be written, nothing is changed.
fn full_run() -> Result<()> {
    let _originals = Originals::set()?;
    let bed = Bed::new(Spec::ext4(64))?;
    let before = Machine::read(&bed)?;
    mount_run("mode=0755,size=4k")?;
    fs::write("/run/filler", [0; 4096])?;
    let ended = super::held::apply("coalescing-commit-60", &bed, &["--", "true"])?;
    ended.status(&[5])?.says(&["space"])?;
    before.is_still(&bed)?;
    ensure!(!Path::new(STATE).exists(), "{STATE} is left");
    end_run()
}
