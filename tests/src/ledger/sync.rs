//! Data that somebody asked to have on the device: fsync and its kin, direct
//! I/O, sync.

use anyhow::Result;

use crate::bed::{Backing, Bed, Spec};
use crate::harness::{Test, has_uring, scaled};
use crate::knob::Knob;
use crate::tracer::traced;
use crate::writers::{
    self, BLOCK, BLOCK_SECTORS, Queue, Random, Step, SyncCall, Writer, append_sectors, filled,
    open, repeat,
};

pub fn tests() -> Vec<Test> {
    vec![
        Test::new("ledger::mmap_and_msync", mmap).guest(),
        Test::new("ledger::direct", direct).guest(),
        Test::new("ledger::direct_without_symbols", direct_without_symbols).guest(),
        Test::new("ledger::direct_append", direct_append).guest(),
        Test::new("ledger::overlapping_direct_4k", || overlapping(1)).guest(),
        Test::new("ledger::overlapping_direct_mixed", || overlapping(8)).guest(),
        Test::new("ledger::overlapping_direct_hot", hot).full(),
        Test::new("ledger::direct_aio", || queued(Queue::Aio, "io_submit")).guest(),
        Test::new("ledger::direct_io_uring", || {
            queued(Queue::Uring, "io_uring")
        })
        .guest()
        .needs(has_uring),
        Test::new("ledger::o_sync", || o_sync("sync")).guest(),
        Test::new("ledger::o_dsync", || o_sync("dsync")).guest(),
        Test::new("ledger::sync_file_range", sync_range).guest(),
        Test::new("ledger::fsync_storm", storm).guest(),
        Test::new("ledger::sync", sync).guest(),
    ]
}

/// Stores through a map, then msync: whole folios are dirty.
fn mmap() -> Result<()> {
    let bed = Bed::new(Spec::ext4(64))?;
    writers::run("earlier", &filled(bed.path("map"), 257))?;
    let store = Step::MmapStore {
        at: 0,
        stride: 7 * BLOCK + 8,
        count: 31,
        msync: true,
    };
    let steps = [open(bed.path("map"), "rw"), store];
    let (writer, report) = traced(&bed, || writers::run("mapper", &steps))?;
    let row = report.file(bed.ino("map")?);
    let mut check = report.closed();
    check.is(
        "at least the touched pages",
        row.path("fsync") >= 31 * BLOCK_SECTORS,
    );
    check.eq("all of the file by fsync", row.path("fsync"), row.sectors);
    check.eq("by msync", report.trigger("fsync", "msync"), row.sectors);
    check.dirtier_by(&writer, "fsync", row.sectors);
    check.done()
}

/// `O_DIRECT` over written blocks: no metadata at all but the time stamps.
fn direct() -> Result<()> {
    let bed = Bed::new(Spec::ext4(64))?;
    writers::run("earlier", &filled(bed.path("raw"), 1021))?;
    let count = scaled(509, 127);
    let steps = [
        open(bed.path("raw"), "wo direct"),
        repeat(
            count,
            vec![Step::Pwrite {
                at: 13 * BLOCK,
                len: 3 * BLOCK,
            }],
        ),
        Step::Write { len: 127 * BLOCK },
    ];
    let (writer, report) = traced(&bed, || writers::run("direct", &steps))?;
    let sectors = (count * 3 + 127) * BLOCK_SECTORS;
    let mut check = report.closed();
    check.file_by(bed.ino("raw")?, "direct", sectors);
    check.eq(
        "by pwrite64",
        report.trigger("direct", "pwrite64"),
        count * 3 * BLOCK_SECTORS,
    );
    check.eq(
        "by write",
        report.trigger("direct", "write"),
        127 * BLOCK_SECTORS,
    );
    check.dirtier_by(&writer, "direct", sectors);
    check.done()
}

/// The same where the kernel hides the addresses of its functions, so that no
/// bio tells that it is direct I/O and other hooks have to.
fn direct_without_symbols() -> Result<()> {
    let _hidden = Knob::set("/proc/sys/kernel/kptr_restrict", "2")?;
    direct()
}

