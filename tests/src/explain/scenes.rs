//! Work of which it is known what acts on it.

use anyhow::{Result, ensure};

use super::run::{Explained, explained};
use crate::bed::{Bed, Spec};
use crate::harness::Test;
use crate::knob::Knob;
use crate::tracer;
use crate::writers::{Step, SyncCall, open, repeat, run};

pub fn tests() -> Vec<Test> {
    let test = |name: &str, body: fn() -> Result<()>| {
        Test::new(format!("explain::{name}"), body).needs(tracer::available)
    };
    vec![
        test("forced_commits", forced_commits),
        test("auto_da_alloc", auto_da_alloc),
        test("case_22_advice", advice),
        test("logger_without_fsync", logger_without_fsync)
            .full()
            .limit(120),
        test("fsync_is_the_end_of_commit", fsync_is_the_end).full(),
        test("background_alone", background_alone).full(),
        test("periodic_alone", periodic_alone).full(),
    ]
}

fn bed(mount: &str) -> Result<Bed> {
    Bed::new(Spec::ext4(128).mount(mount))
}

/// A log of lines, each followed by these steps.
fn lines(bed: &Bed, count: u64, after: &[Step]) -> Vec<Step> {
    let mut round = vec![Step::Write { len: 120 }];
    round.extend_from_slice(after);
    vec![
        open(bed.path("log"), "wo creat append"),
        repeat(count, round),
    ]
}

fn sleep(ms: u64) -> Step {
    Step::Sleep { ms }
}

const VM: [&str; 2] = ["vm.dirty_expire_centisecs", "vm.dirty_writeback_centisecs"];

/// Each line is synced: commit= caused no commit and can save nothing.
fn forced_commits() -> Result<()> {
    let bed = bed("noatime,commit=300")?;
    let steps = lines(&bed, 20, &[Step::Sync(SyncCall::Fsync), sleep(100)]);
    let made = explained(&bed, &["commit=600"], || run("logger", &steps).map(drop))?;
    ensure!(made.listed("fsync").0 == 20, "{}", made.trace.dump());
    ensure!(made.listed("timer").0 == 0, "{}", made.trace.dump());
    made.nothing_acts()?;
    ensure!(made.ceiling_of("commit", 600)? == 0);
    made.says(
        "commit",
        &[
            "commit=300",
            "20 commits",
            "fsync of log by logger every 0.1 s",
        ],
    )
}

/// Files that are truncated and written again go to the device at close.
fn auto_da_alloc() -> Result<()> {
    let bed = bed("noatime,commit=300")?;
    let save = vec![
        open(bed.path("state.json"), "wo creat trunc"),
        Step::Write { len: 65536 },
        Step::Close,
        sleep(20),
    ];
    run("zigbee", &save)?;
    let made = explained(&bed, &[], || {
        run("zigbee", &[repeat(10, save.clone())]).map(drop)
    })?;
    ensure!(
        made.trace.trigger("forced", "close") == 10 * 128,
        "{}",
        made.trace.dump()
    );
    made.nothing_acts()?;
    ensure!(
        made.text.contains("auto_da_alloc") && made.text.contains("zigbee"),
        "{}",
        made.text
    );
    made.says(VM[0], &["never acted", "auto_da_alloc"])
}

/// Case 22: the same sectors with each mount, and the explanation says why.
fn advice() -> Result<()> {
    let mut seen = Vec::new();
    for options in ["", "data=writeback", "commit=600"] {
        let bed = bed(options)?;
        let steps = lines(&bed, 50, &[Step::Sync(SyncCall::Fsync)]);
        let made = explained(&bed, &[], || run("logger", &steps).map(drop))?;
        made.nothing_acts()?;
        made.says("commit", &["caused none of the", "logger"])?;
        seen.push((made.trace.path("fsync"), made.trace.path("journal")));
    }
    ensure!(seen.iter().all(|row| *row == seen[0]), "{seen:?}");
    Ok(())
}

/// Metadata that changes all the time and is never synced, for `seconds`.
fn changes(mount: &str, knobs: &[&str], seconds: u64) -> Result<Explained> {
    let bed = bed(mount)?;
    let steps = lines(&bed, seconds * 10, &[sleep(100)]);
    run("logger", &lines(&bed, 1, &[]))?;
    explained(&bed, knobs, || run("logger", &steps).map(drop))
}

