//! What depends on the device: partitions, write-zeroes, discards, no space.

use anyhow::{Result, ensure};

use crate::bed::{Backing, Bed, Spec};
use crate::harness::Test;
use crate::tracer::{Tracer, traced};
use crate::writers::{self, BLOCK, BLOCK_SECTORS, Step, SyncCall, Writer, filled, open, repeat};

pub fn tests() -> Vec<Test> {
    vec![
        Test::new("ledger::partition", partition).guest(),
        Test::new("ledger::raw_device", raw).guest(),
        Test::new("ledger::lazy_init_zeroes", || lazy_init(&Backing::Disk))
            .guest()
            .limit(120),
        Test::new("ledger::lazy_init_plain", || lazy_init(&Backing::Ramfs))
            .guest()
            .limit(120),
        Test::new("ledger::discards", discards).guest(),
        Test::new("ledger::nearly_full", nearly_full).guest(),
        Test::new("ledger::failed_writes", failed_writes).guest(),
    ]
}

/// The filesystem on the second partition while the first is written raw.
fn partition() -> Result<()> {
    let bed = Bed::new(Spec::ext4(96).partition(23))?;
    let first = bed.partition_node(1);
    let raw = [
        Step::Wait,
        open(&first, "wo direct"),
        repeat(
            101,
            vec![Step::Pwrite {
                at: 7 * BLOCK,
                len: 3 * BLOCK,
            }],
        ),
    ];
    let log = [
        Step::Wait,
        open(bed.path("log"), "wo creat excl append"),
        repeat(
            41,
            vec![Step::Write { len: 4096 }, Step::Sync(SyncCall::Fsync)],
        ),
    ];
    let ((raw, log), report) = traced(&bed, || {
        let mut raw = Writer::spawn("raw", &raw)?;
        let mut log = Writer::spawn("logger", &log)?;
        raw.go()?;
        log.go()?;
        Ok((raw.wait()?, log.wait()?))
    })?;
    let mut check = report.closed();
    check.eq(
        "raw",
        report.trigger("raw", "pwrite64"),
        303 * BLOCK_SECTORS,
    );
    check.eq("of raw", report.of("raw").sectors, 303 * BLOCK_SECTORS);
    check.dirtier_by(&raw, "raw", 303 * BLOCK_SECTORS);
    check.file_by(bed.ino("log")?, "fsync", 41 * BLOCK_SECTORS);
    check.eq("name", report.file_named("log").sectors, 41 * BLOCK_SECTORS);
    check.dirtier_by(&log, "fsync", 41 * BLOCK_SECTORS);
    check.is("the journal is known", report.path("journal") > 0);
    check.done()
}

/// No filesystem at all: direct, buffered and zeroing writes to the device.
fn raw() -> Result<()> {
    let bed = Bed::raw(Spec::ext4(32))?;
    let direct = [
        open(bed.node(), "wo direct"),
        repeat(
            67,
            vec![Step::Pwrite {
                at: 5 * BLOCK,
                len: 2 * BLOCK,
            }],
        ),
    ];
    let buffered = [
        open(bed.node(), "wo"),
        Step::Pwrite {
            at: 1013 * BLOCK,
            len: 59 * BLOCK,
        },
        Step::Sync(SyncCall::Fsync),
        Step::BlockRange {
            zero: true,
            at: 2003 * BLOCK,
            len: 37 * BLOCK,
        },
        Step::BlockRange {
            zero: false,
            at: 3001 * BLOCK,
            len: 31 * BLOCK,
        },
    ];
    let ((direct, buffered), report) = traced(&bed, || {
        let direct = writers::run("raw-direct", &direct)?;
        Ok((direct, writers::run("raw-buffered", &buffered)?))
    })?;
    let mut check = report.closed();
    check.eq(
        "all raw",
        report.path("raw"),
        (134 + 59 + 37) * BLOCK_SECTORS,
    );
    check.eq(
        "by pwrite64",
        report.trigger("raw", "pwrite64"),
        134 * BLOCK_SECTORS,
    );
    check.eq(
        "by fsync",
        report.trigger("raw", "fsync"),
        59 * BLOCK_SECTORS,
    );
    check.eq(
        "zeroed",
        report.op("raw", "write-zeroes"),
        37 * BLOCK_SECTORS,
    );
    check.eq(
        "sectors_zeroed",
        report.count("sectors_zeroed"),
        37 * BLOCK_SECTORS,
    );
    check.eq(
        "discarded",
        report.count("sectors_discarded"),
        31 * BLOCK_SECTORS,
    );
    check.dirtier_by(&direct, "raw", 134 * BLOCK_SECTORS);
    check.dirtier_by(&buffered, "raw", (59 + 37) * BLOCK_SECTORS);
    check.done()
}

