//! What happens to bios below the filesystem: splits, merges, schedulers.

use anyhow::{Result, bail};

use crate::bed::{Bed, Spec};
use crate::harness::{Test, scaled, skip};
use crate::tracer::traced;
use crate::writers::{self, BLOCK, BLOCK_SECTORS, Step, Writer, filled, open, repeat};

const SCHEDULERS: [&str; 4] = ["none", "mq-deadline", "kyber", "bfq"];

pub fn tests() -> Vec<Test> {
    let mut tests = Vec::new();
    for scheduler in SCHEDULERS {
        let merged = move || merged(scheduler);
        tests.push(Test::new(format!("ledger::merged_{scheduler}"), merged).guest());
        for kib in [4, 64] {
            let test = Test::new(format!("ledger::split_{kib}k_{scheduler}"), move || {
                split(scheduler, kib)
            });
            let common = kib == 4 && ["none", "bfq"].contains(&scheduler);
            tests.push(if common { test.guest() } else { test.full() });
        }
    }
    tests
}

/// A bed under a scheduler; skips the test where the kernel has none such.
fn bed(spec: Spec, scheduler: &str) -> Result<Bed> {
    match Bed::new(spec.scheduler(scheduler)) {
        Err(error) if format!("{error:#}").contains("scheduler") => {
            Err(skip(format!("this kernel has no scheduler {scheduler}")))
        }
        result => result,
    }
}

/// Small files side by side and two direct writers: requests hold several bios.
fn merged(scheduler: &str) -> Result<()> {
    let bed = bed(Spec::ext4(64), scheduler)?;
    let count = scaled(211, 61);
    writers::run("earlier", &filled(bed.path("direct"), 509))?;
    let create = |name: &str| {
        let path = bed.path(&format!("{name}{{i}}"));
        [repeat(count, vec![Step::Create { path, len: 1777 }])]
    };
    let direct = [
        Step::Wait,
        open(bed.path("direct"), "wo direct"),
        repeat(
            scaled(5, 1),
            vec![Step::Pwrite {
                at: 0,
                len: 499 * BLOCK,
            }],
        ),
    ];
    let ((one, two, raw), report) = traced(&bed, || {
        let mut raw = Writer::spawn("direct", &direct)?;
        raw.go()?;
        let one = writers::run("files-one", &create("one"))?;
        let two = writers::run("files-two", &create("two"))?;
        bed.syncfs()?;
        Ok((one, two, raw.wait()?))
    })?;
    if report.stat.write_merges == 0 {
        bail!(
            "nothing was merged, the test shows nothing\n{}",
            report.dump()
        );
    }
    let mut check = report.closed();
    for n in (0..count).step_by(7) {
        check.file_by(bed.ino(&format!("one{n}"))?, "writeback", BLOCK_SECTORS);
        check.file_by(bed.ino(&format!("two{n}"))?, "writeback", BLOCK_SECTORS);
    }
    check.dirtier_by(&one, "writeback", count * BLOCK_SECTORS);
    check.dirtier_by(&two, "writeback", count * BLOCK_SECTORS);
    check.dirtier_by(&raw, "direct", scaled(5, 1) * 499 * BLOCK_SECTORS);
    check.done()
}

/// Bios larger than the device takes.
fn split(scheduler: &str, kib: u32) -> Result<()> {
    let bed = bed(Spec::ext4(64).max_sectors_kb(kib), scheduler)?;
    writers::run("earlier", &filled(bed.path("direct"), 521))?;
    let buffered = [
        open(bed.path("buffered"), "wo creat excl"),
        Step::Write { len: 1009 * BLOCK },
    ];
    let direct = [
        Step::Wait,
        open(bed.path("direct"), "wo direct"),
        repeat(
            scaled(5, 1),
            vec![Step::Pwrite {
                at: BLOCK,
                len: 517 * BLOCK,
            }],
        ),
    ];
    let ((writer, raw), report) = traced(&bed, || {
        let mut raw = Writer::spawn("direct", &direct)?;
        raw.go()?;
        let writer = writers::run("buffered", &buffered)?;
        bed.syncfs()?;
        Ok((writer, raw.wait()?))
    })?;
    let mut check = report.closed();
    let raw_sectors = scaled(5, 1) * 517 * BLOCK_SECTORS;
    check.file_by(bed.ino("buffered")?, "writeback", 1009 * BLOCK_SECTORS);
    check.file_by(bed.ino("direct")?, "direct", raw_sectors);
    check.dirtier_by(&writer, "writeback", 1009 * BLOCK_SECTORS);
    check.dirtier_by(&raw, "direct", raw_sectors);
    check.done()
}
