//! The journal's modes, and what mounting, remounting and unmounting write.

use anyhow::Result;

use crate::bed::{Bed, Spec};
use crate::harness::{Test, scaled};
use crate::tracer::{Tracer, traced};
use crate::writers::{
    self, BLOCK, BLOCK_SECTORS, Random, Step, SyncCall, append_sectors, filled, open, repeat,
};

pub fn tests() -> Vec<Test> {
    vec![
        Test::new("ledger::data_ordered", || mode("data=ordered", "")).guest(),
        Test::new("ledger::data_journal", || mode("data=journal", "")).guest(),
        Test::new("ledger::data_writeback", || mode("data=writeback", "")).guest(),
        Test::new("ledger::no_journal", || mode("", "-O ^has_journal")).guest(),
        Test::new("ledger::fast_commit", fast_commit).guest(),
        Test::new("ledger::ordered_data", ordered_data).guest(),
        Test::new("ledger::small_journal", small_journal).guest(),
        Test::new("ledger::umount_at_the_end", umount).guest(),
        Test::new("ledger::remount_while_tracing", remount).guest(),
        Test::new("ledger::mount_while_tracing", mount).guest(),
    ]
}

/// The same mixture in every mode: appends with fsync, new files, overwrites,
/// replaced and removed files.
fn mode(options: &str, mkfs: &str) -> Result<()> {
    let bed = Bed::new(Spec::ext4(96).mount(options).mkfs(mkfs))?;
    writers::run("earlier", &filled(bed.path("db"), 211))?;
    let (len, count) = (1777, scaled(37, 13));
    let log = [
        open(bed.path("log"), "wo creat excl append"),
        repeat(
            count,
            vec![Step::Write { len }, Step::Sync(SyncCall::Fsync)],
        ),
    ];
    let area = 211 * BLOCK;
    let mix = [
        Step::Mkdir {
            path: bed.path("d"),
        },
        repeat(
            97,
            vec![Step::Create {
                path: bed.path("d/f{i}"),
                len: 3001,
            }],
        ),
        open(bed.path("db"), "wo"),
        Step::Random(Random {
            area,
            align: BLOCK,
            min: BLOCK,
            max: 3 * BLOCK,
            count: 101,
            seed: 5,
        }),
        Step::Sync(SyncCall::Fdatasync),
        Step::Unlink {
            path: bed.path("d/f41"),
        },
        Step::Rename {
            from: bed.path("d/f43"),
            to: bed.path("d/f47"),
        },
        open(bed.path("d/f53"), "wo trunc"),
        Step::Write { len: 17 * BLOCK },
        Step::Close,
    ];
    let ((logger, mixer), report) = traced(&bed, || {
        let logger = writers::run("logger", &log)?;
        Ok((logger, writers::run("mixer", &mix)?))
    })?;
    let mut check = report.closed();
    let in_log = append_sectors(0, len, count);
    let has_journal = mkfs.is_empty();
    check.eq("a journal", report.path("journal") > 0, has_journal);
    if options == "data=journal" {
        // Then fsync commits, and newer kernels also write it in place.
        check.is("data is in the journal", report.path("journal") >= in_log);
    } else {
        check.file_by(bed.ino("log")?, "fsync", in_log);
        check.dirtier_by(&logger, "fsync", in_log);
        check.is(
            "overwrites by fdatasync",
            report.trigger("fsync", "fdatasync") > 0,
        );
    }
    if has_journal {
        check.is(
            "commits by fsync",
            report.commits("fsync", "count") >= count,
        );
    }
    let name = report.dirtier(mixer.pid).name;
    check.eq("the mixer's name", name.as_str(), "mixer");
    check.done()
}

fn fast_commit() -> Result<()> {
    let bed = Bed::new(Spec::ext4(96).mkfs("-O fast_commit"))?;
    let (len, count) = (1777, 41);
    let steps = [
        open(bed.path("log"), "wo creat excl append"),
        repeat(
            count,
            vec![Step::Write { len }, Step::Sync(SyncCall::Fsync)],
        ),
    ];
    let (writer, report) = traced(&bed, || writers::run("fast", &steps))?;
    let sectors = append_sectors(0, len, count);
    let mut check = report.closed();
    check.file_by(bed.ino("log")?, "fsync", sectors);
    check.dirtier_by(&writer, "fsync", sectors);
    let fast = report.trigger("journal", "fast-commit");
    check.is(
        format!("{fast} sectors of fast commits"),
        fast >= count / 2 * BLOCK_SECTORS,
    );
    check.is(
        "fast commits",
        report.commits("fast-commit", "count") >= count / 2,
    );
    check.done()
}