/// `O_DIRECT` that allocates, with an odd tail that must be aligned by us.
fn direct_append() -> Result<()> {
    let bed = Bed::new(Spec::ext4(64))?;
    let steps = [
        open(bed.path("grown"), "wo creat excl append direct"),
        repeat(67, vec![Step::Write { len: 5 * BLOCK }]),
    ];
    let (writer, report) = traced(&bed, || writers::run("grower", &steps))?;
    let sectors = 67 * 5 * BLOCK_SECTORS;
    let mut check = report.closed();
    check.file_by(bed.ino("grown")?, "direct", sectors);
    check.dirtier_by(&writer, "direct", sectors);
    check.done()
}

/// Two processes with four threads each write into the same 64 KiB at once.
fn overlapping(max_blocks: u64) -> Result<()> {
    let random = Random {
        area: 16 * BLOCK,
        align: BLOCK,
        min: BLOCK,
        max: max_blocks * BLOCK,
        count: scaled(1009, 151),
        seed: 1,
    };
    overlap(&Bed::new(Spec::ext4(64))?, random, 4)
}

/// The same in three blocks of a device in memory: nearly every write has
/// twins in flight that begin where it does, some of its length and some not,
/// and both CPUs complete them at once. What is counted for the wrong twin, or
/// twice, leaves another one in the books. Four writers: nine bios in flight on
/// one start sector can be told apart, and some stay whose end nobody saw.
fn hot() -> Result<()> {
    let bed = Bed::new(Spec::ext4(64).backing(Backing::Tmpfs(96)))?;
    let random = Random {
        area: 3 * BLOCK,
        align: BLOCK,
        min: BLOCK,
        max: 3 * BLOCK,
        count: 20_011,
        seed: 1,
    };
    overlap(&bed, random, 2)
}

/// Two processes with so many threads each write at random into one file.
fn overlap(bed: &Bed, random: Random, threads: u64) -> Result<()> {
    writers::run("earlier", &filled(bed.path("hot"), random.area / BLOCK))?;
    let random = |seed| Random { seed, ..random };
    let steps = |seed| {
        let file = open(bed.path("hot"), "wo direct");
        let steps = vec![file, Step::Random(random(seed))];
        let count = threads;
        [Step::Wait, Step::Threads { count, steps }]
    };
    let ((one, two), report) = traced(bed, || {
        let mut one = Writer::spawn("overlap-one", &steps(1))?;
        let mut two = Writer::spawn("overlap-two", &steps(2))?;
        one.go()?;
        two.go()?;
        Ok((one.wait()?, two.wait()?))
    })?;
    let sectors = |seed| random(seed).bytes(threads) / 512;
    let mut check = report.closed();
    check.file_by(bed.ino("hot")?, "direct", sectors(1) + sectors(2));
    check.dirtier_by(&one, "direct", sectors(1));
    check.dirtier_by(&two, "direct", sectors(2));
    check.done()
}

/// Direct writes at a queue depth from one thread, overlapping now and then.
fn queued(queue: Queue, trigger: &str) -> Result<()> {
    let bed = Bed::new(Spec::ext4(64))?;
    writers::run("earlier", &filled(bed.path("deep"), 503))?;
    let random = Random {
        area: 503 * BLOCK,
        align: BLOCK,
        min: BLOCK,
        max: 5 * BLOCK,
        count: scaled(2003, 307),
        seed: 17,
    };
    let sectors = random.bytes(1) / 512;
    let depth = 31;
    let steps = [
        open(bed.path("deep"), "wo direct"),
        Step::Queued {
            queue,
            depth,
            random,
        },
    ];
    let (writer, report) = traced(&bed, || writers::run("queued", &steps))?;
    let mut check = report.closed();
    check.file_by(bed.ino("deep")?, "direct", sectors);
    check.eq(
        format!("by {trigger}"),
        report.trigger("direct", trigger),
        sectors,
    );
    check.dirtier_by(&writer, "direct", sectors);
    check.done()
}

