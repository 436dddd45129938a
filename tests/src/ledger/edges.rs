//! The edges of a run: a device that is busy when tracing begins and ends,
//! and `-- CMD`.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::bed::{Backing, Bed, Spec};
use crate::disk::DiskStat;
use crate::harness::{Test, scaled};
use crate::report::{Check, Report};
use crate::tracer::Tracer;
use crate::writers::{
    self, BLOCK, BLOCK_SECTORS, Done, Random, Step, Writer, filled, open, repeat,
};

pub fn tests() -> Vec<Test> {
    vec![
        Test::new("ledger::busy_at_both_edges", || busy(1))
            .full()
            .guest(),
        Test::new("ledger::busy_with_large_writes", || busy(127)).full(),
        Test::new("ledger::in_flight_before", in_flight).guest(),
        Test::new("ledger::command", command).guest(),
        Test::new("ledger::still_dirty", still_dirty).guest(),
        Test::new("ledger::sync_option", sync_option),
        Test::new("ledger::age_of_dirty_data", age).guest(),
        Test::new("ledger::top", top),
    ]
}

/// Threads of the busy writer.
const BUSY: u64 = 16;

fn busy_writes(blocks: u64) -> Random {
    Random {
        area: 8 << 20,
        align: BLOCK,
        min: blocks.div_ceil(2) * BLOCK,
        max: blocks * BLOCK,
        count: 0,
        seed: 11,
    }
}

fn busy_steps(bed: &Bed, blocks: u64) -> [Step; 1] {
    let file = open(bed.path("hot"), "wo direct");
    let steps = vec![file, Step::RandomUntilTold(busy_writes(blocks))];
    [Step::Threads { count: BUSY, steps }]
}

/// What holds on a device that is busy at both edges.
fn check_busy<'a>(report: &'a Report, inner: DiskStat, writer: &Done) -> Check<'a> {
    let mut check = report.check();
    check.sums();
    check.eq("exit status", report.status.code(), Some(0));
    check.eq("residual", report.device()["residual"].as_i64(), Some(0));
    let written = report.count("sectors_written");
    let (least, most) = (inner.write_sectors, report.stat.write_sectors);
    check.is(
        format!("{least} <= {written} <= {most}"),
        least <= written && written <= most,
    );
    let before = report.count("in_flight_before");
    check.eq("unattributed", report.count("sectors_unattributed"), before);
    // Nothing else is written but time stamps, if a commit falls into it.
    let direct = report.path("direct");
    let attributed = report.count("sectors_attributed");
    let stamps = report.path("journal") + report.path("metadata");
    check.eq("direct and time stamps", direct + stamps, attributed);
    check.is(format!("{stamps} sectors for time stamps"), stamps < 200);
    check.dirtier_by(writer, "direct", report.path("direct"));
    check
}

/// Direct writers at depth over the whole run, on a device as fast as it is.
fn busy(blocks: u64) -> Result<()> {
    let bed = Bed::new(Spec::ext4(64))?;
    writers::run("earlier", &filled(bed.path("hot"), (8 << 20) / BLOCK))?;
    bed.settle()?;
    let mut writer = Writer::spawn("busy", &busy_steps(&bed, blocks))?;
    let before = bed.stat()?;
    wait_until("the writers to get going", || {
        Ok(bed.stat()?.since(before).write_ios > 100)
    })?;
    let tracer = Tracer::start(&bed, &[])?;
    let inner = bed.stat()?;
    std::thread::sleep(Duration::from_secs(scaled(1, 5)));
    let inner = bed.stat()?.since(inner);
    let report = tracer.stop()?;
    writer.go()?;
    let writer = writer.wait()?;
    check_busy(&report, inner, &writer).done()
}

/// The same, and every thread's first write hangs in the device while tracing
/// begins: the image below it lies on a filesystem that is frozen. What was in
/// flight before is then known to the sector, and named.
fn in_flight() -> Result<()> {
    let below = Bed::new(Spec::ext4(96))?;
    let spec = Spec::ext4(64).mount("commit=300");
    let bed = Bed::new(spec.backing(Backing::Dir(below.mnt())))?;
    writers::run("earlier", &filled(bed.path("hot"), (8 << 20) / BLOCK))?;
    bed.settle()?;
    below.settle()?;
    let freezer = [open(below.mnt(), "ro"), Step::Frozen];
    let mut freezer = Writer::spawn_apart("freezer", &freezer)?;
    freezer.hear()?;
    let blocks = 7;
    let mut writer = Writer::spawn("busy", &busy_steps(&bed, blocks))?;
    wait_until("a write of each thread in flight", || {
        Ok(bed.stat()?.in_flight == BUSY)
    })?;
    let tracer = Tracer::start(&bed, &[])?;
    let inner = bed.stat()?;
    freezer.go()?;
    freezer.wait()?;
    std::thread::sleep(Duration::from_secs(scaled(1, 5)));
    let inner = bed.stat()?.since(inner);
    let report = tracer.stop()?;
    writer.go()?;
    let writer = writer.wait()?;
    let first = |thread| busy_writes(blocks).places(thread).next();
    let hung: u64 = (0..BUSY).filter_map(first).map(|(_, len)| len / 512).sum();
    let mut check = check_busy(&report, inner, &writer);
    check.eq("in flight before", report.count("in_flight_before"), hung);
    check.done()
}

