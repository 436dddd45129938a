//! What a traced run said, and whether its sums meet. Entry: [`Report`],
//! [`Check`] collects all that is wrong before a test fails.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::process::ExitStatus;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::disk::DiskStat;

/// Rows and faults shown of each kind.
pub const LIMIT: usize = 30;

/// The output of one `writepath trace --json` on one device.
pub struct Report {
    pub status: ExitStatus,
    pub stderr: String,
    /// The whole object.
    pub json: Value,
    /// The test's own count over the run and a little around it.
    pub stat: DiskStat,
}

/// A row of `files` or `dirtiers`: its sectors, in all and by path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    pub name: String,
    pub sectors: u64,
    pub paths: BTreeMap<String, u64>,
}

impl Row {
    pub fn path(&self, path: &str) -> u64 {
        self.paths.get(path).copied().unwrap_or(0)
    }
}

fn row(value: &Value, name: &str) -> Row {
    let mut paths = BTreeMap::new();
    for part in list(value, "paths") {
        *paths.entry(text(part, "path")).or_default() += number(part, "sectors");
    }
    Row {
        name: text(value, name),
        sectors: number(value, "sectors"),
        paths,
    }
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or(0)
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

impl Report {
    pub fn new(status: ExitStatus, stdout: &str, stderr: String, stat: DiskStat) -> Result<Report> {
        let json: Value = serde_json::from_str(stdout).with_context(|| {
            let head: String = stdout.chars().take(400).collect();
            format!("no JSON from the tracer ({status}): {head}\n{stderr}")
        })?;
        let report = Report {
            status,
            stderr,
            json,
            stat,
        };
        if report.json["devices"].as_array().map(Vec::len) != Some(1) {
            bail!("not one device in the report\n{}", report.dump());
        }
        Ok(report)
    }

    /// The traced device's object.
    pub fn device(&self) -> &Value {
        &self.json["devices"][0]
    }

    /// A number of the device's object.
    pub fn count(&self, key: &str) -> u64 {
        number(self.device(), key)
    }

    fn rows(&self, key: &str) -> &[Value] {
        list(self.device(), key)
    }

    /// Sectors of a path, over all its triggers and operations.
    pub fn path(&self, path: &str) -> u64 {
        let of_path = |row: &&Value| row["path"] == path;
        let rows = self.rows("paths").iter().filter(of_path);
        rows.map(|row| number(row, "sectors")).sum()
    }

    /// Sectors of a path by one trigger.
    pub fn trigger(&self, path: &str, trigger: &str) -> u64 {
        let matches = |row: &&Value| row["path"] == path && row["trigger"] == trigger;
        let rows = self.rows("paths").iter().filter(matches);
        rows.map(|row| number(row, "sectors")).sum()
    }

    /// Sectors of a path by one operation (`write`, `write-zeroes`).
    pub fn op(&self, path: &str, op: &str) -> u64 {
        let matches = |row: &&Value| row["path"] == path && row["op"] == op;
        let rows = self.rows("paths").iter().filter(matches);
        rows.map(|row| number(row, "sectors")).sum()
    }

    /// The row of an inode; empty when it has none.
    pub fn file(&self, ino: u64) -> Row {
        let found = self
            .rows("files")
            .iter()
            .find(|row| row["ino"] == ino && !row["file"].is_null());
        found.map_or_else(Row::default, |value| row(value, "file"))
    }

    /// All rows of files with this name, added.
    pub fn file_named(&self, name: &str) -> Row {
        let mut sum = Row::default();
        for value in self.rows("files").iter().filter(|row| row["file"] == name) {
            let part = row(value, "file");
            sum.name = part.name;
            sum.sectors += part.sectors;
            for (path, sectors) in part.paths {
                *sum.paths.entry(path).or_default() += sectors;
            }
        }
        sum
    }

    /// The rows without a file: journal, metadata, raw, fs, …
    pub fn of(&self, owner: &str) -> Row {
        let found = self
            .rows("files")
            .iter()
            .find(|row| row["file"].is_null() && row["of"] == owner);
        found.map_or_else(Row::default, |value| row(value, "of"))
    }

    /// All rows of `files`, with the inode where there is one.
    pub fn files(&self) -> Vec<(Option<u64>, Row)> {
        let rows = self.rows("files").iter();
        rows.map(|value| {
            let name = if value["file"].is_null() {
                "of"
            } else {
                "file"
            };
            (value["ino"].as_u64(), row(value, name))
        })
        .collect()
    }

    /// The row of a process; its name is the comm. Empty when it has none.
    pub fn dirtier(&self, pid: u32) -> Row {
        let found = self.rows("dirtiers").iter().find(|row| row["pid"] == pid);
        found.map_or_else(Row::default, |value| row(value, "comm"))
    }

    /// Adds up `key` over the grouped commits that have this trigger.
    pub fn commits(&self, trigger: &str, key: &str) -> u64 {
        let rows = list(&self.device()["journal"], "commits");
        let of_trigger = rows.iter().filter(|row| row["trigger"] == trigger);
        of_trigger.map(|row| number(row, key)).sum()
    }

    /// Checks with the ledger's own checks already made, for a device that is
    /// at rest at both ends.
    pub fn closed(&self) -> Check<'_> {
        let mut check = self.balanced();
        let written = self.count("sectors_written");
        check.eq(
            "sectors_written against stat",
            written,
            self.stat.write_sectors,
        );
        check
    }

    /// As [`Report::closed`], but for a device that may write at the edges.
    pub fn balanced(&self) -> Check<'_> {
        let mut check = self.check();
        check.eq("exit status", self.status.code().unwrap_or(-1), 0);
        for key in ["residual", "sectors_unattributed"] {
            check.eq(key, self.device()[key].as_i64(), Some(0));
        }
        check.sums();
        check
    }

    /// Checks that begin with nothing.
    pub fn check(&self) -> Check<'_> {
        Check {
            report: self,
            wrong: Vec::new(),
        }
    }

    /// The report for a person who looks for a fault.
    pub fn dump(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(out, "stat: {:?}", self.stat);
        for (key, value) in self.device().as_object().into_iter().flatten() {
            let rows = value.as_array().map_or(&[] as &[Value], Vec::as_slice);
            if rows.is_empty() {
                let _ = writeln!(out, "{key}: {value}");
            }
            for row in rows.iter().take(LIMIT) {
                let _ = writeln!(out, "{key}: {row}");
            }
            if rows.len() > LIMIT {
                let _ = writeln!(out, "{key}: … {} more", rows.len() - LIMIT);
            }
        }
        let _ = write!(out, "stderr: {}", self.stderr);
        out
    }
}

