//! The edges of a run: a device that is busy when tracing begins and ends,
//! and `-- CMD`.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::bed::{Bed, Spec};
use crate::harness::{Test, scaled};
use crate::tracer::Tracer;
use crate::writers::{self, BLOCK, BLOCK_SECTORS, Random, Step, Writer, filled, open, repeat};

pub fn tests() -> Vec<Test> {
    vec![
        Test::new("ledger::busy_at_both_edges", busy).guest(),
        Test::new("ledger::command", command).guest(),
        Test::new("ledger::still_dirty", still_dirty).guest(),
        Test::new("ledger::sync_option", sync_option),
        Test::new("ledger::age_of_dirty_data", age).guest(),
        Test::new("ledger::top", top),
    ]
}

/// Direct writers at depth over the whole run: what was in flight when the
/// probes came is named, and the equation holds.
fn busy() -> Result<()> {
    let bed = Bed::new(Spec::ext4(96))?;
    let area = 8 << 20;
    writers::run("earlier", &filled(bed.path("hot"), area / BLOCK))?;
    bed.settle()?;
    let one = vec![
        open(bed.path("hot"), "wo direct"),
        Step::RandomUntilTold(Random {
            area,
            align: BLOCK,
            min: BLOCK,
            max: BLOCK,
            count: 0,
            seed: 11,
        }),
    ];
    let steps = [Step::Threads {
        count: 16,
        steps: one,
    }];
    let mut writer = Writer::spawn("busy", &steps)?;
    wait_until_busy(&bed)?;
    let tracer = Tracer::start(&bed, &[])?;
    let inner = bed.stat()?;
    std::thread::sleep(Duration::from_secs(scaled(2, 6)));
    let inner = bed.stat()?.since(inner);
    let report = tracer.stop()?;
    writer.go()?;
    let writer = writer.wait()?;
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
    check.is("some were in flight before", before > 0);
    check.eq("unattributed", report.count("sectors_unattributed"), before);
    check.eq(
        "direct",
        report.path("direct"),
        report.count("sectors_attributed"),
    );
    check.dirtier_by(&writer, "direct", report.path("direct"));
    check.done()
}

fn wait_until_busy(bed: &Bed) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(10);
    let before = bed.stat()?;
    while bed.stat()?.since(before).write_ios < 1000 {
        ensure!(Instant::now() < end, "the writers do not get going");
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

/// Data that nobody brought to the device before the end is told.
fn still_dirty() -> Result<()> {
    let bed = Bed::new(Spec::ext4(64))?;
    let steps = [
        open(bed.path("dirty"), "wo creat excl"),
        Step::Write { len: 61 * BLOCK },
    ];
    let tracer = Tracer::start(&bed, &[])?;
    writers::run("dirtier", &steps)?;
    let report = tracer.stop()?;
    let mut check = report.closed();
    let dirty = report.count("still_dirty_bytes");
    check.is(
        format!("{dirty} bytes still dirty"),
        (61 * BLOCK..(1 << 20)).contains(&dirty),
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
    check.eq("still dirty", report.count("still_dirty_bytes"), 0);
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
