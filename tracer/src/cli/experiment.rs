//! `writepath experiment`: lists, shows, runs and compares experiments.

mod place;
mod prepare;
mod run;
mod store;

use super::{
    profile::{Usage, say, status_of},
    typed::{parse_duration, parse_size},
};
use crate::{
    bed::BedError,
    experiment::{EMMC_DIRTY_TUNING, result::Experiment},
    output::experiment as text,
    session::SessionError,
    workload::iot_files::Place,
};
use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use std::{
    fs::File,
    io::{Read, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

/// The largest `result.json` that is read, in bytes.
const MOST_BYTES: u64 = 1 << 30;

/// The most data files.
const MOST_FILES: i64 = 10_000_000;
/// The largest file of the workload, in KiB.
const MOST_KIB: u64 = 1 << 20;

/// Options of `experiment`, as typed.
#[derive(Debug, Args)]
pub struct ExperimentArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Name the built-in experiments.
    List,
    /// Say what an experiment does, or print the table of a result.
    Show {
        /// A built-in experiment, or the directory of a result.
        #[arg(value_name = "NAME|DIR")]
        what: PathBuf,
    },
    /// Run an experiment.
    Run(Box<RunArgs>),
    /// Print the tables of several results.
    Compare {
        /// Directories of results.
        #[arg(value_name = "DIR", required = true, num_args = 2..)]
        results: Vec<PathBuf>,
    },
}

/// What was typed for a run.
#[derive(Debug, Args)]
struct RunArgs {
    /// The experiment: emmc-dirty-tuning.
    #[arg(value_name = "NAME")]
    name: String,
    /// Directory of the result, made anew; with several places one below it
    /// for each [default: ./writepath-NAME-DATE].
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Built-in profiles or files of your own; changes are against the first.
    #[arg(
        long,
        value_name = "NAME|FILE",
        value_delimiter = ',',
        default_value = "default,balanced,coalescing,commit-60,coalescing-commit-60"
    )]
    profiles: Vec<String>,
    /// Divide every time of profiles and workload by this.
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    time_scale: u32,
    /// Turn ratios into bytes of a machine of this memory, such as 1GiB.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    as_ram: Option<u64>,
    /// Slow the device below the traced one down: 30MB/s[,iops=N].
    #[arg(long, value_name = "SPEED", value_parser = parse_speed, conflicts_with = "on")]
    emulate: Option<Speed>,
    /// Use a fresh directory below DIR, on ext4, instead of an image.
    #[arg(long, value_name = "DIR")]
    on: Option<PathBuf>,
    /// Size of the image [default: for the files and a half more].
    #[arg(long, value_name = "SIZE", value_parser = parse_size, conflicts_with = "on")]
    image: Option<u64>,
    /// Directory of the image.
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    image_dir: PathBuf,
    /// Blocks of each profile.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    blocks: u32,
    /// Cycles of expiry and writeback interval in a block.
    #[arg(long, value_name = "N", default_value_t = crate::experiment::plan::CYCLES,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    cycles: u32,
    /// One block each, and so no intervals.
    #[arg(long, conflicts_with = "blocks")]
    quick: bool,
    /// Seed of the order of blocks and of the workload [default: random].
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Endurance of the device for the years, in TiB.
    #[arg(long, value_name = "TIB", default_value_t = 120.0)]
    tbw: f64,
    /// Show duration, bytes to be written and where, and knobs; do nothing.
    #[arg(long)]
    dry_run: bool,
    /// Where in a file updates go, as in `workload show iot-files`; several
    /// run at the same time, each on an image of its own.
    #[arg(
        long,
        value_name = "PLACE",
        value_delimiter = ',',
        default_value = "fixed"
    )]
    place: Vec<Place>,
    /// Data files.
    #[arg(long, value_name = "N", default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..=MOST_FILES))]
    files: u32,
    /// Size of a data file in KiB.
    #[arg(long, value_name = "KIB", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=MOST_KIB))]
    file_kib: u64,
    /// Size of the management file in KiB, 0 for none.
    #[arg(long, value_name = "KIB", default_value_t = 440, value_parser = clap::value_parser!(u64).range(..=MOST_KIB))]
    mgmt_kib: u64,
    /// Threads that update data files.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    threads: u32,
    /// Each file is updated once in this time.
    #[arg(long, value_name = "DUR", default_value = "30s", value_parser = parse_duration)]
    period: Duration,
    /// Run the workload as this user (default: who called sudo).
    #[arg(long, value_name = "USER")]
    user: Option<String>,
}