fn wait_until(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(10);
    while !holds()? {
        ensure!(Instant::now() < end, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// `-- CMD`: from before the command to after its end, its status passed on.
fn command() -> Result<()> {
    let bed = Bed::new(Spec::ext4(64))?;
    let steps = filled(bed.path("new"), 73);
    let (command, stdin) = writers::command("command", &steps, &bed.scratch("script"))?;
    bed.settle()?;
    let report = Tracer::command(&bed, &[], &command, stdin)?;
    let mut check = report.closed();
    check.file_by(bed.ino("new")?, "fsync", 73 * BLOCK_SECTORS);
    check.eq(
        "by fsync",
        report.trigger("fsync", "fsync"),
        73 * BLOCK_SECTORS,
    );
    check.done()
}

/// Data that nobody brought to the device before the end is told, as exactly
/// as the kernel's counters are, which the report says.
fn still_dirty() -> Result<()> {
    let bed = Bed::new(Spec::ext4(64))?;
    let steps = [
        open(bed.path("dirty"), "wo creat excl"),
        Step::Write { len: 1009 * BLOCK },
    ];
    let tracer = Tracer::start(&bed, &[])?;
    writers::run("dirtier", &steps)?;
    let report = tracer.stop()?;
    // Not held to stat: the flusher may come after the end.
    let mut check = report.check();
    check.sums();
    let dirty = report.count("still_dirty_bytes") + 512 * report.count("sectors_written");
    let error = report.count("still_dirty_error_bytes");
    if report.device()["still_dirty_bytes"].is_null() {
        // Older kernels count the root cgroup's alone: they must say so.
        let why = report.device()["still_dirty_missing"].as_str();
        let why = why.unwrap_or_default();
        let handed = std::fs::read_to_string("/sys/fs/cgroup/cgroup.subtree_control");
        let handed = handed.unwrap_or_default();
        check.is(
            format!("missing: {why}"),
            why.contains("root cgroup") && handed.contains("io") && handed.contains("memory"),
        );
        return check.done();
    }
    check.is(
        format!("{dirty} bytes still dirty, +-{error}"),
        dirty.abs_diff(1009 * BLOCK) <= error && error <= 1 << 20,
    );
    check.done()
}

/// `--sync` brings it to the device before the end, under writepath's name.
fn sync_option() -> Result<()> {
    let bed = Bed::new(Spec::ext4(64))?;
    let steps = [
        open(bed.path("dirty"), "wo creat excl"),
        Step::Write { len: 67 * BLOCK },
    ];
    let (command, stdin) = writers::command("dirtier", &steps, &bed.scratch("script"))?;
    bed.settle()?;
    let report = Tracer::command(&bed, &["--sync"], &command, stdin)?;
    let mut check = report.closed();
    check.file_by(bed.ino("dirty")?, "writeback", 67 * BLOCK_SECTORS);
    check.eq(
        "by sync",
        report.trigger("writeback", "sync"),
        67 * BLOCK_SECTORS,
    );
    let dirty = report.count("still_dirty_bytes");
    let error = report.count("still_dirty_error_bytes");
    check.is(format!("{dirty} bytes still dirty"), dirty <= error);
    check.done()
}

/// How long data was dirty before it was submitted: here about a second.
fn age() -> Result<()> {
    let bed = Bed::new(Spec::ext4(64))?;
    let steps = [
        open(bed.path("old"), "wo creat excl"),
        Step::Write { len: 31 * BLOCK },
        Step::Sleep { ms: 1100 },
        Step::Sync(crate::writers::SyncCall::Fdatasync),
    ];
    let ((), report) = crate::tracer::traced(&bed, || writers::run("waiter", &steps).map(drop))?;
    let ages = report.device()["age_us"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let age = ages
        .iter()
        .find(|age| age["path"] == "fsync")
        .cloned()
        .unwrap_or_default();
    let mut check = report.closed();
    for key in ["median", "p99", "max"] {
        let micros = age[key].as_u64().unwrap_or(0);
        check.is(
            format!("{key} {micros} us"),
            (1_000_000..2_500_000).contains(&micros),
        );
    }
    check.eq("sectors", age["sectors"].as_u64(), Some(31 * BLOCK_SECTORS));
    check.done()
}

/// `--top` shortens the lists, and the rest is still in the sums.
fn top() -> Result<()> {
    let bed = Bed::new(Spec::ext4(64))?;
    let steps = [repeat(
        29,
        vec![Step::Create {
            path: bed.path("f{i}"),
            len: BLOCK,
        }],
    )];
    bed.settle()?;
    let tracer = Tracer::start(&bed, &["--top", "3"])?;
    writers::run("many", &steps)?;
    bed.settle()?;
    let report = tracer.stop()?;
    let mut check = report.closed();
    let rows = report.files().len();
    check.is(format!("{rows} rows of files"), rows <= 4);
    check.done()
}
