//! `iot-files` on real files in a temporary directory, held against what can
//! be counted without it: contents, sizes, the kernel's count for the process.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use proptest::prelude::*;

use super::files::data_name;
use super::*;
use crate::workload::account::Call;
use crate::workload::pacing::Spread;
use crate::workload::payload::{MGMT, PREPARED, Payload};
use crate::workload::tree::Dir;
use crate::workload::{Stop, WorkloadError};

const PERIODS: u32 = 3;

/// A run of a fraction of a second.
pub(crate) fn spec() -> IotFiles {
    IotFiles {
        shape: Shape {
            files: 7,
            file_bytes: 65536,
            mgmt_bytes: 11 << 10,
        },
        threads: 3,
        period: Duration::from_millis(40),
        update_bytes: 4096,
        place: Place::Fixed,
        spread: Spread::Even,
        fsync: Fsync::Never,
        mgmt_fsync: Fsync::Never,
        duration: Duration::from_millis(40) * PERIODS,
        seed: 1,
    }
}

/// A directory with files prepared in it.
struct Bench {
    temp: tempfile::TempDir,
    spec: IotFiles,
    files: Files,
}

impl Bench {
    fn new(spec: IotFiles) -> Self {
        spec.check().unwrap();
        let temp = tempfile::tempdir().unwrap();
        let parent = Dir::typed(temp.path()).unwrap();
        let files = Files::prepare(&parent, &spec, &Stop::new(), &mut |_| {}).unwrap();
        Self { temp, spec, files }
    }

    fn run(&self) -> Outcome {
        let outcome = run(&self.spec, &self.files, &Stop::new(), &mut |_| {}).unwrap();
        assert!(matches!(outcome.end, End::Complete), "{:?}", outcome.end);
        assert_eq!(outcome.data.updates(), outcome.data.planned);
        assert_eq!(outcome.mgmt.updates(), outcome.mgmt.planned);
        let plan = self.spec.plan();
        assert_eq!(outcome.data.updates(), plan.data_updates);
        assert_eq!(outcome.data.bytes, plan.data_bytes);
        assert_eq!(outcome.mgmt.bytes, plan.mgmt_bytes);
        assert!(outcome.elapsed >= self.spec.duration);
        outcome
    }

    fn data(&self, file: u32) -> Vec<u8> {
        fs::read(self.files.data().path().join(data_name(file))).unwrap()
    }

    /// What a file must hold after the updates, by payload alone: each of
    /// `writes` is (offset, update number, offset in that update's payload).
    fn expected(&self, file: u32, writes: &[(usize, u32, usize)]) -> Vec<u8> {
        let mut payload = Payload::new(self.spec.seed);
        let mut content = vec![0; self.spec.shape.file_bytes as usize];
        payload.fill(file, PREPARED, &mut content);
        let size = self.spec.update_bytes as usize;
        for &(offset, update, from) in writes {
            let mut bytes = vec![0; from + size];
            payload.fill(file, update, &mut bytes);
            content.resize(content.len().max(offset + size), 0);
            content[offset..offset + size].copy_from_slice(&bytes[from..]);
        }
        content
    }
}

#[test]
fn what_is_in_the_files_is_what_the_account_says() {
    const P: usize = 4096;
    type Writes = &'static [(usize, u32, usize)];
    let in_place: [(Place, u64, Writes); 4] = [
        (Place::Fixed, 1, &[(0, 2, 0)]),
        (Place::Moving, 1, &[(0, 0, 0), (P, 1, 0), (2 * P, 2, 0)]),
        (
            Place::HeaderMoving,
            2,
            &[(0, 2, 0), (P, 0, P), (2 * P, 1, P), (3 * P, 2, P)],
        ),
        (
            Place::Append,
            1,
            &[(16 * P, 0, 0), (17 * P, 1, 0), (18 * P, 2, 0)],
        ),
    ];
    for (place, writes, expected) in in_place {
        let bench = Bench::new(IotFiles { place, ..spec() });
        let outcome = bench.run();
        for file in 0..bench.spec.shape.files {
            let same = bench.data(file) == bench.expected(file, expected);
            assert!(same, "{place} d{file}");
        }
        let updates = u64::from(bench.spec.shape.files * PERIODS);
        assert_eq!(outcome.data.updates(), updates, "{place}");
        assert_eq!(outcome.data.bytes, updates * writes * 4096, "{place}");
        assert_eq!(outcome.data.calls(Call::Write).count(), updates * writes);
        assert_eq!(outcome.data.calls(Call::Open).count(), updates);
        assert_eq!(outcome.data.calls(Call::Close).count(), updates);
        assert_eq!(outcome.data.calls(Call::Fsync).count(), 0);
        assert_eq!(outcome.data.calls(Call::Rename).count(), 0);
        assert_eq!(outcome.data.truncates, 0);
        let mut mgmt = vec![0; 11 << 10];
        Payload::new(1).fill(MGMT, PERIODS - 1, &mut mgmt);
        assert!(fs::read(bench.files.top().path().join("mgmt")).unwrap() == mgmt);
    }
}