/// Speed of an emulated device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Speed {
    bytes_per_s: u64,
    iops: Option<u64>,
}

fn parse_speed(text: &str) -> Result<Speed, String> {
    let wrong = || format!("{text} is no speed, such as 30MB/s or 30MB/s,iops=500");
    let (rate, iops) = match text.split_once(',') {
        Some((rate, rest)) => {
            let iops = rest.strip_prefix("iops=").ok_or_else(wrong)?;
            let iops: u64 = iops.parse().map_err(|_| wrong())?;
            (rate, Some(iops))
        }
        None => (text, None),
    };
    let (number, unit) = rate.split_at(rate.trim_end_matches(|c: char| !c.is_ascii_digit()).len());
    let unit = match unit {
        "kB/s" => 1_000,
        "MB/s" => 1_000_000,
        "KiB/s" => 1 << 10,
        "MiB/s" => 1 << 20,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let bytes_per_s = number.checked_mul(unit).ok_or_else(wrong)?;
    if bytes_per_s < 100_000 || iops == Some(0) {
        return Err(format!("{text} is too slow: nothing would end"));
    }
    Ok(Speed { bytes_per_s, iops })
}

/// Runs `experiment`.
pub fn run(args: ExperimentArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let result = match args.action {
        Action::List => list(out),
        Action::Show { what } => show(&what, out),
        Action::Run(args) => run::run(&args, out),
        Action::Compare { results } => compare(&results, out),
    };
    result.or_else(|error| match status_of(&error).or_else(|| unable(&error)) {
        Some(code) => {
            say(&format!("{error:#}"));
            Ok(ExitCode::from(code))
        }
        None => Err(error),
    })
}

/// The status of a machine that cannot do it.
fn unable(error: &anyhow::Error) -> Option<u8> {
    let session = matches!(
        error.downcast_ref::<SessionError>(),
        Some(SessionError::Privileges(_) | SessionError::Tracefs(_) | SessionError::Probe(_))
    );
    let bed = matches!(error.downcast_ref::<BedError>(), Some(BedError::NotRoot));
    (session || bed).then_some(super::status::UNABLE)
}

fn list(out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    writeln!(
        out,
        "{EMMC_DIRTY_TUNING}   what vm.dirty_* and commit= save, and why no more"
    )?;
    Ok(ExitCode::SUCCESS)
}

fn show(what: &Path, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    if what == Path::new(EMMC_DIRTY_TUNING) {
        text::describe(out)?;
    } else {
        text::write(out, &read(what)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn compare(results: &[PathBuf], out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let mut read_all = Vec::new();
    for path in results {
        read_all.push((path.display().to_string(), read(path)?));
    }
    text::compare(out, &read_all)?;
    Ok(ExitCode::SUCCESS)
}

/// The result in a directory.
fn read(dir: &Path) -> anyhow::Result<Experiment> {
    let path = dir.join("result.json");
    if !path.exists() {
        bail!(Usage(format!(
            "no experiment and no result {}: give {EMMC_DIRTY_TUNING} or the directory that \
             `experiment run` made",
            dir.display()
        )));
    }
    let cannot = || format!("cannot read {}", path.display());
    let file = File::open(&path).with_context(cannot)?;
    let mut bytes = Vec::new();
    file.take(MOST_BYTES)
        .read_to_end(&mut bytes)
        .with_context(cannot)?;
    let experiment: Experiment = serde_json::from_slice(&bytes).with_context(cannot)?;
    if experiment.schema != crate::experiment::result::SCHEMA {
        bail!(Usage(format!(
            "{} has the schema {}; this reads {}",
            path.display(),
            experiment.schema,
            crate::experiment::result::SCHEMA
        )));
    }
    if !experiment.is_plausible() {
        bail!(Usage(format!(
            "{} has numbers that no run can have given",
            path.display()
        )));
    }
    Ok(experiment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds() {
        let speed = |bytes_per_s, iops| Speed { bytes_per_s, iops };
        assert_eq!(parse_speed("30MB/s"), Ok(speed(30_000_000, None)));
        assert_eq!(parse_speed("2MiB/s,iops=90"), Ok(speed(2 << 20, Some(90))));
        for wrong in [
            "30",
            "MB/s",
            "30MB/s,90",
            "1kB/s",
            "30MB/s,iops=0",
            "x30MB/s",
        ] {
            assert!(parse_speed(wrong).is_err(), "{wrong}");
        }
    }
}
