//! File data that some call had to write first, though nobody asked for a sync.

use anyhow::Result;

use crate::bed::{Bed, Spec};
use crate::harness::Test;
use crate::tracer::traced;
use crate::writers::{self, BLOCK, BLOCK_SECTORS, Step, Writer, filled, open};

pub fn tests() -> Vec<Test> {
    vec![
        Test::new("ledger::truncated_and_replaced", truncated).guest(),
        Test::new("ledger::replaced_and_exited", exited).guest(),
        Test::new("ledger::renamed_over", renamed).guest(),
        Test::new("ledger::forced_by_fadvise", || {
            forced("fadvise", &[Step::DontNeed])
        })
        .guest(),
        Test::new("ledger::forced_by_fiemap", || {
            forced("fiemap", &[Step::FiemapSync])
        }),
        Test::new("ledger::forced_by_direct_write", direct_write).guest(),
        Test::new("ledger::forced_by_direct_read", direct_read),
        Test::new("ledger::frozen", frozen),
    ]
}

/// close(2) of a file that was truncated and rewritten flushes it.
fn truncated() -> Result<()> {
    let bed = Bed::new(Spec::ext4(64))?;
    writers::run("earlier", &filled(bed.path("state"), 59))?;
    let steps = [
        open(bed.path("state"), "wo trunc"),
        Step::Write {
            len: 53 * BLOCK - 17,
        },
        Step::Close,
    ];
    let (writer, report) = traced(&bed, || writers::run("replacer", &steps))?;
    let mut check = report.closed();
    check.file_by(bed.ino("state")?, "forced", 53 * BLOCK_SECTORS);
    check.eq(
        "by close",
        report.trigger("forced", "close"),
        53 * BLOCK_SECTORS,
    );
    check.dirtier_by(&writer, "forced", 53 * BLOCK_SECTORS);
    check.done()
}

/// The same without close(2): the process's end closes the file.
fn exited() -> Result<()> {
    let bed = Bed::new(Spec::ext4(64))?;
    writers::run("earlier", &filled(bed.path("state"), 59))?;
    let steps = [
        open(bed.path("state"), "wo trunc"),
        Step::Write {
            len: 47 * BLOCK - 17,
        },
    ];
    let (writer, report) = traced(&bed, || writers::run("exiter", &steps))?;
    let mut check = report.closed();
    check.file_by(bed.ino("state")?, "forced", 47 * BLOCK_SECTORS);
    check.eq(
        "by exit",
        report.trigger("forced", "exit"),
        47 * BLOCK_SECTORS,
    );
    check.dirtier_by(&writer, "forced", 47 * BLOCK_SECTORS);
    check.done()
}

/// rename(2) over an existing file flushes the new one.
fn renamed() -> Result<()> {
    let bed = Bed::new(Spec::ext4(64))?;
    writers::run("earlier", &filled(bed.path("config"), 59))?;
    let steps = [
        open(bed.path("config.tmp"), "wo creat excl"),
        Step::Write {
            len: 41 * BLOCK - 17,
        },
        Step::Close,
        Step::Rename {
            from: bed.path("config.tmp"),
            to: bed.path("config"),
        },
    ];
    let (writer, report) = traced(&bed, || writers::run("renamer", &steps))?;
    let row = report.file(bed.ino("config")?);
    let mut check = report.closed();
    check.file_by(bed.ino("config")?, "forced", 41 * BLOCK_SECTORS);
    check.is(
        format!("{:?} is a name that the file had", row.name),
        ["config", "config.tmp"].contains(&row.name.as_str()),
    );
    check.eq(
        "by rename",
        report.trigger("forced", "rename"),
        41 * BLOCK_SECTORS,
    );
    check.dirtier_by(&writer, "forced", 41 * BLOCK_SECTORS);
    check.done()
}

