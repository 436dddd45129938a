//! Point 2 of the ledger, right by place: every request that the device got is
//! recorded by the kernel's own tracing, each sector mapped to its owner by
//! where it lies, and compared with the tracer's answer. Place knows nothing
//! of paths; it cannot err with the tracer.

mod map;
mod requests;

use std::fmt::Write;

use anyhow::{Result, bail, ensure};

use crate::bed::{Bed, Spec};
use crate::harness::{Test, has_program, scaled};
use crate::report::Report;
use crate::stacks::instance::{Instance, Wanted};
use crate::tracer::traced;
use crate::writers::{
    self, BLOCK, BLOCK_SECTORS, Step, SyncCall, Writer, append_sectors, filled, open, repeat,
};
use map::{Map, Owner, Sums};
use requests::{Request, issued};

/// A writer's name and steps.
type Script = (String, Vec<Step>);

/// A bed and what is done on it: `before` untraced, then all of `writers` at
/// once. Files are neither removed nor truncated, so that blocks do not move.
struct Scene {
    name: &'static str,
    spec: fn() -> Spec,
    before: fn(&Bed) -> Vec<Step>,
    writers: fn(&Bed) -> Vec<Script>,
}

fn scenes() -> Vec<Scene> {
    let plain = || Spec::ext4(64);
    vec![
        Scene {
            name: "buffered",
            spec: plain,
            before: nothing,
            writers: buffered,
        },
        Scene {
            name: "overwritten",
            spec: plain,
            before: database,
            writers: overwritten,
        },
        Scene {
            name: "direct",
            spec: plain,
            before: database,
            writers: direct,
        },
        Scene {
            name: "fsync_storm",
            spec: plain,
            before: nothing,
            writers: storm,
        },
        Scene {
            name: "append",
            spec: plain,
            before: nothing,
            writers: append,
        },
        Scene {
            name: "mixture_ordered",
            spec: || Spec::ext4(64).mount("data=ordered"),
            before: database,
            writers: mixture,
        },
        Scene {
            name: "mixture_journal",
            spec: || Spec::ext4(64).mount("data=journal"),
            before: database,
            writers: mixture,
        },
        Scene {
            name: "mixture_writeback",
            spec: || Spec::ext4(64).mount("data=writeback"),
            before: database,
            writers: mixture,
        },
        Scene {
            name: "mixture_nodelalloc",
            spec: || Spec::ext4(64).mount("nodelalloc,dioread_lock"),
            before: database,
            writers: mixture,
        },
        Scene {
            name: "mixture_fast_commit",
            spec: || Spec::ext4(64).mkfs("-O fast_commit"),
            before: database,
            writers: mixture,
        },
        Scene {
            name: "mixture_no_journal",
            spec: || Spec::ext4(64).mkfs("-O ^has_journal"),
            before: database,
            writers: mixture,
        },
        Scene {
            name: "mixture_partition",
            spec: || Spec::ext4(96).partition(23),
            before: database,
            writers: partition,
        },
        Scene {
            name: "mixture_small_journal",
            spec: || Spec::ext4(256).mkfs("-J size=4 -N 32768"),
            before: database,
            writers: metadata,
        },
        Scene {
            name: "mixture_split_bfq",
            spec: || Spec::ext4(64).scheduler("bfq").max_sectors_kb(4),
            before: database,
            writers: mixture,
        },
    ]
}

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
            let faults = compare(
                &report,
                &recording.map.place(&recording.issued),
                &recording.map,
            );
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
fn compare(report: &Report, placed: &Sums, map: &Map) -> String {
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

fn nothing(_: &Bed) -> Vec<Step> {
    Vec::new()
}

fn database(bed: &Bed) -> Vec<Step> {
    filled(bed.path("db"), 503)
}

fn script(comm: &str, steps: Vec<Step>) -> Script {
    (comm.to_owned(), steps)
}

fn buffered(bed: &Bed) -> Vec<Script> {
    let file = |name: &str, count, len| {
        let path = bed.path(name);
        vec![
            open(path, "wo creat excl"),
            repeat(count, vec![Step::Write { len }]),
        ]
    };
    let small = Step::Create {
        path: bed.path("d/f{i}"),
        len: 1777,
    };
    vec![
        script("one", file("one", scaled(503, 97), 4099)),
        script("two", file("two", 97, 17 * BLOCK + 1)),
        script(
            "many",
            vec![
                Step::Mkdir {
                    path: bed.path("d"),
                },
                repeat(211, vec![small]),
            ],
        ),
    ]
}

fn overwritten(bed: &Bed) -> Vec<Script> {
    let steps = |seed| {
        let area = 503 * BLOCK;
        let random = Step::Random {
            area,
            align: BLOCK,
            min: BLOCK,
            max: 5 * BLOCK,
            count: 61,
            seed,
        };
        let sync = Step::Sync(SyncCall::Fdatasync);
        vec![open(bed.path("db"), "wo"), repeat(3, vec![random, sync])]
    };
    vec![script("one", steps(1)), script("two", steps(2))]
}

fn direct(bed: &Bed) -> Vec<Script> {
    let steps = |seed| {
        let area = 503 * BLOCK;
        let count = scaled(307, 53);
        let random = Step::Random {
            area,
            align: BLOCK,
            min: BLOCK,
            max: 7 * BLOCK,
            count,
            seed,
        };
        let one = vec![open(bed.path("db"), "wo direct"), random];
        vec![Step::Threads {
            count: 3,
            steps: one,
        }]
    };
    vec![script("one", steps(1)), script("two", steps(2))]
}

fn storm(bed: &Bed) -> Vec<Script> {
    let steps = |n: u64| {
        let each = vec![Step::Write { len: 1777 + n }, Step::Sync(SyncCall::Fsync)];
        let path = bed.path(&format!("log{n}"));
        vec![
            open(path, "wo creat excl append"),
            repeat(scaled(59, 17), each),
        ]
    };
    (0..8)
        .map(|n| script(&format!("storm{n}"), steps(n)))
        .collect()
}

fn append(bed: &Bed) -> Vec<Script> {
    let steps = |name: &str, len, each| {
        let mut round = vec![Step::Write { len }];
        round.extend(each);
        vec![
            open(bed.path(name), "wo creat excl append"),
            repeat(101, round),
        ]
    };
    vec![
        script("plain", steps("plain", 2311, None)),
        script(
            "synced",
            steps("synced", 307, Some(Step::Sync(SyncCall::Fsync))),
        ),
        script(
            "ranges",
            steps(
                "ranges",
                8191,
                Some(Step::SyncRange {
                    at: 0,
                    len: 1 << 30,
                }),
            ),
        ),
    ]
}

fn mixture(bed: &Bed) -> Vec<Script> {
    let log = vec![Step::Write { len: 1777 }, Step::Sync(SyncCall::Fsync)];
    let area = 503 * BLOCK;
    let random = |seed| Step::Random {
        area,
        align: BLOCK,
        min: BLOCK,
        max: 3 * BLOCK,
        count: 53,
        seed,
    };
    vec![
        script(
            "logger",
            vec![
                open(bed.path("log"), "wo creat excl append"),
                repeat(scaled(53, 13), log),
            ],
        ),
        script(
            "creator",
            vec![
                Step::Mkdir {
                    path: bed.path("d"),
                },
                repeat(
                    scaled(151, 31),
                    vec![Step::Create {
                        path: bed.path("d/f{i}"),
                        len: 5003,
                    }],
                ),
            ],
        ),
        script(
            "updater",
            vec![
                open(bed.path("db"), "rw"),
                random(7),
                Step::Sync(SyncCall::Fdatasync),
                random(8),
                Step::Sync(SyncCall::Syncfs),
                random(9),
            ],
        ),
    ]
}

/// The mixture on the second partition, and a raw writer on the first.
fn partition(bed: &Bed) -> Vec<Script> {
    let mut scripts = mixture(bed);
    let write = Step::Pwrite {
        at: 7 * BLOCK,
        len: 3 * BLOCK,
    };
    let steps = vec![
        open(bed.partition_node(1), "wo direct"),
        repeat(97, vec![write]),
    ];
    scripts.push(script("raw", steps));
    scripts
}

/// Enough metadata to send a small journal round.
fn metadata(bed: &Bed) -> Vec<Script> {
    let mut scripts = mixture(bed);
    let each = vec![
        Step::Mkdir {
            path: bed.path("m{i}"),
        },
        open(bed.path("m{i}/a"), "wo creat excl"),
        Step::Write { len: 307 },
        Step::Sync(SyncCall::Fsync),
        Step::Close,
    ];
    scripts.push(script("metadata", vec![repeat(scaled(211, 53), each)]));
    scripts
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

/// The comparison must fail when the referee's map is wrong by one block,
/// for the journal alone and for the files alone.
fn shifted_map() -> Result<()> {
    let scenes = scenes();
    let Some(scene) = scenes.iter().find(|scene| scene.name == "mixture_ordered") else {
        bail!("no such scene");
    };
    let (report, recording) = record(scene)?;
    let faults = |map: &Map| compare(&report, &map.place(&recording.issued), map);
    let right = faults(&recording.map);
    ensure!(
        right.is_empty(),
        "already the right map fails:\n{right}\n{}",
        report.dump()
    );
    for journal in [true, false] {
        let moved = |owner| (owner == Owner::Journal) == journal;
        let wrong = recording.map.shifted(moved, BLOCK_SECTORS);
        ensure!(
            !faults(&wrong).is_empty(),
            "a map shifted by a block (journal: {journal}) passed"
        );
    }
    Ok(())
}
