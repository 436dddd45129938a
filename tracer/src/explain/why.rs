//! Why sectors were written when they were, with who, on what and how often,
//! as the data has it.

use super::{
    evidence::{Device, Group, Row},
    journal::{self, Cadence},
    reach,
};
use crate::output::escape::{shorten, terminal};

/// The cause of a part.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Cause {
    /// In words.
    pub text: String,
    /// Who.
    pub by: Option<String>,
    /// On which file.
    pub file: Option<String>,
    /// How often, in seconds, where that is regular.
    pub every_s: Option<f64>,
}

/// Longest name in a sentence: the end of a path tells files apart.
const NAME_WIDTH: usize = 40;

/// A name as it may stand in a sentence.
pub fn named(name: &str) -> String {
    shorten(&terminal(name.as_bytes()), NAME_WIDTH)
}

/// The cause of a row.
pub fn of(row: &Row, device: &Device) -> Cause {
    if reach::in_journal(&row.path) {
        of_commits(row, device)
    } else {
        of_call(row, device)
    }
}

fn of_commits(row: &Row, device: &Device) -> Cause {
    let own = device
        .groups
        .iter()
        .filter(|group| group.trigger == row.trigger);
    let Some(most) = own.clone().max_by_key(|group| group.sectors) else {
        let text = if row.trigger == "unknown" {
            "a commit that had not ended; why it came is not known".to_owned()
        } else {
            format!("commits by {}", row.trigger)
        };
        return Cause {
            text,
            ..Cause::default()
        };
    };
    let others = own.count() - 1;
    let cadence = cadence(most, device);
    let mut text = commit_words(most);
    if most.trigger != "timer" {
        text += &often(most, cadence, device.duration_s);
    }
    if others > 0 {
        text = format!("{text}, and {others} more files or processes");
    }
    if row.path == "ordered" {
        text = format!("data that had to be written before the journal: {text}");
    }
    Cause {
        text,
        by: most.by.clone(),
        file: most.file.clone(),
        every_s: cadence
            .filter(|found| found.regular)
            .map(|found| found.every_s),
    }
}

/// What forces commits of a group, in words.
pub fn commit_words(group: &Group) -> String {
    let by = group
        .by
        .as_deref()
        .map(|by| format!(" by {}", named(by)))
        .unwrap_or_default();
    let on = group
        .file
        .as_deref()
        .map(|file| format!(" of {}", named(file)))
        .unwrap_or_default();
    let call = group.call.as_deref().map_or("", |call| call);
    match group.trigger.as_str() {
        "timer" => "transactions that became older than commit=".to_owned(),
        "fsync" => {
            let call = if call.is_empty() { "fsync" } else { call };
            format!("forced by the {call}{on}{by}")
        }
        "fast-commit" => format!("fast commits for the fsync{on}{by}"),
        "sync" | "umount" | "remount" | "freeze" => {
            let call = if call.is_empty() {
                &group.trigger
            } else {
                call
            };
            format!("forced by {call}{by}")
        }
        "space" => format!("the journal or a transaction was full{by}"),
        "no-space" => "the filesystem was full but for what a commit would free".to_owned(),
        "sync-handle" => format!("synchronous changes (dirsync, chattr +S){by}"),
        _ => format!("commits whose cause was not seen{by}"),
    }
}

/// ` every 30 s`, or how many times.
pub fn often(group: &Group, cadence: Option<Cadence>, duration_s: f64) -> String {
    match cadence.filter(|found| found.regular) {
        Some(found) => format!(" every {}", seconds(found.every_s)),
        None if group.count == 1 => " once".to_owned(),
        None => format!(" {} times in {}", group.count, seconds(duration_s)),
    }
}

/// How often a group's commits came.
pub fn cadence(group: &Group, device: &Device) -> Option<Cadence> {
    let stretches: Vec<Vec<f64>> = device
        .lists
        .as_ref()?
        .iter()
        .map(|list| {
            let own = list.iter().filter(|one| {
                (&one.trigger, &one.by, &one.file) == (&group.trigger, &group.by, &group.file)
            });
            let mut times: Vec<f64> = own.map(|one| one.t_s).collect();
            times.sort_by(f64::total_cmp);
            times
        })
        .collect();
    journal::cadence(&stretches)
}

fn of_call(row: &Row, device: &Device) -> Cause {
    let (by, call) = row.by.first().cloned().unwrap_or_default();
    let file = device.files.get(&row.path).and_then(|files| {
        let most = files.iter().max_by_key(|(_, sectors)| **sectors)?;
        // Of one trigger the file is known only where it must be its own.
        let share = *most.1 as f64 / row.sectors.max(1) as f64;
        (share >= 0.5 && device.of_path(&row.path) == row.sectors).then(|| most.0.clone())
    });
    let who = by
        .as_deref()
        .map(|by| format!(" by {}", named(by)))
        .unwrap_or_default();
    let on = file
        .as_deref()
        .map(|file| format!(" of {}", named(file)))
        .unwrap_or_default();
    let call = call.unwrap_or_else(|| row.trigger.clone());
    let text = match (row.path.as_str(), row.trigger.as_str()) {
        (_, "periodic") => "older than dirty_expire when the flusher looked".to_owned(),
        (_, "background") => "more was dirty than the background threshold".to_owned(),
        (_, "vmscan" | "reclaim") => format!("memory was short{who}"),
        (_, "fs_free_space") => format!("the filesystem was short of free blocks{who}"),
        (_, "lazy-init") => "the filesystem initialises its inode tables".to_owned(),
        ("writeback", "sync") => format!("{call}{who} had all dirty data written"),
        ("fsync", "sync-write") => format!("O_SYNC or O_DSYNC write{on}{who}"),
        ("fsync", _) => format!("{call}{on}{who}"),
        ("forced", "close" | "exit") => {
            format!("auto_da_alloc: {} after truncating{who}{on}", row.trigger)
        }
        ("forced", "rename") => format!("auto_da_alloc: rename over a file{who}{on}"),
        ("forced", _) => format!("{call} had data written first{on}{who}"),
        ("direct", _) => format!("O_DIRECT {call}{on}{who}"),
        ("raw", _) => format!("{call} to the block device itself{who}"),
        ("metadata", "checkpoint") => format!("the journal needed its space back{who}"),
        ("metadata", _) => format!("metadata in place, by {call}{who}"),
        ("fs", _) => format!("the filesystem's own {}{who}", row.trigger),
        ("in_flight_before", _) => "submitted before tracing began".to_owned(),
        ("unattributed", _) => "no path was found".to_owned(),
        ("other", _) => format!("a filesystem whose paths are not followed{who}"),
        (_, trigger) => format!("{trigger}{who}"),
    };
    Cause {
        text,
        by,
        file,
        every_s: None,
    }
}

/// Seconds as people say them.
pub fn seconds(s: f64) -> String {
    if s < 0.0995 {
        format!("{:.0} ms", s * 1000.0)
    } else if s < 9.95 {
        let text = format!("{s:.1}");
        format!("{} s", text.strip_suffix(".0").unwrap_or(&text))
    } else if s < 600.0 {
        format!("{s:.0} s")
    } else if s < 7200.0 {
        format!("{:.0} min", s / 60.0)
    } else {
        format!("{:.1} h", s / 3600.0)
    }
}

/// A note of the tracer, as it may stand in a text of one's own.
pub fn note(text: &str) -> String {
    terminal(text.chars().take(300).collect::<String>().as_bytes())
}