/// Dirty data of one process that a call of another one flushes.
fn forced(trigger: &str, call: &[Step]) -> Result<()> {
    let bed = Bed::new(Spec::ext4(64))?;
    let path = bed.path("victim");
    let dirty = [
        open(&path, "wo creat excl"),
        Step::Write { len: 37 * BLOCK },
    ];
    let mut flush = vec![open(&path, "rw")];
    flush.extend_from_slice(call);
    let (writer, report) = traced(&bed, || {
        let writer = writers::run("dirtier", &dirty)?;
        writers::run("flusher", &flush)?;
        Ok(writer)
    })?;
    let mut check = report.closed();
    check.file_by(bed.ino("victim")?, "forced", 37 * BLOCK_SECTORS);
    check.eq(
        "by the call",
        report.trigger("forced", trigger),
        37 * BLOCK_SECTORS,
    );
    check.dirtier_by(&writer, "forced", 37 * BLOCK_SECTORS);
    check.done()
}

/// An `O_DIRECT` write over dirty pages flushes them first, then writes its own.
fn direct_write() -> Result<()> {
    let bed = Bed::new(Spec::ext4(64))?;
    writers::run("earlier", &filled(bed.path("mixed"), 101))?;
    let dirty = [
        open(bed.path("mixed"), "wo"),
        Step::Pwrite {
            at: 10 * BLOCK,
            len: 7 * BLOCK,
        },
    ];
    let direct = [
        open(bed.path("mixed"), "wo direct"),
        Step::Pwrite {
            at: 5 * BLOCK,
            len: 23 * BLOCK,
        },
    ];
    let ((dirtier, writer), report) = traced(&bed, || {
        let dirtier = writers::run("dirtier", &dirty)?;
        Ok((dirtier, writers::run("direct", &direct)?))
    })?;
    let row = report.file(bed.ino("mixed")?);
    let mut check = report.closed();
    check.eq("forced", row.path("forced"), 7 * BLOCK_SECTORS);
    check.eq("direct", row.path("direct"), 23 * BLOCK_SECTORS);
    check.eq(
        "by direct-io",
        report.trigger("forced", "direct-io"),
        7 * BLOCK_SECTORS,
    );
    check.dirtier_by(&dirtier, "forced", 7 * BLOCK_SECTORS);
    check.dirtier_by(&writer, "direct", 23 * BLOCK_SECTORS);
    check.done()
}

/// An `O_DIRECT` read of dirty pages flushes them.
fn direct_read() -> Result<()> {
    let bed = Bed::new(Spec::ext4(64))?;
    writers::run("earlier", &filled(bed.path("mixed"), 101))?;
    let dirty = [
        open(bed.path("mixed"), "wo"),
        Step::Pwrite {
            at: 10 * BLOCK,
            len: 7 * BLOCK,
        },
    ];
    let read = [
        open(bed.path("mixed"), "ro direct"),
        Step::Read {
            at: 5 * BLOCK,
            len: 23 * BLOCK,
        },
    ];
    let (dirtier, report) = traced(&bed, || {
        let dirtier = writers::run("dirtier", &dirty)?;
        writers::run("reader", &read)?;
        Ok(dirtier)
    })?;
    let mut check = report.closed();
    check.file_by(bed.ino("mixed")?, "forced", 7 * BLOCK_SECTORS);
    check.dirtier_by(&dirtier, "forced", 7 * BLOCK_SECTORS);
    check.done()
}

/// Freezing writes everything back, in the freezer's context and the flusher's.
fn frozen() -> Result<()> {
    let bed = Bed::new(Spec::ext4(64))?;
    let steps = [
        open(bed.path("cold"), "wo creat excl"),
        Step::Write { len: 43 * BLOCK },
        Step::Say("written".to_owned()),
        Step::Wait,
        Step::FreezeThaw,
    ];
    let (writer, report) = traced(&bed, || {
        let mut writer = Writer::spawn("freezer", &steps)?;
        writer.hear()?;
        writer.go()?;
        writer.wait()
    })?;
    let row = report.file(bed.ino("cold")?);
    let mut check = report.closed();
    check.eq("sectors", row.sectors, 43 * BLOCK_SECTORS);
    check.is(
        "the commit is the freezer's",
        report.commits("freeze", "count") > 0,
    );
    check.is(
        "the writer is named",
        report.dirtier(writer.pid).sectors >= row.sectors,
    );
    check.done()
}
