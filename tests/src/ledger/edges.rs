//! The edges of a run: a device that is busy when tracing begins and ends,
//! and `-- CMD`.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::bed::{Bed, Spec};
use crate::harness::{Test, scaled};
use crate::tracer::Tracer;
use crate::writers::{self, BLOCK, BLOCK_SECTORS, Step, Writer, filled, open};

pub fn tests() -> Vec<Test> {
    vec![
        Test::new("ledger::busy_at_both_edges", busy).guest(),
        Test::new("ledger::command", command).guest(),
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
        Step::RandomUntilTold {
            area,
            align: BLOCK,
            seed: 11,
        },
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
