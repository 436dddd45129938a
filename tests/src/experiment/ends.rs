//! However a run ends, nothing of it is left but its result so far: no mount,
//! loop device, throttle or image, and every sysctl is back.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;

use super::short::{Short, can_throttle};
use crate::harness::Test;
use crate::profiles::held::{self, profile};
use crate::profiles::machine;

const SLOW: &[&str] = &["--blocks", "2", "--emulate", "30MB/s"];

pub fn tests() -> Vec<Test> {
    let test = |name: &str, body: fn() -> Result<()>| {
        Test::new(format!("experiment::{name}"), body)
            .needs(can_throttle)
            .limit(120)
    };
    vec![
        test("killed_at_3_moments", || killed(&[400], &[900], 1)),
        test("killed_at_14_moments", || {
            killed(
                &[0, 60, 150, 300, 600],
                &[0, 300, 1100, 2500, 4000, 6500],
                3,
            )
        })
        .full(),
        test("signals_keep_what_is_measured", signals),
    ]
}

/// Killed so many milliseconds after its start, or after its first profile
/// began to settle, and `both` times together with its guard.
fn killed(from_start: &[u64], from_profile: &[u64], both: u32) -> Result<()> {
    let mut number = 0;
    let mut next = || {
        number += 1;
        Short::new(number)
    };
    for delay in from_start {
        let short = next()?;
        let before = short.left()?;
        let running = short.call(SLOW)?.spawn()?;
        std::thread::sleep(Duration::from_millis(*delay));
        running.signal(Signal::KILL)?;
        short
            .comes_back(&before)
            .with_context(|| format!("killed {delay} ms after its start"))?;
        running.wait()?;
    }
    for delay in from_profile {
        let short = next()?;
        let before = short.left()?;
        let running = short.settling(SLOW)?;
        std::thread::sleep(Duration::from_millis(*delay));
        ensure!(short.left()? != before, "it tunes nothing");
        running.signal(Signal::KILL)?;
        short
            .comes_back(&before)
            .with_context(|| format!("killed {delay} ms after its first profile"))?;
        running.wait()?;
    }
    for _ in 0..both {
        let short = next()?;
        let before = short.left()?;
        let running = short.settling(SLOW)?;
        std::thread::sleep(Duration::from_millis(500));
        let guard = held::guard_of(running.pid()).context("the run has no guard")?;
        held::kill(guard, Signal::KILL)?;
        running.signal(Signal::KILL)?;
        running.wait()?;
        profile(["restore"])?.run()?.status(&[0])?;
        short
            .comes_back(&before)
            .context("killed with its guard, and restored")?;
    }
    // Of a run that was killed before it had changed anything.
    profile(["restore"])?.run()?.status(&[0])?;
    machine::no_state()
}

/// A signal ends it with status 0, and the blocks so far are kept.
fn signals() -> Result<()> {
    for (number, signal) in [Signal::INT, Signal::TERM].into_iter().enumerate() {
        let short = Short::new(number as u32)?;
        let before = short.left()?;
        let running = short.settling(SLOW)?;
        // Into the second block.
        let second = short.out.join("samples-1.jsonl");
        for _ in 0..6000 {
            if second.exists() {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        running.signal(signal)?;
        running.wait()?.status(&[0])?;
        short.comes_back(&before)?;
        let blocks = short.result()?["blocks"].as_array().map(Vec::len);
        ensure!(blocks == Some(1), "{blocks:?} blocks were kept, not 1");
        machine::no_state()?;
    }
    Ok(())
}
