//! `writepath profile apply`: a profile in force until the end of something.

use super::{Chosen, say, status, tell};
use crate::{
    cli::{
        command::{self, Traced, Voice},
        stop::{Asked, Signals},
        typed::create,
    },
    output::profile as text,
    profile::{Exposure, Finding, Knob, Profile, Severity, lint_with},
    tune::{self, InForce, Tuning},
};
use anyhow::Context;
use clap::Args;
use std::{
    ffi::OsString,
    path::PathBuf,
    process::{ExitCode, ExitStatus},
    time::Duration,
};
use tokio::time::{Instant, sleep_until};

/// Options of `apply`, as typed.
#[derive(Debug, Args)]
pub struct ApplyArgs {
    #[command(flatten)]
    chosen: Chosen,
    /// A directory on an ext4 filesystem, for commit=; repeatable.
    #[arg(long, value_name = "DIR")]
    mount: Vec<PathBuf>,
    /// Leave the machine tuned, and say how to undo it.
    #[arg(long, conflicts_with = "command")]
    keep: bool,
    /// Make this file once the profile is in force.
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
    /// Exit with 0 although CMD failed.
    #[arg(long)]
    ignore_failure: bool,
    /// Run CMD as this user (default: who called sudo).
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// Command during which the profile is in force, after `--`.
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// ext4's own `commit=`, in seconds (fs/ext4: `JBD2_DEFAULT_MAX_COMMIT_AGE`).
const COMMIT_S: u64 = 5;
/// How long a command's group has to end after a signal.
const MANNERS: Duration = Duration::from_secs(10);

/// Runs `apply`.
pub fn run(args: &ApplyArgs) -> anyhow::Result<ExitCode> {
    let shown = args.chosen.shown()?;
    let mut profile = shown.profile;
    let without_mount =
        args.mount.is_empty() && profile.values.get(&Knob::Commit) == Some(&COMMIT_S);
    if without_mount {
        profile.values.remove(&Knob::Commit);
        say("commit= is left as it is: it is set on filesystems named with --mount DIR");
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the event loop")?;
    runtime.block_on(apply(args, &profile, &shown.findings))
}

async fn apply(
    args: &ApplyArgs,
    profile: &Profile,
    findings: &[Finding],
) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::new().context("cannot catch signals")?;
    let user = command::user(args.user.as_deref())?;
    let mut tuning = Tuning::begin(&args.mount)?;
    if !tuning.leftover().is_empty() {
        say("an earlier run had died; first, what it has left:");
        tell(tuning.leftover());
    }
    warn(profile, findings, &tune::in_force(&args.mount)?);
    let changes = match tuning.apply(profile) {
        Ok(changes) => changes,
        Err(error) => {
            // The error has its own status, and says more.
            tell(&tuning.put_back());
            return Err(error.into());
        }
    };
    for change in &changes {
        say(&change.to_string());
    }
    let name = &profile.name;
    if args.keep {
        return keep(tuning, name);
    }
    if args.command.is_empty() {
        say(&format!("{name} is in force; Ctrl-C puts back"));
    }
    let ended = hold(args, user, &mut signals).await;
    let back = tuning.put_back();
    let clean = back.is_clean();
    let code = tell(&back);
    let failed = ended?;
    Ok(match failed {
        Some(how) if clean => {
            say(&how);
            if args.ignore_failure {
                ExitCode::SUCCESS
            } else {
                ExitCode::from(status::FAILURE)
            }
        }
        Some(how) => {
            say(&how);
            code
        }
        None => code,
    })
}

/// What may not be meant, and what it costs at a power cut.
fn warn(profile: &Profile, written: &[Finding], in_force: &InForce) {
    let now = in_force.values();
    let mut findings = written.to_vec();
    // Beside values in force there may be more.
    for finding in lint_with(profile, &now) {
        if !findings.iter().any(|known| known.knob == finding.knob) {
            findings.push(finding);
        }
    }
    for finding in &findings {
        if finding.severity == Severity::Warning {
            say(&text::say(finding));
        }
    }
    let mut before = Exposure::of(&now);
    // The filesystem that has least at risk is the one that may get more.
    before.metadata_s = in_force
        .settings
        .iter()
        .filter(|(_, setting)| setting.knob == Knob::Commit)
        .map(|(_, setting)| setting.value)
        .min();
    for sentence in Exposure::of(&profile.over(&now)).beyond(&before) {
        say(&sentence);
    }
}

fn keep(tuning: Tuning, name: &str) -> anyhow::Result<ExitCode> {
    let kept = tuning.keep()?;
    say(&format!("{name} stays in force until the next boot"));
    if kept.is_empty() {
        say("it changes nothing, so there is nothing to undo");
        return Ok(ExitCode::SUCCESS);
    }
    say("to undo it: writepath profile restore; or by hand:");
    for change in kept {
        say(&format!("  {}", change.undo()));
    }
    Ok(ExitCode::SUCCESS)
}

/// Waits for the end of CMD, or of patience. Says how CMD failed.
async fn hold(
    args: &ApplyArgs,
    user: Option<command::User>,
    signals: &mut Signals,
) -> anyhow::Result<Option<String>> {
    if let Some(path) = &args.ready_file {
        create(path, user)?;
    }
    if args.command.is_empty() {
        while !matches!(signals.next().await, Asked::End(_)) {}
        return Ok(None);
    }
    let mut traced = command::start(&args.command, user, None, Voice::Ours)?;
    let ended = follow(&mut traced, signals).await?;
    Ok(ended.and_then(|status| {
        let end = traced.end(status);
        let program = end.program;
        match (end.code, end.signal) {
            (Some(0), _) => None,
            (Some(code), _) => Some(format!("{program} failed: exit status {code}")),
            (None, signal) => Some(format!(
                "{program} failed: signal {}",
                signal.unwrap_or_default()
            )),
        }
    }))
}

/// How CMD ended, where it ended by itself.
async fn follow(traced: &mut Traced, signals: &mut Signals) -> anyhow::Result<Option<ExitStatus>> {
    let mut until = None;
    loop {
        let given_up = async {
            match until {
                Some(until) => sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            status = traced.wait() => {
                let status = status.context("cannot wait for the command")?;
                return Ok(until.is_none().then_some(status));
            }
            asked = signals.next() => {
                if let (Asked::End(signal), None) = (asked, until) {
                    traced.signal(signal);
                    until = Some(Instant::now() + MANNERS);
                }
            }
            () = given_up => {
                say("the command does not end; killing its group");
                traced.signal(rustix::process::Signal::KILL);
                return Ok(None);
            }
        }
    }
}
