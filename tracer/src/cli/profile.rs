//! `writepath profile`: shows, judges, applies and puts back profiles.

mod apply;

use super::{status, typed::parse_size};
use crate::{
    output::{
        escape,
        profile::{self as text, Active, Changed, Match, Shown, Where},
        wrap,
    },
    profile::{
        Knob, Profile, Severity, Values, builtin, builtins,
        file::{MOST_BYTES, parse_toml},
        lint,
    },
    tune::{self, Change, InForce, Kind, On, Report, TuneError},
};
use anyhow::{anyhow, bail};
use clap::{Args, Subcommand};
use std::{
    fs::File,
    io::{self, Read, Write},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Options of `profile`, as typed.
#[derive(Debug, Args)]
pub struct ProfileArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Name the built-in profiles.
    List {
        /// Print one JSON object.
        #[arg(short, long)]
        json: bool,
    },
    /// Print a profile, as a file to start from.
    Show {
        #[command(flatten)]
        chosen: Chosen,
        /// Print one JSON object.
        #[arg(short, long)]
        json: bool,
    },
    /// Print what is in force, and which profiles that is.
    Active {
        /// A directory on an ext4 filesystem; repeatable. Default: all that
        /// are mounted here.
        #[arg(long, value_name = "DIR")]
        mount: Vec<PathBuf>,
        /// Print one JSON object.
        #[arg(short, long)]
        json: bool,
    },
    /// Say whether a profile is in force; the status is 5 when it is not.
    Verify {
        #[command(flatten)]
        chosen: Chosen,
        /// A directory on an ext4 filesystem, for commit=; repeatable.
        #[arg(long, value_name = "DIR")]
        mount: Vec<PathBuf>,
    },
    /// Say what is wrong or suspicious about profiles.
    Lint {
        /// Built-in profiles or files.
        #[arg(value_name = "NAME|FILE", required = true)]
        profiles: Vec<String>,
    },
    /// Bring a profile into force until Ctrl-C or the end of CMD.
    Apply(apply::ApplyArgs),
    /// Put back what a run that died, or --keep, has left.
    Restore,
}

/// A profile, and what to make of it.
#[derive(Debug, Args)]
struct Chosen {
    /// A built-in profile, or a file of your own.
    #[arg(value_name = "NAME|FILE")]
    profile: String,
    /// Turn ratios into bytes of a machine of this memory, such as 1GiB.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    as_ram: Option<u64>,
    /// Divide every time by this.
    #[arg(long, value_name = "K", default_value_t = 1)]
    time_scale: u32,
}

/// Runs `profile`.
pub fn run(args: ProfileArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let result = match args.action {
        Action::List { json } => list(out, json),
        Action::Show { chosen, json } => show(out, &chosen, json),
        Action::Active { mount, json } => active(out, &mount, json),
        Action::Verify { chosen, mount } => verify(out, &chosen, &mount),
        Action::Lint { profiles } => lint_all(out, &profiles),
        Action::Apply(args) => apply::run(&args),
        Action::Restore => restore(),
    };
    result.or_else(|error| match status_of(&error) {
        Some(code) => {
            say(&format!("{error:#}"));
            Ok(ExitCode::from(code))
        }
        None => Err(error),
    })
}

/// Something on standard error. Where nobody reads it, it is lost: what has
/// to be put back is worth more.
pub(super) fn say(text: &str) {
    let text = escape::terminal(text.as_bytes());
    let _ = wrap::write(&mut io::stderr(), "writepath: ", &text);
}

/// What was typed makes no sense.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Usage(pub(super) String);

/// The status of an error that has one of its own.
pub(super) fn status_of(error: &anyhow::Error) -> Option<u8> {
    if error.is::<Usage>() {
        return Some(status::USAGE);
    }
    let kind = error.downcast_ref::<TuneError>()?.kind();
    Some(match kind {
        Kind::Usage => status::USAGE,
        Kind::Unable => status::UNABLE,
        Kind::NotApplied => status::NOT_APPLIED,
    })
}

/// A built-in profile, else one in a file.
pub(super) fn load(name: &str) -> anyhow::Result<Profile> {
    if let Some(profile) = builtin(name) {
        return Ok(profile);
    }
    let path = Path::new(name);
    if !path.exists() {
        let names: Vec<String> = builtins().into_iter().map(|p| p.name).collect();
        bail!(Usage(format!(
            "no profile and no file {name}; built in are {}",
            names.join(", ")
        )));
    }
    let cannot = || Usage(format!("cannot read {name}"));
    let file = File::open(path).map_err(|error| anyhow!(error).context(cannot()))?;
    let mut bytes = Vec::new();
    // One more than is taken, so that a longer file is refused as such. A
    // device or pipe without end is not read to its end.
    file.take(MOST_BYTES as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| anyhow!(error).context(cannot()))?;
    let text = String::from_utf8(bytes)
        .map_err(|_| Usage(format!("{name} is no text, so it is no profile")))?;
    let parsed = parse_toml(&text).map_err(|error| Usage(format!("{name}: {error}")))?;
    Ok(parsed)
}

impl Chosen {
    /// Loads it, judges it as it was written, and makes of it what was asked.
    fn shown(&self) -> anyhow::Result<Shown> {
        let mut profile = load(&self.profile)?;
        let findings = lint(&profile);
        if let Some(bytes) = self.as_ram {
            profile = profile.as_ram(bytes);
        }
        if self.time_scale != 1 {
            let scaled = profile.scaled(self.time_scale);
            profile = scaled.map_err(|error| Usage(error.to_string()))?;
        }
        Ok(Shown {
            profile,
            as_ram_bytes: self.as_ram,
            time_scale: self.time_scale,
            findings,
        })
    }
}

