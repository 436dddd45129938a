//! docs/overhead.md out of what was measured.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result};
use rand_chacha::ChaCha8Rng;

use super::Measured;
use super::arm::{Arm, SCRIPT};
use super::bpf::Program;
use super::stats::{self, Estimate};
use crate::process::Cmd;
use crate::workspace;

/// The bar: upper end of the interval of (ours − script), in points.
const BAR: f64 = 2.0;

/// Where and how the figures came about.
pub struct Setting {
    commit: String,
    date: String,
    kernel: String,
    cpu: String,
    scheduler: String,
    rounds: usize,
    seconds: f64,
    seed: u64,
}

impl Setting {
    /// Asks git and the machine.
    pub fn read(rounds: usize, seconds: f64, seed: u64, scheduler: &str) -> Result<Self> {
        let git = |args: &[&str]| Cmd::new("git").args(args).dir(workspace::root()).output();
        let changed = !git(&["status", "--porcelain", "--untracked-files=no"])?
            .trim()
            .is_empty();
        let commit = git(&["rev-parse", "--short", "HEAD"])?.trim().to_owned();
        let model = fs::read_to_string("/proc/cpuinfo").context("/proc/cpuinfo")?;
        let model = model
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
            .map_or("of an unnamed model", |(_, name)| name);
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let in_use = scheduler
            .split_once('[')
            .and_then(|(_, rest)| rest.split_once(']'));
        Ok(Self {
            commit: commit + if changed { " with changes" } else { "" },
            date: Cmd::new("date")
                .args(["-u", "+%F"])
                .output()?
                .trim()
                .to_owned(),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")?
                .trim()
                .to_owned(),
            cpu: format!("{cpus} × {model}"),
            scheduler: in_use.map_or(scheduler, |(name, _)| name).trim().to_owned(),
            rounds,
            seconds,
            seed,
        })
    }
}

/// Percent of writes per second that an arm took, for each round.
fn slow_downs(measured: &Measured, arm: Arm) -> Vec<f64> {
    let rounds = measured.rounds.iter();
    rounds
        .map(|round| 100.0 * (1.0 - round[&arm] / round[&Arm::Untraced]))
        .collect()
}

/// The document, and whether the bar is held on every load.
pub fn markdown(
    setting: &Setting,
    all: &[Measured],
    random: &mut ChaCha8Rng,
) -> Result<(String, bool)> {
    let mut text = opening(setting);
    let mut held = true;
    for measured in all {
        let ours = slow_downs(measured, Arm::Writepath);
        let script = slow_downs(measured, Arm::Script);
        let between: Vec<f64> = ours.iter().zip(&script).map(|(a, b)| a - b).collect();
        let mut untraced: Vec<f64> = measured
            .rounds
            .iter()
            .map(|round| round[&Arm::Untraced])
            .collect();
        let untraced = stats::median(&mut untraced).context("no rounds")?;
        let mut interval = |sample: &[f64]| stats::estimate(sample, random).context("no rounds");
        let (ours, script) = (interval(&ours)?, interval(&script)?);
        let between = interval(&between)?;
        held &= between.high < BAR;
        writeln!(
            text,
            "| {} | {untraced:.0} | {} | {} | {} | {} |",
            measured.load.title,
            percent(ours),
            percent(script),
            percent(between),
            if between.high < BAR { "held" } else { "missed" }
        )?;
    }
    text += PROGRAMS;
    for measured in all {
        for (arm, programs, ios) in &measured.programs {
            writeln!(
                text,
                "| {} | {} | {:.0} | {} |",
                measured.load.title,
                arm.name(),
                programs
                    .iter()
                    .map(|program| program.ns as f64)
                    .sum::<f64>()
                    / ios,
                rows(programs, *ios)
            )?;
        }
    }
    text += LOSSES;
    for measured in all {
        let loss = &measured.loss;
        writeln!(
            text,
            "| {} | {} | {} | {} | {} | {:.1} |",
            measured.load.title,
            loss.sectors,
            loss.lost,
            loss.residual,
            loss.unattributed,
            loss.memory_kib as f64 / 1024.0
        )?;
    }
    Ok((text, held))
}

