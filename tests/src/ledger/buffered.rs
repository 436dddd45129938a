//! Data that goes through the page cache and is written by the flusher.

use anyhow::Result;

use crate::bed::{Bed, Spec};
use crate::harness::{Test, scaled};
use crate::tracer::traced;
use crate::writers::{
    self, BLOCK, BLOCK_SECTORS, Random, Step, SyncCall, Writer, filled, open, repeat,
};

pub fn tests() -> Vec<Test> {
    vec![
        Test::new("ledger::buffered", buffered).guest(),
        Test::new("ledger::appended", appended).guest(),
        Test::new("ledger::overwritten", overwritten).guest(),
        Test::new("ledger::deleted_before_writeback", deleted).guest(),
        Test::new("ledger::sparse", sparse).guest(),
        Test::new("ledger::preallocated", preallocated).guest(),
        Test::new("ledger::small_files", small_files).guest(),
    ]
}

/// A new file in odd pieces, brought to the device by syncfs.
fn buffered() -> Result<()> {
    let bed = Bed::new(Spec::ext4(64))?;
    let (count, len) = (scaled(1009, 211), 4099);
    let steps = [
        open(bed.path("new"), "wo creat excl"),
        repeat(count, vec![Step::Write { len }]),
    ];
    let (writer, report) = traced(&bed, || writers::run("buffered", &steps))?;
    let sectors = writers::blocks(0, count * len) * BLOCK_SECTORS;
    let mut check = report.closed();
    check.file_by(bed.ino("new")?, "writeback", sectors);
    check.eq("name", report.file_named("new").sectors, sectors);
    check.dirtier_by(&writer, "writeback", sectors);
    check.eq("by sync", report.trigger("writeback", "sync"), sectors);
    check.is("a commit was traced", report.path("journal") > 0);
    check.is("metadata was traced", report.path("metadata") > 0);
    check.done()
}

/// Appends to a synced file with an odd size: its last block is written again.
fn appended() -> Result<()> {
    let bed = Bed::new(Spec::ext4(64))?;
    let (old, len, count) = (101 * BLOCK + 1777, 2311, 37);
    let before = [
        open(bed.path("log"), "wo creat"),
        Step::Write { len: old },
        Step::Sync(SyncCall::Fsync),
    ];
    writers::run("earlier", &before)?;
    let steps = [
        open(bed.path("log"), "wo append"),
        repeat(count, vec![Step::Write { len }]),
    ];
    let (writer, report) = traced(&bed, || writers::run("appender", &steps))?;
    let sectors = writers::blocks(old, count * len) * BLOCK_SECTORS;
    let mut check = report.closed();
    check.file_by(bed.ino("log")?, "writeback", sectors);
    check.dirtier_by(&writer, "writeback", sectors);
    check.done()
}

/// Two processes overwrite blocks of an old file, each block several times.
fn overwritten() -> Result<()> {
    let bed = Bed::new(Spec::ext4(64))?;
    writers::run("earlier", &filled(bed.path("db"), 499))?;
    let every_fifth = |first: u64, count: u64| {
        let writes = (0..count).flat_map(|n| {
            let at = (first + n * 5) * BLOCK;
            let again = Step::Pwrite { at, len: BLOCK };
            [again.clone(), again]
        });
        let mut steps = vec![open(bed.path("db"), "wo")];
        steps.extend(writes);
        steps
    };
    let ((one, two), report) = traced(&bed, || {
        let one = writers::run("over-one", &every_fifth(0, 97))?;
        Ok((one, writers::run("over-two", &every_fifth(1, 31))?))
    })?;
    let mut check = report.closed();
    check.file_by(bed.ino("db")?, "writeback", (97 + 31) * BLOCK_SECTORS);
    check.dirtier_by(&one, "writeback", 97 * BLOCK_SECTORS);
    check.dirtier_by(&two, "writeback", 31 * BLOCK_SECTORS);
    check.done()
}