#[test]
fn whole_files_are_replaced_and_renamed() {
    for place in [Place::Replace, Place::Rename] {
        let bench = Bench::new(IotFiles { place, ..spec() });
        let before = fs::File::open(bench.files.data().path().join("d0")).unwrap();
        let outcome = bench.run();
        let mut content = vec![0; 65536];
        for file in 0..bench.spec.shape.files {
            Payload::new(1).fill(file, PERIODS - 1, &mut content);
            assert!(bench.data(file) == content, "{place} d{file}");
        }
        // The file that was there is still in the directory, or no longer.
        let names = std::os::unix::fs::MetadataExt::nlink(&before.metadata().unwrap());
        assert_eq!(names, u64::from(place == Place::Replace));
        let updates = outcome.data.updates();
        assert_eq!(outcome.data.bytes, updates * 65536);
        let (truncates, renames) = match place {
            Place::Replace => (updates, 0),
            _ => (0, updates),
        };
        assert_eq!(outcome.data.truncates, truncates);
        assert_eq!(outcome.data.calls(Call::Rename).count(), renames);
        let names = fs::read_dir(bench.files.data().path()).unwrap().count();
        assert_eq!(names, 7);
    }
}

#[test]
fn fsyncs_come_with_updates_or_at_ticks() {
    let bench = Bench::new(IotFiles {
        fsync: Fsync::Update,
        ..spec()
    });
    let outcome = bench.run();
    assert_eq!(outcome.data.calls(Call::Fsync).count(), 7 * 3);
    assert_eq!(outcome.data.calls(Call::Open).count(), 7 * 3);

    // Burst at 0, 40, 80 ms; ticks at 60 and (the last) 120, which is the end.
    let bench = Bench::new(IotFiles {
        spread: Spread::Burst,
        fsync: Fsync::Every(Duration::from_millis(60)),
        mgmt_fsync: Fsync::Every(Duration::from_millis(30)),
        ..spec()
    });
    let outcome = bench.run();
    assert_eq!(outcome.data.calls(Call::Fsync).count(), 7);
    assert_eq!(outcome.data.calls(Call::Open).count(), 7 * 3 + 7);
    assert_eq!(outcome.data.lateness.count(), 7 * 3);
    // Ticks at 30, 60, 90 ms, each after one update, unless the machine is so
    // busy that some are missed.
    let fsyncs = outcome.mgmt.calls(Call::Fsync).count();
    assert!((1..=3).contains(&fsyncs), "{fsyncs}");
}

#[test]
fn late_updates_are_made_and_counted() {
    let bench = Bench::new(IotFiles {
        shape: Shape {
            files: 400,
            file_bytes: 4096,
            mgmt_bytes: 0,
        },
        threads: 1,
        period: Duration::from_millis(1),
        duration: Duration::from_millis(5),
        ..spec()
    });
    let outcome = bench.run();
    assert_eq!(outcome.data.updates(), 2000);
    assert!(outcome.data.late > 0);
    assert_eq!(outcome.data.lateness.count(), 2000);
    assert_eq!(outcome.mgmt.planned, 0);
}

#[test]
fn a_stop_ends_the_run_with_its_account() {
    let bench = Bench::new(IotFiles {
        duration: Duration::from_mins(10),
        ..spec()
    });
    let stop = Stop::new();
    let outcome = run(&bench.spec, &bench.files, &stop, &mut |at| {
        if at.updates >= 10 {
            stop.raise();
        }
    })
    .unwrap();
    assert!(matches!(outcome.end, End::Stopped));
    assert!(outcome.elapsed < Duration::from_mins(1));
    assert!(outcome.data.updates() > 0);
    assert!(outcome.data.updates() < outcome.data.planned);
    assert_eq!(outcome.data.bytes, outcome.data.updates() * 4096);
}

#[test]
fn a_failing_call_is_named_and_the_account_kept() {
    let bench = Bench::new(spec());
    fs::remove_file(bench.files.data().path().join("d3")).unwrap();
    let outcome = run(&bench.spec, &bench.files, &Stop::new(), &mut |_| {}).unwrap();
    let End::Failed(error) = outcome.end else {
        panic!("{:?}", outcome.end);
    };
    assert!(error.to_string().contains("data/d3"), "{error}");
    assert!(outcome.data.updates() < outcome.data.planned);
    assert!(!bench.files.data().path().join("d3").exists());
}

