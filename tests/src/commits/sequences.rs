//! Sequences of calls whose commits are known in number and order.

use anyhow::Result;

use super::observe::{Expected, Watched, watch};
use crate::bed::{Bed, Spec};
use crate::harness::{Test, scaled};
use crate::tracer;
use crate::writers::{BLOCK, Done, Step, SyncCall, Writer, filled, open, repeat, run};

/// Mount options of a bed whose journal only moves when it is told to.
const QUIET: &str = "noatime,commit=300";

pub fn tests() -> Vec<Test> {
    let test = |name: &str, body: fn() -> Result<()>| {
        Test::new(format!("commits::{name}"), body)
            .needs(tracer::available)
            .guest()
    };
    vec![
        test("fsync_every_second", fsync_every_second),
        test("timer_of_one_second", || timer(1, scaled(6, 5))),
        test("timer_of_five_seconds", || timer(5, 17)).full(),
        test("calls_that_sync_a_file", calls_that_sync_a_file),
        test("two_files_in_turn", two_files_in_turn),
        test("sync", || whole(SyncCall::Sync)),
        test("syncfs", || whole(SyncCall::Syncfs)),
        test("umount", umount),
        test("remount", remount),
        test("freeze", freeze),
        test("dirsync", dirsync),
        test("one_of_each", one_of_each),
        test("a_read_only_stretch_has_none", none),
    ]
}

/// A quiet bed with a file `mgmt` of two blocks.
fn bed(spec: Spec) -> Result<Bed> {
    let bed = Bed::new(spec)?;
    run("setup", &filled(bed.path("mgmt"), 2))?;
    bed.settle()?;
    Ok(bed)
}

/// Runs a writer under watch; the expectations come from its pid.
fn watched(bed: &Bed, steps: &[Step]) -> Result<(Watched, Done)> {
    let mut writer = Writer::spawn("committer", &with_wait(steps))?;
    writer.hear()?;
    watch(bed, || {
        writer.go()?;
        writer.wait()
    })
}

/// The steps after a start that needs no trace.
fn with_wait(steps: &[Step]) -> Vec<Step> {
    let mut all = vec![Step::Say("there".to_owned()), Step::Wait];
    all.extend_from_slice(steps);
    all
}

fn fsync_every_second() -> Result<()> {
    let bed = bed(Spec::ext4(64).mount("noatime,commit=60"))?;
    let count = 6;
    let (seen, done) = watched(
        &bed,
        &[
            open(bed.path("mgmt"), "wo append"),
            repeat(
                count,
                vec![
                    Step::Write { len: 100 },
                    Step::Sync(SyncCall::Fsync),
                    Step::Sleep { ms: 1000 },
                ],
            ),
        ],
    )?;
    seen.are(&vec![
        Expected::on(done.pid, "fsync", "mgmt");
        count as usize
    ])
}

/// No call asks for anything; the timer does, and nobody else.
fn timer(interval_s: u64, for_s: u64) -> Result<()> {
    let bed = bed(Spec::ext4(64).mount(&format!("noatime,commit={interval_s}")))?;
    let (seen, _) = watched(
        &bed,
        &[
            repeat(
                for_s * 4,
                vec![
                    Step::Create {
                        path: bed.path("new{i}"),
                        len: 10,
                    },
                    Step::Sleep { ms: 250 },
                ],
            ),
            // The last transaction's turn; the timer rounds up to a second.
            Step::Sleep {
                ms: interval_s * 1000 + 1500,
            },
        ],
    )?;
    seen.all_are(
        &Expected::trigger("timer"),
        (for_s / (interval_s + 1)) as usize,
    )?;
    let young = seen
        .commits
        .iter()
        .filter(|commit| commit.age_us + 20_000 < interval_s * 1_000_000);
    let wrong: Vec<String> = young
        .map(|commit| format!("{commit:?} is younger than the interval"))
        .collect();
    seen.verdict(&wrong)
}

/// Each call that makes one file durable, by its own name.
fn calls_that_sync_a_file() -> Result<()> {
    let bed = bed(Spec::ext4(64).mount(QUIET))?;
    let grow = Step::Write { len: BLOCK };
    let (seen, done) = watched(
        &bed,
        &[
            open(bed.path("a"), "wo creat"),
            grow.clone(),
            Step::Sync(SyncCall::Fsync),
            open(bed.path("b"), "wo creat"),
            grow.clone(),
            Step::Sync(SyncCall::Fdatasync),
            open(bed.path("c"), "wo creat sync"),
            grow.clone(),
            open(bed.path("d"), "wo creat dsync"),
            grow.clone(),
            open(bed.path("e"), "rw creat"),
            grow,
            Step::MmapStore {
                at: 0,
                stride: 64,
                count: 2,
                msync: true,
            },
        ],
    )?;
    let on = |call, file| Expected::on(done.pid, call, file);
    seen.are(&[
        on("fsync", "a"),
        on("fdatasync", "b"),
        on("write", "c"),
        on("write", "d"),
        on("msync", "e"),
    ])
}

