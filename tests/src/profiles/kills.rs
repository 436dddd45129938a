//! `kill -9` at any moment: everything is back within two seconds, or, where
//! the guard was killed too, by `profile restore`.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;

use super::held::{self, Held, profile};
use super::machine::{self, Machine, Originals};
use crate::bed::{Bed, Spec};
use crate::harness::Test;

pub fn tests() -> Vec<Test> {
    vec![
        Test::new("profiles::killed_at_6_moments", || {
            kills(&Moments {
                starting: 1,
                holding: 2,
                ending: 1,
                both: 2,
            })
        })
        .limit(120)
        .guest(),
        Test::new("profiles::killed_at_50_moments", || {
            kills(&Moments {
                starting: 8,
                holding: 27,
                ending: 5,
                both: 10,
            })
        })
        .full()
        .limit(300),
        Test::new("profiles::killed_while_cmd_goes_on", cmd_goes_on),
        Test::new(
            "profiles::killed_guard_is_replaced_or_not_needed",
            guard_alone,
        ),
        Test::new("profiles::guard_outlives_signals", guard_outlives),
    ]
}

/// How often a run is killed, and in which part of its life.
struct Moments {
    /// From its first instruction on.
    starting: u32,
    /// While its profile is in force.
    holding: u32,
    /// While it puts back.
    ending: u32,
    /// While its profile is in force, together with its guard.
    both: u32,
}

const PROFILE: &str = "coalescing-commit-60";

fn in_force(bed: &Bed) -> Result<bool> {
    Ok(machine::sysctl("dirty_expire_centisecs")? == 10_000 && machine::commit(bed)? == 60)
}

fn kills(moments: &Moments) -> Result<()> {
    let _originals = Originals::set()?;
    let bed = Bed::new(Spec::ext4(64).mount("noatime,lazytime,noexec"))?;
    let before = Machine::read(&bed)?;
    let mut worst = Duration::ZERO;
    let mut while_in_force = 0;

    for round in 0..moments.starting {
        let running = held::spawn(PROFILE, &bed, &[])?;
        // Up to where a run is usually in force.
        std::thread::sleep(Duration::from_millis(u64::from(round) * 6));
        running.signal(Signal::KILL)?;
        worst = worst.max(before.comes_back(&bed).context("killed while it starts")?);
        running.wait()?;
    }
    for round in 0..moments.holding {
        let held = Held::new(PROFILE, &bed, &[])?;
        std::thread::sleep(Duration::from_millis(u64::from(round * 7 % 60)));
        while_in_force += u32::from(in_force(&bed)?);
        held.signal(Signal::KILL)?;
        worst = worst.max(before.comes_back(&bed).context("killed while it holds")?);
        held.wait()?;
    }
    for round in 0..moments.ending {
        let held = Held::new(PROFILE, &bed, &[])?;
        held.signal(Signal::INT)?;
        std::thread::sleep(Duration::from_micros(u64::from(round) * 400));
        held.signal(Signal::KILL)?;
        worst = worst.max(before.comes_back(&bed).context("killed while it ends")?);
        held.wait()?;
    }
    for round in 0..moments.both {
        let held = Held::new(PROFILE, &bed, &[])?;
        std::thread::sleep(Duration::from_millis(u64::from(round * 5 % 40)));
        while_in_force += u32::from(in_force(&bed)?);
        if round % 2 == 0 {
            held.kill_guard()?;
            held.signal(Signal::KILL)?;
        } else {
            held.signal(Signal::KILL)?;
            held.kill_guard()?;
        }
        held.wait()?;
        profile(["restore"])?.run()?.status(&[0])?;
        before
            .is_still(&bed)
            .context("run and guard killed, restored")?;
    }
    // What is left of a run that was killed before it had changed anything is
    // an empty state at most.
    profile(["restore"])?.run()?.status(&[0])?;
    machine::no_state()?;
    ensure!(
        while_in_force == moments.holding + moments.both,
        "only {while_in_force} kills were while the profile was in force"
    );
    println!("back within {worst:?} at worst");
    Ok(())
}

/// CMD does not hold what tells the guard that the run is alive.
fn cmd_goes_on() -> Result<()> {
    let _originals = Originals::set()?;
    let bed = Bed::new(Spec::ext4(64))?;
    let before = Machine::read(&bed)?;
    let note = bed.scratch("pid");
    let script = format!("echo $$ > {}; exec sleep 30", note.display());
    let held = Held::new(PROFILE, &bed, &["--", "sh", "-c", &script])?;
    let pid = loop {
        let text = std::fs::read_to_string(&note).unwrap_or_default();
        if let Ok(pid) = text.trim().parse::<u32>() {
            break pid;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    held.signal(Signal::KILL)?;
    let back = before.comes_back(&bed);
    let alive = std::fs::metadata(format!("/proc/{pid}")).is_ok();
    held::kill(pid, Signal::KILL)?;
    back?;
    ensure!(alive, "CMD was gone before the guard had to act");
    held.wait()?;
    machine::no_state()
}

/// A guard that dies alone takes nothing with it.
fn guard_alone() -> Result<()> {
    let _originals = Originals::set()?;
    let bed = Bed::new(Spec::ext4(64))?;
    let before = Machine::read(&bed)?;
    let held = Held::new(PROFILE, &bed, &[])?;
    held.kill_guard()?;
    std::thread::sleep(Duration::from_millis(50));
    ensure!(in_force(&bed)?, "the profile went with its guard");
    held.end()?.status(&[0])?;
    before.is_still(&bed)?;
    machine::no_state()
}

/// What ends a run by its terminal or by its name does not end its guard.
fn guard_outlives() -> Result<()> {
    let _originals = Originals::set()?;
    let bed = Bed::new(Spec::ext4(64))?;
    let before = Machine::read(&bed)?;
    let held = Held::new(PROFILE, &bed, &[])?;
    for signal in [
        Signal::INT,
        Signal::TERM,
        Signal::HUP,
        Signal::QUIT,
        Signal::PIPE,
    ] {
        held::kill(held.guard, signal)?;
    }
    let session = |pid: u32| -> Result<String> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let rest = stat.rsplit_once(')').context("stat")?.1.to_owned();
        Ok(rest
            .split_whitespace()
            .nth(3)
            .unwrap_or_default()
            .to_owned())
    };
    ensure!(
        session(held.guard)? == held.guard.to_string(),
        "the guard is not in a session of its own"
    );
    std::thread::sleep(Duration::from_millis(50));
    held.signal(Signal::KILL)?;
    before.comes_back(&bed)?;
    held.wait()?;
    machine::no_state()
}