/// Appends to a file opened with `O_SYNC` or `O_DSYNC`.
fn o_sync(flag: &str) -> Result<()> {
    let bed = Bed::new(Spec::ext4(64))?;
    let (len, count) = (5003, 29);
    let steps = [
        open(bed.path("log"), &format!("wo creat excl append {flag}")),
        repeat(count, vec![Step::Write { len }]),
    ];
    let (writer, report) = traced(&bed, || writers::run("syncer", &steps))?;
    let sectors = append_sectors(0, len, count);
    let mut check = report.closed();
    check.file_by(bed.ino("log")?, "fsync", sectors);
    check.eq(
        "by the writes",
        report.trigger("fsync", "sync-write"),
        sectors,
    );
    check.dirtier_by(&writer, "fsync", sectors);
    check.eq("commits by fsync", report.commits("fsync", "count"), count);
    check.done()
}

fn sync_range() -> Result<()> {
    let bed = Bed::new(Spec::ext4(64))?;
    let steps = [
        open(bed.path("stream"), "wo creat excl"),
        Step::Write { len: 83 * BLOCK },
        Step::SyncRange {
            at: 0,
            len: 71 * BLOCK,
        },
        Step::Write { len: 11 * BLOCK },
    ];
    let (writer, report) = traced(&bed, || writers::run("streamer", &steps))?;
    let row = report.file(bed.ino("stream")?);
    // The call writes whole folios: a few blocks past its range.
    let ranged = row.path("fsync");
    let later = row.path("writeback");
    let mut check = report.closed();
    let asked = 71 * BLOCK_SECTORS..=83 * BLOCK_SECTORS;
    check.is(format!("{ranged} by fsync"), asked.contains(&ranged));
    check.eq("each block once", ranged + later, 94 * BLOCK_SECTORS);
    let trigger = report.trigger("fsync", "sync_file_range");
    check.eq("by sync_file_range", trigger, ranged);
    check.dirtier_by(&writer, "fsync", ranged);
    check.dirtier_by(&writer, "writeback", later);
    check.done()
}

/// Eight processes append and fsync at once, each its own file.
fn storm() -> Result<()> {
    let bed = Bed::new(Spec::ext4(64))?;
    let (len, count) = (1777, scaled(101, 29));
    let steps = |n: u32| {
        let each = vec![Step::Write { len }, Step::Sync(SyncCall::Fsync)];
        let file = open(bed.path(&format!("log{n}")), "wo creat excl append");
        [Step::Wait, file, repeat(count, each)]
    };
    let (done, report) = traced(&bed, || {
        let spawn = |n| Writer::spawn(&format!("storm{n}"), &steps(n));
        let mut writers = (0..8).map(spawn).collect::<Result<Vec<_>>>()?;
        for writer in &mut writers {
            writer.go()?;
        }
        writers
            .into_iter()
            .map(Writer::wait)
            .collect::<Result<Vec<_>>>()
    })?;
    let sectors = append_sectors(0, len, count);
    let mut check = report.closed();
    for (n, writer) in done.iter().enumerate() {
        check.file_by(bed.ino(&format!("log{n}"))?, "fsync", sectors);
        check.dirtier_by(writer, "fsync", sectors);
    }
    check.eq("by fsync", report.trigger("fsync", "fsync"), 8 * sectors);
    check.is("commits by fsync", report.commits("fsync", "count") > count);
    check.done()
}

/// sync(2) of the whole machine by a process of its own.
fn sync() -> Result<()> {
    let bed = Bed::new(Spec::ext4(64))?;
    let dirty = [
        open(bed.path("data"), "wo creat excl"),
        Step::Write { len: 89 * BLOCK },
    ];
    let (writer, report) = traced(&bed, || {
        let writer = writers::run("dirtier", &dirty)?;
        writers::run("sync", &[Step::Sync(SyncCall::Sync)])?;
        Ok(writer)
    })?;
    let mut check = report.closed();
    check.file_by(bed.ino("data")?, "writeback", 89 * BLOCK_SECTORS);
    check.eq(
        "by sync",
        report.trigger("writeback", "sync"),
        89 * BLOCK_SECTORS,
    );
    check.dirtier_by(&writer, "writeback", 89 * BLOCK_SECTORS);
    check.is("a commit by sync", report.commits("sync", "count") > 0);
    check.is("metadata by sync", report.trigger("metadata", "sync") > 0);
    check.done()
}
