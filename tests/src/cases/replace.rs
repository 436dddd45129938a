//! Files saved again and again: truncated, renamed over, unpacked.

use anyhow::Result;

use super::run::{After, Answers, bed, case, holds, quick, syncfs, traced, within};
use crate::bed::Bed;
use crate::harness::Test;
use crate::writers::{Done, Step, SyncCall, open, repeat, run};

pub fn tests() -> Vec<Test> {
    vec![
        quick(3, "state_file", state_file),
        case(27, "package_manager", package_manager),
    ]
}

const SAVES: u64 = 12;
const STATE: u64 = 65536;

/// The steps that save `state.json` once, after the first time.
fn save(bed: &Bed, how: &str) -> Vec<Step> {
    let state = bed.path("state.json");
    let temporary = bed.path("state.tmp");
    let mut steps = match how {
        "truncate" => vec![open(&state, "wo creat trunc")],
        "rename" => vec![open(&temporary, "wo creat trunc")],
        _ => vec![
            Step::Unlink {
                path: state.clone(),
            },
            open(&state, "wo creat"),
        ],
    };
    steps.extend([Step::Write { len: STATE }, Step::Close]);
    if how == "rename" {
        steps.push(Step::Rename {
            from: temporary,
            to: state,
        });
    }
    steps.push(Step::Sleep { ms: 20 });
    steps
}

/// Nobody calls fsync, commit= is long, and yet every save hits the card:
/// ext4 writes a replaced file at once (`auto_da_alloc`).
fn state_file() -> Result<()> {
    for (how, options) in [
        ("truncate", "commit=600"),
        ("rename", "commit=600"),
        ("unlinkfirst", "commit=600"),
        ("truncate", "commit=600,noauto_da_alloc"),
    ] {
        let bed = bed(options)?;
        run(
            "setup",
            &[
                open(bed.path("state.json"), "wo creat"),
                Step::Write { len: STATE },
                Step::Sync(SyncCall::Fsync),
            ],
        )?;
        bed.settle()?;
        let (report, done) = traced(&bed, || run("zigbee", &[repeat(SAVES, save(&bed, how))]))?;
        let forced = how != "unlinkfirst" && !options.contains("noauto");
        let expected = if forced { SAVES * STATE / 512 } else { 0 };
        let trigger = if how == "rename" { "rename" } else { "close" };
        let mut check = report.check();
        let label = format!("{how} -o {options}");
        check.eq(&label, report.total(), expected);
        check.eq(
            format!("{label}: forced by {trigger}"),
            report.trigger("forced", trigger),
            expected,
        );
        check.eq(
            format!("{label}: by the writer"),
            report.dirtier(done.pid).path("forced"),
            expected,
        );
        let named =
            report.file_named("state.json").sectors + report.file_named("state.tmp").sectors;
        check.eq(format!("{label}: of the file"), named, expected);
        check.eq(format!("{label}: commits"), report.all_commits(), 0);
        check.eq(format!("{label}: by fsync"), report.path("fsync"), 0);
        check.eq(
            format!("{label}: flushes"),
            report.count("flushes_requested"),
            0,
        );
        check.done()?;
    }
    Ok(())
}

/// fsync for each unpacked file, against one syncfs for all.
fn package_manager() -> Result<()> {
    const FILES: u64 = 300;
    let unpack = |bed: &Bed, after: After| {
        let (new, old) = (bed.path("f{i}.new"), bed.path("f{i}"));
        let mut steps = vec![open(&new, "wo creat"), Step::Write { len: 4096 }];
        if matches!(after, After::Fsync) {
            steps.push(Step::Sync(SyncCall::Fsync));
        }
        steps.extend([Step::Close, Step::Rename { from: new, to: old }]);
        vec![repeat(FILES, steps)]
    };
    let careful = bed("")?;
    let (each, done) = traced(&careful, || run("dpkg", &unpack(&careful, After::Fsync)))?;
    let bold = bed("")?;
    let (once, _) = traced(&bold, || -> Result<Done> {
        run("dpkg", &unpack(&bold, After::Nothing))?;
        syncfs(&bold)
    })?;
    holds(
        &each,
        "a commit for each file, by fsync",
        each.commits("fsync", "count") == FILES && each.all_commits() == FILES,
    )?;
    within(
        &each,
        "journal percent",
        each.journal_percent(),
        80.0..=95.0,
    )?;
    holds(
        &each,
        "all of it is dpkg's",
        each.dirtier(done.pid).path("fsync") == FILES * 8,
    )?;
    let few = once.all_commits() as f64;
    within(&once, "commits without fsync", few, 1.0..=3.0)?;
    within(
        &once,
        "sectors with fsync over those without",
        each.total() as f64 / once.total() as f64,
        4.0..=12.0,
    )
}
