//! The workloads on ext4: together they take every path.

use anyhow::{Result, ensure};

use super::watch::{Recorded, agree, only_within, record};
use super::{compare, wrong};
use crate::bed::{Bed, Spec};
use crate::harness::{Test, has_uring};
use crate::knob::Knob;
use crate::tracer;
use crate::writers::{BLOCK, Queue, Random, Step, SyncCall, filled, open, repeat, run};

pub fn tests() -> Vec<Test> {
    let test = |name: &str, body: fn() -> Result<()>| {
        Test::new(format!("stacks::{name}"), body).needs(tracer::available)
    };
    vec![
        Test::new("stacks::wrong_tracers_fail", wrong_tracers_fail).guest(),
        test("mixed", || mixed("none")).guest(),
        test("mixed_mq_deadline", || mixed("mq-deadline")).full(),
        test("mixed_bfq", || mixed("bfq")).full(),
        test("mixed_small_requests", mixed_small).full(),
        test("ordered", ordered).guest(),
        test("data_writeback", data_writeback).full(),
        test("data_journal", data_journal).guest(),
        test("checkpoint", checkpoint).guest(),
        test("no_journal", no_journal).guest(),
        test("fast_commit", fast_commit).guest(),
        test("lazy_init", lazy_init).full(),
        test("queued", queued).needs(has_uring).guest(),
        test("raw", raw).guest(),
        test("raw_on_a_mounted_device", raw_mounted).guest(),
    ]
}

/// A flusher that comes every quarter of a second for data older than one.
fn hasty_flusher() -> Result<[Knob; 2]> {
    Ok([
        Knob::set("/proc/sys/vm/dirty_expire_centisecs", "100")?,
        Knob::set("/proc/sys/vm/dirty_writeback_centisecs", "25")?,
    ])
}

fn write(blocks: u64) -> Step {
    Step::Write {
        len: blocks * BLOCK,
    }
}

/// Every call that makes one file durable.
fn synced(bed: &Bed) -> Vec<Step> {
    let mut steps = vec![
        open(bed.path("s-fsync"), "wo creat"),
        write(37),
        Step::Sync(SyncCall::Fsync),
        open(bed.path("s-fdatasync"), "wo creat"),
        write(23),
        Step::Sync(SyncCall::Fdatasync),
        open(bed.path("s-sync"), "wo creat sync"),
        write(3),
        open(bed.path("s-dsync"), "wo creat dsync"),
        write(5),
        open(bed.path("s-range"), "wo creat"),
        write(7),
        Step::SyncRange {
            at: 0,
            len: 7 * BLOCK,
        },
    ];
    steps.extend(filled(bed.path("s-msync"), 11));
    steps.extend([
        open(bed.path("s-msync"), "rw"),
        Step::MmapStore {
            at: 0,
            stride: 2 * BLOCK,
            count: 3,
            msync: true,
        },
    ]);
    steps
}

/// Calls that must write file data though nobody asked for durability.
fn forced(bed: &Bed) -> Vec<Step> {
    let mut steps = Vec::new();
    for name in ["f-close", "f-over", "f-direct", "f-direct-read", "f-exit"] {
        steps.extend(filled(bed.path(name), 2));
    }
    steps.extend([
        open(bed.path("f-close"), "wo trunc"),
        write(5),
        Step::Close,
        open(bed.path("f-new"), "wo creat"),
        write(7),
        Step::Close,
        Step::Rename {
            from: bed.path("f-new"),
            to: bed.path("f-over"),
        },
        open(bed.path("f-fadvise"), "wo creat"),
        write(11),
        Step::DontNeed,
        open(bed.path("f-fiemap"), "wo creat"),
        write(13),
        Step::FiemapSync,
        open(bed.path("f-collapse"), "wo creat"),
        write(17),
        Step::Fallocate {
            mode: libc::FALLOC_FL_COLLAPSE_RANGE,
            at: BLOCK,
            len: BLOCK,
        },
        open(bed.path("f-direct"), "wo"),
        write(3),
        open(bed.path("f-direct"), "wo direct"),
        Step::Pwrite {
            at: BLOCK,
            len: BLOCK,
        },
        open(bed.path("f-direct-read"), "wo"),
        write(3),
        open(bed.path("f-direct-read"), "ro direct"),
        Step::Read {
            at: 0,
            len: 3 * BLOCK,
        },
    ]);
    steps
}

