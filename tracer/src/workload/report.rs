//! The account as people and programs read it: a table of at most 80 columns,
//! and JSON of schema `writepath.workload/1`.
//!
//! Renders only; where it goes is the command line's business.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use serde::Serialize;

use super::account::{Account, Call, Latency};
use super::iot_files::{End, Files, IotFiles, NAME, Outcome};

/// Name and version of the JSON.
pub const SCHEMA: &str = "writepath.workload/1";

/// The whole account.
#[derive(Debug, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The workload's name.
    pub workload: &'static str,
    /// When the clock started, RFC 3339 in UTC.
    pub started_at: String,
    /// From then to the end, in seconds.
    pub duration_s: f64,
    /// `complete`, `stopped` (by a signal) or `failed`.
    pub ended: &'static str,
    /// What failed; null unless `ended` is `failed`.
    pub error: Option<String>,
    /// The directory it worked in.
    pub directory: String,
    /// Bytes written before the clock started; 0 with `--reuse`.
    pub prepared_bytes: u64,
    /// Bytes that write calls took in the measured part: the denominator of
    /// amplification. The sum of `data` and `mgmt`.
    pub bytes_written: u64,
    /// The parameters of the run.
    pub parameters: Parameters,
    /// Data files.
    pub data: Part,
    /// The management file.
    pub mgmt: Part,
}

/// The parameters as they were used.
#[derive(Debug, Serialize)]
pub struct Parameters {
    files: u32,
    file_bytes: u64,
    threads: u32,
    period_s: f64,
    duration_s: f64,
    update_bytes: u64,
    place: String,
    spread: String,
    fsync: String,
    fsync_interval_s: Option<f64>,
    mgmt_bytes: u64,
    mgmt_fsync: String,
    mgmt_fsync_interval_s: Option<f64>,
    seed: u64,
}

/// The account of one kind of file.
#[derive(Debug, Serialize)]
pub struct Part {
    /// Updates that the schedule held.
    pub updates_planned: u64,
    /// Updates made.
    pub updates: u64,
    /// Updates that started more than a period after their slot.
    pub updates_late: u64,
    /// Bytes that write calls took.
    pub bytes_written: u64,
    /// write and pwrite calls.
    pub writes: u64,
    /// fsync calls.
    pub fsyncs: u64,
    /// openat calls, those of the fsync timer included.
    pub opens: u64,
    /// renameat calls.
    pub renames: u64,
    /// Opens that truncated.
    pub truncates: u64,
    /// How long calls took, by call; `update` is a whole update. Calls that
    /// were not made are left out.
    pub latency_us: BTreeMap<&'static str, Percentiles>,
    /// How much after their slots updates started; null when there were none.
    pub lateness_us: Option<Percentiles>,
}

/// A distribution in microseconds.
#[derive(Debug, Serialize)]
pub struct Percentiles {
    count: u64,
    p50: f64,
    p90: f64,
    p99: f64,
    p999: f64,
    max: f64,
}

impl Percentiles {
    fn of(latency: &Latency) -> Option<Self> {
        Some(Self {
            count: latency.count(),
            p50: latency.quantile_us(0.5)?,
            p90: latency.quantile_us(0.9)?,
            p99: latency.quantile_us(0.99)?,
            p999: latency.quantile_us(0.999)?,
            max: latency.max_us()?,
        })
    }
}

impl Part {
    fn of(account: &Account) -> Self {
        let count = |call| account.calls(call).count();
        Self {
            updates_planned: account.planned,
            updates: account.updates(),
            updates_late: account.late,
            bytes_written: account.bytes,
            writes: count(Call::Write),
            fsyncs: count(Call::Fsync),
            opens: count(Call::Open),
            renames: count(Call::Rename),
            truncates: account.truncates,
            latency_us: Call::ALL
                .iter()
                .filter_map(|&(call, name)| Some((name, Percentiles::of(account.calls(call))?)))
                .collect(),
            lateness_us: Percentiles::of(&account.lateness),
        }
    }
}