/// Nobody syncs: commit= acts on nearly all, and what a longer one really
/// saves is no more than its ceiling.
fn logger_without_fsync() -> Result<()> {
    let short = changes("noatime,commit=1", &["commit=4", "commit=600"], 16)?;
    let (count, sectors) = short.listed("timer");
    let total = short.trace.count("sectors_written");
    ensure!(
        count >= 6,
        "{count} commits of the timer\n{}",
        short.trace.dump()
    );
    let ceiling = short.ceiling("commit")?;
    ensure!(
        ceiling >= sectors && ceiling * 10 >= total * 9,
        "{ceiling} of {total}, listed {sectors}\n{}",
        short.text
    );
    short.says(
        "commit",
        &["The timer (commit=1)", "commit=4 would save at most"],
    )?;
    let long = changes("noatime,commit=4", &[], 16)?;
    let left = long.trace.count("sectors_written");
    let saved = total.saturating_sub(left);
    let most = short.ceiling_of("commit", 4)?;
    ensure!(
        saved > 0 && saved <= most,
        "{total} became {left}, ceiling {most}\n{}",
        short.text
    );
    ensure!(most <= short.ceiling_of("commit", 600)?);
    Ok(())
}

/// A file that is synced every three seconds among changes that are not.
fn fsync_is_the_end() -> Result<()> {
    let bed = bed("noatime,commit=1")?;
    let mut steps = Vec::new();
    for round in 0..4 {
        let change = vec![
            Step::Create {
                path: bed.path(&format!("d{round}-{{i}}")),
                len: 10,
            },
            sleep(100),
        ];
        steps.push(repeat(28, change));
        steps.push(open(bed.path("mgmt"), "wo creat append"));
        steps.push(Step::Write { len: 100 });
        steps.push(Step::Sync(SyncCall::Fsync));
    }
    let knobs = ["commit=5", "commit=600"];
    let made = explained(&bed, &knobs, || run("iot", &steps).map(drop))?;
    ensure!(made.listed("fsync").0 == 4, "{}", made.trace.dump());
    let (timers, sectors) = made.listed("timer");
    ensure!(timers >= 4, "{}", made.trace.dump());
    ensure!(made.ceiling("commit")? >= sectors);
    // Between two syncs nothing is left for a longer commit=.
    ensure!(made.ceiling_of("commit", 5)? == made.ceiling_of("commit", 600)?);
    let end = made.knob("commit")["saturates_at"].as_u64();
    ensure!(matches!(end, Some(3..=5)), "{end:?}\n{}", made.text);
    made.says(
        "commit",
        &["fsync of mgmt by iot every ", "cannot act any further"],
    )
}

fn sysctl(name: &str, value: &str) -> Result<Knob> {
    Knob::set(format!("/proc/sys/vm/{name}"), value)
}

/// With no background threshold everything is written at once: its age is of
/// no account.
fn background_alone() -> Result<()> {
    let bed = bed("noatime,commit=300")?;
    let _background = sysctl("dirty_background_ratio", "0")?;
    let steps = vec![
        open(bed.path("video"), "wo creat"),
        repeat(16, vec![Step::Write { len: 1 << 20 }]),
        sleep(1500),
    ];
    let made = explained(&bed, &[], || run("camera", &steps).map(drop))?;
    let written = made.trace.trigger("writeback", "background");
    // The kernel's counters lag by a batch per CPU, so that a rest may stay.
    ensure!(written >= 8 * 2048, "{}", made.trace.dump());
    ensure!(made.ceiling("vm.dirty_background_ratio")? >= written);
    for name in VM {
        ensure!(made.ceiling(name)? == 0, "{name}\n{}", made.text);
    }
    made.says(VM[0], &["never acted", "background"])?;
    ensure!(made.ceiling("commit")? == 0, "{}", made.text);
    Ok(())
}

/// Data that only grows old: all of it waits for the flusher's two times.
fn periodic_alone() -> Result<()> {
    let bed = bed("noatime,commit=300")?;
    let _expire = sysctl("dirty_expire_centisecs", "200")?;
    let _tick = sysctl("dirty_writeback_centisecs", "100")?;
    // Its blocks are there already, so that only data is written.
    run("setup", &crate::writers::filled(bed.path("data"), 64))?;
    let steps = vec![
        open(bed.path("data"), "rw"),
        repeat(64, vec![Step::Write { len: 4096 }]),
        sleep(5000),
    ];
    let made = explained(&bed, &["dirty_expire_centisecs=400"], || {
        run("sensor", &steps).map(drop)
    })?;
    let written = made.trace.trigger("writeback", "periodic");
    ensure!(written == 64 * 8, "{}", made.trace.dump());
    for name in VM {
        ensure!(made.ceiling(name)? >= written, "{name}\n{}", made.text);
    }
    let decided = |name: &str| made.knob(name)["decided_sectors"].as_u64();
    ensure!(
        decided(VM[0]) == Some(made.ceiling(VM[0])?),
        "{}",
        made.text
    );
    ensure!(decided(VM[1]) == Some(0), "{}", made.text);
    made.says(
        VM[0],
        &[
            "dirty_expire_centisecs=200 (2 s)",
            "dirty_expire_centisecs=400",
        ],
    )?;
    made.says("vm.dirty_background_ratio", &["never acted", "samples"])
}
