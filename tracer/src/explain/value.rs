//! The ceiling of one value of a knob: what raising it so far saves at most.

use super::{
    evidence::Profile,
    findings::Named,
    lever::{Asked, Lever},
    say,
    scene::{Scene, TICK_LATE},
};
use crate::profile::{Knob, Value};

/// Values whose ceilings are of interest: those that were asked for, those
/// that an experiment tried, else twice the time in force.
pub fn of_interest(
    scene: &Scene<'_>,
    lever: Lever,
    in_force: Option<Value>,
    profiles: &[Profile],
    asked: &[Asked],
) -> Vec<Named> {
    let mut values: Vec<(Knob, Value, bool)> = asked
        .iter()
        .filter(|asked| asked.lever == lever)
        .map(|asked| (asked.knob, asked.value, true))
        .collect();
    let tried = profiles.iter().flat_map(|profile| &profile.changed);
    for (knob, value) in tried.filter(|(knob, _)| Lever::of(**knob) == Some(lever)) {
        if !values
            .iter()
            .any(|known| (known.0, known.1) == (*knob, *value))
        {
            values.push((*knob, *value, false));
        }
    }
    let timed = matches!(lever, Lever::Commit | Lever::Expire | Lever::Writeback);
    if let Some(value) = in_force.filter(|value| values.is_empty() && timed && *value > 0)
        && scene.reach(lever) > 0
    {
        let knob = lever.in_force(scene.device).0;
        values.push((knob, value.saturating_mul(2), false));
    }
    values
        .into_iter()
        .map(|(knob, value, asked)| {
            let (ceiling, why) = ceiling(scene, lever, knob, in_force, value);
            let ceiling = ceiling
                .min(scene.reach(lever))
                .min(scene.device.sectors_written);
            Named {
                knob,
                value,
                asked,
                ceiling,
                estimate: estimate(scene, lever, value).map(|sectors| sectors.min(ceiling)),
                why,
            }
        })
        .collect()
}

/// What the writes of a recording say of another time.
fn estimate(scene: &Scene<'_>, lever: Lever, to: Value) -> Option<u64> {
    let (writes, now) = (scene.writes?, (scene.expire_s?, scene.writeback_s?));
    let to_s = to as f64 / 100.0;
    let then = match lever {
        Lever::Expire => (to_s, now.1),
        Lever::Writeback => (now.0, to_s),
        _ => return None,
    };
    let data = scene.reach_of(lever, "writeback");
    Some((data as f64 * writes.saved(now, then)?).round() as u64)
}

/// The ceiling of one value, and why.
fn ceiling(
    scene: &Scene<'_>,
    lever: Lever,
    knob: Knob,
    from: Option<Value>,
    to: Value,
) -> (u64, String) {
    let all = scene.reach(lever);
    if all == 0 {
        return (0, "it has nothing to act on".to_owned());
    }
    let same = lever.in_force(scene.device).0 == knob;
    if let Some(from) = from.filter(|_| same) {
        if to == from {
            return (0, "it is the value in force".to_owned());
        }
        let off = lever == Lever::Writeback && to == 0;
        if to < from && !off {
            return (0, format!("below {from} it can only add writes"));
        }
    }
    match lever {
        Lever::Commit => of_commit(scene, to, all),
        Lever::Writeback if to == 0 => (all, "0 switches periodic write-back off".to_owned()),
        Lever::Expire => of_time(scene, to as f64 / 100.0, true, all),
        Lever::Writeback => of_time(scene, to as f64 / 100.0, false, all),
        Lever::Background | Lever::Limit => of_threshold(scene, lever, knob, to, all),
    }
}

fn of_commit(scene: &Scene<'_>, to: Value, all: u64) -> (u64, String) {
    let Some(merged) = scene.merged(to) else {
        let why = "made without --commits, so which commits would merge is not known";
        return (all, why.to_owned());
    };
    let timers = scene.device.commits().0;
    let why = format!("{} of {timers} timer commits would merge", merged.commits);
    if merged.commits == 0 {
        return (0, why);
    }
    // Fewer commits may hold back any of the metadata that goes in place.
    let metadata = scene.reach_of(Lever::Commit, "metadata");
    let rows = merged.sectors.saturating_add(merged.ordered);
    (rows.saturating_add(metadata), why)
}

/// Two writes of a page by the flusher are at least the longer of both times
/// apart. In the longest time that a page can then be dirty so many of them
/// fit, and two more at its ends; one is left of them.
fn of_time(scene: &Scene<'_>, to_s: f64, expire: bool, all: u64) -> (u64, String) {
    let (Some(expire_s), Some(tick_s)) = (scene.expire_s, scene.writeback_s) else {
        return (all, "the values in force are not known".to_owned());
    };
    let least = expire_s.max(tick_s);
    if least <= 0.0 {
        return (all, "nothing keeps writes of a page apart".to_owned());
    }
    let most = if expire {
        to_s + tick_s * TICK_LATE
    } else {
        expire_s + to_s * TICK_LATE
    };
    let writes = (most / least).floor() + 2.0;
    let left = (all as f64 / writes).floor() as u64;
    let why = format!("{writes:.0} writes of a page become one at best");
    (all - left.min(all), why)
}

fn of_threshold(scene: &Scene<'_>, lever: Lever, knob: Knob, to: Value, all: u64) -> (u64, String) {
    let (in_force, from) = lever.in_force(scene.device);
    let Some(memory) = scene.device.memory else {
        return (all, "how much was dirty is not known".to_owned());
    };
    let now = match lever {
        Lever::Background => memory.background_min,
        _ => memory.threshold_min,
    };
    let bytes = match (knob, from) {
        (Knob::DirtyBackgroundBytes | Knob::DirtyBytes, _) => Some(to),
        // The kernel takes it of memory that may be dirty, which varies little.
        (_, Some(from)) if from > 0 && in_force == knob => {
            let scaled = u128::from(now) * u128::from(to) / u128::from(from);
            Some(u64::try_from(scaled).unwrap_or(u64::MAX))
        }
        _ => None,
    };
    match bytes {
        None => (all, "its threshold in bytes is not known".to_owned()),
        Some(bytes) if bytes <= now => (
            0,
            format!("{} are no more than {}", say::bytes(bytes), say::bytes(now)),
        ),
        Some(bytes) => (
            all,
            format!("{} instead of {}", say::bytes(bytes), say::bytes(now)),
        ),
    }
}