#[test]
fn a_link_put_in_place_of_a_file_is_not_written_through() {
    let bench = Bench::new(spec());
    let victim = bench.temp.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    let d3 = bench.files.data().path().join("d3");
    fs::remove_file(&d3).unwrap();
    symlink(&victim, &d3).unwrap();
    let outcome = run(&bench.spec, &bench.files, &Stop::new(), &mut |_| {}).unwrap();
    assert!(matches!(outcome.end, End::Failed(_)));
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    // Removal takes the link away, not what it points to.
    bench
        .files
        .remove(&Dir::typed(bench.temp.path()).unwrap())
        .unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
}

#[test]
fn threads_bear_the_names_of_their_roles() {
    let bench = Bench::new(IotFiles {
        duration: Duration::from_mins(1),
        ..spec()
    });
    let mut seen = std::collections::BTreeSet::new();
    let stop = Stop::new();
    run(&bench.spec, &bench.files, &stop, &mut |_| {
        for task in fs::read_dir("/proc/self/task").unwrap().flatten() {
            let comm = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
            seen.insert(comm.trim().to_owned());
        }
        if seen.contains("iot-data") && seen.contains("iot-mgmt") {
            stop.raise();
        }
    })
    .unwrap();
    assert!(stop.is_raised(), "{seen:?}");
}

#[test]
fn the_kernel_counts_the_same_bytes_and_calls() {
    const NAME: &str = "workload::iot_files::tests::the_kernel_counts_the_same_bytes_and_calls";
    const CHILD: &str = "WRITEPATH_IO_CHILD";
    if std::env::var_os(CHILD).is_none() {
        // In a process of its own, where no other test writes.
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", NAME])
            .env(CHILD, "1")
            .output()
            .unwrap();
        assert!(child.status.success(), "{child:?}");
        return;
    }
    let io = |key: &str| -> u64 {
        let text = fs::read_to_string("/proc/self/io").unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        line.unwrap().trim().parse().unwrap()
    };
    let bench = Bench::new(IotFiles {
        place: Place::HeaderMoving,
        ..spec()
    });
    let before = (io("wchar:"), io("syscw:"));
    let outcome = bench.run();
    let after = (io("wchar:"), io("syscw:"));
    assert_eq!(after.0 - before.0, outcome.data.bytes + outcome.mgmt.bytes);
    let writes = [&outcome.data, &outcome.mgmt].map(|account| account.calls(Call::Write).count());
    assert_eq!(after.1 - before.1, writes[0] + writes[1]);
}

#[test]
fn prepared_files_are_found_again_and_used() {
    let bench = Bench::new(spec());
    let again = Files::reuse(bench.files.top().path()).unwrap();
    assert_eq!(again.shape(), bench.spec.shape);
    let outcome = run(&bench.spec, &again, &Stop::new(), &mut |_| {}).unwrap();
    assert_eq!(outcome.data.updates(), 21);
    assert!(bench.data(6) == bench.expected(6, &[(0, 2, 0)]));
}

#[test]
fn what_is_not_as_prepared_is_refused() {
    type Change = fn(&Path);
    let changes: [(&str, Change); 8] = [
        ("d2 has 5 bytes", |top| {
            fs::write(top.join("data/d2"), "12345").unwrap();
        }),
        ("d2:", |top| fs::remove_file(top.join("data/d2")).unwrap()),
        ("2 names", |top| {
            fs::hard_link(top.join("data/d2"), top.join("other")).unwrap();
        }),
        ("not a plain file", |top| {
            fs::remove_file(top.join("mgmt")).unwrap();
            symlink("/etc/passwd", top.join("mgmt")).unwrap();
        }),
        ("prepared.json", |top| {
            fs::write(top.join("prepared.json"), "{}").unwrap();
        }),
        ("prepared.json", |top| {
            fs::remove_file(top.join("prepared.json")).unwrap();
        }),
        ("open", |top| {
            fs::rename(top.join("data"), top.join("moved")).unwrap();
            symlink(top.join("moved"), top.join("data")).unwrap();
        }),
        ("others", |top| {
            let loose = std::os::unix::fs::PermissionsExt::from_mode(0o777);
            fs::set_permissions(top.join("data"), loose).unwrap();
        }),
    ];
    for (wanted, change) in changes {
        let bench = Bench::new(spec());
        change(bench.files.top().path());
        let error = Files::reuse(bench.files.top().path()).unwrap_err();
        assert!(error.to_string().contains(wanted), "{wanted}: {error}");
    }
    assert!(Files::reuse(Path::new("/tmp")).is_err());
}

