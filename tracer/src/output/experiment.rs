//! The table of an experiment as people read it: within 80 columns.

use super::{escape::terminal, wrap};
use crate::{
    experiment::{
        EMMC_DIRTY_TUNING, PUBLISHED,
        result::{Block, Experiment, Used},
    },
    profile::{Exposure, Knob, Values},
    stats::{self, Change, Mean},
};
use std::io::{self, Write};

/// Rows of paths under this share of the base's sectors are left out.
const LEAST_SHARE: f64 = 0.005;
/// From this share of a profile's sectors on a disturbance is told.
const LEAST_DISTURBED: f64 = 0.01;

/// What the experiment does.
pub fn describe(out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{EMMC_DIRTY_TUNING}\n")?;
    wrap::write(
        out,
        "",
        "The workload iot-files (5000 files of 64 KiB, each updated every 30 s and never \
         synced, and one of 440 KiB that is fsynced every 30 s) under profiles of vm.dirty_* \
         and commit=. A block of a profile settles for expiry, two writeback intervals and a \
         period (at least two commits), then measures ten cycles of expiry and interval, in \
         whole periods. Blocks come in random order. Published for an eMMC board:",
    )?;
    writeln!(out)?;
    let base = PUBLISHED[0].1;
    for (name, rate, loss) in PUBLISHED {
        writeln!(
            out,
            "  {name:<12} {rate:>6.2} MiB/min  {:>8}  said to lose {loss} s",
            signed(rate / base - 1.0)
        )?;
    }
    Ok(())
}

/// The tables of a result.
pub fn write(out: &mut dyn Write, experiment: &Experiment) -> io::Result<()> {
    head(out, experiment)?;
    wear(out, experiment)?;
    risk(out, experiment)?;
    paths(out, experiment)?;
    carried(out, experiment)?;
    disturbed(out, experiment)?;
    books(out, experiment)
}

/// The first table of several results, one after another.
pub fn compare(out: &mut dyn Write, results: &[(String, Experiment)]) -> io::Result<()> {
    for (name, experiment) in results {
        writeln!(out, "{}", terminal(name.as_bytes()))?;
        head(out, experiment)?;
        wear(out, experiment)?;
        writeln!(out)?;
    }
    Ok(())
}

fn head(out: &mut dyn Write, experiment: &Experiment) -> io::Result<()> {
    let workload = &experiment.workload;
    let machine = &experiment.machine;
    let scale = f64::from(experiment.time_scale.max(1));
    let text = |text: &str| terminal(text.as_bytes());
    wrap::write(
        out,
        "",
        &format!(
            "{}: {} {}, {} files of {} KiB, each every {} s",
            text(&experiment.name),
            text(&workload.name),
            text(&workload.place),
            workload.files,
            workload.file_kib,
            workload.period_s * scale,
        ),
    )?;
    let device = experiment.emulate.map_or_else(
        || text(&machine.device),
        |speed| {
            let iops = speed.iops.map(|iops| format!(", {iops} writes/s"));
            format!(
                "{} above a device of {:.0} MB/s{}",
                text(&machine.device),
                speed.bytes_per_s as f64 / 1e6,
                iops.unwrap_or_default()
            )
        },
    );
    let ram = experiment.as_ram_bytes.map(|bytes| {
        format!(
            "; ratios as of {:.1} GiB",
            bytes as f64 / f64::from(1 << 30)
        )
    });
    wrap::write(
        out,
        "",
        &format!(
            "Linux {} {}, {} CPUs, {:.1} GiB; {device}{}; seed {}; {} of {} blocks",
            text(&experiment.kernel),
            text(&machine.arch),
            machine.cpus,
            machine.memory_bytes as f64 / f64::from(1 << 30),
            ram.unwrap_or_default(),
            experiment.seed,
            experiment.blocks.len(),
            experiment.planned
        ),
    )?;
    if experiment.time_scale > 1 {
        wrap::write(
            out,
            "",
            &format!(
                "Every time was divided by {scale}. Rates below are divided by {scale}, times \
                 are multiplied, so that they read as of full scale."
            ),
        )?;
    }
    Ok(())
}

/// A change in percent, with a true minus sign.
fn signed(change: f64) -> String {
    let percent = format!("{:+.1} %", change * 100.0);
    percent.replace('-', "−")
}

fn with_half(mean: Mean, scale: f64) -> String {
    match mean.half {
        Some(half) => format!("{:.2} ± {:.2}", mean.mean / scale, half / scale),
        None => format!("{:.2}", mean.mean / scale),
    }
}

