//! What is in a recording, as people read it and as JSON of
//! `writepath.report/1`. All of it may be hostile: it comes from a file.

use super::escape::{self, shorten, terminal};
use crate::recording::{Header, Start, Totals};
use serde::Serialize;
use serde_json::Value;
use std::{
    collections::BTreeMap,
    io::{self, Write},
    time::{Duration, UNIX_EPOCH},
};

/// The schema of [`write_json`].
pub const SCHEMA: &str = "writepath.report/1";

/// Rows of files and of dirtiers in the text.
const ROWS: usize = 10;

/// A recording that was read to its end.
#[derive(Debug)]
pub struct Report {
    /// Name of its file.
    pub file: Vec<u8>,
    /// Its header.
    pub header: Header,
    /// The machine when it began.
    pub start: Start,
    /// What was found in it.
    pub totals: Totals,
    /// JSON text of `writepath.trace/1`.
    pub ledger: Option<String>,
}

#[derive(Serialize)]
struct Object<'a> {
    schema: &'static str,
    recordings: Vec<Recording<'a>>,
}

#[derive(Serialize)]
struct Recording<'a> {
    file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file_hex: Option<String>,
    started_at: String,
    duration_s: f64,
    whole: bool,
    cut: Option<&'a str>,
    damaged_sections: u64,
    unknown_sections: u64,
    bytes: u64,
    bytes_per_hour: u64,
    bytes_by_section: &'a BTreeMap<&'static str, u64>,
    events: BTreeMap<&'static str, u64>,
    lost: BTreeMap<&'static str, u64>,
    writes_until_s: Option<f64>,
    start: &'a Start,
    ledger: Value,
}

impl Report {
    /// Seconds that it covers: to its end, or to its last event.
    fn seconds(&self) -> f64 {
        let end = self.totals.end.map(|end| end.duration_ns);
        Duration::from_nanos(end.unwrap_or(self.totals.last_ns)).as_secs_f64()
    }

    fn bytes(&self) -> u64 {
        self.totals.bytes.values().sum()
    }

    /// Bytes that an hour of the same takes: of its events alone, for the
    /// rest does not grow with time.
    fn bytes_per_hour(&self) -> u64 {
        let events = self.totals.bytes.get("events").copied().unwrap_or(0);
        (events as f64 * 3600.0 / self.seconds().max(1e-3)) as u64
    }

    fn started_at(&self) -> String {
        // The largest number of nanoseconds is in the year 2554.
        let at = UNIX_EPOCH + Duration::from_nanos(self.header.started_at_ns);
        humantime::format_rfc3339_seconds(at).to_string()
    }

    fn ledger(&self) -> Value {
        let text = self.ledger.as_deref().unwrap_or("null");
        serde_json::from_str(text).unwrap_or(Value::Null)
    }

    fn json(&self) -> Recording<'_> {
        let (file, file_hex) = escape::json(&self.file);
        let names = |counts: &BTreeMap<crate::recording::Kind, u64>| {
            let counts = counts.iter();
            counts.map(|(kind, count)| (kind.name(), *count)).collect()
        };
        let totals = &self.totals;
        Recording {
            file,
            file_hex,
            started_at: self.started_at(),
            duration_s: self.seconds(),
            whole: totals.end.is_some() && totals.damaged == 0,
            cut: totals.cut.as_deref(),
            damaged_sections: totals.damaged,
            unknown_sections: totals.unknown,
            bytes: self.bytes(),
            bytes_per_hour: self.bytes_per_hour(),
            bytes_by_section: &totals.bytes,
            events: names(&totals.events),
            lost: names(&totals.lost),
            writes_until_s: totals.full_ns.map(|ns| ns as f64 / 1e9),
            start: &self.start,
            ledger: self.ledger(),
        }
    }
}

/// Writes one object and a new line.
pub fn write_json(out: &mut dyn Write, reports: &[Report]) -> io::Result<()> {
    let object = Object {
        schema: SCHEMA,
        recordings: reports.iter().map(Report::json).collect(),
    };
    serde_json::to_writer(&mut *out, &object).map_err(io::Error::from)?;
    out.write_all(b"\n")
}