/// A file that is gone before the flusher comes costs no data sector.
fn deleted() -> Result<()> {
    let bed = Bed::new(Spec::ext4(64))?;
    let steps = [
        open(bed.path("gone"), "wo creat excl"),
        Step::Write { len: 211 * BLOCK },
        Step::Say("written".to_owned()),
        Step::Wait,
        Step::Unlink {
            path: bed.path("gone"),
        },
    ];
    let (ino, report) = traced(&bed, || {
        let mut writer = Writer::spawn("deleter", &steps)?;
        writer.hear()?;
        let ino = bed.ino("gone")?;
        writer.go()?;
        writer.wait()?;
        Ok(ino)
    })?;
    let mut check = report.closed();
    check.eq("data sectors", report.file(ino).sectors, 0);
    check.eq("writeback", report.path("writeback"), 0);
    check.done()
}

/// Single blocks far apart in a file with holes, and a last one by truncate.
fn sparse() -> Result<()> {
    let bed = Bed::new(Spec::ext4(64))?;
    let count = 61;
    let mut steps = vec![open(bed.path("holes"), "wo creat excl")];
    steps.extend((0..count).map(|n| Step::Pwrite {
        at: n * 1_048_583,
        len: 613,
    }));
    steps.push(Step::Truncate { len: 1 << 30 });
    let (writer, report) = traced(&bed, || writers::run("sparse", &steps))?;
    let sectors = (0..count)
        .map(|n| writers::blocks(n * 1_048_583, 613) * BLOCK_SECTORS)
        .sum();
    let mut check = report.closed();
    check.file_by(bed.ino("holes")?, "writeback", sectors);
    check.dirtier_by(&writer, "writeback", sectors);
    check.done()
}

/// Random blocks of a preallocated file: ext4 converts, and zeroes out, extents.
fn preallocated() -> Result<()> {
    let bed = Bed::new(Spec::ext4(64))?;
    let area = 997 * BLOCK;
    let steps = [
        open(bed.path("prealloc"), "wo creat excl"),
        Step::Fallocate {
            mode: 0,
            at: 0,
            len: area,
        },
        Step::Sync(SyncCall::Fsync),
        Step::Random(Random {
            area,
            align: BLOCK,
            min: BLOCK,
            max: BLOCK,
            count: 41,
            seed: 3,
        }),
        Step::Sync(SyncCall::Fdatasync),
        // Collapse, zero and punch ranges, each after more data.
        Step::Pwrite {
            at: 11 * BLOCK,
            len: 13 * BLOCK,
        },
        Step::Fallocate {
            mode: libc::FALLOC_FL_COLLAPSE_RANGE,
            at: 3 * BLOCK,
            len: 5 * BLOCK,
        },
        Step::Pwrite {
            at: 211 * BLOCK,
            len: 13 * BLOCK + 7,
        },
        Step::Fallocate {
            mode: libc::FALLOC_FL_ZERO_RANGE,
            at: 212 * BLOCK + 5,
            len: 7 * BLOCK,
        },
        Step::Fallocate {
            mode: libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
            at: 401 * BLOCK + 3,
            len: 3 * BLOCK,
        },
    ];
    let (writer, report) = traced(&bed, || writers::run("prealloc", &steps))?;
    let row = report.file(bed.ino("prealloc")?);
    let mut check = report.closed();
    check.is(
        "data by fdatasync",
        report.trigger("fsync", "fdatasync") > 0,
    );
    check.is("the file is named", row.sectors >= 41 * BLOCK_SECTORS / 2);
    check.is(
        "the writer is named",
        report.dirtier(writer.pid).sectors >= row.sectors,
    );
    check.done()
}

/// Many one-block files in directories: more metadata than data.
fn small_files() -> Result<()> {
    let bed = Bed::new(Spec::ext4(64))?;
    let count = scaled(307, 97);
    let steps = [
        Step::Mkdir {
            path: bed.path("d"),
        },
        repeat(
            count,
            vec![Step::Create {
                path: bed.path("d/f{i}"),
                len: 1777,
            }],
        ),
    ];
    let (writer, report) = traced(&bed, || writers::run("creator", &steps))?;
    let mut check = report.closed();
    for n in [0, count / 2, count - 1] {
        check.file_by(bed.ino(&format!("d/f{n}"))?, "writeback", BLOCK_SECTORS);
        let name = report.file_named(&format!("d/f{n}"));
        check.eq(format!("sectors of d/f{n}"), name.sectors, BLOCK_SECTORS);
    }
    check.dirtier_by(&writer, "writeback", count * BLOCK_SECTORS);
    check.done()
}
