//! What others do while a profile is in force, and how runs end otherwise.

use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;

use super::held::{self, Held, profile};
use super::machine::{self, Machine, Originals, set_sysctl, sysctl};
use crate::bed::{Bed, Spec};
use crate::harness::{Test, scaled};

pub fn tests() -> Vec<Test> {
    vec![
        Test::new("profiles::somebody_elses_change_stays", || foreign(false)),
        Test::new("profiles::somebody_elses_change_stays_after_kill", || {
            foreign(true)
        })
        .full(),
        Test::new(
            "profiles::somebody_elses_member_of_a_pair_stays",
            foreign_member,
        )
        .full(),
        Test::new("profiles::somebody_elses_remount_stays", foreign_remount).full(),
        Test::new("profiles::bytes_in_force_come_back", bytes_come_back),
        Test::new("profiles::second_run_is_refused", second_run),
        Test::new("profiles::signals_put_back", signals),
        Test::new("profiles::cmd_ends_it", cmd),
        Test::new("profiles::cmd_runs_as_who_called_sudo", cmd_user).full(),
        Test::new("profiles::kept_until_restored", keep),
        Test::new("profiles::as_ram_and_time_scale", made_of_it).full(),
        Test::new("profiles::umounted_meanwhile", umounted).full(),
    ]
}

fn bed() -> Result<(Originals, Bed)> {
    Ok((Originals::set()?, Bed::new(Spec::ext4(64))?))
}

fn foreign(killed: bool) -> Result<()> {
    let (_originals, bed) = bed()?;
    let before = Machine::read(&bed)?;
    let held = Held::new("coalescing-commit-60", &bed, &[])?;
    set_sysctl("dirty_ratio", 37)?;
    let ended = if killed {
        held.signal(Signal::KILL)?;
        held.wait()?
    } else {
        let ended = held.end()?;
        ended.status(&[5])?;
        ended
    };
    ended
        .says(&["somebody else"])?
        .says(&["vm.dirty_ratio=37"])?;
    ensure!(
        sysctl("dirty_ratio")? == 37,
        "somebody else's value was overwritten"
    );
    // Only that one differs.
    set_sysctl("dirty_ratio", 23)?;
    before.is_still(&bed)?;
    machine::no_state()
}

fn foreign_member() -> Result<()> {
    let (_originals, bed) = bed()?;
    let before = Machine::read(&bed)?;
    let held = Held::new("coalescing", &bed, &[])?;
    set_sysctl("dirty_bytes", 300 << 20)?;
    held.end()?.status(&[5])?.says(&["vm.dirty_bytes"])?;
    ensure!(
        sysctl("dirty_bytes")? == 300 << 20,
        "somebody else's bytes were overwritten"
    );
    set_sysctl("dirty_ratio", 23)?;
    before.is_still(&bed)
}

fn foreign_remount() -> Result<()> {
    let (_originals, bed) = bed()?;
    let held = Held::new("commit-60", &bed, &[])?;
    let status = Command::new("mount")
        .args(["-o", "remount,commit=9"])
        .arg(bed.mnt())
        .status()?;
    ensure!(status.success(), "mount: {status}");
    held.end()?.status(&[5])?.says(&["commit=9"])?;
    ensure!(
        machine::commit(&bed)? == 9,
        "somebody else's commit= was overwritten"
    );
    Ok(())
}

/// Limits in bytes are back in bytes, for the kernel keeps one of a pair.
fn bytes_come_back() -> Result<()> {
    let (_originals, bed) = bed()?;
    set_sysctl("dirty_bytes", 400 << 20)?;
    set_sysctl("dirty_background_bytes", 100 << 20)?;
    let before = Machine::read(&bed)?;
    for signal in [Signal::INT, Signal::KILL] {
        let held = Held::new("balanced", &bed, &[])?;
        ensure!(sysctl("dirty_ratio")? == 30 && sysctl("dirty_bytes")? == 0);
        held.signal(signal)?;
        before.comes_back(&bed)?;
        held.wait()?;
    }
    // A ratio of 0 is in force when both are 0.
    set_sysctl("dirty_ratio", 1)?;
    set_sysctl("dirty_ratio", 0)?;
    let before = Machine::read(&bed)?;
    let held = Held::new("balanced", &bed, &["--as-ram", "1GiB"])?;
    ensure!(sysctl("dirty_bytes")? > 0);
    held.end()?.status(&[0])?;
    before.is_still(&bed)
}

fn second_run() -> Result<()> {
    let (_originals, bed) = bed()?;
    let before = Machine::read(&bed)?;
    let held = Held::new("coalescing", &bed, &[])?;
    let during = Machine::read(&bed)?;
    let pid = held.pid().to_string();
    for args in [
        vec!["apply", "balanced"],
        vec!["apply", "balanced", "--keep"],
        vec!["apply", "balanced", "--", "true"],
        vec!["restore"],
    ] {
        let began = Instant::now();
        let ended = profile(&args)?.run()?;
        ended.status(&[5])?.says(&[&pid])?.silent()?;
        ensure!(
            began.elapsed() < Duration::from_secs(2) * scaled(1, 5),
            "it waited"
        );
        during.is_still(&bed)?;
    }
    held.end()?.status(&[0])?;
    before.is_still(&bed)?;
    machine::no_state()
}

