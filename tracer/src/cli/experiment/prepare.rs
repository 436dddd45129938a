//! From what was typed to what is to be done: profiles, order, sizes.

use super::{RunArgs, Speed};
use crate::{
    cli::profile::{Usage, load, say},
    experiment::{
        EMMC_DIRTY_TUNING,
        plan::{self, Step},
        result::{Emulated, Experiment, Machine, SCHEMA, Used, Workload},
    },
    kernel::{block, machine, mounts, processes},
    output::{escape::terminal, wrap},
    profile::{Exposure, Profile, Severity, Values, lint},
    tune::{self, TuneError},
    workload::iot_files::Place,
};
use anyhow::bail;
use std::{
    collections::BTreeMap,
    io::{self, Write},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// The longest period of the workload.
const LONGEST_PERIOD: Duration = Duration::from_hours(24);

/// What is to be done.
pub struct Prepared {
    /// Profiles as they are applied.
    pub profiles: Vec<Profile>,
    /// The same as they are written.
    pub nominal: Vec<Profile>,
    /// The blocks.
    pub steps: Vec<Step>,
    /// Period of the workload, scaled.
    pub period: Duration,
    /// Of order and workload.
    pub seed: u64,
    /// Cycles in a block.
    pub cycles: u32,
    /// Where the result goes.
    pub output: PathBuf,
}

impl Prepared {
    /// Judges what was typed.
    pub fn new(args: &RunArgs) -> anyhow::Result<Self> {
        if args.name != EMMC_DIRTY_TUNING {
            bail!(Usage(format!(
                "no experiment {}; there is {EMMC_DIRTY_TUNING}",
                args.name
            )));
        }
        if !(args.tbw > 0.0 && args.tbw.is_finite()) {
            bail!(Usage("--tbw must be more than 0 TiB".to_owned()));
        }
        let unique: std::collections::BTreeSet<String> =
            args.place.iter().map(ToString::to_string).collect();
        if unique.len() < args.place.len() {
            bail!(Usage("--place names a place twice".to_owned()));
        }
        if args.period > LONGEST_PERIOD {
            bail!(Usage("--period must be a day at most".to_owned()));
        }
        if args.emulate.is_some() && !tune::can_throttle() {
            bail!(TuneError::NoThrottle);
        }
        if let Some(dir) = &args.on {
            if args.place.len() > 1 {
                bail!(Usage(
                    "several places need an image each: leave --on out".to_owned()
                ));
            }
            is_ext4(dir)?;
        }
        let nominal = profiles(args)?;
        let profiles = nominal
            .iter()
            .map(|profile| adapt(profile, args))
            .collect::<anyhow::Result<Vec<_>>>()?;
        let in_force = tune::in_force(&[])?.values();
        let period = args.period / args.time_scale;
        if period < Duration::from_millis(10) {
            bail!(Usage("the scaled period is under 10 ms".to_owned()));
        }
        let seed = args.seed.unwrap_or_else(|| rand::random::<u32>().into());
        let rounds = if args.quick { 1 } else { args.blocks };
        let steps = plan::plan(&profiles, &in_force, period, args.cycles, rounds, seed);
        let output = args.output.clone().unwrap_or_else(|| {
            let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
            PathBuf::from(format!("writepath-{}-{}", args.name, now.replace(':', "")))
        });
        Ok(Self {
            profiles,
            nominal,
            steps,
            period,
            seed,
            cycles: args.cycles,
            output,
        })
    }

    /// How long it takes, but for making the files.
    pub fn duration(&self) -> Duration {
        plan::duration(&self.steps)
    }

    /// Bytes that the workload writes in all, without what the filesystem adds.
    fn bytes(&self, args: &RunArgs) -> u64 {
        let file = args.file_kib << 10;
        let made = u64::from(args.files) * file + (args.mgmt_kib << 10);
        let periods = self.duration().as_secs_f64() / self.period.as_secs_f64();
        let once = u64::from(args.files) * 4096 + (args.mgmt_kib << 10);
        made.saturating_add((periods * once as f64) as u64)
    }

    /// Size of an image that holds the files and some more, in bytes.
    pub fn image_bytes(args: &RunArgs) -> u64 {
        let files = u64::from(args.files) * (args.file_kib << 10).next_multiple_of(4096);
        args.image
            .unwrap_or((files * 3 / 2 + (512 << 20)).next_multiple_of(1 << 20))
    }

    /// `--dry-run`.
    pub fn show(&self, args: &RunArgs, out: &mut dyn Write) -> io::Result<()> {
        let minutes = self.duration().as_secs_f64() / 60.0;
        writeln!(out, "{}: {minutes:.0} min, seed {}", args.name, self.seed)?;
        let places = args.place.len() as u64;
        let mib = self.bytes(args).saturating_mul(places) >> 20;
        let to = match &args.on {
            Some(dir) => format!("below {}", shown(dir)),
            None => format!(
                "to {places} image(s) of {} MiB in {}",
                Self::image_bytes(args) >> 20,
                shown(&args.image_dir)
            ),
        };
        let text = format!("writes {mib} MiB of files, and the filesystem's own, {to}");
        wrap::write(out, "", &text)?;
        writeln!(out, "result in {}", shown(&self.output))?;
        for profile in &self.profiles {
            let knobs: Vec<String> = profile
                .values
                .iter()
                .map(|(knob, value)| knob.with(*value))
                .collect();
            wrap::write(out, &format!("{}: ", profile.name), &knobs.join(" "))?;
        }
        for (order, step) in self.steps.iter().enumerate() {
            writeln!(
                out,
                "block {:>3}  {:<24} settles {:>5.0} s, measures {:>6.0} s",
                order + 1,
                self.profiles[step.profile].name,
                step.settle.as_secs_f64(),
                step.length.as_secs_f64()
            )?;
        }
        Ok(())
    }

    /// Says what is beyond the usual risk.
    pub fn warn(&self) {
        let Ok(in_force) = tune::in_force(&[]) else {
            return;
        };
        let now = Exposure::of(&in_force.values());
        for profile in &self.profiles {
            for sentence in Exposure::of(&profile.over(&in_force.values())).beyond(&now) {
                say(&format!("{}: {sentence}", profile.name));
            }
        }
    }

    /// The result before its first block.
    pub fn result(&self, args: &RunArgs, place: Place, device: &str) -> Experiment {
        let by_name = |values: &Values| -> BTreeMap<String, u64> {
            values
                .iter()
                .map(|(knob, value)| (knob.name().to_owned(), *value))
                .collect()
        };
        let profiles = self.profiles.iter().zip(&self.nominal);
        Experiment {
            schema: SCHEMA.to_owned(),
            name: args.name.clone(),
            kernel: processes::kernel_release(),
            machine: Machine {
                arch: machine::architecture(),
                cpus: std::thread::available_parallelism().map_or(1, usize::from),
                memory_bytes: machine::memory_bytes().unwrap_or_default(),
                device: device.to_owned(),
            },
            started_at: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            seed: self.seed,
            time_scale: args.time_scale,
            cycles: self.cycles,
            as_ram_bytes: args.as_ram,
            emulate: args
                .emulate
                .map(|Speed { bytes_per_s, iops }| Emulated { bytes_per_s, iops }),
            tbw_gib: args.tbw * 1024.0,
            workload: Workload {
                name: "iot-files".to_owned(),
                place: place.to_string(),
                files: args.files,
                file_kib: args.file_kib,
                threads: args.threads.min(args.files),
                period_s: self.period.as_secs_f64(),
                account: None,
            },
            profiles: profiles
                .map(|(profile, nominal)| Used {
                    name: profile.name.clone(),
                    knobs: by_name(&profile.values),
                    nominal: by_name(&nominal.values),
                })
                .collect(),
            blocks: Vec::new(),
            planned: self.steps.len(),
        }
    }
}

/// A path for a terminal.
fn shown(path: &Path) -> String {
    terminal(path.as_os_str().as_encoded_bytes())
}

/// The profiles that were named, as they are written.
fn profiles(args: &RunArgs) -> anyhow::Result<Vec<Profile>> {
    let mut profiles: Vec<Profile> = Vec::new();
    for name in &args.profiles {
        let profile = load(name)?;
        if profiles.iter().any(|known| known.name == profile.name) {
            bail!(Usage(format!("--profiles names {} twice", profile.name)));
        }
        for finding in lint(&profile) {
            let text = crate::output::profile::say(&finding);
            if finding.severity == Severity::Error {
                bail!(Usage(format!("profile {}: {text}", profile.name)));
            }
            say(&format!("profile {}: {text}", profile.name));
        }
        profiles.push(profile);
    }
    Ok(profiles)
}

fn adapt(profile: &Profile, args: &RunArgs) -> anyhow::Result<Profile> {
    let mut profile = profile.clone();
    if let Some(bytes) = args.as_ram {
        profile = profile.as_ram(bytes);
    }
    let scaled = profile.scaled(args.time_scale);
    scaled.map_err(|error| Usage(error.to_string()).into())
}

fn is_ext4(dir: &Path) -> anyhow::Result<()> {
    let Some(mount) = mounts::of_directory(dir) else {
        bail!(Usage(format!(
            "{} is on no filesystem that is mounted here",
            dir.display()
        )));
    };
    if mount.kind != "ext4" {
        bail!(Usage(format!(
            "{} is on {}; commit= and the paths of this experiment are ext4's",
            dir.display(),
            mount.kind
        )));
    }
    let Some(text) = dir.to_str() else {
        bail!(Usage(format!(
            "{} is no UTF-8, which the workload's answer has to be",
            dir.display()
        )));
    };
    block::resolve(text)?;
    Ok(())
}
