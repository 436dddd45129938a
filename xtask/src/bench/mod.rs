//! `cargo xtask bench`: what tracing costs. Rounds of fio, each untraced, under
//! writepath and under a script that only counts, in shuffled order; medians of
//! the slow-down with 95 % intervals, paired by round. Writes docs/overhead.md.

mod arm;
mod bed;
mod bpf;
mod load;
mod report;
mod stats;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};

use crate::build::{self, Profile, Target};
use crate::packages::{self, BENCH};
use crate::process;
use crate::setup;
use crate::workspace;
use arm::{ARMS, Arm, Loss};
use bed::Bed;
use load::{LOADS, Load};

/// Tests and measurements on one machine wait for each other.
const LOCK: &str = "/run/lock/writepath-kernel-tests.lock";

#[derive(clap::Args)]
pub struct Args {
    /// Rounds of each load.
    #[arg(long, default_value_t = 40)]
    rounds: usize,
    /// Length of a run, in seconds.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// See whether it works: 3 rounds of half a second, and no document.
    #[arg(long, conflicts_with_all = ["rounds", "seconds"])]
    quick: bool,
    /// Only this load, and no document: direct, buffered, fsync or sequential.
    #[arg(long)]
    load: Option<String>,
    /// Seed of the order and of the intervals (default: from the clock).
    #[arg(long)]
    seed: Option<u64>,
}

/// All that was measured of one load.
pub struct Measured {
    /// Which.
    pub load: &'static Load,
    /// Writes per second of each round, by arm.
    pub rounds: Vec<BTreeMap<Arm, f64>>,
    /// Worst of all rounds, sums of the counts.
    pub loss: Loss,
    /// Programs of each tracer while the kernel counted them.
    pub programs: Vec<(Arm, Vec<bpf::Program>, f64)>,
}

/// The command.
pub fn run(args: &Args) -> Result<()> {
    if !process::is_root() {
        bail!("bench needs root: it mounts and traces");
    }
    setup::run()?;
    packages::ensure("bench", BENCH)?;
    build::userspace(&["tracer"], Profile::Release, Target::Host)?;
    let writepath = build::binary("writepath", Profile::Release, Target::Host)?;
    let (rounds, seconds) = if args.quick {
        (3, 0.5)
    } else {
        (args.rounds, args.seconds)
    };
    let loads: Vec<&'static Load> = LOADS
        .iter()
        .filter(|load| args.load.as_ref().is_none_or(|name| name == load.name))
        .collect();
    if loads.is_empty() {
        bail!("no such load: see `cargo xtask bench --help`");
    }
    let seed = args.seed.unwrap_or_else(clock);
    let lock = File::create(LOCK).context(LOCK)?;
    if lock.try_lock().is_err() {
        println!("bench: waiting for {LOCK}");
        lock.lock().context(LOCK)?;
    }
    println!("bench: {rounds} rounds of {seconds} s, seed {seed}");
    let bench = Bench {
        bed: Bed::new()?,
        writepath,
        seconds,
    };
    let mut random = stats::generator(seed);
    let mut all = Vec::new();
    for load in loads {
        all.push(bench.measure(load, rounds, &mut random)?);
    }
    let disk = bench.bed.disk()?;
    let scheduler = fs::read_to_string(format!("/sys/block/{disk}/queue/scheduler"))?;
    drop(bench);
    let setting = report::Setting::read(rounds, seconds, seed, &scheduler)?;
    let (text, held) = report::markdown(&setting, &all, &mut random)?;
    println!("\n{text}");
    if args.quick || args.load.is_some() {
        return Ok(());
    }
    let file = workspace::root().join("docs/overhead.md");
    fs::write(&file, text).with_context(|| file.display().to_string())?;
    println!("bench: wrote {}", file.display());
    if !held {
        bail!("the bar is not held on every load: see the table");
    }
    Ok(())
}

fn clock() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |since| since.as_secs())
}

struct Bench {
    bed: Bed,
    writepath: PathBuf,
    seconds: f64,
}

impl Bench {
    fn measure(
        &self,
        load: &'static Load,
        rounds: usize,
        random: &mut rand_chacha::ChaCha8Rng,
    ) -> Result<Measured> {
        println!("bench: {}", load.title);
        let disk = self.bed.disk()?;
        let mut measured = Measured {
            load,
            rounds: Vec::new(),
            loss: Loss::default(),
            programs: Vec::new(),
        };
        // The first run finds cold caches.
        load.run(&self.bed, self.seconds)?;
        for number in 1..=rounds {
            let mut round = BTreeMap::new();
            for arm in stats::shuffled(&ARMS, random) {
                let tracing = arm.start(&self.bed, &self.writepath, &disk)?;
                let done = load.run(&self.bed, self.seconds)?;
                if let Some(loss) = tracing.stop()? {
                    measured.loss.add(loss);
                }
                round.insert(arm, done.iops);
            }
            let figures: Vec<String> = round
                .iter()
                .map(|(arm, iops)| format!("{} {iops:.0}", arm.name()))
                .collect();
            println!("  {number:3}: {}", figures.join("  "));
            measured.rounds.push(round);
        }
        // The kernel's counting costs time itself: not in the rounds above.
        let _statistics = bpf::Statistics::on()?;
        for arm in [Arm::Writepath, Arm::Script] {
            let tracing = arm.start(&self.bed, &self.writepath, &disk)?;
            let pid = tracing.pid().context("no tracer")?;
            let before = bpf::programs_of(pid)?;
            let done = load.run(&self.bed, self.seconds)?;
            let after = bpf::programs_of(pid)?;
            tracing.stop()?;
            measured
                .programs
                .push((arm, bpf::difference(&before, &after), done.ios));
        }
        Ok(measured)
    }
}