/// Without delayed allocation an fsync of one file must write another's data.
fn ordered_data() -> Result<()> {
    let bed = Bed::new(Spec::ext4(64).mount("data=ordered,nodelalloc,dioread_lock"))?;
    let bystander = [
        open(bed.path("bystander"), "wo creat excl"),
        Step::Write { len: 151 * BLOCK },
    ];
    let culprit = [
        open(bed.path("culprit"), "wo creat excl"),
        Step::Write { len: 3 * BLOCK },
        Step::Sync(SyncCall::Fsync),
    ];
    let (writer, report) = traced(&bed, || {
        let writer = writers::run("bystander", &bystander)?;
        writers::run("culprit", &culprit)?;
        Ok(writer)
    })?;
    let mut check = report.closed();
    check.file_by(bed.ino("bystander")?, "ordered", 151 * BLOCK_SECTORS);
    check.file_by(bed.ino("culprit")?, "fsync", 3 * BLOCK_SECTORS);
    check.eq(
        "by fsync",
        report.trigger("ordered", "fsync"),
        151 * BLOCK_SECTORS,
    );
    check.dirtier_by(&writer, "ordered", 151 * BLOCK_SECTORS);
    let forced = report.commits("fsync", "ordered_sectors");
    check.eq("ordered data of the commits", forced, 151 * BLOCK_SECTORS);
    check.done()
}

/// A journal of the smallest size under metadata load: checkpoints.
fn small_journal() -> Result<()> {
    let bed = Bed::new(Spec::ext4(256).mkfs("-J size=4 -N 32768"))?;
    let count = scaled(211, 53);
    let each = vec![
        Step::Mkdir {
            path: bed.path("d{i}"),
        },
        Step::Create {
            path: bed.path("d{i}/a"),
            len: 211,
        },
        Step::Create {
            path: bed.path("d{i}/b"),
            len: 5 * BLOCK,
        },
        open(bed.path("d{i}/a"), "wo append"),
        Step::Write { len: 307 },
        Step::Sync(SyncCall::Fsync),
    ];
    let steps = [repeat(count, each)];
    let (writer, report) = traced(&bed, || writers::run("metadata", &steps))?;
    let mut check = report.closed();
    check.is(
        "a journal went round",
        report.path("journal") > 4 << 11 || scaled(0, 1) == 1,
    );
    check.is(
        "the writer is named",
        report.dirtier(writer.pid).path("fsync") > 0,
    );
    check.done()
}

/// Dirty data and metadata that only the unmount brings to the device.
fn umount() -> Result<()> {
    let mut bed = Bed::new(Spec::ext4(64))?;
    let dirty = [
        open(bed.path("late"), "wo creat excl"),
        Step::Write { len: 113 * BLOCK },
    ];
    let tracer = Tracer::start(&bed, &[])?;
    let writer = writers::run("dirtier", &dirty)?;
    let ino = bed.ino("late")?;
    writers::run("umount", &[Step::Umount { path: bed.mnt() }])?;
    bed.was_unmounted();
    bed.settle()?;
    let report = tracer.stop()?;
    let mut check = report.closed();
    check.file_by(ino, "writeback", 113 * BLOCK_SECTORS);
    check.eq(
        "name",
        report.file_named("late").sectors,
        113 * BLOCK_SECTORS,
    );
    check.dirtier_by(&writer, "writeback", 113 * BLOCK_SECTORS);
    check.is("a commit by umount", report.commits("umount", "count") > 0);
    check.is(
        "metadata by umount",
        report.trigger("metadata", "umount") > 0,
    );
    check.done()
}

/// Options change, the filesystem turns read-only and back, under the tracer.
fn remount() -> Result<()> {
    let bed = Bed::new(Spec::ext4(64))?;
    let remount = |options: &str| Step::Remount {
        path: bed.mnt(),
        options: options.to_owned(),
    };
    let steps = [
        open(bed.path("one"), "wo creat excl"),
        Step::Write { len: 31 * BLOCK },
        Step::Close,
        remount("commit=7"),
        open(bed.path("two"), "wo creat excl"),
        Step::Write { len: 37 * BLOCK },
        Step::Close,
        remount("ro"),
        remount("rw,commit=11"),
        open(bed.path("three"), "wo creat excl"),
        Step::Write { len: 41 * BLOCK },
    ];
    let (writer, report) = traced(&bed, || writers::run("remounter", &steps))?;
    let mut check = report.closed();
    for (name, blocks) in [("one", 31), ("two", 37), ("three", 41)] {
        let row = report.file(bed.ino(name)?);
        check.eq(name, row.sectors, blocks * BLOCK_SECTORS);
    }
    check.is(
        "a commit by remount",
        report.commits("remount", "count") > 0,
    );
    check.eq(
        "name",
        report.dirtier(writer.pid).name.as_str(),
        "remounter",
    );
    check.done()
}

/// A filesystem that appears while its disk is traced.
fn mount() -> Result<()> {
    let mut bed = Bed::unmounted(Spec::ext4(64))?;
    bed.settle()?;
    let tracer = Tracer::start(&bed, &[])?;
    bed.mount()?;
    let steps = filled(bed.path("new"), 71);
    let writer = writers::run("late", &steps)?;
    bed.settle()?;
    let report = tracer.stop()?;
    let mut check = report.closed();
    check.file_by(bed.ino("new")?, "fsync", 71 * BLOCK_SECTORS);
    check.eq("name", report.file_named("new").sectors, 71 * BLOCK_SECTORS);
    check.dirtier_by(&writer, "fsync", 71 * BLOCK_SECTORS);
    check.done()
}