/// Two processes, two files, in turn: never one for the other.
fn two_files_in_turn() -> Result<()> {
    let bed = bed(Spec::ext4(64).mount(QUIET))?;
    let steps = |file: &str| {
        let turn = vec![
            Step::Wait,
            Step::Write { len: 100 },
            Step::Sync(SyncCall::Fsync),
            Step::Say("synced".to_owned()),
        ];
        vec![open(bed.path(file), "wo creat append"), repeat(4, turn)]
    };
    let mut first = Writer::spawn("first", &steps("one"))?;
    let mut second = Writer::spawn("second", &steps("two"))?;
    let pids = (first.pid(), second.pid());
    // Both must have made their file before the watch begins.
    for writer in [&mut first, &mut second] {
        writer.go()?;
        writer.hear()?;
    }
    bed.settle()?;
    let (seen, ()) = watch(&bed, || {
        for _ in 0..3 {
            first.go()?;
            first.hear()?;
            second.go()?;
            second.hear()?;
        }
        Ok(())
    })?;
    first.wait()?;
    second.wait()?;
    let turn = [
        Expected::on(pids.0, "fsync", "one"),
        Expected::on(pids.1, "fsync", "two"),
    ];
    seen.are(&[turn.clone(), turn.clone(), turn].concat())
}

/// sync(2) and syncfs(2): one commit each, by whoever called.
fn whole(call: SyncCall) -> Result<()> {
    let bed = bed(Spec::ext4(64).mount(QUIET))?;
    let count = 4;
    let (seen, done) = watched(
        &bed,
        &[
            open(bed.path("mgmt"), "ro"),
            repeat(
                count,
                vec![
                    change(&bed, "new{i}"),
                    Step::Sync(call),
                    Step::Sleep { ms: 50 },
                ],
            ),
        ],
    )?;
    let name = if matches!(call, SyncCall::Sync) {
        "sync"
    } else {
        "syncfs"
    };
    let expected = Expected {
        call: Some(name),
        ..Expected::by("sync", done.pid)
    };
    seen.are(&vec![expected; count as usize])
}

/// A change of metadata without data.
fn change(bed: &Bed, name: &str) -> Step {
    Step::Mkdir {
        path: bed.path(name),
    }
}

fn umount() -> Result<()> {
    let mut bed = bed(Spec::ext4(64).mount(QUIET))?;
    let (seen, done) = watched(
        &bed,
        &[change(&bed, "new"), Step::Umount { path: bed.mnt() }],
    )?;
    bed.was_unmounted();
    seen.are(&[Expected::by("umount", done.pid)])
}

fn remount() -> Result<()> {
    let bed = bed(Spec::ext4(64).mount(QUIET))?;
    let (seen, done) = watched(
        &bed,
        &[
            change(&bed, "new"),
            Step::Remount {
                path: bed.mnt(),
                options: format!("ro,{QUIET}"),
            },
        ],
    )?;
    seen.are(&[Expected::by("remount", done.pid)])
}

fn freeze() -> Result<()> {
    let bed = bed(Spec::ext4(64).mount(QUIET))?;
    let (seen, done) = watched(
        &bed,
        &[change(&bed, "new"), open(bed.mnt(), "ro"), Step::FreezeThaw],
    )?;
    seen.are(&[Expected::by("freeze", done.pid)])
}

/// Directories that must be durable: each change of a name is its own commit.
fn dirsync() -> Result<()> {
    let bed = bed(Spec::ext4(64).mount("noatime,commit=300,dirsync"))?;
    let (seen, done) = watched(
        &bed,
        &[
            repeat(4, vec![open(bed.path("new{i}"), "wo creat")]),
            change(&bed, "dir"),
            Step::Rename {
                from: bed.path("new0"),
                to: bed.path("dir/moved"),
            },
            Step::Unlink {
                path: bed.path("new1"),
            },
        ],
    )?;
    seen.are(&vec![Expected::by("sync-handle", done.pid); 7])
}

/// All that one process can ask for, one after the other.
fn one_of_each() -> Result<()> {
    let mut bed = bed(Spec::ext4(64).mount(QUIET))?;
    let (seen, done) = watched(
        &bed,
        &[
            open(bed.path("mgmt"), "wo append"),
            Step::Write { len: 100 },
            Step::Sync(SyncCall::Fsync),
            change(&bed, "a"),
            Step::Sync(SyncCall::Syncfs),
            change(&bed, "b"),
            Step::Sync(SyncCall::Sync),
            Step::Write { len: 100 },
            Step::Sync(SyncCall::Fdatasync),
            change(&bed, "c"),
            Step::FreezeThaw,
            change(&bed, "d"),
            Step::Close,
            Step::Umount { path: bed.mnt() },
        ],
    )?;
    bed.was_unmounted();
    let pid = done.pid;
    let sync = |call| Expected {
        call: Some(call),
        ..Expected::by("sync", pid)
    };
    seen.are(&[
        Expected::on(pid, "fsync", "mgmt"),
        sync("syncfs"),
        sync("sync"),
        Expected::on(pid, "fdatasync", "mgmt"),
        Expected::by("freeze", pid),
        Expected::by("umount", pid),
    ])
}

/// Overwritten blocks and fdatasync need no commit: none may be told.
fn none() -> Result<()> {
    let bed = bed(Spec::ext4(64).mount(QUIET))?;
    let (seen, _) = watched(
        &bed,
        &[
            open(bed.path("mgmt"), "rw"),
            Step::Read { at: 0, len: BLOCK },
            repeat(
                5,
                vec![
                    Step::Pwrite { at: 0, len: BLOCK },
                    Step::Sync(SyncCall::Fdatasync),
                    Step::Sleep { ms: 10 },
                ],
            ),
        ],
    )?;
    seen.are(&[])
}
