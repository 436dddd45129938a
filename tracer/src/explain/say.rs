//! Sentences for a bug report. Each is put together from the numbers of one
//! device; none says more than they do.

use super::{
    evidence::{Group, is_timer},
    findings::{Finding, Measured, Named, Part},
    lever::{Lever, short, spelled},
    reach,
    scene::Scene,
    why,
};
use crate::profile::Unit;
use std::collections::BTreeMap;

/// Bytes as people read them: MiB is 2^20.
pub fn bytes(bytes: u64) -> String {
    Unit::Bytes.say(bytes)
}

/// A share: `3.8 %`, and never 0 for what is not nothing.
pub fn percent(value: f64) -> String {
    if value > 0.0 && value < 0.05 {
        "under 0.1 %".to_owned()
    } else {
        format!("{value:.1} %")
    }
}

fn of_tenths(tenths: u64, sectors: u64) -> String {
    if tenths == 0 && sectors > 0 {
        "under 0.1 %".to_owned()
    } else {
        format!("{}.{} %", tenths / 10, tenths % 10)
    }
}

/// A change with its sign.
pub fn change(share: f64) -> String {
    format!("{:+.1} %", share * 100.0).replace('-', "\u{2212}")
}

/// The finding's knob with its value in force.
fn named(finding: &Finding) -> String {
    match finding.value {
        Some(value) => spelled(finding.knob, value),
        None if finding.lever == Lever::Commit => "commit=".to_owned(),
        None => short(finding.knob).to_owned(),
    }
}

/// What one knob can do, in a few sentences.
pub fn of_lever(scene: &Scene<'_>, finding: &Finding) -> String {
    let mut text = match finding.lever {
        Lever::Commit => commit(scene, finding),
        Lever::Expire if finding.ceiling == 0 => idle_expire(scene, finding),
        Lever::Expire => expire(scene, finding),
        Lever::Writeback if finding.ceiling == 0 => format!(
            "{} never acted on {}: no tick of the flusher found anything older than \
             dirty_expire.",
            named(finding),
            place(scene)
        ),
        Lever::Writeback => writeback(scene, finding),
        Lever::Background => background(scene, finding),
        Lever::Limit => limit(scene, finding),
    };
    if finding.indirect > 0 && finding.ceiling > 0 {
        text += " Blocks that these writes allocate may account for up to ";
        text += &percent(scene.percent(finding.indirect));
        text += " more, in the journal.";
    }
    for value in &finding.named {
        text += &of_value(scene, value);
    }
    for measured in &finding.measured {
        text += &of_measured(measured);
    }
    text
}

/// ` commit=30 saves at most 2.1 %: …`
fn of_value(scene: &Scene<'_>, value: &Named) -> String {
    let name = spelled(value.knob, value.value);
    let estimate = value.estimate.map_or_else(String::new, |sectors| {
        let share = percent(scene.percent(sectors));
        format!(" The writes that were recorded tell of {share}.")
    });
    if value.ceiling == 0 {
        format!(" {name} would save nothing: {}.{estimate}", value.why)
    } else {
        let most = percent(scene.percent(value.ceiling));
        format!(
            " {name} would save at most {most}: {}.{estimate}",
            value.why
        )
    }
}

fn of_measured(measured: &Measured) -> String {
    let alone = if measured.alone {
        ""
    } else {
        ", with other knobs"
    };
    let interval = match measured.interval {
        Some((low, high)) => {
            let zero = if low <= 0.0 && high >= 0.0 {
                ", which cannot be told from zero"
            } else {
                ""
            };
            format!(" (95 %: {} to {}){zero}", change(low), change(high))
        }
        None => " (too few blocks for an interval)".to_owned(),
    };
    format!(
        " Measured under profile {}{alone}: {}{interval}.",
        why::named(&measured.profile),
        change(measured.change)
    )
}

/// What an experiment measured and the ceiling forbids.
pub fn contradiction(measured: &Measured, written: u64) -> String {
    let least = measured.interval.map_or(measured.change, |(_, high)| high);
    let share = measured.ceiling as f64 / written.max(1) as f64;
    format!(
        "profile {} saved at least {} of the sectors, but its knobs can act on {} at most: \
         the blocks were not alike, or this explanation is wrong",
        why::named(&measured.profile),
        percent(-least * 100.0),
        percent(share * 100.0)
    )
}