fn interval(change: &Change) -> String {
    change.interval.map_or_else(String::new, |(low, high)| {
        format!("{} … {}", signed(low).trim_end_matches(" %"), signed(high))
    })
}

fn wear(out: &mut dyn Write, experiment: &Experiment) -> io::Result<()> {
    writeln!(
        out,
        "\n  profile                     MiB/min  GiB/day  years   change  95 % interval"
    )?;
    let scale = f64::from(experiment.time_scale.max(1));
    let base = experiment.profiles.first();
    let base_rates = base
        .map(|used| experiment.rates(&used.name))
        .unwrap_or_default();
    let mut untold = Vec::new();
    for (index, used) in experiment.profiles.iter().enumerate() {
        let rates = experiment.rates(&used.name);
        let Some(mean) = stats::mean(&rates) else {
            continue;
        };
        let day = experiment.gib_per_day(mean.mean);
        let change = (index > 0)
            .then(|| stats::change(&base_rates, &rates))
            .flatten();
        if change.is_some_and(|change| change.is_told() == Some(false)) {
            untold.push(used.name.clone());
        }
        writeln!(
            out,
            "  {:<21} {:>13} {:>8.2} {:>6.1} {:>8}  {}",
            terminal(used.name.as_bytes()),
            with_half(mean, scale),
            day,
            stats::years(experiment.tbw_gib, day),
            change.map_or_else(String::new, |change| signed(change.change)),
            change.as_ref().map(interval).unwrap_or_default()
        )?;
    }
    if base_rates.len() < 2 {
        writeln!(
            out,
            "  One block of a profile tells no spread: no change here can be told from chance."
        )?;
    }
    if !untold.is_empty() {
        wrap::write(
            out,
            "  ",
            &format!("Not to be told from no change: {}.", untold.join(", ")),
        )?;
    }
    published(out, experiment)
}

/// The published table, for the profiles that are here, where the workload is
/// the published one.
fn published(out: &mut dyn Write, experiment: &Experiment) -> io::Result<()> {
    let workload = &experiment.workload;
    let period_s = workload.period_s * f64::from(experiment.time_scale);
    if (workload.files, workload.file_kib) != (5000, 64) || (period_s - 30.0).abs() > 0.5 {
        return Ok(());
    }
    let here: Vec<String> = PUBLISHED
        .iter()
        .filter(|(name, ..)| experiment.of(name).next().is_some())
        .map(|(name, rate, _)| {
            format!("{name} {rate:.2} ({})", signed(rate / PUBLISHED[0].1 - 1.0))
        })
        .collect();
    if here.is_empty() {
        return Ok(());
    }
    wrap::write(
        out,
        "  ",
        &format!("Published for an eMMC board, MiB/min: {}.", here.join(", ")),
    )
}

fn values(used: &Used) -> Values {
    let knobs = used.nominal.iter();
    knobs
        .filter_map(|(name, value)| Some((Knob::from_name(name)?, *value)))
        .collect()
}

fn risk(out: &mut dyn Write, experiment: &Experiment) -> io::Result<()> {
    writeln!(
        out,
        "\n  at risk at a power cut   said   data bound   metadata   age at writing, p99"
    )?;
    let scale = u64::from(experiment.time_scale.max(1));
    for used in &experiment.profiles {
        if experiment.of(&used.name).next().is_none() {
            continue;
        }
        let values = values(used);
        let exposure = Exposure::of(&values);
        let said = values.get(&Knob::DirtyExpireCentisecs).map(|cs| cs / 100);
        let said = match exposure.metadata_s {
            Some(commit) if used.name == "commit-60" => Some(commit),
            _ => said,
        };
        let age = experiment.of(&used.name).filter_map(oldest_us).max();
        let seconds =
            |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |s| format!("{s} s"));
        writeln!(
            out,
            "  {:<22} {:>6} {:>12} {:>10} {:>21}",
            terminal(used.name.as_bytes()),
            seconds(said),
            exposure
                .data_cs
                .map_or_else(|| "none".to_owned(), |cs| format!("{} s +", cs / 100)),
            seconds(exposure.metadata_s),
            age.map_or_else(
                || "-".to_owned(),
                |us| format!("{:.1} s", us as f64 * scale as f64 / 1e6)
            )
        )?;
    }
    writeln!(
        out,
        "  said: the published loss window. + is the time that the device takes to write."
    )
}

/// 99th percentile of the age of file data when the flusher wrote it, in µs.
fn oldest_us(block: &Block) -> Option<u64> {
    let ages = block.trace["age_us"].as_array()?;
    let row = ages.iter().find(|row| row["path"] == "writeback")?;
    row["p99"].as_u64()
}

