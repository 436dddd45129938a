//! `commit=` of an ext4 filesystem: read from /proc/fs/ext4, where a default
//! is not hidden, and set by a remount that keeps everything else.
//!
//! The filesystem is reconfigured (fspick and fsconfig, Linux 5.2), not the
//! mount: options of the mount (nosuid, nodev, noexec, noatime …) are not
//! touched. Flags of the filesystem (ro, sync, lazytime, mand) are
//! named again, for ext4 compares them with what it has. Before and after,
//! every line of the mount table and all of ext4's options are compared.

use std::{
    fs, io,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::{
    fs::{CWD, Mode, OFlags},
    mount::{FsPickFlags, fsconfig_reconfigure, fsconfig_set_flag, fsconfig_set_string, fspick},
};

use super::{
    TuneError, mountinfo,
    mountinfo::Mount,
    target::{On, Setting},
};
use crate::{
    kernel::{block::DevNumber, ext4::options},
    profile::{Knob, Value},
};

/// Flags of a filesystem that a remount has to name again. Others, such as
/// dirsync, no remount may name, and none changes.
const FLAGS: &[&str] = &["ro", "sync", "mand", "lazytime"];

/// The filesystem that a directory is on.
pub fn of_directory(dir: &Path) -> Result<On, TuneError> {
    let fail = |reason: io::Error| TuneError::Mount {
        dir: dir.to_owned(),
        reason,
    };
    let path = dir.canonicalize().map_err(fail)?;
    let found = rustix::fs::stat(&path).map_err(|errno| fail(errno.into()))?;
    let dev = DevNumber::from_stat(found.st_dev);
    let mounts = mountinfo::own().map_err(fail)?;
    let over = mounts
        .iter()
        .filter(|mount| path.starts_with(&mount.point))
        // The deepest, and of those the last one mounted; where numbers agree,
        // nothing that is mounted over is taken for it.
        .max_by_key(|mount| (mount.dev == dev, mount.point.components().count()))
        .ok_or_else(|| fail(io::Error::other("not in /proc/self/mountinfo")))?;
    if over.kind != "ext4" || options(dev).is_none() {
        return Err(TuneError::NotExt4 {
            dir: dir.to_owned(),
            kind: over.kind.clone(),
        });
    }
    Ok(On::Filesystem {
        dev,
        point: over.point.clone(),
    })
}

/// What is in force; an error of kind `NotFound` when the filesystem is gone.
pub fn read(dev: DevNumber) -> io::Result<Setting> {
    let options = options(dev).ok_or_else(gone)?;
    options
        .lines()
        .find_map(|line| line.strip_prefix("commit=")?.parse().ok())
        .map(|value| Setting::new(Knob::Commit, value))
        .ok_or_else(|| io::Error::other("no commit= in /proc/fs/ext4"))
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "the filesystem is not mounted")
}

/// A way to a filesystem: an open mount of it, and the mount table it is in.
struct Way {
    fd: OwnedFd,
    table: String,
    mount: Mount,
}

/// Sets it, and fails when anything else changed by that.
pub fn write(dev: DevNumber, point: &Path, value: Value) -> Result<(), TuneError> {
    let fail = |reason: io::Error| TuneError::Write {
        what: format!("commit on {}", point.display()),
        value,
        reason,
    };
    let way = find(dev, point).map_err(fail)?;
    let before = everything(dev, &way).map_err(fail)?;
    let context = fspick(
        way.fd.as_fd(),
        "",
        FsPickFlags::FSPICK_CLOEXEC | FsPickFlags::FSPICK_EMPTY_PATH,
    )
    .map_err(|errno| fail(errno.into()))?;
    for flag in way.mount.super_options().filter(|o| FLAGS.contains(o)) {
        fsconfig_set_flag(&context, flag).map_err(|errno| fail(errno.into()))?;
    }
    fsconfig_set_string(&context, "commit", value.to_string())
        .and_then(|()| fsconfig_reconfigure(&context))
        .map_err(|errno| fail(errno.into()))?;
    let after = everything(dev, &way).map_err(fail)?;
    match before.iter().zip(&after).find(|(old, new)| old != new) {
        None if before.len() == after.len() => Ok(()),
        differing => {
            let (before, after) = differing.map_or_else(
                || (before.join("; "), after.join("; ")),
                |(old, new)| (old.clone(), new.clone()),
            );
            Err(TuneError::Remount {
                point: point.to_owned(),
                before,
                after,
            })
        }
    }
}

/// Every line of the mount table about the filesystem and each of its
/// options, but `commit=`.
fn everything(dev: DevNumber, way: &Way) -> io::Result<Vec<String>> {
    let table = mountinfo::read(&way.table)?;
    let lines = table
        .iter()
        .filter(|mount| mount.dev == dev)
        .map(Mount::but_commit);
    let options = options(dev).ok_or_else(gone)?;
    let options = options
        .lines()
        .filter(|line| !line.starts_with("commit="))
        .map(str::to_owned);
    Ok(lines.chain(options).collect())
}

/// How long a filesystem may be mounted in a namespace that is going away.
const GOING: Duration = Duration::from_secs(2);

/// A way to the filesystem. One that no namespace has is on its way out with
/// the last process of its own: waits until it is gone.
fn find(dev: DevNumber, point: &Path) -> io::Result<Way> {
    let until = Instant::now() + GOING;
    loop {
        options(dev).ok_or_else(gone)?;
        if let Some(way) = reach(dev, point)? {
            return Ok(way);
        }
        if Instant::now() > until {
            return Err(io::Error::other(
                "it is mounted, but in no mount namespace that can be reached",
            ));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Where it was, else elsewhere in this namespace, else in that of any
/// process, for a run that is dead may have had a namespace of its own that
/// others still live in.
fn reach(dev: DevNumber, point: &Path) -> io::Result<Option<Way>> {
    let own = "/proc/thread-self/mountinfo";
    if let Some(way) = in_table(own, Path::new("/"), dev, Some(point)) {
        return Ok(Some(way));
    }
    let mut seen = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|n| n.parse::<u32>().ok())
        else {
            continue;
        };
        let Ok(namespace) = fs::read_link(format!("/proc/{pid}/ns/mnt")) else {
            continue;
        };
        if seen.contains(&namespace) {
            continue;
        }
        seen.push(namespace);
        let root = PathBuf::from(format!("/proc/{pid}/root"));
        let table = format!("/proc/{pid}/mountinfo");
        if let Some(way) = in_table(&table, &root, dev, None) {
            return Ok(Some(way));
        }
    }
    Ok(None)
}

fn in_table(table: &str, root: &Path, dev: DevNumber, first: Option<&Path>) -> Option<Way> {
    let mut mounts = mountinfo::read(table).ok()?;
    mounts.retain(|mount| mount.dev == dev && mount.kind == "ext4");
    mounts.sort_by_key(|mount| first != Some(mount.point.as_path()));
    mounts.into_iter().find_map(|mount| {
        let relative = mount.point.strip_prefix("/").ok()?;
        let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let fd = rustix::fs::openat(CWD, root.join(relative), flags, Mode::empty()).ok()?;
        // Something else may be mounted over it.
        let found = rustix::fs::fstat(&fd).ok()?;
        (DevNumber::from_stat(found.st_dev) == dev).then(|| Way {
            fd,
            table: table.to_owned(),
            mount,
        })
    })
}
