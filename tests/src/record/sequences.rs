//! Sequences of calls whose events are known one by one.

use anyhow::{Result, ensure};
use serde_json::Value;

use super::kit::record;
use crate::bed::{Bed, Spec};
use crate::harness::Test;
use crate::tracer;
use crate::writers::{BLOCK, Step, SyncCall, filled, open, repeat, run};

pub fn tests() -> Vec<Test> {
    let test = |name: &str, body: fn() -> Result<()>| {
        Test::new(format!("record::{name}"), body)
            .needs(tracer::available)
            .guest()
    };
    vec![
        test("every_write", every_write),
        test("small_blocks", small_blocks),
        test("syncs", syncs),
        test("cut_and_deleted_files", cut_and_deleted_files),
        test("stores_into_mappings", stores_into_mappings),
        test("commits_are_the_ledgers", commits_are_the_ledgers),
        test("nothing_of_writes_unless_asked", nothing_unless_asked),
    ]
}

/// A quiet bed with these files of so many blocks.
fn bed(spec: Spec, files: &[(&str, u64)]) -> Result<Bed> {
    let bed = Bed::new(spec)?;
    for (name, blocks) in files {
        run("setup", &filled(bed.path(name), *blocks))?;
    }
    bed.settle()?;
    Ok(bed)
}

fn quiet() -> Spec {
    Spec::ext4(64).mount("noatime,commit=300")
}

fn pwrite(at: u64, len: u64) -> Step {
    Step::Pwrite { at, len }
}

/// Each write has its blocks, its process and its order; none is missing.
fn every_write() -> Result<()> {
    let bed = bed(quiet(), &[("a", 40), ("b", 40)])?;
    let (rounds, odd) = (37, 1234);
    let (got, done) = record(
        &bed,
        &["--writes"],
        &[
            open(bed.path("a"), "rw"),
            repeat(rounds, vec![pwrite(3 * BLOCK, 100)]),
            pwrite(7 * BLOCK - 1, 1),
            pwrite(7 * BLOCK, BLOCK),
            open(bed.path("b"), "wo append"),
            repeat(11, vec![Step::Write { len: odd }]),
            open(bed.path("new"), "wo creat"),
            Step::Write { len: 5 },
        ],
    )?;
    got.whole()?;
    let mut a = vec![(3, 3); rounds as usize];
    a.extend([(6, 6), (7, 7)]);
    let found = got.blocks("write", bed.ino("a")?);
    ensure!(found == a, "blocks of a: {found:?}, not {a:?}");
    // A write may be told in parts, one for each folio.
    let mut bytes: Vec<u64> = Vec::new();
    for (first, last) in got.blocks("write", bed.ino("b")?) {
        bytes.extend(first..=last);
    }
    bytes.dedup();
    let last = 40 + (11 * odd - 1) / BLOCK;
    let all: Vec<u64> = (40..=last).collect();
    ensure!(bytes == all, "blocks of b: {bytes:?}, not {all:?}");
    ensure!(got.blocks("write", bed.ino("new")?) == [(0, 0)]);
    let strangers = got.of("write").filter(|event| event["pid"] != done.pid);
    ensure!(strangers.count() == 0, "a write by another process");
    for name in ["a", "b", "new"] {
        let ino = bed.ino(name)?;
        let names = got.on("name", ino);
        ensure!(names.iter().any(|event| event["file"] == name), "{names:?}");
        ensure!(!got.on("touch", ino).is_empty(), "no touch of {name}");
    }
    let process = got.of("process").find(|event| event["pid"] == done.pid);
    ensure!(process.is_some_and(|event| event["comm"] == done.comm.as_str()));
    Ok(())
}

/// Blocks are the filesystem's.
fn small_blocks() -> Result<()> {
    let spec = Spec::ext4(64).mkfs("-b 1024").mount("noatime,commit=300");
    let bed = bed(spec, &[("a", 4)])?;
    let steps = [
        open(bed.path("a"), "rw"),
        pwrite(1024, 1),
        pwrite(2047, 2),
        pwrite(4096, 4096),
    ];
    let (got, _) = record(&bed, &["--writes"], &steps)?;
    got.whole()?;
    let found = got.blocks("write", bed.ino("a")?);
    ensure!(found == [(1, 1), (1, 2), (4, 7)], "{found:?}");
    let fs = &got.report["start"]["devices"][0]["filesystems"][0];
    ensure!(fs["block_bytes"] == 1024 && fs["commit_s"] == 300, "{fs}");
    ensure!(fs["journal_bytes"].as_u64() > Some(0), "{fs}");
    Ok(())
}

