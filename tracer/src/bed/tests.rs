//! Beds for real: they need root, loop devices and mkfs.ext4, and say so when
//! they are skipped.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::*;

const NAME: &str = "bed::tests::kill_9_leaves_no_mount_no_device_and_no_file";
const CHILD: &str = "WRITEPATH_BED_CHILD";

/// True, with a word why, where beds cannot be had.
fn skipped() -> bool {
    let why = if !rustix::process::geteuid().is_root() {
        "needs root"
    } else if !Path::new("/dev/loop-control").exists() {
        "no /dev/loop-control"
    } else if mkfs::find().is_err() {
        "no mkfs.ext4"
    } else {
        return false;
    };
    assert!(
        std::env::var("WRITEPATH_NO_SKIP").map_or(true, |value| value != "1"),
        "skipped: {why}"
    );
    eprintln!("skipped: {why}");
    true
}

fn options() -> BedOptions {
    BedOptions {
        size_bytes: 64 << 20,
        ..BedOptions::default()
    }
}

fn sysfs(device: &str, file: &str) -> String {
    fs::read_to_string(format!("/sys/block/{device}/{file}"))
        .unwrap()
        .trim()
        .to_owned()
}

/// The image on a loop device: the number alone may be another test's soon.
fn backing(device: &str) -> Option<String> {
    fs::read_to_string(format!("/sys/block/{device}/loop/backing_file")).ok()
}

#[test]
fn a_bed_is_private_safe_and_gone_afterwards() {
    if skipped() {
        return;
    }
    let bed = Bed::new(&BedOptions {
        owner: Some((1234, 2345)),
        mount_options: "noatime,commit=7,data=journal".into(),
        ..options()
    })
    .unwrap();
    let device = bed.device_name().to_owned();
    let point = bed.mount_point().to_owned();
    let image = backing(&device);
    assert!(sysfs(&device, "loop/backing_file").ends_with("(deleted)"));
    assert_eq!(sysfs(&device, "loop/autoclear"), "1");
    assert_eq!(sysfs(&device, "loop/dio") == "1", bed.direct_io());

    let mounts = fs::read_to_string("/proc/thread-self/mounts").unwrap();
    let line = mounts
        .lines()
        .find(|line| line.starts_with(&format!("/dev/{device} ")))
        .unwrap();
    for wanted in [
        "nosuid",
        "nodev",
        "noexec",
        "noatime",
        "commit=7",
        "data=journal",
        "ext4",
    ] {
        assert!(line.contains(wanted), "{wanted}: {line}");
    }
    let outside = fs::read_to_string("/proc/1/mounts").unwrap();
    assert!(!outside.contains(&*point.to_string_lossy()), "{outside}");

    let root = fs::metadata(&point).unwrap();
    assert_eq!((root.uid(), root.gid()), (1234, 2345));
    let above = fs::metadata(point.parent().unwrap()).unwrap();
    assert_eq!(above.permissions().mode() & 0o7777, 0o755);
    let before = sysfs(&device, "stat");
    fs::write(point.join("x"), vec![1; 100_000]).unwrap();
    rustix::fs::syncfs(fs::File::open(point.join("x")).unwrap()).unwrap();
    assert_ne!(before, sysfs(&device, "stat"));

    drop(bed);
    assert_ne!(backing(&device), image);
    assert!(!point.exists());
}

#[test]
fn the_space_of_the_image_is_set_aside() {
    if skipped() {
        return;
    }
    let temp = tempfile::tempdir_in("/var/tmp").unwrap();
    let used = |path: &Path| {
        let vfs = rustix::fs::statvfs(path).unwrap();
        (vfs.f_blocks - vfs.f_bfree) * vfs.f_frsize
    };
    // A filesystem of its own, so that nobody else's writes are counted.
    let outer = Bed::new(&BedOptions {
        size_bytes: 256 << 20,
        dir: temp.path().into(),
        ..BedOptions::default()
    })
    .unwrap();
    let before = used(outer.mount_point());
    let inner = Bed::new(&BedOptions {
        dir: outer.mount_point().into(),
        ..options()
    })
    .unwrap();
    assert!(used(outer.mount_point()) - before >= 64 << 20);
    assert_ne!(inner.device_name(), outer.device_name());
    assert_eq!(fs::read_dir(outer.mount_point()).unwrap().count(), 1);
    drop(inner);
    assert_eq!(used(outer.mount_point()), before);
    drop(outer);
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 0);
}

#[test]
fn umount_keeps_the_device_and_names_who_is_busy() {
    if skipped() {
        return;
    }
    let mut bed = Bed::new(&options()).unwrap();
    let device = bed.device_name().to_owned();
    let image = backing(&device);
    let held = fs::File::create(bed.mount_point().join("held")).unwrap();
    let error = bed.umount().unwrap_err();
    assert!(matches!(error, BedError::Umount { .. }), "{error}");
    drop(held);
    bed.umount().unwrap();
    bed.umount().unwrap();
    assert_eq!(backing(&device), image);
    assert!(!sysfs(&device, "stat").is_empty());
    drop(bed);
    assert_ne!(backing(&device), image);
}

