//! What can go wrong with tuning: what, on what, what to do.

use std::{io, path::PathBuf};

use super::{Report, plan::Foreign, target::Setting};
use crate::profile::{Finding, Value};

/// An error of tuning.
#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    /// Not root.
    #[error("setting the kernel's tunables needs root: run it with sudo")]
    NotRoot,
    /// Another run has the machine.
    #[error(
        "another tuning run is on{}; end it first, one at a time may tune this machine",
        pid.map_or(String::new(), |pid| format!(" (process {pid})"))
    )]
    Busy {
        /// Its process, where that is known.
        pid: Option<u32>,
    },
    /// The place of the state, or a file there, is not to be trusted.
    #[error("{}: {why}; look what it is, and remove it", path.display())]
    Unsafe {
        /// Directory or file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The place of the state cannot be used.
    #[error("{}: cannot {doing}: {reason}", path.display())]
    State {
        /// Directory or file.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// The reason.
        reason: io::Error,
    },
    /// The directory is on something else than ext4.
    #[error(
        "{} is on {kind}; commit= is an option of ext4: name a directory on ext4",
        dir.display()
    )]
    NotExt4 {
        /// The directory that was named.
        dir: PathBuf,
        /// The filesystem's type.
        kind: String,
    },
    /// The directory's mount cannot be told.
    #[error("{}: cannot tell its mount: {reason}", dir.display())]
    Mount {
        /// The directory that was named.
        dir: PathBuf,
        /// The reason.
        reason: io::Error,
    },
    /// The profile is not fit to be applied.
    #[error("profile {name}: {}", say(findings))]
    Profile {
        /// Its name.
        name: String,
        /// What was found, the errors only.
        findings: Vec<Finding>,
    },
    /// `commit=` without a filesystem to set it on.
    #[error(
        "profile {profile} sets commit={commit}, which each mount has for itself: name one \
         with --mount DIR"
    )]
    NeedsMount {
        /// Name of the profile.
        profile: String,
        /// Its value.
        commit: Value,
    },
    /// A value cannot be read.
    #[error("{what}: cannot be read: {reason}")]
    Read {
        /// Knob and place.
        what: String,
        /// The reason.
        reason: io::Error,
    },
    /// A value cannot be set.
    #[error("{what}: cannot be set to {value}: {reason}")]
    Write {
        /// Knob and place.
        what: String,
        /// What was to be set.
        value: Value,
        /// The reason.
        reason: io::Error,
    },
    /// The kernel took a value and has another.
    #[error("{wanted} was set, but {found} is in force")]
    NotTaken {
        /// What was set.
        wanted: Setting,
        /// What is in force.
        found: Setting,
    },
    /// Somebody else changed a value during the run.
    #[error(
        "somebody else changed what this run had set: {}{} became {}; it is left alone",
        .0.ours, .0.on, .0.found
    )]
    Foreign(Box<Foreign>),
    /// A remount changed more than `commit=`.
    #[error(
        "{}: the remount changed more than commit=: before `{before}`, after `{after}`",
        point.display()
    )]
    Remount {
        /// Where the filesystem is mounted.
        point: PathBuf,
        /// The line that differs, before.
        before: String,
        /// And after.
        after: String,
    },
    /// No throttle of cgroup v1.
    #[error(
        "a device can be throttled by the blkio controller of cgroup v1 alone, which is not \
         mounted here; boot with systemd.unified_cgroup_hierarchy=0 or mount it: \
         mount -t cgroup -o blkio none DIR"
    )]
    NoThrottle,
    /// The guard cannot be started.
    #[error("cannot start the guard that puts back when this run dies: {0}")]
    Guard(io::Error),
    /// An earlier run's changes cannot be put back.
    #[error("an earlier run's changes cannot be put back: {}", .0.failed.join("; "))]
    Leftover(Box<Report>),
}

fn say(findings: &[Finding]) -> String {
    let texts: Vec<String> = findings
        .iter()
        .map(|finding| format!("{}: {}", finding.knob, finding.text))
        .collect();
    texts.join("; ")
}

/// What kind of failure it is, for the exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// What was typed makes no sense.
    Usage,
    /// This kernel or these privileges lack what was asked.
    Unable,
    /// A profile was not applied, or not put back.
    NotApplied,
}

impl TuneError {
    /// What kind of failure it is.
    pub fn kind(&self) -> Kind {
        match self {
            Self::NotExt4 { .. }
            | Self::Mount { .. }
            | Self::Profile { .. }
            | Self::NeedsMount { .. } => Kind::Usage,
            Self::NotRoot | Self::NoThrottle => Kind::Unable,
            _ => Kind::NotApplied,
        }
    }
}
