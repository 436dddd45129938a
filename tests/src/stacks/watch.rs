//! Runs a workload under the tracer and under the referee at once, and
//! compares them. Entries: [`agree`] and [`record`].

use std::fmt::Write;

use anyhow::{Result, bail, ensure};

use super::classify::Verdict;
use super::compare::{self, Account, Detailed, Referee};
use super::instance::{Instance, Wanted};
use super::trace::{self, Event};
use crate::bed::Bed;
use crate::report::Report;
use crate::tracer::Tracer;

/// Paths whose triggers the stacks tell in full.
const TRIGGERS_OF: [&str; 5] = ["fsync", "direct", "forced", "swap", "fs"];

/// What the referee saw.
pub struct Recorded {
    pub events: Vec<Event>,
    pub referee: Referee,
}

fn start(bed: &Bed) -> Result<Instance> {
    let dev = bed.devno();
    let wanted = |event, stack| Wanted { event, dev, stack };
    Instance::new(&[
        wanted("block/block_bio_queue", true),
        wanted("block/block_rq_issue", true),
        wanted("block/block_rq_complete", false),
    ])
}

fn judge(text: &str, written: u64) -> Result<Recorded> {
    let events = trace::parse(text)?;
    let referee = compare::referee(&events);
    if !referee.unknown.is_empty() {
        let mut list = String::new();
        for (event, sectors) in &referee.unknown {
            let stack = event.stack.join("\n    ");
            let _ = write!(
                list,
                "\n  {} + {sectors} sectors, pid {}\n    {stack}",
                event.rwbs, event.pid
            );
        }
        bail!("stacks that the table does not know:{list}");
    }
    let submitted: u64 = referee.paths.values().sum();
    ensure!(
        submitted == written && referee.completed == written,
        "the referee saw {submitted} sectors submitted and {} completed, stat counts {written}",
        referee.completed
    );
    Ok(Recorded { events, referee })
}

/// Runs `body` on a settled bed under the referee alone.
pub fn record(bed: &mut Bed, body: impl FnOnce(&mut Bed) -> Result<()>) -> Result<Recorded> {
    let before = bed.stat()?;
    let kernel = start(bed)?;
    body(bed)?;
    bed.settle()?;
    let written = bed.stat()?.since(before).write_sectors;
    judge(&kernel.finish()?, written)
}

/// Runs `body` on a settled bed under tracer and referee: they agree in every
/// path, and every path of `paths` has sectors.
pub fn agree(
    bed: &mut Bed,
    paths: &[&str],
    body: impl FnOnce(&mut Bed) -> Result<()>,
) -> Result<(Recorded, Report)> {
    let mut report = None;
    let recorded = record(bed, |bed| {
        let tracer = Tracer::start(bed, &[])?;
        body(bed)?;
        bed.settle()?;
        report = Some(tracer.stop()?);
        Ok(())
    })?;
    let report = report.expect("the body ran to its end");
    let mut check = report.closed();
    for difference in compare::differences(&recorded.referee.paths, &account(&report)) {
        check.is(difference, false);
    }
    for difference in triggers(&recorded.referee, &report) {
        check.is(difference, false);
    }
    for path in paths {
        let seen = recorded.referee.paths.contains_key(*path);
        check.is(format!("the workload writes by {path}"), seen);
    }
    check.done()?;
    Ok((recorded, report))
}

/// The tracer's sectors per path.
fn account(report: &Report) -> Account {
    let mut account = Account::new();
    for row in rows(report) {
        let path = row["path"].as_str().unwrap_or_default().to_owned();
        let sectors = row["sectors"].as_u64().unwrap_or(0);
        if sectors > 0 {
            *account.entry(path).or_default() += sectors;
        }
    }
    account
}

fn rows(report: &Report) -> &[serde_json::Value] {
    report.device()["paths"]
        .as_array()
        .map_or(&[], Vec::as_slice)
}

/// Where triggers differ, of the paths whose triggers a stack tells.
fn triggers(referee: &Referee, report: &Report) -> Vec<String> {
    let of_interest = |path: &str| TRIGGERS_OF.contains(&path);
    let expected: Detailed = referee
        .triggers
        .iter()
        .filter(|((path, _), _)| of_interest(path))
        .map(|(key, sectors)| (key.clone(), *sectors))
        .collect();
    let mut got = Detailed::new();
    for row in rows(report) {
        let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
        let sectors = row["sectors"].as_u64().unwrap_or(0);
        if of_interest(&text("path")) && sectors > 0 {
            *got.entry((text("path"), text("trigger"))).or_default() += sectors;
        }
    }
    compare::differences(&expected, &got)
}

/// Every write inside `sectors` has path `inside`, and none outside of it.
pub fn only_within(
    recorded: &Recorded,
    sectors: &std::ops::Range<u64>,
    inside: &str,
) -> Result<()> {
    for event in recorded
        .events
        .iter()
        .filter(|e| e.is_write() && e.sectors > 0)
    {
        if event.kind != trace::Kind::Queue {
            continue;
        }
        let path = super::classify::classify(event).map(|Verdict { path, .. }| path);
        let within = sectors.contains(&event.sector);
        ensure!(
            within == (path == Some(inside)),
            "{path:?} at sector {}, {inside} lies at {sectors:?}: {event:#?}",
            event.sector
        );
    }
    Ok(())
}