fn list(out: &mut dyn Write, json: bool) -> anyhow::Result<ExitCode> {
    if json {
        text::list_json(out, &builtins())?;
    } else {
        text::list(out, &builtins())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn show(out: &mut dyn Write, chosen: &Chosen, json: bool) -> anyhow::Result<ExitCode> {
    let shown = chosen.shown()?;
    if json {
        text::show_json(out, &shown)?;
    } else {
        text::show(out, &shown)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn active(out: &mut dyn Write, mounts: &[PathBuf], json: bool) -> anyhow::Result<ExitCode> {
    let found = if mounts.is_empty() {
        tune::in_force(&tune::ext4_mounts())?
    } else {
        tune::in_force(mounts)?
    };
    let active = told(&found);
    if json {
        text::active_json(out, &active)?;
    } else {
        text::active(out, &active)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What was found, as it is shown.
fn told(found: &InForce) -> Active {
    let mut active = Active {
        run: found
            .run
            .as_ref()
            .map(|(pid, changes)| (*pid, changed(changes))),
        kept: changed(&found.kept),
        looked: found.looked,
        ..Active::default()
    };
    for (on, setting) in &found.settings {
        match on {
            On::Filesystem { point, .. } => {
                let point = point.as_os_str().as_bytes().to_vec();
                active
                    .filesystems
                    .push((point, setting.knob, setting.value));
            }
            _ => {
                active.machine.insert(setting.knob, setting.value);
            }
        }
    }
    active.profiles = builtins()
        .iter()
        .filter_map(|profile| matching(profile, &active))
        .collect();
    active
}

/// Whether a profile is in force on the machine, and on one of the
/// filesystems at least.
fn matching(profile: &Profile, active: &Active) -> Option<Match> {
    let has = |knob: &Knob| profile.values.get(knob);
    let of_machine: Values = profile
        .values
        .iter()
        .filter(|(knob, _)| **knob != Knob::Commit)
        .map(|(knob, value)| (*knob, *value))
        .collect();
    let mounts: Vec<Vec<u8>> = active
        .filesystems
        .iter()
        .filter(|(_, knob, value)| has(knob).is_none_or(|wanted| wanted == value))
        .map(|(mount, _, _)| mount.clone())
        .collect();
    let machine = of_machine
        .iter()
        .all(|(knob, value)| active.machine.get(knob) == Some(value));
    (machine && (!mounts.is_empty() || active.filesystems.is_empty())).then(|| Match {
        name: profile.name.clone(),
        mounts,
    })
}

fn changed(changes: &[Change]) -> Vec<Changed> {
    let changes = changes.iter().map(|change| Changed {
        on: match &change.on {
            On::Machine => Where::default(),
            On::Filesystem { dev, point } => Where {
                mount: Some(point.as_os_str().as_bytes().to_vec()),
                dev: Some(dev.to_string()),
            },
            On::Device { dev } => Where {
                mount: None,
                dev: Some(dev.to_string()),
            },
        },
        from: (change.from.knob, change.from.value),
        to: (change.to.knob, change.to.value),
    });
    changes.collect()
}

fn verify(out: &mut dyn Write, chosen: &Chosen, mounts: &[PathBuf]) -> anyhow::Result<ExitCode> {
    let profile = chosen.shown()?.profile;
    let found = tune::in_force(mounts)?;
    let mut differ = 0;
    for (knob, wanted) in &profile.values {
        let about = |setting: &&(On, tune::Setting)| {
            setting.1.knob == *knob || Some(setting.1.knob) == knob.partner()
        };
        let mut looked = false;
        for (on, setting) in found.settings.iter().filter(about) {
            looked = true;
            if (setting.knob, setting.value) != (*knob, *wanted) {
                differ += 1;
                let line = format!("{setting}{on}, not {}", knob.with(*wanted));
                writeln!(out, "{}", escape::terminal(line.as_bytes()))?;
            }
        }
        if !looked {
            say(&format!(
                "{} was not looked at: name a mount with --mount DIR",
                knob.with(*wanted)
            ));
        }
    }
    if differ == 0 {
        writeln!(out, "{} is in force", profile.name)?;
        Ok(ExitCode::SUCCESS)
    } else {
        say(&format!("{} is not in force", profile.name));
        Ok(ExitCode::from(status::NOT_APPLIED))
    }
}

fn lint_all(out: &mut dyn Write, profiles: &[String]) -> anyhow::Result<ExitCode> {
    let mut errors = false;
    for name in profiles {
        let findings = lint(&load(name)?);
        errors |= findings.iter().any(|f| f.severity == Severity::Error);
        let name = escape::terminal(name.as_bytes());
        for finding in &findings {
            wrap::write(out, &format!("{name}: "), &text::say(finding))?;
        }
        if findings.is_empty() {
            writeln!(out, "{name}: nothing is wrong")?;
        }
    }
    Ok(if errors {
        ExitCode::from(status::FAILURE)
    } else {
        ExitCode::SUCCESS
    })
}

fn restore() -> anyhow::Result<ExitCode> {
    let report = tune::restore_all()?;
    if report.is_empty() {
        say("nothing was left to put back");
    }
    Ok(tell(&report))
}

/// Says what became of everything, and gives the status that it deserves.
pub(super) fn tell(report: &Report) -> ExitCode {
    report.lines().iter().for_each(|line| say(line));
    if report.is_clean() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(status::NOT_APPLIED)
    }
}