/// The class that a path rolls up to; none for a path that is not one.
fn class_of(path: &str) -> Option<&'static str> {
    match path {
        "writeback" | "swap" => Some("async"),
        "fsync" | "direct" | "forced" | "raw" => Some("sync"),
        "journal" | "ordered" => Some("journal"),
        "metadata" => Some("metadata"),
        "fs" | "other" | "unattributed" | "in_flight_before" => Some("other"),
        _ => None,
    }
}

/// What is wrong with a report; [`Check::done`] fails with all of it.
pub struct Check<'a> {
    report: &'a Report,
    wrong: Vec<String>,
}

impl Check<'_> {
    #[expect(clippy::needless_pass_by_value, reason = "numbers, mostly literals")]
    pub fn eq<T: PartialEq + std::fmt::Debug>(&mut self, what: impl Display, got: T, want: T) {
        if got != want {
            self.wrong.push(format!("{what}: {got:?}, not {want:?}"));
        }
    }

    pub fn is(&mut self, what: impl Display, holds: bool) {
        if !holds {
            self.wrong.push(format!("{what}: does not hold"));
        }
    }

    /// Every sector is in one row of each list; no loss.
    pub fn sums(&mut self) {
        let report = self.report;
        for key in ["ring", "maps"] {
            self.eq(
                format!("lost.{key}"),
                report.json["lost"][key].as_u64(),
                Some(0),
            );
        }
        let written = report.count("sectors_written");
        let known = report.count("sectors_attributed");
        let unknown = report.count("sectors_unattributed");
        let residual = report.device()["residual"].as_i64().unwrap_or(0);
        let total = (known + unknown) as i64 + residual;
        self.eq(
            "attributed + unattributed + residual",
            total,
            written as i64,
        );
        let counted = known + unknown;
        for key in ["files", "dirtiers"] {
            let sum = report
                .rows(key)
                .iter()
                .map(|row| number(row, "sectors"))
                .sum();
            self.eq(format!("sum of {key}"), sum, counted);
            for value in report.rows(key) {
                let parts: u64 = list(value, "paths")
                    .iter()
                    .map(|p| number(p, "sectors"))
                    .sum();
                let name = ["file", "of", "comm"].map(|k| text(value, k)).concat();
                self.eq(
                    format!("paths of {key} {name}"),
                    parts,
                    number(value, "sectors"),
                );
            }
        }
        let paths: u64 = report
            .rows("paths")
            .iter()
            .map(|row| number(row, "sectors"))
            .sum();
        self.is(
            format!("sum of paths, {paths}, is {known} (or with unattributed {counted})"),
            paths == known || paths == counted,
        );
        for (class, sectors) in report.device()["classes"].as_object().into_iter().flatten() {
            let rows = report.rows("paths").iter();
            let of_class = rows.filter(|row| row["class"] == class.as_str());
            let sum: u64 = of_class.map(|row| number(row, "sectors")).sum();
            self.eq(format!("class {class}"), sectors.as_u64(), Some(sum));
        }
        for value in report.rows("paths") {
            let (path, op) = (text(value, "path"), text(value, "op"));
            let class = text(value, "class");
            self.eq(
                format!("class of {path}"),
                Some(class.as_str()),
                class_of(&path),
            );
            let known = ["write", "write-zeroes", "secure-erase"].contains(&op.as_str());
            self.is(format!("op {op} of {path}"), known);
            let by: u64 = list(value, "by").iter().map(|b| number(b, "sectors")).sum();
            let name = ["path", "trigger"].map(|k| text(value, k)).join("/");
            self.is(
                format!("by of {name} within its sectors"),
                by <= number(value, "sectors"),
            );
        }
    }

    /// A file's sectors, all of them by one path.
    pub fn file_by(&mut self, ino: u64, path: &str, sectors: u64) {
        let row = self.report.file(ino);
        self.eq(
            format!("sectors of inode {ino} ({})", row.name),
            row.sectors,
            sectors,
        );
        self.eq(format!("of them by {path}"), row.path(path), sectors);
    }

    /// A process's sectors of one path, under its name.
    pub fn dirtier_by(&mut self, done: &crate::writers::Done, path: &str, sectors: u64) {
        let row = self.report.dirtier(done.pid);
        self.eq(
            format!("{path} of {} {}", done.comm, done.pid),
            row.path(path),
            sectors,
        );
        self.eq(
            format!("name of {}", done.pid),
            row.name.as_str(),
            done.comm.as_str(),
        );
    }

    /// Fails with everything that is wrong, and the report.
    pub fn done(self) -> Result<()> {
        if self.wrong.is_empty() {
            return Ok(());
        }
        let shown = self.wrong.len().min(LIMIT);
        let list = self.wrong[..shown].join("\n  ");
        bail!(
            "{} wrong:\n  {list}\n{}",
            self.wrong.len(),
            self.report.dump()
        )
    }
}
