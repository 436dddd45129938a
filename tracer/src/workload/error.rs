//! What can go wrong with a workload: what failed, on what, what to do.

use std::io;
use std::path::PathBuf;

/// An error of a workload.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// No workload of that name.
    #[error("no workload `{name}`: there is {known}")]
    UnknownWorkload {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// A parameter, alone or with others, makes no sense.
    #[error("{option}: {why}")]
    Parameter {
        /// The option as typed, with its dashes.
        option: &'static str,
        /// What is wrong and what would be right.
        why: String,
    },
    /// `/proc/sys/vm/dirty_writeback_centisecs` is 0 or cannot be read.
    #[error("--fsync writeback: {why}; use every=DUR instead")]
    NoWritebackTimer {
        /// The reason.
        why: String,
    },
    /// The directory to work in cannot be used.
    #[error("{}: cannot be used: {reason}", path.display())]
    Directory {
        /// The directory as typed.
        path: PathBuf,
        /// The reason.
        reason: io::Error,
    },
    /// The filesystem would be left with too little room.
    #[error(
        "{}: {needed} bytes are to be written, {available} of {total} are free: less than \
         {percent} % would stay free; use a larger filesystem or fewer and smaller files",
        path.display()
    )]
    Space {
        /// The directory as typed.
        path: PathBuf,
        /// Bytes the workload adds.
        needed: u64,
        /// Bytes an unprivileged process may still use.
        available: u64,
        /// Size of the filesystem in bytes.
        total: u64,
        /// The share that has to stay free.
        percent: u64,
    },
    /// The filesystem has too few inodes left.
    #[error(
        "{}: {needed} files are to be made and only {available} inodes are free",
        path.display()
    )]
    Inodes {
        /// The directory as typed.
        path: PathBuf,
        /// Files and directories the workload makes.
        needed: u64,
        /// Free inodes.
        available: u64,
    },
    /// A directory given to `--reuse` is not one that was prepared.
    #[error("{}: cannot be reused: {why}", path.display())]
    NotPrepared {
        /// The directory as typed.
        path: PathBuf,
        /// What is not as it was prepared.
        why: String,
    },
    /// A call on a file of the workload failed.
    #[error("{call} {}: {reason}", path.display())]
    File {
        /// The call.
        call: &'static str,
        /// The file, below the workload's directory.
        path: PathBuf,
        /// The reason.
        reason: io::Error,
    },
    /// A thread could not be started.
    #[error("cannot start thread {number} of {of}: {reason}; use fewer --threads")]
    Thread {
        /// Which one.
        number: u32,
        /// How many were wanted.
        of: u32,
        /// The reason.
        reason: io::Error,
    },
    /// A signal came before everything was prepared.
    #[error("interrupted before all files were made; what had been made is removed")]
    Interrupted,
}