impl Report {
    /// The report of a run of `spec` on `files`; `prepared_bytes` were
    /// written by this process before the clock started.
    pub fn new(spec: &IotFiles, files: &Files, prepared_bytes: u64, outcome: &Outcome) -> Self {
        let (ended, error) = match &outcome.end {
            End::Complete => ("complete", None),
            End::Stopped => ("stopped", None),
            End::Failed(error) => ("failed", Some(error.to_string())),
        };
        Self {
            schema: SCHEMA,
            workload: NAME,
            started_at: humantime::format_rfc3339_millis(outcome.started_at).to_string(),
            duration_s: outcome.elapsed.as_secs_f64(),
            ended,
            error,
            directory: files.top().path().to_string_lossy().into_owned(),
            prepared_bytes,
            bytes_written: outcome.data.bytes + outcome.mgmt.bytes,
            parameters: Parameters::of(spec),
            data: Part::of(&outcome.data),
            mgmt: Part::of(&outcome.mgmt),
        }
    }

    /// The table for people.
    pub fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = self.render(&mut out);
        out
    }

    fn render(&self, out: &mut String) -> std::fmt::Result {
        let p = &self.parameters;
        writeln!(
            out,
            "{}: {:.1} s, {}, seed {}",
            self.workload, self.duration_s, self.ended, p.seed
        )?;
        if let Some(error) = &self.error {
            writeln!(out, "  {}", error.escape_debug())?;
        }
        writeln!(
            out,
            "{} data files of {} by {} threads, each every {}",
            p.files,
            binary(p.file_bytes),
            p.threads,
            seconds(p.period_s)
        )?;
        writeln!(
            out,
            "  {} an update, place {}, spread {}, fsync {}",
            binary(p.update_bytes),
            p.place,
            p.spread,
            cadence(&p.fsync, p.fsync_interval_s)
        )?;
        if p.mgmt_bytes > 0 {
            writeln!(
                out,
                "management file of {}, fsync {}",
                binary(p.mgmt_bytes),
                cadence(&p.mgmt_fsync, p.mgmt_fsync_interval_s)
            )?;
        }
        writeln!(
            out,
            "\n{:4} {:>9} {:>9} {:>7} {:>9} {:>9} {:>8} {:>8} {:>8}",
            "", "updates", "MB", "late", "writes", "opens", "fsyncs", "renames", "truncs"
        )?;
        for (name, part) in self.parts() {
            writeln!(
                out,
                "{name:4} {:>9} {:>9.3} {:>7} {:>9} {:>9} {:>8} {:>8} {:>8}",
                part.updates,
                part.bytes_written as f64 / 1e6,
                part.updates_late,
                part.writes,
                part.opens,
                part.fsyncs,
                part.renames,
                part.truncates
            )?;
        }
        writeln!(
            out,
            "\n{:16} {:>9} {:>10} {:>10} {:>10} {:>10} {:>9}",
            "ms", "count", "p50", "p90", "p99", "p99.9", "max"
        )?;
        for (name, part) in self.parts() {
            for (_, call) in Call::ALL {
                if let Some(latency) = part.latency_us.get(call) {
                    row(out, &format!("{name} {call}"), latency)?;
                }
            }
            if let Some(lateness) = &part.lateness_us {
                row(out, &format!("{name} start delay"), lateness)?;
            }
        }
        writeln!(
            out,
            "\nlogical bytes written  {:>13} ({:.3} MB)",
            self.bytes_written,
            self.bytes_written as f64 / 1e6
        )?;
        if self.prepared_bytes > 0 {
            writeln!(
                out,
                "before the clock began {:>13} ({:.3} MB)",
                self.prepared_bytes,
                self.prepared_bytes as f64 / 1e6
            )?;
        }
        let missing = self.data.missing() + self.mgmt.missing();
        if missing > 0 {
            writeln!(out, "{missing} planned updates were not made")?;
        }
        Ok(())
    }

    fn parts(&self) -> impl Iterator<Item = (&'static str, &Part)> {
        let mgmt = (self.parameters.mgmt_bytes > 0).then_some(("mgmt", &self.mgmt));
        std::iter::once(("data", &self.data)).chain(mgmt)
    }
}

impl Part {
    fn missing(&self) -> u64 {
        self.updates_planned.saturating_sub(self.updates)
    }
}

impl Parameters {
    fn of(spec: &IotFiles) -> Self {
        Self {
            files: spec.shape.files,
            file_bytes: spec.shape.file_bytes,
            threads: spec.threads,
            period_s: spec.period.as_secs_f64(),
            duration_s: spec.duration.as_secs_f64(),
            update_bytes: spec.update_bytes,
            place: spec.place.to_string(),
            spread: spec.spread.to_string(),
            fsync: spec.fsync.to_string(),
            fsync_interval_s: spec.fsync.interval().map(|every| every.as_secs_f64()),
            mgmt_bytes: spec.shape.mgmt_bytes,
            mgmt_fsync: spec.mgmt_fsync.to_string(),
            mgmt_fsync_interval_s: spec.mgmt_fsync.interval().map(|every| every.as_secs_f64()),
            seed: spec.seed,
        }
    }
}