fn signals() -> Result<()> {
    let (_originals, bed) = bed()?;
    let before = Machine::read(&bed)?;
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let held = Held::new("coalescing-commit-60", &bed, &[])?;
        held.signal(signal)?;
        // Impatience changes nothing.
        let _ = held.signal(signal);
        held.wait()?.status(&[0])?;
        before.is_still(&bed)?;
        machine::no_state()?;
    }
    Ok(())
}

fn cmd() -> Result<()> {
    let (_originals, bed) = bed()?;
    let before = Machine::read(&bed)?;
    let show = "cat /proc/sys/vm/dirty_expire_centisecs";
    let ended = held::apply("balanced", &bed, &["--", "sh", "-c", show])?;
    ended.status(&[0])?;
    ensure!(ended.stdout.trim() == "6000", "{}", ended.told());
    before.is_still(&bed)?;
    let failing = ["--", "sh", "-c", "exit 7"];
    held::apply("balanced", &bed, &failing)?
        .status(&[1])?
        .says(&["7"])?;
    let ignored = ["--ignore-failure", "--", "sh", "-c", "exit 7"];
    held::apply("balanced", &bed, &ignored)?.status(&[0])?;
    let missing = ["--", "/no/such/program"];
    held::apply("balanced", &bed, &missing)?
        .status(&[1])?
        .says(&["/no/such/program"])?;
    before.is_still(&bed)?;
    // Ended while CMD runs, and CMD with it.
    let held = Held::new("balanced", &bed, &["--", "sh", "-c", "sleep 50; true"])?;
    held.signal(Signal::TERM)?;
    held.wait()?.status(&[0])?;
    before.is_still(&bed)?;
    machine::no_state()
}

fn cmd_user() -> Result<()> {
    let (_originals, bed) = bed()?;
    let note = bed.scratch("by");
    std::fs::create_dir(&note)?;
    std::os::unix::fs::chown(&note, Some(65534), Some(65534))?;
    let file = note.join("file");
    let touch = format!("id -G; touch {}", file.display());
    let ended = held::apply(
        "balanced",
        &bed,
        &["--user", "65534", "--", "sh", "-c", &touch],
    )?;
    ended.status(&[0])?;
    ensure!(ended.stdout.trim() == "65534", "groups: {}", ended.told());
    let owner = std::fs::metadata(&file).context("CMD made no file")?.uid();
    ensure!(owner == 65534, "CMD ran as user {owner}");
    Ok(())
}

fn keep() -> Result<()> {
    let (_originals, bed) = bed()?;
    let before = Machine::read(&bed)?;
    let ended = held::apply("coalescing-commit-60", &bed, &["--keep"])?;
    ended.status(&[0])?.says(&["profile restore"])?;
    ended.says(&["sysctl -w vm.dirty_expire_centisecs=3100"])?;
    ended.says(&["remount,commit=5"])?;
    let kept = Machine::read(&bed)?;
    ensure!(
        sysctl("dirty_expire_centisecs")? == 10_000,
        "it is not kept"
    );
    profile(["verify", "coalescing"])?.run()?.status(&[0])?;
    // Another run goes back to what is kept, not further.
    held::apply("default", &bed, &["--", "true"])?.status(&[0])?;
    kept.is_still(&bed)?;
    let active = profile(["active", "--json"])?.run()?.json()?;
    ensure!(
        active["kept"]
            .as_array()
            .is_some_and(|kept| kept.len() == 5)
    );
    held::apply("balanced", &bed, &["--keep"])?.status(&[0])?;
    profile(["restore"])?.run()?.status(&[0])?;
    before.is_still(&bed)?;
    machine::no_state()
}

fn made_of_it() -> Result<()> {
    let (_originals, bed) = bed()?;
    let before = Machine::read(&bed)?;
    let held = Held::new(
        "coalescing-commit-60",
        &bed,
        &["--as-ram", "1GiB", "--time-scale", "5"],
    )?;
    let expected = [
        ("dirty_background_bytes", 161_058_816),
        ("dirty_background_ratio", 0),
        ("dirty_bytes", 429_494_272),
        ("dirty_ratio", 0),
        ("dirty_expire_centisecs", 2000),
        ("dirty_writeback_centisecs", 600),
    ];
    for (name, value) in expected {
        ensure!(sysctl(name)? == value, "vm.{name} is {}", sysctl(name)?);
    }
    ensure!(machine::commit(&bed)? == 12);
    held.end()?.status(&[0])?;
    before.is_still(&bed)
}

/// A filesystem that is gone needs nothing put back.
fn umounted() -> Result<()> {
    let (_originals, mut bed) = bed()?;
    let held = Held::new("coalescing-commit-60", &bed, &[])?;
    bed.umount()?;
    held.end()?.status(&[0])?.says(&["gone"])?;
    machine::no_state()?;
    bed.mount()?;
    ensure!(machine::commit(&bed)? == 5);
    ensure!(sysctl("dirty_expire_centisecs")? == 3100);
    Ok(())
}
