//! What is done under the referee's eyes. Files are neither removed nor
//! truncated here, so that blocks do not move. Entry: [`scenes`].

use crate::bed::{Bed, Spec};
use crate::harness::scaled;
use crate::writers::{BLOCK, Random, Step, SyncCall, filled, open, repeat};

/// A writer's name and steps.
pub type Script = (String, Vec<Step>);

/// A bed and what is done on it: `before` untraced, then all of `writers` at
/// once. Files are neither removed nor truncated, so that blocks do not move.
pub struct Scene {
    pub name: &'static str,
    pub spec: fn() -> Spec,
    pub before: fn(&Bed) -> Vec<Step>,
    pub writers: fn(&Bed) -> Vec<Script>,
}

pub fn scenes() -> Vec<Scene> {
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

fn nothing(_: &Bed) -> Vec<Step> {
    Vec::new()
}

pub fn database(bed: &Bed) -> Vec<Step> {
    filled(bed.path("db"), 503)
}

pub fn script(comm: &str, steps: Vec<Step>) -> Script {
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
        let random = Step::Random(Random {
            area,
            align: BLOCK,
            min: BLOCK,
            max: 5 * BLOCK,
            count: 61,
            seed,
        });
        let sync = Step::Sync(SyncCall::Fdatasync);
        vec![open(bed.path("db"), "wo"), repeat(3, vec![random, sync])]
    };
    vec![script("one", steps(1)), script("two", steps(2))]
}

fn direct(bed: &Bed) -> Vec<Script> {
    let steps = |seed| {
        let area = 503 * BLOCK;
        let count = scaled(307, 53);
        let random = Step::Random(Random {
            area,
            align: BLOCK,
            min: BLOCK,
            max: 7 * BLOCK,
            count,
            seed,
        });
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
    let random = |seed| {
        Step::Random(Random {
            area,
            align: BLOCK,
            min: BLOCK,
            max: 3 * BLOCK,
            count: 53,
            seed,
        })
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
pub fn partition(bed: &Bed) -> Vec<Script> {
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