/// Syncs by their inode and call, and what they flush.
fn syncs() -> Result<()> {
    let bed = bed(quiet(), &[("a", 4), ("b", 4), ("c", 4)])?;
    let (got, done) = record(
        &bed,
        &["--writes"],
        &[
            open(bed.path("a"), "rw"),
            repeat(3, vec![pwrite(0, 10), Step::Sync(SyncCall::Fsync)]),
            open(bed.path("b"), "rw"),
            repeat(2, vec![pwrite(0, 10), Step::Sync(SyncCall::Fdatasync)]),
            open(bed.path("c"), "rw"),
            pwrite(0, 2 * BLOCK),
            Step::Sync(SyncCall::Syncfs),
        ],
    )?;
    got.whole()?;
    let of = |name: &str, data_only: bool| -> Result<usize> {
        let syncs = got.on("sync", bed.ino(name)?).into_iter();
        let own = syncs.filter(|e| e["data_only"] == data_only && e["pid"] == done.pid);
        Ok(own.count())
    };
    ensure!(of("a", false)? == 3 && of("b", true)? == 2);
    ensure!(of("a", true)? == 0 && of("b", false)? == 0);
    let whole = got.of("sync-fs").filter(|event| event["pid"] == done.pid);
    ensure!(whole.count() > 0, "no sync-fs");
    let flushes = got.on("flush", bed.ino("a")?);
    let by_fsync = |e: &&Value| e["path"] == "fsync" && e["trigger"] == "fsync" && e["pages"] == 1;
    ensure!(
        flushes.len() == 3 && flushes.iter().all(by_fsync),
        "flushes of a: {flushes:?}"
    );
    let flushes = got.on("flush", bed.ino("c")?);
    let pages: u64 = flushes.iter().filter_map(|e| e["pages"].as_u64()).sum();
    ensure!(pages == 2, "flushes of c: {flushes:?}");
    ensure!(got.of("wake").count() > 0, "the flusher never woke");
    Ok(())
}

/// Truncations with their size, evictions of what was deleted, and the flush
/// that replacing by truncate forces.
fn cut_and_deleted_files() -> Result<()> {
    let bed = bed(quiet(), &[("cut", 8), ("gone", 8), ("replaced", 8)])?;
    let gone = bed.ino("gone")?;
    let (got, _) = record(
        &bed,
        &["--writes"],
        &[
            open(bed.path("cut"), "rw"),
            pwrite(0, 8 * BLOCK),
            Step::Truncate { len: 3 * BLOCK },
            Step::Truncate { len: 0 },
            open(bed.path("gone"), "rw"),
            pwrite(BLOCK, BLOCK),
            Step::Close,
            Step::Unlink {
                path: bed.path("gone"),
            },
            open(bed.path("replaced"), "wo trunc"),
            Step::Write { len: BLOCK },
            Step::Close,
        ],
    )?;
    got.whole()?;
    let cut = got.on("truncate", bed.ino("cut")?);
    let sizes: Vec<u64> = cut.iter().filter_map(|e| e["size"].as_u64()).collect();
    ensure!(sizes == [3 * BLOCK, 0], "sizes of cut: {cut:?}");
    ensure!(got.on("evict", gone).len() == 1, "evictions of gone");
    ensure!(got.on("freed", gone).len() == 1, "gone is not freed");
    ensure!(got.on("flush", gone).is_empty(), "gone was written");
    let evicted = got.of("evict").filter(|event| event["ino"] != gone);
    ensure!(evicted.count() == 0, "another file was evicted");
    let forced = got.on("flush", bed.ino("replaced")?);
    ensure!(
        forced.len() == 1 && forced[0]["path"] == "forced" && forced[0]["trigger"] == "close",
        "flushes of replaced: {forced:?}"
    );
    Ok(())
}

