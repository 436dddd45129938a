//! Point 2 of the ledger, right by place: every request that the device got is
//! recorded by the kernel's own tracing, each sector mapped to its owner by
//! where it lies, and compared with the tracer's answer. Place knows nothing
//! of paths; it cannot err with the tracer.

mod map;
mod requests;
mod scenes;

use std::fmt::Write;

use anyhow::{Result, bail, ensure};

use crate::bed::{Bed, Spec};
use crate::harness::{Test, has_program, scaled};
use crate::report::Report;
use crate::stacks::instance::{Instance, Wanted};
use crate::tracer::traced;
use crate::writers::{self, BLOCK, BLOCK_SECTORS, Step, Writer, append_sectors, open};
use map::{Map, Owner};
use requests::{Request, issued};
use scenes::{Scene, Script, database, partition, scenes, script};

pub fn tests() -> Vec<Test> {
    let debugfs = || has_program("debugfs");
    let mut tests = vec![
        Test::new("place::referee_knows_known_writers", known_writers)
            .guest()
            .needs(debugfs),
        Test::new("place::shifted_map_fails", shifted_map)
            .guest()
            .needs(debugfs)
            .needs(crate::tracer::available),
    ];
    for scene in scenes() {
        let name = format!("place::{}", scene.name);
        let test = Test::new(name, move || {
            let (report, recording) = record(&scene)?;
            let faults = compare(&report, &recording.issued, &recording.map);
            ensure!(faults.is_empty(), "{faults}\n{}", report.dump());
            report.closed().done()
        });
        let needy = test.needs(debugfs).needs(crate::tracer::available);
        tests.push(needy.guest());
    }
    tests
}

/// What the kernel recorded, and who owns what.
struct Recording {
    issued: Vec<Request>,
    map: Map,
}

/// Records the block events of `body`, which must leave the bed at rest.
fn recorded<T>(bed: &Bed, body: impl FnOnce() -> Result<T>) -> Result<(T, Recording)> {
    bed.settle()?;
    let before = bed.stat()?;
    let wanted = |event| Wanted {
        event,
        dev: bed.devno(),
        stack: false,
    };
    let events = ["block/block_rq_issue", "block/block_rq_complete"];
    let instance = Instance::new(&events.map(wanted))?;
    let result = body()?;
    let text = instance.finish()?;
    let written = bed.stat()?.since(before).write_sectors;
    let issued_requests = issued(&text, "block_rq_issue");
    for (event, requests) in [
        ("issued", &issued_requests),
        ("completed", &issued(&text, "block_rq_complete")),
    ] {
        let sum: u64 = requests.iter().map(|request| request.sectors).sum();
        ensure!(
            sum == written,
            "{sum} sectors {event}, stat counted {written}"
        );
    }
    let recording = Recording {
        issued: issued_requests,
        map: Map::of(bed)?,
    };
    Ok((result, recording))
}

fn play(scripts: Vec<Script>) -> Result<()> {
    let mut writers = Vec::new();
    for (comm, steps) in scripts {
        let mut all = vec![Step::Wait];
        all.extend(steps);
        writers.push(Writer::spawn(&comm, &all)?);
    }
    for writer in &mut writers {
        writer.go()?;
    }
    for writer in writers {
        writer.wait()?;
    }
    Ok(())
}

fn record(scene: &Scene) -> Result<(Report, Recording)> {
    let bed = Bed::new((scene.spec)())?;
    writers::run("earlier", &(scene.before)(&bed))?;
    let scripts = (scene.writers)(&bed);
    let (((), report), recording) = recorded(&bed, || traced(&bed, || play(scripts)))?;
    Ok((report, recording))
}

