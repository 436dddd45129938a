//! The table of an experiment as people read it: within 80 columns.

use super::{
    escape::{cut, terminal},
    wrap,
};
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

/// The rates of several results, each profile's below each other; changes are
/// against the first result that has it.
pub fn compare(out: &mut dyn Write, results: &[(String, Experiment)]) -> io::Result<()> {
    for (index, (name, experiment)) in results.iter().enumerate() {
        let label = format!("[{}] {}: ", index + 1, terminal(name.as_bytes()));
        wrap::write(out, &label, &setting(experiment))?;
    }
    let mut profiles: Vec<&str> = Vec::new();
    for used in results.iter().flat_map(|(_, result)| &result.profiles) {
        if !profiles.contains(&used.name.as_str()) {
            profiles.push(&used.name);
        }
    }
    let title = "\n  profile               result         MiB/min   change  95 % interval";
    writeln!(out, "{title}")?;
    for profile in profiles {
        let mut first: Option<Vec<f64>> = None;
        for (index, (_, experiment)) in results.iter().enumerate() {
            // Of full scale, so that results of several scales compare.
            let rates = experiment.full_scale_rates(profile);
            let Some(mean) = stats::mean(&rates) else {
                continue;
            };
            let change = first.as_ref().and_then(|base| stats::change(base, &rates));
            let row = format!(
                "  {:<21} {:<6} {:>15} {:>8}  {}",
                cut(&terminal(profile.as_bytes()), 21),
                format!("[{}]", index + 1),
                with_half(mean),
                change.map_or_else(String::new, |change| signed(change.change)),
                change.as_ref().map(interval).unwrap_or_default()
            );
            writeln!(out, "{}", cut(row.trim_end(), wrap::WIDTH))?;
            first.get_or_insert(rates);
        }
    }
    Ok(())
}

fn head(out: &mut dyn Write, experiment: &Experiment) -> io::Result<()> {
    let label = format!("{}: ", terminal(experiment.name.as_bytes()));
    wrap::write(out, &label, &setting(experiment))?;
    let scale = experiment.time_scale;
    if scale > 1 {
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

/// Workload, machine and size of an experiment.
fn setting(experiment: &Experiment) -> String {
    let workload = &experiment.workload;
    let machine = &experiment.machine;
    let text = |text: &str| terminal(text.as_bytes());
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
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
    let ram = experiment
        .as_ram_bytes
        .map(|bytes| format!("; ratios as of {:.1} GiB", gib(bytes)));
    format!(
        "{} {}, {} files of {} KiB, each every {} s; Linux {} {}, {} CPUs, {:.1} GiB; \
         {device}{}; seed {}; {} of {} blocks",
        text(&workload.name),
        text(&workload.place),
        workload.files,
        workload.file_kib,
        workload.period_s * f64::from(experiment.time_scale),
        text(&experiment.kernel),
        text(&machine.arch),
        machine.cpus,
        gib(machine.memory_bytes),
        ram.unwrap_or_default(),
        experiment.seed,
        experiment.blocks.len(),
        experiment.planned
    )
}

/// A change in percent, with a true minus sign.
fn signed(change: f64) -> String {
    let percent = format!("{:+.1} %", change * 100.0);
    percent.replace('-', "−")
}

fn with_half(mean: Mean) -> String {
    match mean.half {
        Some(half) => format!("{:.2} ± {half:.2}", mean.mean),
        None => format!("{:.2}", mean.mean),
    }
}

fn interval(change: &Change) -> String {
    change.interval.map_or_else(String::new, |(low, high)| {
        format!("{} … {}", signed(low).trim_end_matches(" %"), signed(high))
    })
}

fn wear(out: &mut dyn Write, experiment: &Experiment) -> io::Result<()> {
    let title = "\n  profile                    MiB/min GiB/day  years   change 95 % interval";
    writeln!(out, "{title}")?;
    let base = experiment.profiles.first();
    let base_rates = base
        .map(|used| experiment.full_scale_rates(&used.name))
        .unwrap_or_default();
    let mut untold = Vec::new();
    let mut alone = Vec::new();
    for (index, used) in experiment.profiles.iter().enumerate() {
        let rates = experiment.full_scale_rates(&used.name);
        let Some(mean) = stats::mean(&rates) else {
            continue;
        };
        let name = terminal(used.name.as_bytes());
        let change = (index > 0)
            .then(|| stats::change(&base_rates, &rates))
            .flatten();
        if change.is_some_and(|change| change.is_told() == Some(false)) {
            untold.push(name.clone());
        }
        if rates.len() == 1 {
            alone.push(name.clone());
        }
        let day = stats::gib_per_day(mean.mean);
        let row = format!(
            "  {:<20} {:>13} {:>7.2} {:>6.1} {:>8} {}",
            cut(&name, 20),
            with_half(mean),
            day,
            stats::years(experiment.tbw_gib, day),
            change.map_or_else(String::new, |change| signed(change.change)),
            change.as_ref().map(interval).unwrap_or_default()
        );
        writeln!(out, "{}", cut(row.trim_end(), wrap::WIDTH))?;
    }
    for sentence in caveats(experiment, &alone, &untold) {
        wrap::write(out, "  ", &sentence)?;
    }
    published(out, experiment)
}

/// What these numbers of blocks can tell, and what they cannot.
fn caveats(experiment: &Experiment, alone: &[String], untold: &[String]) -> Vec<String> {
    let mut sentences = Vec::new();
    if !alone.is_empty() {
        sentences.push(format!(
            "With one block ({}) there is no spread: no change of it can be told from chance.",
            alone.join(", ")
        ));
    }
    let count = |used: &Used| experiment.of(&used.name).count();
    if alone.is_empty() && experiment.profiles.iter().any(|used| count(used) == 2) {
        sentences.push(
            "Two blocks of a profile tell little: only a large change, or a small spread, \
             gives an interval without zero."
                .to_owned(),
        );
    }
    if !untold.is_empty() {
        sentences.push(format!(
            "Not to be told from no change: {}.",
            untold.join(", ")
        ));
    }
    if experiment
        .profiles
        .iter()
        .skip(1)
        .any(|used| count(used) > 1)
    {
        sentences.push("Changes are of geometric means (Welch's t on logarithms).".to_owned());
    }
    sentences
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
        let said = PUBLISHED.iter().find(|(name, ..)| *name == used.name);
        let said = said.map(|(_, _, seconds)| u64::from(*seconds));
        let age = experiment.of(&used.name).filter_map(oldest_us).max();
        let seconds =
            |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |s| format!("{s} s"));
        writeln!(
            out,
            "  {:<22} {:>6} {:>12} {:>10} {:>21}",
            cut(&terminal(used.name.as_bytes()), 22),
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
        "  said: the published loss window. +: the time that the device takes to write."
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
    // Of one block too many may not hide another's too few.
    let sum = |key: &str| -> u64 {
        let values = experiment.blocks.iter().map(|block| &block.trace[key]);
        let values = values.filter_map(serde_json::Value::as_i64);
        values.map(i64::unsigned_abs).fold(0, u64::saturating_add)
    };
    let lost = experiment.blocks.iter().map(|block| block.lost);
    let (ring, maps) = lost.fold((0_u64, 0_u64), |(ring, maps), lost| {
        (
            ring.saturating_add(lost.ring),
            maps.saturating_add(lost.maps),
        )
    });
    wrap::write(
        out,
        "  ",
        &format!(
            "Ledgers: residual {}, unattributed {} sectors; lost {ring} ring records, {maps} map \
             entries.",
            sum("residual"),
            sum("sectors_unattributed")
        ),
    )
}
