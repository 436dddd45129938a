//! A remount for `commit=` keeps everything else, there and back.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;

use super::held::Held;
use super::machine::{self, Machine, Originals};
use crate::bed::{Bed, Spec};
use crate::harness::Test;

/// Mount options, and what `commit=` is under them.
const BEDS: &[(&str, &str, u64)] = &[
    ("plain", "", 5),
    ("ro", "ro", 5),
    ("sync_lazytime_noexec", "sync,lazytime,noexec", 5),
    ("ro_sync_lazytime", "ro,sync,lazytime,noatime", 5),
    ("dirsync_strictatime", "dirsync,strictatime", 5),
    ("commit_7", "commit=7,noatime", 7),
    ("data_journal", "data=journal,nodelalloc", 5),
    (
        "data_writeback",
        "data=writeback,nobarrier,errors=remount-ro",
        5,
    ),
    (
        "odd_numbers",
        "stripe=16,max_batch_time=9000,min_batch_time=100,init_itable=3,resuid=77",
        5,
    ),
];

pub fn tests() -> Vec<Test> {
    let mut tests: Vec<Test> = BEDS
        .iter()
        .map(|(name, options, commit)| {
            let test = Test::new(format!("profiles::remount_keeps_{name}"), move || {
                keeps(options, *commit)
            })
            .guest();
            // Two of them for the quick tier: the flags, and a hidden default.
            if matches!(*name, "ro_sync_lazytime" | "plain") {
                test
            } else {
                test.full()
            }
        })
        .collect();
    tests.push(Test::new("profiles::remount_keeps_a_read_only_mount", read_only_mount).full());
    tests.push(Test::new("profiles::remount_without_a_journal", no_journal).full());
    tests.push(Test::new("profiles::remount_on_a_partition", partition).full());
    tests
}

fn keeps(options: &str, commit: u64) -> Result<()> {
    let _originals = Originals::set()?;
    let bed = Bed::new(Spec::ext4(64).mount(options))?;
    around(&bed, commit)
}

/// The whole line and all options: during a profile all but `commit=`, after
/// it all; ended by itself, and by its guard.
fn around(bed: &Bed, commit: u64) -> Result<()> {
    ensure!(machine::commit(bed)? == commit, "the bed is not as meant");
    let before = Machine::read(bed)?;
    let (line, options) = (machine::line(bed)?, machine::options(bed)?);
    for signal in [Signal::INT, Signal::KILL] {
        let held = Held::new("commit-60", bed, &[])?;
        ensure!(machine::commit(bed)? == 60, "commit= was not set");
        let now = but_commit(&machine::line(bed)?, ',');
        ensure!(now == but_commit(&line, ','), "was {line}\nis  {now}");
        let now = but_commit(&machine::options(bed)?, '\n');
        ensure!(
            now == but_commit(&options, '\n'),
            "was {options}\nis  {now}"
        );
        held.signal(signal)?;
        before.comes_back(bed)?;
        held.wait()?;
    }
    machine::no_state()
}

fn but_commit(text: &str, between: char) -> String {
    let kept: Vec<&str> = text
        .split(between)
        .filter(|option| !option.starts_with("commit="))
        .collect();
    kept.join(&between.to_string())
}

/// `ro` of the mount alone, which the filesystem does not have.
fn read_only_mount() -> Result<()> {
    let _originals = Originals::set()?;
    let bed = Bed::new(Spec::ext4(64).mount("lazytime"))?;
    let status = Command::new("mount")
        .args(["-o", "remount,bind,ro,nodiratime"])
        .arg(bed.mnt())
        .status()
        .context("running mount")?;
    ensure!(status.success(), "mount -o remount,bind: {status}");
    let line = machine::line(&bed)?;
    ensure!(line.contains(" ro,") && line.contains(" rw,"), "{line}");
    around(&bed, 5)
}

fn no_journal() -> Result<()> {
    let _originals = Originals::set()?;
    let bed = Bed::new(Spec::ext4(64).mkfs("-O ^has_journal"))?;
    around(&bed, 5)
}

fn partition() -> Result<()> {
    let _originals = Originals::set()?;
    let bed = Bed::new(Spec::ext4(80).partition(9))?;
    around(&bed, 5)
}
