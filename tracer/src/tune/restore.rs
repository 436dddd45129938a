//! Puts back what a state holds: the end of every run, the work of the guard,
//! and the first act of the next run. There is no other way back.

use super::{
    TuneError,
    dir::{self, Dir},
    edge,
    plan::{self, Verdict},
    report::{Left, Report},
    state::State,
    target::{Change, Entry, On},
};

/// Puts back what is in one file of the directory, and what cannot be put
/// back stays there.
pub fn restore(dir: &Dir, name: &str) -> Result<Report, TuneError> {
    let Some(mut state) = dir.read(name)? else {
        return Ok(Report::default());
    };
    if state.boot != dir::boot()? {
        // All of it was in memory, and went with that boot.
        dir.remove(name)?;
        return Ok(Report::default());
    }
    let report = put_back(&mut state);
    if state.entries.is_empty() {
        dir.remove(name)?;
    } else {
        dir.write(name, &state)?;
    }
    Ok(report)
}

/// Puts back all entries; those that could not be stay.
fn put_back(state: &mut State) -> Report {
    let mut report = Report::default();
    let mut entries = std::mem::take(&mut state.entries);
    // A throttled device would keep a remount waiting.
    entries.sort_by_key(|entry| match entry.on {
        On::Device { .. } => 0,
        On::Machine => 1,
        On::Filesystem { .. } => 2,
    });
    for entry in entries {
        if !one(&entry, &mut report) {
            state.entries.push(entry);
        }
    }
    report
}

/// Whether nothing is left to do for this one.
fn one(entry: &Entry, report: &mut Report) -> bool {
    let current = match edge::read(&entry.on, entry.original.knob) {
        Ok(current) => current,
        Err(error) if edge::is_gone(&entry.on, &error) => {
            report.gone.push(entry.what());
            return true;
        }
        Err(error) => {
            report.failed.push(format!("{}: {error}", entry.what()));
            return false;
        }
    };
    match plan::verdict(entry, current) {
        Verdict::Already => true,
        Verdict::Leave => {
            report.left.push(Left {
                on: entry.on.clone(),
                original: entry.original,
                ours: entry.ours.last().copied().unwrap_or(entry.original),
                found: current,
            });
            true
        }
        Verdict::PutBack => match edge::set(&entry.on, entry.original) {
            Ok(()) => {
                report.back.push(Change {
                    on: entry.on.clone(),
                    from: current,
                    to: entry.original,
                });
                true
            }
            // It may have gone meanwhile, with the last that used it.
            Err(_) if went(entry) => {
                report.gone.push(entry.what());
                true
            }
            Err(error) => {
                report.failed.push(error.to_string());
                false
            }
        },
    }
}

/// Whether filesystem or device is gone now.
fn went(entry: &Entry) -> bool {
    edge::read(&entry.on, entry.original.knob).is_err_and(|error| edge::is_gone(&entry.on, &error))
}