/// The first store into a clean page is told; later ones cannot be.
fn stores_into_mappings() -> Result<()> {
    let bed = bed(quiet(), &[("map", 16)])?;
    let store = |at: u64| Step::MmapStore {
        at,
        stride: 8,
        count: 3,
        msync: true,
    };
    let steps = [
        open(bed.path("map"), "rw"),
        store(5 * BLOCK),
        // The second write finds its page dirty: the store that follows it is
        // not taken for its own.
        pwrite(0, 1),
        pwrite(0, 1),
        Step::Sleep { ms: 20 },
        store(5 * BLOCK),
    ];
    let (got, done) = record(&bed, &["--writes"], &steps)?;
    got.whole()?;
    let ino = bed.ino("map")?;
    let stores = got.blocks("store", ino);
    let hit = stores
        .iter()
        .filter(|(first, last)| (*first..=*last).contains(&5));
    ensure!(hit.count() == 2, "stores: {stores:?}");
    let own = got.on("store", ino).iter().all(|e| e["pid"] == done.pid);
    ensure!(own, "a store by another process");
    ensure!(got.blocks("write", ino) == [(0, 0), (0, 0)]);
    Ok(())
}

/// The commits of the events are those of the ledger, one by one.
fn commits_are_the_ledgers() -> Result<()> {
    let bed = bed(Spec::ext4(64).mount("noatime,commit=1"), &[("a", 4)])?;
    let (got, done) = record(
        &bed,
        &[],
        &[
            open(bed.path("a"), "rw"),
            // Within a tick of the clock the inode stays the same, and there
            // is nothing to commit.
            repeat(
                3,
                vec![
                    Step::Sleep { ms: 50 },
                    pwrite(0, 9),
                    Step::Sync(SyncCall::Fsync),
                ],
            ),
            Step::Create {
                path: bed.path("new"),
                len: 10,
            },
            Step::Sleep { ms: 2500 },
            Step::Sync(SyncCall::Sync),
        ],
    )?;
    got.whole()?;
    let list = &got.report["ledger"]["devices"][0]["journal"]["commit_list"];
    let list = list.as_array().map_or(&[][..], Vec::as_slice);
    let events: Vec<&Value> = got.of("commit").collect();
    ensure!(
        list.len() >= 5,
        "the sequence made too few commits: {list:?}"
    );
    ensure!(events.len() == list.len(), "{events:?}, not {list:?}");
    for (event, row) in events.iter().zip(list) {
        for key in [
            "tid",
            "trigger",
            "pid",
            "call",
            "handles",
            "blocks",
            "blocks_logged",
        ] {
            ensure!(event[key] == row[key], "{key}: {event}, not {row}");
        }
        let times = |one: &Value, other: &Value| {
            let (one, other) = (one.as_f64().unwrap_or(-1.0), other.as_f64().unwrap_or(-2.0));
            (one - other).abs() < 1e-6
        };
        ensure!(times(&event["start_s"], &row["t_s"]), "{event}, not {row}");
    }
    let on_a = |e: &&&Value| e["trigger"] == "fsync" && e["pid"] == done.pid;
    let synced = events.iter().filter(on_a).count();
    ensure!(synced == 3, "{synced} commits by fsync: {events:?}");
    let ino = bed.ino("a")?;
    ensure!(events.iter().filter(on_a).all(|e| e["ino"] == ino));
    ensure!(events.iter().any(|e| e["trigger"] == "timer"));
    ensure!(got.of("memory").count() >= 2 && got.of("sectors").count() > 0);
    let sectors: u64 = got
        .of("sectors")
        .filter_map(|e| e["sectors"].as_u64())
        .sum();
    let written = got.report["ledger"]["devices"][0]["sectors_written"].as_u64();
    ensure!(
        Some(sectors) == written,
        "samples hold {sectors} of {written:?}"
    );
    Ok(())
}

/// Without --writes nothing of it is there, nor attached.
fn nothing_unless_asked() -> Result<()> {
    let bed = bed(quiet(), &[("a", 4)])?;
    let steps = [
        open(bed.path("a"), "rw"),
        pwrite(0, 9),
        Step::Sync(SyncCall::Fsync),
    ];
    let (got, _) = record(&bed, &["-v"], &steps)?;
    got.whole()?;
    for kind in [
        "write", "touch", "sync", "sync-fs", "flush", "wake", "evict",
    ] {
        ensure!(got.of(kind).count() == 0, "a {kind} that nobody asked for");
    }
    ensure!(!got.ended.stderr.contains("kept writes"));
    ensure!(got.of("commit").count() == 1 && got.report["start"]["writes"] == false);
    Ok(())
}
