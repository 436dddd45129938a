//! Setting the kernel's tunables so that they are always put back.
//!
//! A [`Tuning`] holds the machine: one at a time, by a lock. What was in force
//! is written to /run/writepath and synced before the first change. A guard, a
//! process of its own, puts back when this process dies in whatever way; when
//! the guard dies too, the next run does, or `writepath profile restore`.
//! Every value is read back after it is set. A value is put back only while it
//! is still ours: what somebody else has set meanwhile is left and reported.
//!
//! Putting back takes some milliseconds, but a remount waits for a sync of its
//! filesystem that is under way, as long as the device takes for that.
//! Throttles and sysctls come first.
//!
//! This module never prints. It works in the program `writepath` only, for the
//! guard is that program again.

mod dir;
mod edge;
mod error;
mod ext4;
mod guard;
mod mountinfo;
mod plan;
mod report;
mod restore;
mod state;
mod sysctl;
mod target;
#[cfg(test)]
mod tests;
mod throttle;

use std::path::PathBuf;

pub use error::{Kind, TuneError};
pub use guard::{COMMAND as GUARD_COMMAND, Watched, watch};
pub use plan::Foreign;
pub use report::{Left, Report};
pub use target::{Change, On, Setting};

use crate::{
    kernel::block::DevNumber,
    profile::{Knob, Place, Profile, Severity, Value, Values, lint},
};
use dir::{Dir, KEPT, RUN};
use guard::Guard;
use state::State;
use target::{Entry, group};

/// A machine that is being tuned. Put back by [`Tuning::put_back`]; by its
/// guard when it is dropped without.
#[derive(Debug)]
pub struct Tuning {
    // Taken by what ends it.
    held: Option<Held>,
    filesystems: Vec<On>,
    leftover: Report,
}

#[derive(Debug)]
struct Held {
    dir: Dir,
    guard: Guard,
    state: State,
}

impl Tuning {
    /// Takes the machine: puts back what a run that died has left, and starts
    /// the guard. Changes nothing else yet. `mounts` are directories on the
    /// ext4 filesystems whose `commit=` profiles shall set, as this thread
    /// sees them; a mount of a private namespace is reached by the guard too,
    /// which lives in that namespace as long as the run.
    pub fn begin(mounts: &[PathBuf]) -> Result<Self, TuneError> {
        if !rustix::process::geteuid().is_root() {
            return Err(TuneError::NotRoot);
        }
        let filesystems = filesystems(mounts)?;
        let dir = Dir::lock()?;
        let leftover = restore::restore(&dir, RUN)?;
        if !leftover.failed.is_empty() {
            return Err(TuneError::Leftover(Box::new(leftover)));
        }
        let state = State {
            boot: dir::boot()?,
            pid: std::process::id(),
            entries: Vec::new(),
        };
        let guard = dir.write(RUN, &state).and_then(|()| Guard::start(&dir));
        let guard = match guard {
            Ok(guard) => guard,
            Err(error) => {
                // Nothing has been changed yet.
                let _ = dir.remove(RUN);
                dir.leave();
                return Err(error);
            }
        };
        Ok(Self {
            held: Some(Held { dir, guard, state }),
            filesystems,
            leftover,
        })
    }

    /// What was put back first, because an earlier run had died.
    pub fn leftover(&self) -> &Report {
        &self.leftover
    }

    /// Brings a profile into force, and tells what that changed. It may be
    /// called again for another: what only the former set goes back to what
    /// was there before the run. After an error some values may be set; they
    /// are put back like all others.
    ///
    /// Fails with [`TuneError::Foreign`], before any change, when somebody
    /// else has changed what this run had set.
    pub fn apply(&mut self, profile: &Profile) -> Result<Vec<Change>, TuneError> {
        let findings: Vec<_> = lint(profile)
            .into_iter()
            .filter(|finding| finding.severity == Severity::Error)
            .collect();
        if !findings.is_empty() {
            return Err(TuneError::Profile {
                name: profile.name.clone(),
                findings,
            });
        }
        let wanted = self.wanted(profile)?;
        let of_profile = |entry: &Entry| !matches!(entry.on, On::Device { .. });
        self.change(&wanted, of_profile)
    }