/// `loop0 in 60 s`
fn place(scene: &Scene<'_>) -> String {
    let device = scene.device;
    format!(
        "{} in {}",
        why::named(&device.name),
        why::seconds(device.duration_s)
    )
}

fn share_of(scene: &Scene<'_>, lever: Lever, path: &str) -> String {
    percent(scene.percent(scene.reach_of(lever, path)))
}

fn commit(scene: &Scene<'_>, finding: &Finding) -> String {
    let name = named(finding);
    let (timers, forced) = scene.device.commits();
    let journal = scene.of_paths(&["journal", "ordered"]);
    let share = percent(scene.percent(journal));
    let count = timers.saturating_add(forced);
    if count == 0 {
        return if journal == 0 {
            format!(
                "No journal commit was seen on {}: {name} had nothing to act on.",
                place(scene)
            )
        } else {
            format!(
                "The journal took {share}, but no commit ended on {}: whether {name} can act \
                 on it is not known.",
                place(scene)
            )
        };
    }
    let all = percent(scene.percent(finding.ceiling));
    let parts = format!(
        "journal {}, data written before it {}, metadata in place {}",
        share_of(scene, Lever::Commit, "journal"),
        share_of(scene, Lever::Commit, "ordered"),
        share_of(scene, Lever::Commit, "metadata")
    );
    if timers == 0 {
        return format!(
            "{name} caused none of the {} on {}: {}. The journal's {share} of the sectors \
             is out of its reach.",
            commits(forced),
            place(scene),
            forced_by(scene)
        );
    }
    if forced == 0 {
        return format!(
            "The timer ({name}) caused all {} on {}, so that it can act on {all} of the \
             sectors at most ({parts}).",
            commits(timers),
            place(scene)
        );
    }
    let beyond = ["journal", "ordered"].iter().fold(journal, |left, path| {
        left.saturating_sub(scene.reach_of(Lever::Commit, path))
    });
    let end = finding.saturates_at.map_or_else(String::new, |s| {
        format!(" Above {s} s it cannot act any further: a forced commit comes first.")
    });
    format!(
        "The timer ({name}) caused {timers} of {} on {}, so that it can act on {all} of the \
         sectors at most ({parts}). Out of its reach is {} of journal: {}.{end}",
        commits(count),
        place(scene),
        percent(scene.percent(beyond)),
        forced_by(scene)
    )
}

fn commits(count: u64) -> String {
    if count == 1 {
        "1 commit".to_owned()
    } else {
        format!("{count} commits")
    }
}

/// Who forced commits: the two that did most.
fn forced_by(scene: &Scene<'_>) -> String {
    let device = scene.device;
    let mut groups: Vec<&Group> = device
        .groups
        .iter()
        .filter(|group| !is_timer(&group.trigger) && group.count > 0)
        .collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.count));
    let words = |group: &&Group| {
        let often = why::often(group, why::cadence(group, device), device.duration_s);
        format!("{}{often}", why::commit_words(group))
    };
    match groups.as_slice() {
        [] => "their cause was not seen".to_owned(),
        [one] => words(one),
        [one, two] => format!("{} {}, {} {}", one.count, words(one), two.count, words(two)),
        [one, two, rest @ ..] => format!(
            "{} {}, {} {}, {} for others",
            one.count,
            words(one),
            two.count,
            words(two),
            rest.iter()
                .fold(0, |sum: u64, group| sum.saturating_add(group.count))
        ),
    }
}