/// The kernel initialises inode tables after the first mount: with one
/// command where the device can zero, else by writing zeroes. ramfs knows no
/// fallocate, so a loop device on it cannot.
fn lazy_init(backing: &Backing) -> Result<()> {
    let spec = Spec::ext4(300).mkfs("-N 32768").mount("init_itable=0");
    let mut bed = Bed::unmounted(spec.lazy().backing(backing.clone()))?;
    let zeroes = bed.queue_file("write_zeroes_max_bytes");
    let can_zero = crate::knob::read(&zeroes)? != "0";
    ensure!(
        can_zero == (*backing == Backing::Disk),
        "{} is not as expected",
        zeroes.display()
    );
    bed.settle()?;
    let tracer = Tracer::start(&bed, &[])?;
    bed.mount()?;
    wait_for_lazy_init(&bed)?;
    bed.settle()?;
    let report = tracer.stop()?;
    let by_zeroes = report.count("sectors_zeroed");
    let init = report.trigger("fs", "lazy-init");
    let mut check = report.closed();
    check.is(format!("{init} sectors of lazy init"), init > 2000);
    let (op, other) = if can_zero { (init, 0) } else { (0, init) };
    check.eq("by write-zeroes", report.op("fs", "write-zeroes"), op);
    check.eq("sectors_zeroed", by_zeroes, op);
    check.is("by write", report.op("fs", "write") >= other);
    check.is("of fs", report.of("fs").sectors >= init);
    check.done()
}

/// Waits until no group of the filesystem has an inode table left to zero.
fn wait_for_lazy_init(bed: &Bed) -> Result<()> {
    let mut still = 0;
    let mut before = bed.stat()?;
    for _ in 0..900 {
        std::thread::sleep(std::time::Duration::from_millis(100));
        let now = bed.stat()?;
        still = if now == before { still + 1 } else { 0 };
        // The thread starts up to ten seconds after the mount.
        if still >= 120 {
            return Ok(());
        }
        before = now;
    }
    anyhow::bail!("lazy initialisation does not end")
}

/// A removed file's blocks are discarded by the commit, free space by FITRIM.
fn discards() -> Result<()> {
    let bed = Bed::new(Spec::ext4(64).mount("discard"))?;
    writers::run("earlier", &filled(bed.path("old"), 509))?;
    let steps = [
        open(bed.path("kept"), "wo creat excl"),
        Step::Write { len: 17 * BLOCK },
        Step::Unlink {
            path: bed.path("old"),
        },
        Step::Sync(SyncCall::Fsync),
        Step::Trim,
    ];
    let (writer, report) = traced(&bed, || writers::run("trimmer", &steps))?;
    let discarded = report.count("sectors_discarded");
    let mut check = report.closed();
    check.eq(
        "discarded, against stat",
        discarded,
        report.stat.discard_sectors,
    );
    check.is("at least the file's", discarded >= 509 * BLOCK_SECTORS);
    check.eq("sectors_zeroed", report.count("sectors_zeroed"), 0);
    check.file_by(bed.ino("kept")?, "fsync", 17 * BLOCK_SECTORS);
    check.dirtier_by(&writer, "fsync", 17 * BLOCK_SECTORS);
    check.done()
}

/// Writes until there is no space, makes room, and again.
fn nearly_full() -> Result<()> {
    let bed = Bed::new(Spec::ext4(24).mkfs("-J size=4 -m 0"))?;
    let each = vec![
        open(bed.path("full{i}"), "wo creat excl"),
        Step::Fill { len: 3 * BLOCK + 7 },
        open(bed.path("more{i}"), "wo creat"),
        Step::Fails(Box::new(Step::Write { len: 100 * BLOCK })),
        Step::Unlink {
            path: bed.path("full{i}"),
        },
    ];
    let steps = [
        repeat(3, each),
        open(bed.path("last"), "wo creat excl"),
        Step::Fill { len: BLOCK },
        Step::Sync(SyncCall::Fsync),
    ];
    let (writer, report) = traced(&bed, || writers::run("filler", &steps))?;
    let row = report.file(bed.ino("last")?);
    let mut check = report.closed();
    check.is("the last file filled it", row.sectors > 12 << 11);
    check.is(
        "the writer is named",
        report.dirtier(writer.pid).sectors >= row.sectors,
    );
    check.done()
}

/// The loop device's image cannot grow: the device fails writes, which stat
/// counts as written all the same.
fn failed_writes() -> Result<()> {
    let spec = Spec::ext4(64).journal(4).mount("errors=continue");
    let bed = Bed::new(spec.backing(Backing::Tmpfs(24)))?;
    let good = filled(bed.path("good"), 101);
    let bad = [
        open(bed.path("bad"), "wo creat excl"),
        Step::Write { len: 30 << 20 },
        Step::Fails(Box::new(Step::Sync(SyncCall::Fsync))),
    ];
    bed.settle()?;
    let tracer = Tracer::start(&bed, &[])?;
    let writer = writers::run("good", &good)?;
    let ino = bed.ino("good")?;
    writers::run("bad", &bad)?;
    // The filesystem may be beyond repair: no word about their success.
    let _ = bed.syncfs().or_else(|_| bed.syncfs());
    bed.rest()?;
    let report = tracer.stop()?;
    let mut check = report.closed();
    check.is("failed writes are counted", report.count("failed") > 0);
    check.file_by(ino, "fsync", 101 * BLOCK_SECTORS);
    check.dirtier_by(&writer, "fsync", 101 * BLOCK_SECTORS);
    check.done()
}