/// Where the tracer's answer differs from the sums by place; empty if nowhere.
/// What lies in the journal is the `journal` path, whosever row it is in.
fn compare(report: &Report, requests: &[Request], map: &Map) -> String {
    let placed = map.place(requests);
    let at = |owner| placed.get(&owner).copied().unwrap_or(0);
    let mut faults = String::new();
    let mut count = 0;
    let mut expect = |what: &str, traced: u64, place: u64| {
        count += usize::from(traced != place);
        if traced != place && count <= crate::report::LIMIT {
            let _ = writeln!(faults, "{what}: traced {traced}, by place {place}");
        }
    };
    expect(
        "all",
        report.count("sectors_written"),
        placed.values().sum(),
    );
    let zeroes = requests.iter().filter(|request| request.zeroes);
    expect(
        "zeroed",
        report.count("sectors_zeroed"),
        zeroes.map(|request| request.sectors).sum(),
    );
    expect("journal", report.path("journal"), at(Owner::Journal));
    let inodes = map.inodes();
    for &ino in &inodes {
        let row = report.file(ino);
        let traced = row.sectors - row.path("journal");
        expect(
            &format!("inode {ino} ({})", row.name),
            traced,
            at(Owner::File(ino)),
        );
    }
    let mut metadata = 0;
    for (ino, row) in report.files() {
        let in_place = row.sectors - row.path("journal");
        match ino {
            Some(ino) if inodes.contains(&ino) => {}
            Some(ino) => expect(&format!("inode {ino} ({}), unknown", row.name), in_place, 0),
            None if ["metadata", "fs", "journal"].contains(&row.name.as_str()) => {
                metadata += in_place;
            }
            None if row.name == "raw" => expect("raw", in_place, at(Owner::Outside)),
            None => expect(&row.name, in_place, 0),
        }
    }
    expect("metadata", metadata, at(Owner::Metadata));
    faults
}

/// The referee against writers whose sectors are known: without any tracer.
fn known_writers() -> Result<()> {
    let bed = Bed::new(Spec::ext4(96).partition(23))?;
    writers::run("earlier", &database(&bed))?;
    let mut scripts = partition(&bed);
    scripts.retain(|(comm, _)| ["logger", "raw"].contains(&comm.as_str()));
    let update = vec![
        open(bed.path("db"), "wo"),
        Step::Pwrite {
            at: BLOCK,
            len: 101 * BLOCK,
        },
    ];
    scripts.push(script("updater", update));
    let ((), recording) = recorded(&bed, || {
        play(scripts)?;
        bed.settle()
    })?;
    let known = [
        (
            Owner::File(bed.ino("log")?),
            append_sectors(0, 1777, scaled(53, 13)),
        ),
        (Owner::File(bed.ino("db")?), 101 * BLOCK_SECTORS),
        (Owner::Outside, 97 * 3 * BLOCK_SECTORS),
    ];
    let wrong = |map: &Map| {
        let sums = map.place(&recording.issued);
        known
            .iter()
            .any(|(owner, sectors)| sums.get(owner) != Some(sectors))
    };
    let sums = recording.map.place(&recording.issued);
    ensure!(!wrong(&recording.map), "{sums:?}, not {known:?}");
    ensure!(sums.contains_key(&Owner::Journal) && sums.contains_key(&Owner::Metadata));
    let shifted = recording
        .map
        .shifted(|owner| owner != Owner::Journal, BLOCK_SECTORS);
    ensure!(
        wrong(&shifted),
        "a map of files shifted by a block went unnoticed"
    );
    Ok(())
}

/// The comparison must fail when the referee's map is shifted, for the journal
/// alone and for the files alone.
fn shifted_map() -> Result<()> {
    let scenes = scenes();
    let Some(scene) = scenes.iter().find(|scene| scene.name == "mixture_ordered") else {
        bail!("no such scene");
    };
    let (report, recording) = record(scene)?;
    let faults = |map: &Map| compare(&report, &recording.issued, map);
    let right = faults(&recording.map);
    ensure!(
        right.is_empty(),
        "already the right map fails:\n{right}\n{}",
        report.dump()
    );
    // A file's edges are all written; of the journal only what the log reached,
    // a few hundred blocks from its start.
    for (journal, blocks) in [(true, 101), (false, 1)] {
        let moved = |owner| (owner == Owner::Journal) == journal;
        let wrong = recording.map.shifted(moved, blocks * BLOCK_SECTORS);
        ensure!(
            !faults(&wrong).is_empty(),
            "a map shifted by {blocks} blocks (journal: {journal}) passed"
        );
    }
    Ok(())
}