/// Buffered data that waits for the flusher or the journal's timer, direct
/// writes, and a block that a truncate leaves in part: that is ordered data.
fn unsynced(bed: &Bed) -> Vec<Step> {
    let mut steps = filled(bed.path("u-part"), 3);
    steps.extend([
        open(bed.path("u-buffered"), "wo creat"),
        write(41),
        open(bed.path("u-direct"), "wo creat direct"),
        write(9),
        Step::Pwrite {
            at: 2 * BLOCK,
            len: 4 * BLOCK,
        },
        open(bed.path("u-part"), "wo"),
        Step::Truncate { len: 3000 },
        Step::Close,
    ]);
    steps
}

/// Everything that one mount can do, up to its end.
fn everything(bed: &mut Bed) -> Result<()> {
    run("unsynced", &unsynced(bed))?;
    run("synced", &synced(bed))?;
    run("forced", &forced(bed))?;
    run("leaver", &[open(bed.path("f-exit"), "wo trunc"), write(6)])?;
    // Timer commit and flusher, both within this time.
    std::thread::sleep(std::time::Duration::from_millis(3500));
    run(
        "whole",
        &[
            open(bed.path("w-1"), "wo creat"),
            write(2),
            Step::Sync(SyncCall::Syncfs),
            write(2),
            Step::Sync(SyncCall::Sync),
            write(2),
            Step::FreezeThaw,
            write(2),
            Step::Close,
            Step::Remount {
                path: bed.mnt(),
                options: "ro,noatime".to_owned(),
            },
            Step::Remount {
                path: bed.mnt(),
                options: "noatime,commit=1".to_owned(),
            },
            Step::Create {
                path: bed.path("w-2"),
                len: 3 * BLOCK,
            },
            Step::Umount { path: bed.mnt() },
        ],
    )?;
    bed.was_unmounted();
    Ok(())
}

fn spec() -> Spec {
    Spec::ext4(128).mount("noatime,commit=1")
}

const EVERYTHING: [&str; 8] = [
    "writeback",
    "fsync",
    "ordered",
    "journal",
    "metadata",
    "direct",
    "forced",
    "fs",
];

fn mixed(scheduler: &str) -> Result<()> {
    let _knobs = hasty_flusher()?;
    let mut bed = Bed::new(spec().scheduler(scheduler))?;
    agree(&mut bed, &EVERYTHING, everything)?;
    Ok(())
}

fn mixed_small() -> Result<()> {
    let _knobs = hasty_flusher()?;
    let mut bed = Bed::new(spec().max_sectors_kb(8))?;
    agree(&mut bed, &EVERYTHING, everything)?;
    Ok(())
}

/// The comparison is worth something only if it rejects what is wrong.
fn wrong_tracers_fail() -> Result<()> {
    let _knobs = hasty_flusher()?;
    // A scheduler, so that requests are issued by whoever comes by.
    let mut bed = Bed::new(spec().scheduler("mq-deadline"))?;
    let Recorded { events, referee } = record(&mut bed, everything)?;
    let total: u64 = referee.paths.values().sum();
    for (name, tracer) in wrong::ALL {
        let account = tracer(&events);
        let differences = compare::differences(&referee.paths, &account);
        println!("{name}: {differences:#?}");
        ensure!(
            !differences.is_empty(),
            "a wrong tracer passes: {name}: {account:?}"
        );
        let sum: u64 = account.values().sum();
        ensure!(
            sum == total,
            "{name}: it is wrong by its sum already, {sum} of {total} sectors"
        );
    }
    Ok(())
}