fn row(out: &mut String, name: &str, latency: &Percentiles) -> std::fmt::Result {
    let ms = |us: f64| format!("{:.3}", us / 1000.0);
    writeln!(
        out,
        "{name:16} {:>9} {:>10} {:>10} {:>10} {:>10} {:>9}",
        latency.count,
        ms(latency.p50),
        ms(latency.p90),
        ms(latency.p99),
        ms(latency.p999),
        ms(latency.max)
    )
}

/// A size in the largest binary unit that needs no fraction.
pub fn binary(bytes: u64) -> String {
    match bytes {
        0 => "0 bytes".into(),
        _ if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} bytes"),
    }
}

fn seconds(value: f64) -> String {
    let duration = Duration::try_from_secs_f64(value).unwrap_or_default();
    humantime::format_duration(duration).to_string()
}

fn cadence(fsync: &str, interval_s: Option<f64>) -> String {
    match interval_s {
        Some(interval) if fsync == "writeback" => {
            format!("{fsync} (every {})", seconds(interval))
        }
        _ => fsync.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Stop;
    use crate::workload::iot_files::run;
    use crate::workload::tree::Dir;

    fn report(args: &dyn Fn(&mut IotFiles)) -> Report {
        let mut spec = crate::workload::iot_files::tests::spec();
        args(&mut spec);
        let temp = tempfile::tempdir().unwrap();
        let parent = Dir::typed(temp.path()).unwrap();
        let files = Files::prepare(&parent, &spec, &Stop::new(), &mut |_| {}).unwrap();
        let outcome = run(&spec, &files, &Stop::new(), &mut |_| {}).unwrap();
        Report::new(&spec, &files, spec.shape.bytes(), &outcome)
    }

    #[test]
    fn the_table_fits_a_terminal_and_says_what_matters() {
        let mut report = report(&|_| {});
        report.data.updates = 123_456_789;
        report.data.updates_planned = 123_456_790;
        report.data.bytes_written = 99_999_999_999;
        report.bytes_written = 999_999_999_999;
        let text = report.text();
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        for wanted in ["seed 1", "place fixed", "123456789", "1 planned updates"] {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
    }

    #[test]
    fn json_has_the_schema_and_its_parts_sum_up() {
        let report = report(&|spec| spec.mgmt_fsync = crate::workload::iot_files::Fsync::Update);
        let json: serde_json::Value = serde_json::to_value(&report).unwrap();
        assert_eq!(json["schema"], "writepath.workload/1");
        assert_eq!(json["ended"], "complete");
        assert_eq!(json["parameters"]["place"], "fixed");
        assert_eq!(
            json["parameters"]["fsync_interval_s"],
            serde_json::Value::Null
        );
        let sum = json["data"]["bytes_written"].as_u64().unwrap()
            + json["mgmt"]["bytes_written"].as_u64().unwrap();
        assert_eq!(json["bytes_written"], sum);
        for part in ["data", "mgmt"] {
            assert_eq!(json[part]["updates"], json[part]["updates_planned"]);
            let latency = &json[part]["latency_us"];
            assert_eq!(latency["update"]["count"], json[part]["updates"]);
            assert_eq!(latency["write"]["count"], json[part]["writes"]);
            assert!(latency["write"]["p50"].as_f64().unwrap() > 0.0);
            assert!(
                latency["update"]["max"].as_f64().unwrap()
                    >= latency["update"]["p50"].as_f64().unwrap()
            );
            assert!(latency.get("rename").is_none());
        }
        assert_eq!(json["mgmt"]["fsyncs"], json["mgmt"]["updates"]);
        assert_eq!(json["data"]["fsyncs"], 0);
    }

    #[test]
    fn sizes_are_exact() {
        assert_eq!(binary(0), "0 bytes");
        assert_eq!(binary(4096), "4 KiB");
        assert_eq!(binary(3 << 20), "3 MiB");
        assert_eq!(binary(1025), "1025 bytes");
    }
}