    /// Limits what a device is given to write, in bytes and in writes a
    /// second, by the blkio controller of cgroup v1. None takes a limit away
    /// that this run has set.
    pub fn throttle(
        &mut self,
        dev: DevNumber,
        bytes_per_s: Option<Value>,
        writes_per_s: Option<Value>,
    ) -> Result<Vec<Change>, TuneError> {
        if !can_throttle() {
            return Err(TuneError::NoThrottle);
        }
        let on = On::Device { dev };
        let limits = [
            (Knob::ThrottleWriteBps, bytes_per_s),
            (Knob::ThrottleWriteIops, writes_per_s),
        ];
        let wanted: Vec<(On, Setting)> = limits
            .into_iter()
            .filter_map(|(knob, value)| Some((on.clone(), Setting::new(knob, value?))))
            .collect();
        self.change(&wanted, |entry| entry.on.is(&on))
    }

    /// Puts everything back, ends the guard and lets the machine go.
    pub fn put_back(mut self) -> Report {
        let Some(held) = self.held.take() else {
            return Report::default();
        };
        let report = restore::restore(&held.dir, RUN).unwrap_or_else(|error| Report {
            failed: vec![error.to_string()],
            ..Report::default()
        });
        held.guard.dismiss();
        held.dir.leave();
        report
    }

    /// Leaves everything in force, on purpose, and notes how to undo it. Tells
    /// all that is kept so, of earlier runs too: from what was there first to
    /// what is in force.
    pub fn keep(mut self) -> Result<Vec<Change>, TuneError> {
        let Some(mut held) = self.held.take() else {
            return Ok(Vec::new());
        };
        let kept = match held.keep() {
            Ok(kept) => kept,
            Err(error) => {
                self.held = Some(held);
                return Err(error);
            }
        };
        held.guard.dismiss();
        held.dir.leave();
        Ok(changes(&kept))
    }

    /// Everything that a profile sets, and on what.
    fn wanted(&self, profile: &Profile) -> Result<Vec<(On, Setting)>, TuneError> {
        let mut wanted = Vec::new();
        for (knob, value) in &profile.values {
            let setting = Setting::new(*knob, *value);
            match knob.place() {
                Place::Ext4Option(_) if self.filesystems.is_empty() => {
                    return Err(TuneError::NeedsMount {
                        profile: profile.name.clone(),
                        commit: *value,
                    });
                }
                Place::Ext4Option(_) => {
                    wanted.extend(self.filesystems.iter().map(|on| (on.clone(), setting)));
                }
                Place::Sysctl(_) => wanted.push((On::Machine, setting)),
                Place::Throttle(_) => {}
            }
        }
        // Remounts last: they can take a while.
        wanted.sort_by_key(|(on, _)| matches!(on, On::Filesystem { .. }));
        Ok(wanted)
    }

    fn change(
        &mut self,
        wanted: &[(On, Setting)],
        within: impl Fn(&Entry) -> bool,
    ) -> Result<Vec<Change>, TuneError> {
        let Some(held) = self.held.as_mut() else {
            return Ok(Vec::new());
        };
        let current = |on: &On, setting: Setting| edge::read_named(on, setting.knob);
        let changes = plan::plan(&held.state.entries, wanted, within, current)?
            .map_err(|foreign| TuneError::Foreign(Box::new(foreign)))?;
        if changes.is_empty() {
            return Ok(changes);
        }
        if !held.guard.is_alive() {
            held.guard = Guard::start(&held.dir)?;
        }
        plan::announce(&mut held.state.entries, &changes);
        held.dir.write(RUN, &held.state)?;
        for change in &changes {
            edge::set(&change.on, change.to)?;
        }
        plan::settle(&mut held.state.entries);
        held.dir.write(RUN, &held.state)?;
        Ok(changes)
    }
}

impl Held {
    fn keep(&mut self) -> Result<Vec<Entry>, TuneError> {
        let boot = dir::boot()?;
        let mut kept = self
            .dir
            .read(KEPT)?
            .filter(|state| state.boot == boot)
            .map_or(Vec::new(), |state| state.entries);
        plan::keep(&mut kept, self.state.entries.clone());
        let state = State {
            boot,
            pid: self.state.pid,
            entries: kept,
        };
        if state.entries.is_empty() {
            self.dir.remove(KEPT)?;
        } else {
            self.dir.write(KEPT, &state)?;
        }
        self.dir.remove(RUN)?;
        Ok(state.entries)
    }
}