fn idle_expire(scene: &Scene<'_>, finding: &Finding) -> String {
    let start = format!(
        "{} never acted on {}: nothing was written because of its age",
        named(finding),
        place(scene)
    );
    let device = scene.device;
    let paths = ["writeback", "fsync", "forced", "direct"];
    let data = scene
        .parts
        .iter()
        .find(|part| paths.contains(&part.path.as_str()));
    let data = data.map_or_else(String::new, |part| {
        format!(
            " Most file data ({} of all sectors) came by path {}, trigger {}: {}.",
            of_tenths(part.tenths, part.sectors),
            part.path,
            part.trigger,
            part.why
        )
    });
    let short = scene
        .expire_s
        .filter(|expire| device.duration_s < *expire)
        .map_or_else(String::new, |expire| {
            let dirty = device.still_dirty.unwrap_or_default();
            format!(
                " The run was shorter than {}, and {} were still dirty at its end.",
                why::seconds(expire),
                bytes(dirty)
            )
        });
    format!("{start}.{data}{short}")
}

fn expire(scene: &Scene<'_>, finding: &Finding) -> String {
    let held = match finding.decided {
        Some(held) if held == finding.ceiling => {
            ", and all of it had been passed over at an earlier tick for being too young".to_owned()
        }
        Some(held) => format!(
            ", of which {} had been passed over at an earlier tick for being too young",
            percent(scene.percent(held))
        ),
        None => String::new(),
    };
    format!(
        "{} can act on {} of the sectors of {} at most (file data {}, metadata {}): that is \
         what periodic write-back wrote{held}.",
        named(finding),
        percent(scene.percent(finding.ceiling)),
        place(scene),
        share_of(scene, Lever::Expire, "writeback"),
        share_of(scene, Lever::Expire, "metadata")
    )
}

fn writeback(scene: &Scene<'_>, finding: &Finding) -> String {
    let waited = match (finding.decided, scene.writeback_s) {
        (Some(0), Some(tick)) => format!(
            "None of it waited for the tick alone: dirty_expire had held it back for longer \
             than the {} between two ticks",
            why::seconds(tick)
        ),
        (Some(alone), _) => format!(
            "{} waited for the tick alone, the rest for dirty_expire too",
            percent(scene.percent(alone))
        ),
        (None, _) => "How much of it waited for the tick alone is not known".to_owned(),
    };
    format!(
        "{} can act on {} of the sectors of {} at most, for the flusher wrote them at its \
         ticks. {waited}.",
        named(finding),
        percent(scene.percent(finding.ceiling)),
        place(scene)
    )
}

fn background(scene: &Scene<'_>, finding: &Finding) -> String {
    let name = named(finding);
    let level = scene.device.memory.map(|memory| {
        let samples = memory.samples;
        let (dirty, threshold) = (bytes(memory.dirty_max), bytes(memory.background_min));
        (
            memory.dirty_max >= memory.background_min,
            format!("at most {dirty} were dirty in the machine against a threshold of {threshold}, in {samples} samples"),
        )
    });
    if finding.ceiling > 0 {
        let level = level.map_or_else(String::new, |(_, words)| format!(" ({words})"));
        return format!(
            "{name} can act on {} of the sectors of {} at most: they were written because \
             more was dirty than it allows{level}.",
            percent(scene.percent(finding.ceiling)),
            place(scene)
        );
    }
    match level {
        Some((false, words)) => format!("{name} never acted on {}: {words}.", place(scene)),
        Some((true, words)) => format!(
            "{name} never acted on {}, though {words}: what was too much was not this disk's.",
            place(scene)
        ),
        None => format!(
            "{name} never acted on {}: nothing was written in the background.",
            place(scene)
        ),
    }
}

fn limit(scene: &Scene<'_>, finding: &Finding) -> String {
    let name = named(finding);
    let level = scene.device.memory.map(|memory| {
        format!(
            "writers are slowed from {} dirty, and at most {} were",
            bytes(reach::slowed_from(
                memory.background_min,
                memory.threshold_min
            )),
            bytes(memory.dirty_max)
        )
    });
    if finding.ceiling > 0 {
        let level = level.map_or_else(String::new, |words| format!(": {words}"));
        return format!(
            "{name} can act on {} of the sectors of {} at most, those of background \
             write-back{level}.",
            percent(scene.percent(finding.ceiling)),
            place(scene)
        );
    }
    let level = level.unwrap_or_else(|| "nothing was written in the background".to_owned());
    format!("{name} never acted on {}: {level}.", place(scene))
}