#[test]
fn what_was_tuned_is_back_at_its_default() {
    if skipped() {
        return;
    }
    let bed = Bed::new(&options()).unwrap();
    let device = bed.device_name();
    let files = [
        ("queue/scheduler", "mq-deadline"),
        ("queue/max_sectors_kb", "16"),
        ("queue/read_ahead_kb", "4"),
        ("queue/nomerges", "2"),
        ("queue/iostats", "0"),
        ("queue/stable_writes", "1"),
        ("queue/nr_requests", "32"),
        ("queue/write_cache", "write through"),
        ("queue/wbt_lat_usec", "0"),
        ("bdi/strict_limit", "1"),
        ("bdi/min_ratio", "3"),
        ("bdi/max_ratio", "7"),
    ];
    let read = || files.map(|(file, _)| sysfs(device, file));
    let fresh = read();
    for (file, value) in files {
        // Not every kernel lets every one of them be set.
        let _ = fs::write(format!("/sys/block/{device}/{file}"), value);
    }
    let tuned = read();
    assert_ne!(tuned[1], fresh[1]);
    assert_ne!(tuned.last(), fresh.last());
    let discard = |file: &str| -> u64 { sysfs(device, file).parse().unwrap() };
    let most = discard("queue/discard_max_bytes");
    let path = format!("/sys/block/{device}/queue/discard_max_bytes");
    fs::write(path, discard("queue/discard_granularity").to_string()).unwrap();
    knobs::reset(device).unwrap();
    assert_eq!(read(), fresh);
    let short = most - discard("queue/discard_max_bytes");
    assert!(short < discard("queue/discard_granularity").max(1));
    eprintln!("{tuned:?} -> {fresh:?}");
    assert_eq!(sysfs(device, "bdi/max_ratio"), "100");
    assert_eq!(sysfs(device, "queue/iostats"), "1");
    assert!(sysfs(device, "queue/scheduler").contains("[none]"));
}

#[test]
fn errors_say_what_is_wrong_and_leave_nothing() {
    if skipped() {
        return;
    }
    let temp = tempfile::tempdir_in("/var/tmp").unwrap();
    let with = |change: &dyn Fn(&mut BedOptions)| {
        let mut options = BedOptions {
            dir: temp.path().into(),
            ..options()
        };
        change(&mut options);
        let error = Bed::new(&options).unwrap_err();
        assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 0);
        error
    };
    let error = with(&|o| o.mount_options = "noatime,comit=5".into());
    assert!(matches!(error, BedError::MountOption { .. }), "{error}");
    assert!(error.to_string().contains("comit"), "{error}");
    let error = with(&|o| o.mount_options = "commit=soon".into());
    assert!(error.to_string().contains("commit=soon"), "{error}");
    let error = with(&|o| o.mount_options = "exec".into());
    assert!(error.to_string().contains("not allowed"), "{error}");
    let error = with(&|o| o.mkfs_args = vec!["-O".into(), "nonsense".into()]);
    assert!(error.to_string().contains("nonsense"), "{error}");
    assert!(matches!(error, BedError::Mkfs { .. }), "{error}");
    let error = with(&|o| o.size_bytes = 1 << 50);
    assert!(matches!(error, BedError::NoSpace { .. }), "{error}");
    let error = with(&|o| o.dir = "/no/such/directory".into());
    assert!(error.to_string().contains("/no/such/directory"), "{error}");
    let error = with(&|o| o.dir = "/proc".into());
    assert!(matches!(error, BedError::Image { .. }), "{error}");
}

/// What the child does that the next test starts and kills.
fn hold_a_bed(dir: std::ffi::OsString) -> ! {
    let bed = Bed::new(&BedOptions {
        dir: dir.into(),
        ..options()
    })
    .unwrap();
    fs::write(bed.mount_point().join("dirty"), vec![1; 1 << 20]).unwrap();
    eprintln!("READY {}", bed.device_name());
    loop {
        std::thread::park();
    }
}

#[test]
fn kill_9_leaves_no_mount_no_device_and_no_file() {
    if let Some(dir) = std::env::var_os(CHILD) {
        hold_a_bed(dir);
    }
    if skipped() {
        return;
    }
    let temp = tempfile::tempdir_in("/var/tmp").unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", NAME, "--nocapture"])
        .env(CHILD, temp.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stderr = BufReader::new(child.stderr.take().unwrap());
    let device = stderr
        .lines()
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("READY ").map(str::to_owned))
        .unwrap();
    let image = backing(&device);
    assert!(image.is_some());
    child.kill().unwrap();
    child.wait().unwrap();

    // A device is cleared when nothing uses it: then no mount is left either.
    let deadline = Instant::now() + Duration::from_secs(10);
    while backing(&device) == image {
        assert!(Instant::now() < deadline, "{device} is still attached");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 0);
}

#[test]
fn an_image_in_memory_works() {
    if skipped() {
        return;
    }
    // With or without direct I/O: tmpfs has it since Linux 6.6.
    let bed = Bed::new(&BedOptions {
        dir: "/dev/shm".into(),
        ..options()
    })
    .unwrap();
    fs::write(bed.mount_point().join("x"), "y").unwrap();
    eprintln!("direct I/O on tmpfs: {}", bed.direct_io());
}