/// Without delayed allocation, new blocks are ordered data of the commit.
fn ordered() -> Result<()> {
    let mut bed = Bed::new(Spec::ext4(64).mount("noatime,commit=1,nodelalloc"))?;
    agree(&mut bed, &["ordered", "journal"], |bed| {
        run(
            "creator",
            &[
                repeat(
                    23,
                    vec![Step::Create {
                        path: bed.path("o{i}"),
                        len: 3 * BLOCK,
                    }],
                ),
                Step::Sleep { ms: 2500 },
                Step::Create {
                    path: bed.path("last"),
                    len: BLOCK,
                },
                open(bed.path("other"), "wo creat"),
                Step::Sync(SyncCall::Fsync),
            ],
        )?;
        Ok(())
    })?;
    Ok(())
}

fn data_writeback() -> Result<()> {
    let mut bed = Bed::new(spec().mount("noatime,commit=1,data=writeback"))?;
    let (recorded, _) = agree(&mut bed, &["fsync", "journal"], |bed| {
        run("unsynced", &unsynced(bed))?;
        run("synced", &synced(bed))?;
        std::thread::sleep(std::time::Duration::from_millis(2500));
        Ok(())
    })?;
    ensure!(
        !recorded.referee.paths.contains_key("ordered"),
        "data=writeback has no ordered data"
    );
    Ok(())
}

/// Data goes through the log, and comes home by checkpoint, flusher, fsync.
fn data_journal() -> Result<()> {
    let _knobs = hasty_flusher()?;
    let spec = Spec::ext4(128).journal(4);
    let mut bed = Bed::new(spec.mount("noatime,commit=1,data=journal"))?;
    agree(
        &mut bed,
        &["journal", "metadata", "writeback", "fsync"],
        |bed| {
            run(
                "creator",
                &[
                    repeat(
                        40,
                        vec![Step::Create {
                            path: bed.path("j{i}"),
                            len: 32 * BLOCK,
                        }],
                    ),
                    open(bed.path("big"), "wo creat"),
                    repeat(100, vec![write(16)]),
                    Step::Sync(SyncCall::Fsync),
                    Step::Close,
                    Step::Sleep { ms: 3500 },
                ],
            )?;
            run(
                "closer",
                &[
                    Step::Create {
                        path: bed.path("late"),
                        len: 3 * BLOCK,
                    },
                    Step::Umount { path: bed.mnt() },
                ],
            )?;
            bed.was_unmounted();
            Ok(())
        },
    )?;
    Ok(())
}

/// A log that is too small: the creator itself brings old blocks home.
fn checkpoint() -> Result<()> {
    let mut bed = Bed::new(Spec::ext4(256).journal(4).mount("noatime,commit=300"))?;
    agree(&mut bed, &["journal", "metadata"], |bed| {
        run(
            "mkdirs",
            &[repeat(
                3000,
                vec![
                    Step::Mkdir {
                        path: bed.path("d{i}"),
                    },
                    open(bed.path("f{i}"), "wo creat"),
                ],
            )],
        )?;
        Ok(())
    })?;
    Ok(())
}

/// No journal: fsync brings its file's metadata home by itself.
fn no_journal() -> Result<()> {
    let _knobs = hasty_flusher()?;
    let mut bed = Bed::new(Spec::ext4(64).mkfs("-O ^has_journal").mount("noatime"))?;
    let (recorded, _) = agree(
        &mut bed,
        &["fsync", "metadata", "writeback", "forced"],
        |bed| {
            run("unsynced", &unsynced(bed))?;
            run("synced", &synced(bed))?;
            run("forced", &forced(bed))?;
            std::thread::sleep(std::time::Duration::from_millis(3500));
            run(
                "last",
                &[
                    Step::Create {
                        path: bed.path("late"),
                        len: 3 * BLOCK,
                    },
                    Step::Umount { path: bed.mnt() },
                ],
            )?;
            bed.was_unmounted();
            Ok(())
        },
    )?;
    ensure!(
        !recorded.referee.paths.contains_key("journal"),
        "there is no journal"
    );
    Ok(())
}