fn opening(setting: &Setting) -> String {
    let Setting {
        commit,
        date,
        kernel,
        cpu,
        scheduler,
        rounds,
        seconds,
        seed,
    } = setting;
    format!(
        "# What tracing costs\n\n\
         Written by `cargo xtask bench`; do not edit.\n\n\
         - commit {commit}, {date}\n\
         - Linux {kernel}, {cpu}\n\
         - ext4 on a loop device on an image in memory, scheduler {scheduler}: no device\n  \
         hides the cost, so these are upper bounds\n\
         - {rounds} rounds of {seconds} s each of nothing, `writepath trace -d DEV` and the\n  \
         script, in an order shuffled anew for each round, seed {seed}\n\n\
         The script is the least that a tracer of writes can do:\n\n```\nbpftrace -e '{SCRIPT}'\n```\n\n\
         ## Writes per second\n\n\
         Slow-down in percent, difference in percentage points: medians over the rounds\n\
         with bootstrap 95 % intervals, each round compared with its own untraced run. The\n\
         bar: the upper end of the difference's interval is under {BAR} points.\n\n\
         | load | untraced, writes/s | writepath slows by | script slows by | difference | bar |\n\
         |---|---|---|---|---|---|\n"
    )
}

const PROGRAMS: &str = "\n## Time in the programs\n\n\
    Counted by the kernel (`kernel.bpf_stats_enabled`) in a run of its own; each run of a\n\
    program holds some 50 ns of the counting itself. Programs with under 2 % of the sum\n\
    are left out.\n\n\
    | load | tracer | ns per write | program: runs per write × ns per run |\n\
    |---|---|---|---|\n";

const LOSSES: &str = "\n## Losses and memory of writepath\n\n\
    Sums over the rounds; memory is the largest resident size of any round.\n\n\
    | load | sectors written | records lost | residual | unattributed | MiB |\n\
    |---|---|---|---|---|---|\n";

fn percent(estimate: Estimate) -> String {
    format!(
        "{:.1} [{:.1}, {:.1}]",
        estimate.median, estimate.low, estimate.high
    )
}

fn rows(programs: &[Program], ios: f64) -> String {
    let least = programs.iter().map(|program| program.ns).sum::<u64>() / 50;
    let rows: Vec<String> = programs
        .iter()
        .filter(|program| program.ns >= least)
        .map(|program| {
            format!(
                "{}: {:.2} × {:.0}",
                program.name,
                program.runs as f64 / ios,
                program.ns as f64 / program.runs as f64
            )
        })
        .collect();
    rows.join("; ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::bench::arm::Loss;
    use crate::bench::load::LOADS;

    fn measured(ours: f64, script: f64) -> Measured {
        let round = BTreeMap::from([
            (Arm::Untraced, 1000.0),
            (Arm::Writepath, ours),
            (Arm::Script, script),
        ]);
        Measured {
            load: &LOADS[0],
            rounds: vec![round; 5],
            loss: Loss::default(),
            programs: vec![(
                Arm::Writepath,
                vec![Program {
                    name: "queue".to_owned(),
                    runs: 200,
                    ns: 80_000,
                }],
                100.0,
            )],
        }
    }

    fn document(ours: f64, script: f64) -> (String, bool) {
        let setting = Setting {
            commit: "abc".to_owned(),
            date: "2026-01-01".to_owned(),
            kernel: "6.1".to_owned(),
            cpu: "2 × X".to_owned(),
            scheduler: "none".to_owned(),
            rounds: 5,
            seconds: 2.0,
            seed: 7,
        };
        markdown(
            &setting,
            &[measured(ours, script)],
            &mut stats::generator(7),
        )
        .unwrap()
    }

    #[test]
    fn slow_downs_are_percent_of_untraced() {
        let (text, held) = document(880.0, 900.0);
        assert!(
            text.contains(
                "| 1000 | 12.0 [12.0, 12.0] | 10.0 [10.0, 10.0] | 2.0 [2.0, 2.0] | missed |"
            ),
            "{text}"
        );
        assert!(
            text.contains("| writepath | 800 | queue: 2.00 × 400 |"),
            "{text}"
        );
        assert!(!held);
    }

    #[test]
    fn the_bar_is_held_below_two_points() {
        assert!(document(881.0, 900.0).1);
        assert!(document(950.0, 900.0).1);
    }
}
