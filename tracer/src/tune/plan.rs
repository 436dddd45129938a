//! Decides what to set and what to put back, from what is in force. Pure.

use super::target::{Change, Entry, On, Setting};
use crate::profile::Values;

/// Somebody else's value, where a run expected its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Foreign {
    /// On what.
    pub on: On,
    /// What the run had set.
    pub ours: Setting,
    /// What is in force.
    pub found: Setting,
}

/// What becomes of one thing when a run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The original is in force.
    Already,
    /// Ours is in force: put the original back.
    PutBack,
    /// Somebody else's is in force: leave it.
    Leave,
}

/// Judges what is in force now.
pub fn verdict(entry: &Entry, current: Setting) -> Verdict {
    if current == entry.original {
        Verdict::Already
    } else if entry.ours.contains(&current) {
        Verdict::PutBack
    } else {
        Verdict::Leave
    }
}

/// The changes that bring `wanted` into force where `current` is, given what
/// the run has changed before. What it has changed and `wanted` does not name
/// goes back to the original, if `within` says that it is one of a profile's.
/// `current` tells what is in force on each thing that is asked.
pub fn plan<E>(
    entries: &[Entry],
    wanted: &[(On, Setting)],
    within: impl Fn(&Entry) -> bool,
    mut current: impl FnMut(&On, Setting) -> Result<Setting, E>,
) -> Result<Result<Vec<Change>, Foreign>, E> {
    let known = |on: &On, setting: Setting| entries.iter().find(|e| e.is_about(setting.knob, on));
    let named = |entry: &Entry| {
        wanted
            .iter()
            .any(|(on, setting)| entry.is_about(setting.knob, on))
    };
    let dropped = entries
        .iter()
        .filter(|entry| within(entry) && !named(entry))
        .map(|entry| (entry.on.clone(), entry.original));
    let mut changes = Vec::new();
    for (on, to) in wanted.iter().cloned().chain(dropped) {
        let from = current(&on, to)?;
        if let Some(entry) = known(&on, to)
            && !entry.ours.contains(&from)
        {
            let ours = entry.ours.last().copied().unwrap_or(entry.original);
            return Ok(Err(Foreign {
                on,
                ours,
                found: from,
            }));
        }
        if from != to {
            changes.push(Change { on, from, to });
        }
    }
    Ok(Ok(changes))
}

/// Notes what is about to be set, so that it can be put back whether or not
/// it was reached.
pub fn announce(entries: &mut Vec<Entry>, changes: &[Change]) {
    for change in changes {
        match entries
            .iter_mut()
            .find(|entry| entry.is_about(change.to.knob, &change.on))
        {
            Some(entry) => entry.ours = vec![change.from, change.to],
            None => entries.push(Entry {
                on: change.on.clone(),
                original: change.from,
                ours: vec![change.to],
            }),
        }
    }
}

/// Notes that all of it has been set: only the last is ours now.
pub fn settle(entries: &mut [Entry]) {
    for entry in entries {
        if let Some(last) = entry.ours.last().copied() {
            entry.ours = vec![last];
        }
    }
}

/// Adds what a run leaves in force on purpose to what earlier ones left: the
/// original is that of the first, unless somebody else came between.
pub fn keep(kept: &mut Vec<Entry>, entries: Vec<Entry>) {
    for entry in entries {
        match kept
            .iter_mut()
            .find(|known| known.is_about(entry.original.knob, &entry.on))
        {
            Some(known) if known.ours.contains(&entry.original) => known.ours = entry.ours,
            Some(known) => *known = entry,
            None => kept.push(entry),
        }
    }
    kept.retain(|entry| entry.ours != [entry.original]);
}

/// The values in force of the machine and, of the first filesystem, its own.
pub fn values(settings: impl IntoIterator<Item = Setting>) -> Values {
    let mut values = Values::new();
    for setting in settings {
        values.entry(setting.knob).or_insert(setting.value);
    }
    values
}