/// The caller writes the log; what it must order before may be another's data.
fn fast_commit() -> Result<()> {
    let spec = Spec::ext4(64).mkfs("-O fast_commit");
    let mut bed = Bed::new(spec.mount("noatime,commit=300,nodelalloc"))?;
    let others = |path| Step::Open {
        path,
        flags: "wo append".to_owned(),
    };
    run(
        "setup",
        &[repeat(
            20,
            vec![Step::Create {
                path: bed.path("c{i}"),
                len: 3 * BLOCK,
            }],
        )],
    )?;
    bed.settle()?;
    agree(&mut bed, &["journal", "ordered", "fsync"], |bed| {
        run(
            "committer",
            &[
                repeat(20, vec![others(bed.path("c{i}")), write(2)]),
                open(bed.path("c3"), "wo append"),
                repeat(5, vec![write(1), Step::Sync(SyncCall::Fsync)]),
            ],
        )?;
        Ok(())
    })?;
    Ok(())
}

/// The kernel zeroes inode tables behind a fresh mount.
fn lazy_init() -> Result<()> {
    let mut bed = Bed::unmounted(Spec::ext4(1024).lazy().mount("noatime"))?;
    bed.settle()?;
    agree(&mut bed, &["fs"], |bed| {
        bed.mount()?;
        std::thread::sleep(std::time::Duration::from_secs(12));
        Ok(())
    })?;
    Ok(())
}

/// Writes in flight at once, by both interfaces; `io_uring` hands what would
/// block to workers in the program's name.
fn queued() -> Result<()> {
    let mut bed = Bed::new(spec().mount("noatime,commit=300"))?;
    run("setup", &filled(bed.path("deep"), 64))?;
    let random = |seed| Random {
        area: 64 * BLOCK,
        align: BLOCK,
        min: BLOCK,
        max: 3 * BLOCK,
        count: 37,
        seed,
    };
    let batch = |queue, seed| Step::Queued {
        queue,
        depth: 8,
        random: random(seed),
    };
    let steps = vec![
        open(bed.path("deep"), "wo direct"),
        batch(Queue::Aio, 1),
        batch(Queue::Uring, 2),
        open(bed.path("deep"), "wo"),
        batch(Queue::Uring, 3),
        Step::Sync(SyncCall::Fsync),
        open(bed.path("deep"), "wo sync"),
        batch(Queue::Uring, 4),
    ];
    agree(&mut bed, &["direct", "fsync"], |_| {
        run("queued", &steps).map(drop)
    })?;
    Ok(())
}

/// What a process can do to a device without a filesystem.
fn raw_steps(node: &std::path::Path, at: u64) -> Vec<Step> {
    vec![
        open(node, "wo"),
        Step::Pwrite { at, len: 3 * BLOCK },
        Step::Sync(SyncCall::Fsync),
        open(node, "wo direct"),
        Step::Pwrite {
            at: at + 16 * BLOCK,
            len: 5 * BLOCK,
        },
        Step::BlockRange {
            zero: true,
            at: at + 32 * BLOCK,
            len: 7 * BLOCK,
        },
        open(node, "wo"),
        Step::Pwrite {
            at: at + 64 * BLOCK,
            len: 11 * BLOCK,
        },
    ]
}

/// Raw writes to one partition while a filesystem on another is at work.
fn raw() -> Result<()> {
    let _knobs = hasty_flusher()?;
    let mut bed = Bed::new(spec().partition(16))?;
    let first = bed.partition_node(1);
    let (recorded, _) = agree(&mut bed, &["raw", "fsync", "journal"], |bed| {
        // The flusher comes for what a holder does not close at once.
        let mut steps = raw_steps(&first, 0);
        steps.push(Step::Sleep { ms: 2500 });
        run("rawwriter", &steps)?;
        run("synced", &synced(bed))?;
        Ok(())
    })?;
    only_within(&recorded, &(0..17 * 2048), "raw")
}

/// Raw writes to blocks that a mounted filesystem does not use: the last ones.
fn raw_mounted() -> Result<()> {
    let _knobs = hasty_flusher()?;
    let mut bed = Bed::new(spec())?;
    let node = bed.node();
    let at = 124 << 20;
    let (recorded, _) = agree(&mut bed, &["raw", "fsync", "metadata"], |bed| {
        let mut steps = raw_steps(&node, at);
        steps.push(Step::Sleep { ms: 2500 });
        run("rawwriter", &steps)?;
        run("synced", &synced(bed))?;
        Ok(())
    })?;
    only_within(&recorded, &(at / 512..128 * 2048), "raw")
}
