//! How the filesystem is made and mounted: lazy initialisation, data=journal,
//! block size.

use std::time::Duration;

use anyhow::Result;

use super::run::{After, Answers, append, case, holds, percent, syncfs, traced, within};
use crate::bed::{Bed, Spec};
use crate::harness::Test;
use crate::writers::{Step, SyncCall, open, repeat, run};

pub fn tests() -> Vec<Test> {
    vec![
        case(32, "new_disk_keeps_blinking", lazy_init),
        case(36, "data_journal", data_journal),
        case(66, "block_size_of_a_log", block_size),
    ]
}

/// Who writes on an empty filesystem, and for how long?
fn lazy_init() -> Result<()> {
    for options in ["", "noinit_itable"] {
        let mut bed = Bed::unmounted(Spec::ext4(1024).lazy().mount(options))?;
        bed.settle()?;
        let tracer = crate::tracer::Tracer::start(&bed, &[])?;
        bed.mount()?;
        std::thread::sleep(Duration::from_secs(14));
        let report = tracer.stop()?;
        report.closed().done()?;
        let zeroed = report.trigger("fs", "lazy-init");
        if options.is_empty() {
            within(&report, "sectors zeroed", zeroed as f64, 30000.0..=33000.0)?;
            holds(
                &report,
                "they are write-zeroes, and in the total",
                report.op("fs", "write-zeroes") == zeroed && report.total() >= zeroed,
            )?;
            holds(
                &report,
                "and have a column of their own",
                report.count("sectors_zeroed") == zeroed,
            )?;
        } else {
            holds(&report, "8 sectors at most", report.total() <= 8)?;
        }
    }
    Ok(())
}

/// Twice the wear, and by whose name?
fn data_journal() -> Result<()> {
    let mut totals = Vec::new();
    for options in ["data=journal", ""] {
        let bed = Bed::new(Spec::ext4(256).mount(options))?;
        let (report, _) = traced(&bed, || {
            run(
                "dd",
                &[
                    open(bed.path("x"), "wo creat"),
                    repeat(50, vec![Step::Write { len: 1 << 20 }]),
                    Step::Sync(SyncCall::Fsync),
                ],
            )?;
            syncfs(&bed)
        })?;
        let file = percent(report.file_named("x").sectors, report.total());
        within(&report, "percent of file x", file, 97.0..=100.0)?;
        if options == "data=journal" {
            within(
                &report,
                "journal percent",
                report.journal_percent(),
                48.0..=53.0,
            )?;
            let logged = report.file_named("x").path("journal");
            holds(
                &report,
                "the file owns the journal's half too",
                logged >= 50 << 11,
            )?;
        }
        totals.push((report.total(), report));
    }
    let ratio = totals[0].0 as f64 / totals[1].0 as f64;
    within(&totals[0].1, "data=journal over ordered", ratio, 1.9..=2.2)
}

/// The tail block is written once for each fsync: smaller blocks, less wear.
fn block_size() -> Result<()> {
    let mut totals = Vec::new();
    for size in ["1024", "4096"] {
        let bed = Bed::new(Spec::ext4(256).mkfs(&format!("-b {size}")))?;
        let steps = append(&bed.path("log"), 100, 100, After::Fsync, 0);
        let (report, _) = traced(&bed, || run("logger", &steps))?;
        holds(
            &report,
            "100 commits by fsync",
            report.commits("fsync", "count") == 100 && report.all_commits() == 100,
        )?;
        totals.push((report.total(), report));
    }
    let ratio = totals[0].0 as f64 / totals[1].0 as f64;
    within(&totals[0].1, "1 KiB over 4 KiB", ratio, 0.2..=0.32)
}