#[test]
fn removal_takes_only_what_was_made() {
    let bench = Bench::new(spec());
    let top = bench.files.top().path().to_owned();
    fs::write(bench.temp.path().join("neighbour"), "kept").unwrap();
    fs::write(top.join("data/notes"), "kept").unwrap();
    let parent = Dir::typed(bench.temp.path()).unwrap();
    let error = bench.files.remove(&parent).unwrap_err();
    assert!(error.to_string().contains("data"), "{error}");
    assert_eq!(fs::read_to_string(top.join("data/notes")).unwrap(), "kept");
    assert!(!top.join("data/d0").exists());

    let bench = Bench::new(spec());
    let parent = Dir::typed(bench.temp.path()).unwrap();
    bench.files.remove(&parent).unwrap();
    assert_eq!(fs::read_dir(bench.temp.path()).unwrap().count(), 0);
}

#[test]
fn an_interrupted_preparation_leaves_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let parent = Dir::typed(temp.path()).unwrap();
    let stop = Stop::new();
    let error = Files::prepare(&parent, &spec(), &stop, &mut |made| {
        if made == 4 {
            stop.raise();
        }
    })
    .unwrap_err();
    assert!(matches!(error, WorkloadError::Interrupted));
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 0);
}

#[test]
fn cadences_are_read_and_shown() {
    let none = || Err(std::io::Error::other("not asked for"));
    let parse = |text: &str| Fsync::parse(text, none);
    for text in ["never", "update", "every=10s"] {
        assert_eq!(parse(text).unwrap().to_string(), text);
    }
    assert_eq!(
        parse("every=10s").unwrap().interval(),
        Some(Duration::from_secs(10))
    );
    let timer = |text: &'static str| Fsync::parse("writeback", move || Ok(text.to_owned()));
    assert_eq!(
        timer("500\n").unwrap().interval(),
        Some(Duration::from_secs(5))
    );
    for error in [timer("0"), timer("x"), parse("writeback")] {
        assert!(matches!(error, Err(WorkloadError::NoWritebackTimer { .. })));
    }
    for text in ["", "always", "every=", "every=0s", "every=1x"] {
        assert!(parse(text).is_err(), "{text}");
    }
}

#[test]
fn parameters_that_make_no_sense_are_refused() {
    type Change = fn(&mut IotFiles);
    let changes: [(&str, Change); 9] = [
        ("--files", |s| s.shape.files = 0),
        ("--file-kib", |s| s.shape.file_bytes = 0),
        ("--threads", |s| s.threads = 0),
        ("--threads", |s| s.threads = 8),
        ("--period", |s| s.period = Duration::ZERO),
        ("--duration", |s| s.duration = Duration::ZERO),
        ("--update-bytes", |s| s.update_bytes = 0),
        ("--update-bytes", |s| s.update_bytes = 65537),
        ("--update-bytes", |s| {
            s.place = Place::HeaderMoving;
            s.update_bytes = 40000;
        }),
    ];
    for (option, change) in changes {
        let mut spec = spec();
        assert!(spec.check().is_ok());
        change(&mut spec);
        let error = spec.check().unwrap_err().to_string();
        assert!(error.starts_with(option), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn the_plan_counts_what_the_slots_hold(
        files in 1_u32..60,
        threads in 1_u32..60,
        period_ms in 1_u64..100,
        duration_ms in 1_u64..1000,
        burst: bool,
        place in proptest::sample::select(Place::ALL.map(|(place, _)| place).to_vec()),
    ) {
        let spec = IotFiles {
            shape: Shape { files, ..spec().shape },
            threads: threads.min(files),
            period: Duration::from_millis(period_ms),
            duration: Duration::from_millis(duration_ms),
            spread: if burst { Spread::Burst } else { Spread::Even },
            place,
            ..spec()
        };
        let slots: usize = (0..spec.threads).map(|thread| spec.slots(thread).count()).sum();
        let plan = spec.plan();
        prop_assert_eq!(plan.data_updates, slots as u64);
        prop_assert_eq!(plan.mgmt_updates, spec.mgmt_slots().count() as u64);
        prop_assert!(plan.data_updates >= u64::from(files) * (duration_ms / period_ms));
        prop_assert!(plan.data_updates <= u64::from(files) * duration_ms.div_ceil(period_ms));
    }
}