fn paths(out: &mut dyn Write, experiment: &Experiment) -> io::Result<()> {
    let Some(base) = experiment.profiles.first() else {
        return Ok(());
    };
    let base_rows = experiment.by_path(&base.name);
    let total: f64 = base_rows.values().sum();
    if total <= 0.0 {
        return Ok(());
    }
    let scale = f64::from(experiment.time_scale.max(1));
    let mib = |sectors: f64| sectors / 2048.0 / scale;
    let name =
        |(path, trigger): &(String, String)| terminal(format!("{path} {trigger}").as_bytes());
    let mut rows: Vec<_> = base_rows.iter().collect();
    rows.sort_by(|a, b| b.1.total_cmp(a.1));
    writeln!(out, "\n  by path and trigger")?;
    let shown: Vec<String> = rows
        .iter()
        .filter(|(_, sectors)| **sectors >= total * LEAST_SHARE)
        .map(|(key, sectors)| format!("{} {:.2}", name(key), mib(**sectors)))
        .collect();
    let label = format!("  {}, MiB/min: ", terminal(base.name.as_bytes()));
    wrap::write(out, &label, &shown.join(", "))?;
    for used in experiment.profiles.iter().skip(1) {
        let now = experiment.by_path(&used.name);
        if now.is_empty() {
            continue;
        }
        let mut changes: Vec<String> = rows
            .iter()
            .filter(|(_, sectors)| **sectors >= total * LEAST_SHARE)
            .map(|(key, before)| {
                let after = now.get(*key).copied().unwrap_or_default();
                let change = format!("{:+.0} %", (after / **before - 1.0) * 100.0);
                format!("{} {}", name(key), change.replace('-', "−"))
            })
            .collect();
        let new = now
            .iter()
            .filter(|(key, sectors)| {
                !base_rows.contains_key(key) && **sectors >= total * LEAST_SHARE
            })
            .map(|(key, sectors)| format!("{} new, {:.2} MiB/min", name(key), mib(*sectors)));
        changes.extend(new);
        let label = format!("  {}: ", terminal(used.name.as_bytes()));
        wrap::write(out, &label, &changes.join(", "))?;
    }
    Ok(())
}

fn carried(out: &mut dyn Write, experiment: &Experiment) -> io::Result<()> {
    let mib = |bytes: Option<u64>| {
        bytes.map_or_else(
            || "?".to_owned(),
            |bytes| format!("{:.1}", bytes as f64 / f64::from(1 << 20)),
        )
    };
    let blocks: Vec<String> = experiment
        .blocks
        .iter()
        .map(|block| {
            format!(
                "{} {} → {}",
                terminal(block.profile.as_bytes()),
                mib(block.dirty_before_bytes),
                mib(block.dirty_after_bytes)
            )
        })
        .collect();
    writeln!(out)?;
    wrap::write(
        out,
        "  ",
        &format!(
            "Dirty at begin → end of each block, MiB: {}.",
            blocks.join(", ")
        ),
    )
}

/// What somebody else's sync, or a full page cache, made of the blocks: the
/// workload itself calls fsync only.
fn disturbed(out: &mut dyn Write, experiment: &Experiment) -> io::Result<()> {
    for used in &experiment.profiles {
        let rows = experiment.by_path(&used.name);
        let total: f64 = rows.values().sum();
        for (trigger, why) in [
            ("sync", "something called sync while it was measured"),
            (
                "background",
                "the whole machine had more dirty data than the background limit",
            ),
        ] {
            let of = rows.iter().filter(|((_, by), _)| by == trigger);
            let share = of.map(|(_, sectors)| sectors).sum::<f64>() / total.max(1.0);
            if share >= LEAST_DISTURBED {
                let name = terminal(used.name.as_bytes());
                let text = format!(
                    "WARNING: {:.1} % of the sectors under {name} have the trigger {trigger}: \
                     {why}, so that its knobs had less to decide.",
                    share * 100.0
                );
                wrap::write(out, "  ", &text)?;
            }
        }
    }
    Ok(())
}

/// What the ledgers of the blocks leave open.
fn books(out: &mut dyn Write, experiment: &Experiment) -> io::Result<()> {
    let sum = |key: &str| -> i64 {
        let values = experiment.blocks.iter().map(|block| &block.trace[key]);
        values.filter_map(serde_json::Value::as_i64).sum()
    };
    writeln!(
        out,
        "  Ledgers: residual {}, unattributed {} sectors.",
        sum("residual"),
        sum("sectors_unattributed")
    )
}