/// Writes a recording as text.
pub fn write_text(out: &mut dyn Write, report: &Report) -> io::Result<()> {
    let start = &report.start;
    let line = |text: &str| terminal(text.as_bytes());
    writeln!(out, "{}", shorten(&terminal(&report.file), 80))?;
    writeln!(
        out,
        "  {} UTC, {:.1} s, Linux {} {}",
        report.started_at().trim_end_matches('Z').replace('T', " "),
        report.seconds(),
        shorten(&line(&start.kernel), 24),
        shorten(&line(&start.machine), 10),
    )?;
    writeln!(
        out,
        "  {} bytes, events {:.2} MB an hour{}",
        report.bytes(),
        report.bytes_per_hour() as f64 / 1e6,
        if start.writes {
            ", with every write"
        } else {
            ""
        }
    )?;
    whole(out, report)?;
    let knobs = start.knobs.iter();
    let knobs: Vec<String> = knobs
        .map(|(name, value)| line(&format!("{name}={value}")))
        .collect();
    wrapped(out, "knobs", &knobs)?;
    for disk in &start.devices {
        for fs in &disk.filesystems {
            let commit = fs
                .commit_s
                .map_or(String::new(), |s| format!(" commit={s}"));
            let kib = |bytes: Option<u64>| {
                bytes.map_or_else(|| "-".to_owned(), |bytes| format!("{} KiB", bytes >> 10))
            };
            let text = format!(
                "{} {} {}{commit} on {}, journal {}",
                disk.name,
                fs.dev,
                fs.kind,
                fs.mounted_on.as_deref().unwrap_or("-"),
                kib(fs.journal_bytes),
            );
            writeln!(out, "  {}", shorten(&line(&text), 78))?;
        }
    }
    for text in &start.missing {
        wrapped(out, "not told:", &words(&line(text)))?;
    }
    for hook in &start.lost_hooks {
        let text = format!("{}: {}", hook.hook, hook.lost);
        wrapped(out, "hook lost:", &words(&line(&text)))?;
    }
    counts(out, report)?;
    ledger(out, &report.ledger())
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// Words under a heading, within 80 columns.
fn wrapped(out: &mut dyn Write, heading: &str, words: &[String]) -> io::Result<()> {
    if words.is_empty() {
        return Ok(());
    }
    let mut line = format!("  {heading}");
    for word in words {
        let word = shorten(word, 70);
        if line.chars().count() + 1 + word.chars().count() > 78 {
            writeln!(out, "{line}")?;
            " ".repeat(5).clone_into(&mut line);
        }
        line.push(' ');
        line.push_str(&word);
    }
    writeln!(out, "{line}")
}

fn whole(out: &mut dyn Write, report: &Report) -> io::Result<()> {
    let totals = &report.totals;
    if let Some(cut) = &totals.cut {
        writeln!(out, "  cut short: {cut}")?;
    }
    if totals.damaged > 0 {
        writeln!(out, "  damaged sections passed over: {}", totals.damaged)?;
    }
    if totals.unknown > 0 {
        writeln!(out, "  sections of a later version: {}", totals.unknown)?;
    }
    if let Some(ns) = totals.full_ns {
        let seconds = ns as f64 / 1e9;
        let mib = report.start.max_size_bytes >> 20;
        writeln!(
            out,
            "  no writes after {seconds:.1} s: --max-size of {mib} MiB was reached"
        )?;
    }
    Ok(())
}

fn counts(out: &mut dyn Write, report: &Report) -> io::Result<()> {
    let list = |counts: &BTreeMap<crate::recording::Kind, u64>| -> Vec<String> {
        let counts = counts.iter();
        counts
            .map(|(kind, count)| format!("{} {count}", kind.name()))
            .collect()
    };
    wrapped(out, "events:", &list(&report.totals.events))?;
    let lost = list(&report.totals.lost);
    if lost.is_empty() {
        writeln!(out, "  lost: none")
    } else {
        wrapped(out, "lost:", &lost)
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or("-")
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or(0)
}

fn rows<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

/// The ledger of each disk, from JSON of `writepath.trace/1`.
fn ledger(out: &mut dyn Write, run: &Value) -> io::Result<()> {
    if run.is_null() {
        return writeln!(out, "  no ledger: it is written when a recording ends");
    }
    for disk in rows(run, "devices") {
        let written = number(disk, "sectors_written");
        let name = terminal(text(disk, "name").as_bytes());
        writeln!(
            out,
            "\n{} ({})  {written} sectors written, residual {}",
            shorten(&name, 30),
            shorten(&terminal(text(disk, "dev").as_bytes()), 12),
            disk["residual"].as_i64().unwrap_or(0)
        )?;
        let row = |out: &mut dyn Write, name: &str, sectors: u64| {
            let name = shorten(&terminal(name.as_bytes()), 50);
            let percent = sectors as f64 * 100.0 / written.max(1) as f64;
            writeln!(out, "  {name:<52}{sectors:>12}  {percent:>7.1} %")
        };
        for path in rows(disk, "paths") {
            let name = format!("{} {}", text(path, "path"), text(path, "trigger"));
            row(out, &name, number(path, "sectors"))?;
        }
        for (heading, key, named) in [("files", "files", "file"), ("dirtiers", "dirtiers", "comm")]
        {
            let all = rows(disk, key);
            writeln!(out, "  {heading}: {}", all.len())?;
            for found in all.iter().take(ROWS) {
                let name = match &found[named] {
                    Value::String(name) => name,
                    _ => text(found, "of"),
                };
                row(out, name, number(found, "sectors"))?;
            }
        }
        writeln!(out, "  commits")?;
        for group in rows(&disk["journal"], "commits") {
            let by = format!("{} {}", text(group, "by"), text(group, "file"));
            writeln!(
                out,
                "  {:>7} × {:<12} {:<38} {:>12}",
                number(group, "count"),
                shorten(&terminal(text(group, "trigger").as_bytes()), 12),
                shorten(&terminal(by.trim_end_matches([' ', '-']).as_bytes()), 38),
                number(group, "sectors")
            )?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::Kind;

    fn report() -> Report {
        let ledger = r#"{"devices": [{"name": "loop0", "dev": "7:0", "sectors_written": 100,
            "residual": 0, "paths": [{"path": "journal", "trigger": "timer", "sectors": 100}],
            "files": [{"file": null, "of": "journal", "sectors": 100}],
            "journal": {"commits": [{"trigger": "timer", "count": 2, "sectors": 100}]}}]}"#;
        let mut totals = Totals::default();
        totals.events.insert(Kind::Write, 7);
        totals.lost.insert(Kind::Touch, 3);
        totals.bytes.insert("events", 1000);
        totals.full_ns = Some(2_500_000_000);
        totals.cut = Some("it ends inside a section, at byte 99".to_owned());
        totals.last_ns = 10_000_000_000;
        Report {
            file: b"a\x1b.data".to_vec(),
            header: Header {
                started_at_ns: 1_790_000_000_000_000_000,
                started_ns: 1,
                tick_ns: 4_000_000,
            },
            start: Start {
                kernel: "6.1\x1b[2J".to_owned(),
                missing: vec!["which inodes ".repeat(12)],
                ..Start::default()
            },
            totals,
            ledger: Some(ledger.to_owned()),
        }
    }

    #[test]
    fn text_says_what_is_lost_and_fits_a_terminal() {
        let mut out = Vec::new();
        write_text(&mut out, &report()).unwrap();
        let text = String::from_utf8(out).unwrap();
        for part in [
            "cut short: it ends inside a section",
            "no writes after 2.5 s",
            "events: write 7",
            "lost: touch 3",
            "0.36 MB an hour",
            "journal timer",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains('\x1b'));
        let long = text.lines().find(|line| line.chars().count() > 80);
        assert_eq!(long, None);
    }

    #[test]
    fn json_has_the_counts() {
        let mut out = Vec::new();
        write_json(&mut out, &[report()]).unwrap();
        let value: Value = serde_json::from_slice(&out).unwrap();
        let found = &value["recordings"][0];
        assert_eq!(value["schema"], SCHEMA);
        assert_eq!(found["whole"], false);
        assert_eq!(found["bytes_per_hour"], 360_000);
        assert_eq!(found["ledger"]["devices"][0]["name"], "loop0");
    }
}