/// The whole device in one sentence: who can act on which part.
pub fn of_device(scene: &Scene<'_>) -> String {
    let device = scene.device;
    let mut sets: BTreeMap<Vec<Lever>, (u64, u64)> = BTreeMap::new();
    let (mut unknown, mut unknown_sectors) = (0, 0_u64);
    for part in scene.parts {
        if part.known {
            let sum = sets.entry(part.levers.clone()).or_default();
            sum.0 += part.tenths;
            sum.1 = sum.1.saturating_add(part.sectors);
        } else {
            unknown += part.tenths;
            unknown_sectors = unknown_sectors.saturating_add(part.sectors);
        }
    }
    let out = sets.remove(&Vec::new());
    let mut shares: Vec<(Vec<Lever>, (u64, u64))> = sets.into_iter().collect();
    shares.sort_by_key(|(_, (tenths, _))| std::cmp::Reverse(*tenths));
    let mut words: Vec<String> = shares
        .iter()
        .map(|(levers, (tenths, sectors))| {
            let knobs: Vec<&str> = levers.iter().map(|lever| name_of(scene, *lever)).collect();
            format!(
                "{} can be acted on by {}",
                of_tenths(*tenths, *sectors),
                list(&knobs)
            )
        })
        .collect();
    if let Some((tenths, sectors)) = out {
        words.push(format!(
            "{} is out of reach of commit= and the vm.dirty_ knobs ({})",
            of_tenths(tenths, sectors),
            culprits(scene.parts)
        ));
    }
    if unknown_sectors > 0 {
        words.push(format!(
            "the cause of {} is not known",
            of_tenths(unknown, unknown_sectors)
        ));
    }
    let size = bytes(device.sectors_written.saturating_mul(512));
    let start = format!(
        "{} wrote {} sectors ({size}) in {}",
        why::named(&device.name),
        device.sectors_written,
        why::seconds(device.duration_s)
    );
    if words.is_empty() {
        format!("{start}.")
    } else {
        format!("{start}: {}.", words.join("; "))
    }
}

fn name_of(scene: &Scene<'_>, lever: Lever) -> &'static str {
    match lever {
        Lever::Commit => "commit=",
        lever => short(lever.in_force(scene.device).0),
    }
}

/// `a, b and c`
fn list(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// The three largest parts that are out of reach.
fn culprits(parts: &[Part]) -> String {
    let out = || {
        parts
            .iter()
            .filter(|part| part.known && part.levers.is_empty())
    };
    let mut words: Vec<String> = out()
        .take(3)
        .map(|part| {
            format!(
                "{} {}, {}",
                of_tenths(part.tenths, part.sectors),
                part.path,
                part.why
            )
        })
        .collect();
    if out().count() > 3 {
        words.push("…".to_owned());
    }
    words.join("; ")
}

/// What limits the explanation.
pub fn notes(scene: &Scene<'_>, not_known: u64) -> Vec<String> {
    let device = scene.device;
    let mut notes = Vec::new();
    if not_known > 0 {
        notes.push(format!(
            "ceilings leave out {} whose cause is not known",
            percent(scene.percent(not_known))
        ));
    }
    if device.residual != 0 {
        notes.push(format!(
            "the ledger does not close: residual {} sectors",
            device.residual
        ));
    }
    let timers = device.commits().0;
    if device.lists.is_none() && timers > 0 {
        notes.push(
            "commits were not kept one by one (trace --commits), so values of commit= have \
             the ceiling of them all"
                .to_owned(),
        );
    }
    for knob in &device.ambiguous {
        notes.push(format!(
            "{} differs between filesystems of this disk",
            short(*knob)
        ));
    }
    let missing: Vec<&str> = Lever::ALL
        .iter()
        .map(|lever| lever.in_force(device))
        .filter(|(knob, value)| value.is_none() && !device.ambiguous.contains(knob))
        .map(|(knob, _)| short(knob))
        .collect();
    if !missing.is_empty() {
        notes.push(format!(
            "not known: the value in force of {}",
            list(&missing)
        ));
    }
    notes.extend(device.notes.iter().map(|note| why::note(note)));
    notes
}