impl Drop for Tuning {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            held.guard.unleash();
        }
    }
}

fn changes(entries: &[Entry]) -> Vec<Change> {
    entries
        .iter()
        .filter_map(|entry| {
            Some(Change {
                on: entry.on.clone(),
                from: entry.original,
                to: *entry.ours.last()?,
            })
        })
        .collect()
}

/// Whether [`Tuning::throttle`] can work here.
pub fn can_throttle() -> bool {
    throttle::root().ok().flatten().is_some()
}

/// Puts back what a run that died has left, and what `--keep` left in force.
pub fn restore_all() -> Result<Report, TuneError> {
    if !rustix::process::geteuid().is_root() {
        return Err(TuneError::NotRoot);
    }
    let dir = Dir::lock()?;
    let mut report = restore::restore(&dir, RUN)?;
    report.extend(restore::restore(&dir, KEPT)?);
    dir.leave();
    Ok(report)
}

/// What is tuned now, as far as it may be seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InForce {
    /// Of the machine, and of each filesystem that was named.
    pub settings: Vec<(On, Setting)>,
    /// What a run has changed, from original to ours, and its process; none
    /// when there is no run, or when only root may see it.
    pub run: Option<(u32, Vec<Change>)>,
    /// What `--keep` left in force.
    pub kept: Vec<Change>,
    /// Whether run and kept could be looked at, which takes root.
    pub looked: bool,
}

impl InForce {
    /// The values of the machine, and of the first filesystem.
    pub fn values(&self) -> Values {
        plan::values(self.settings.iter().map(|(_, setting)| *setting))
    }
}

/// Reads what is in force, on the machine and on the ext4 filesystems that
/// these directories are on. Needs no privileges.
pub fn in_force(mounts: &[PathBuf]) -> Result<InForce, TuneError> {
    let mut settings = Vec::new();
    let sysctls = Knob::of_profiles()
        .filter(|knob| matches!(knob.place(), Place::Sysctl(_)) && group(*knob) == *knob);
    for knob in sysctls {
        settings.push((On::Machine, edge::read_named(&On::Machine, knob)?));
    }
    for on in filesystems(mounts)? {
        let setting = edge::read_named(&on, Knob::Commit)?;
        settings.push((on, setting));
    }
    let looked = rustix::process::geteuid().is_root();
    let (run, kept) = if looked { state()? } else { (None, Vec::new()) };
    Ok(InForce {
        settings,
        run,
        kept,
        looked,
    })
}

type Seen = (Option<(u32, Vec<Change>)>, Vec<Change>);

fn state() -> Result<Seen, TuneError> {
    let Some(dir) = Dir::look()? else {
        return Ok((None, Vec::new()));
    };
    let boot = dir::boot()?;
    let of_now = |state: &State| state.boot == boot;
    let run = dir.read(RUN)?.filter(of_now);
    let kept = dir.read(KEPT)?.filter(of_now);
    Ok((
        run.map(|state| (state.pid, changes(&state.entries))),
        kept.map_or(Vec::new(), |state| changes(&state.entries)),
    ))
}

/// Where ext4 filesystems are mounted in this thread's namespace, one place
/// for each.
pub fn ext4_mounts() -> Vec<PathBuf> {
    let mut found: Vec<mountinfo::Mount> = Vec::new();
    let mounts = mountinfo::own().unwrap_or_default();
    for mount in mounts.into_iter().filter(|mount| mount.kind == "ext4") {
        if !found.iter().any(|known| known.dev == mount.dev) {
            found.push(mount);
        }
    }
    found.into_iter().map(|mount| mount.point).collect()
}

/// The filesystems of these directories, each once.
fn filesystems(mounts: &[PathBuf]) -> Result<Vec<On>, TuneError> {
    let mut found: Vec<On> = Vec::new();
    for dir in mounts {
        let on = ext4::of_directory(dir)?;
        if !found.iter().any(|known| known.is(&on)) {
            found.push(on);
        }
    }
    Ok(found)
}
