//! CMD that fails or cannot be started, and the end by a signal at any moment.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use anyhow::{Result, ensure};
use rustix::process::Signal;

use super::call::{Call, closes};
use crate::bed::{Bed, Spec};
use crate::harness::Test;
use crate::tracer;

pub fn tests() -> Vec<Test> {
    let test = |name: &str, body: fn() -> Result<()>| {
        Test::new(format!("bad_input::{name}"), body).needs(tracer::available)
    };
    vec![
        test("command_that_cannot_be_started", cannot_start),
        test("command_that_fails", fails),
        test("command_that_is_killed", is_killed),
        test("signals_while_tracing", signals_while_tracing),
        test("signals_at_start_up", signals_at_start_up),
        test("signals_reach_the_group", signals_reach_the_group),
    ]
}

fn bed() -> Result<Bed> {
    Bed::new(Spec::ext4(64).mount("noatime"))
}

fn cannot_start() -> Result<()> {
    let bed = bed()?;
    for program in ["/no/such/program", "no-such-program", "/etc/passwd", "/"] {
        let ended = Call::trace(&bed.node(), &["--json", "--", program])?.run()?;
        ended.status(&[1])?.says(&[program])?;
        let ended = Call::trace(&bed.node(), &["--ignore-failure", "--", program])?.run()?;
        ended.says(&[program])?;
        ensure!(
            ended.status.code().is_some_and(|code| code <= 1),
            "{}",
            ended.told()
        );
    }
    Ok(())
}

fn fails() -> Result<()> {
    let bed = bed()?;
    let command = ["--json", "--", "sh", "-c", "echo its own words; exit 7"];
    let ended = Call::trace(&bed.node(), &command)?.run()?;
    ended.status(&[1])?.says(&["7"])?.says(&["its own words"])?;
    closes(&ended.json()?, &ended.told())?;
    let mut ignoring = vec!["--ignore-failure"];
    ignoring.extend(command);
    let ended = Call::trace(&bed.node(), &ignoring)?.run()?;
    ended.status(&[0])?;
    closes(&ended.json()?, &ended.told())
}

fn is_killed() -> Result<()> {
    let bed = bed()?;
    let command = ["--json", "--", "sh", "-c", "kill -KILL $$"];
    let ended = Call::trace(&bed.node(), &command)?.run()?;
    ended.status(&[1])?.says(&["KILL", "signal", "9"])?;
    closes(&ended.json()?, &ended.told())
}

const ENDING: [Signal; 3] = [Signal::INT, Signal::TERM, Signal::HUP];

fn signals_while_tracing() -> Result<()> {
    let bed = bed()?;
    for signal in ENDING {
        for text in [false, true] {
            let args: &[&str] = if text { &[] } else { &["--json"] };
            let running = Call::trace(&bed.node(), args)?.start()?;
            std::thread::sleep(Duration::from_millis(50));
            running.signal(signal)?;
            // Impatience must not spoil the summary.
            let _ = running.signal(signal);
            let ended = running.wait()?;
            ended.status(&[0])?;
            if text {
                ensure!(!ended.stdout.is_empty(), "no summary: {}", ended.told());
            } else {
                closes(&ended.json()?, &ended.told())?;
            }
        }
    }
    Ok(())
}

/// From the first instant to the middle of the run. Before the program has
/// had the time to say what it does with a signal, the kernel ends it.
fn signals_at_start_up() -> Result<()> {
    let bed = bed()?;
    for (round, delay_ms) in [
        0, 1, 2, 4, 8, 15, 25, 40, 60, 90, 130, 180, 250, 350, 500, 700,
    ]
    .into_iter()
    .enumerate()
    {
        let signal = ENDING[round % 3];
        let running = Call::trace(&bed.node(), &["--json"])?.spawn()?;
        std::thread::sleep(Duration::from_millis(delay_ms));
        running.signal(signal)?;
        let ended = running.wait()?;
        let before_main = delay_ms <= 25
            && ended.status.signal() == Some(signal.as_raw())
            && ended.stdout.is_empty();
        if before_main {
            continue;
        }
        ended.status(&[0])?;
        closes(
            &ended.json()?,
            &format!("after {delay_ms} ms: {}", ended.told()),
        )?;
    }
    Ok(())
}

/// CMD and its children get the signal; the harness fails this test when one
/// of them is left.
fn signals_reach_the_group() -> Result<()> {
    let bed = bed()?;
    for signal in ENDING {
        let began = std::time::Instant::now();
        let command = ["--json", "--", "sh", "-c", "sh -c 'sleep 50; true'; true"];
        let running = Call::trace(&bed.node(), &command)?.start()?;
        std::thread::sleep(Duration::from_millis(200));
        running.signal(signal)?;
        let ended = running.wait()?;
        ended.status(&[0])?;
        closes(&ended.json()?, &ended.told())?;
        ensure!(
            began.elapsed() < Duration::from_secs(20),
            "it waited for CMD instead of ending it"
        );
    }
    Ok(())
}
