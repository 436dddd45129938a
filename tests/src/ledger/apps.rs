//! Programs that everybody runs: a database and an archiver.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::bed::{Bed, Spec};
use crate::harness::{Test, has_program, scaled};
use crate::tracer::traced;
use crate::writers::{BLOCK_SECTORS, blocks};

pub fn tests() -> Vec<Test> {
    let sqlite = || has_program("sqlite3");
    let tar = || has_program("tar");
    vec![
        Test::new("ledger::sqlite_wal", || database("wal"))
            .guest()
            .needs(sqlite),
        Test::new("ledger::sqlite_rollback", || database("delete"))
            .guest()
            .needs(sqlite),
        Test::new("ledger::tar_extraction", extraction)
            .guest()
            .needs(tar),
    ]
}

/// Transactions of one row each, with synchronous=FULL.
fn database(mode: &str) -> Result<()> {
    let bed = Bed::new(Spec::ext4(64))?;
    let rows = scaled(53, 17);
    let insert = "INSERT INTO t(v) VALUES(hex(randomblob(47)));\n".repeat(rows);
    let script = format!(
        "PRAGMA journal_mode={mode};\nPRAGMA synchronous=FULL;\nCREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT);\n{insert}"
    );
    let input = bed.scratch("script.sql");
    std::fs::write(&input, script)?;
    let (pid, report) = traced(&bed, || {
        let mut child = Command::new("sqlite3")
            .arg(bed.path("t.db"))
            .stdin(std::fs::File::open(&input)?)
            .stdout(Stdio::null())
            .spawn()
            .context("starting sqlite3")?;
        let status = child.wait()?;
        ensure!(status.success(), "sqlite3: {status}");
        Ok(child.id())
    })?;
    let mut check = report.closed();
    let db = report.file_named("t.db");
    let side = if mode == "wal" {
        "t.db-wal"
    } else {
        "t.db-journal"
    };
    let log = report.file_named(side);
    check.is("the database is named", db.path("fsync") > 0);
    check.is(
        format!("{side} is named"),
        log.path("fsync") >= rows as u64 * BLOCK_SECTORS,
    );
    check.eq(
        "sqlite3 is named",
        report.dirtier(pid).name.as_str(),
        "sqlite3",
    );
    let data = db.sectors + log.sectors;
    check.is(
        "its data are sqlite3's",
        report.dirtier(pid).sectors >= data,
    );
    check.is(
        "commits by fsync",
        report.commits("fsync", "count") >= rows as u64,
    );
    check.done()
}

/// An archive of files with odd sizes, unpacked.
fn extraction() -> Result<()> {
    let bed = Bed::new(Spec::ext4(64))?;
    let tree = bed.scratch("tree");
    let sizes: Vec<u64> = (0..scaled(131, 31)).map(|n| 1 + n * 613).collect();
    for (n, size) in sizes.iter().enumerate() {
        let dir = tree.join(format!("d{}", n % 7));
        std::fs::create_dir_all(&dir)?;
        std::fs::write(dir.join(format!("f{n}")), vec![b'x'; *size as usize])?;
    }
    let archive = bed.scratch("tree.tar");
    let packed = Command::new("tar")
        .arg("cf")
        .arg(&archive)
        .arg("-C")
        .arg(&tree)
        .arg(".")
        .status()?;
    ensure!(packed.success(), "tar cf: {packed}");
    let (pid, report) = traced(&bed, || {
        let mut tar = Command::new("tar")
            .arg("xf")
            .arg(&archive)
            .arg("-C")
            .arg(bed.mnt())
            .spawn()?;
        let status = tar.wait()?;
        ensure!(status.success(), "tar xf: {status}");
        Ok(tar.id())
    })?;
    let mut check = report.closed();
    let mut total = 0;
    for (n, size) in sizes.iter().enumerate() {
        let name = format!("d{}/f{n}", n % 7);
        let sectors = blocks(0, *size) * BLOCK_SECTORS;
        check.file_by(bed.ino(&name)?, "writeback", sectors);
        check.eq(
            format!("name {name}"),
            report.file_named(&name).sectors,
            sectors,
        );
        total += sectors;
    }
    check.eq("tar is named", report.dirtier(pid).name.as_str(), "tar");
    check.eq("its data", report.dirtier(pid).path("writeback"), total);
    check.done()
}
