//! The known writers: a script of steps, run in a process of its own whose
//! name and pid the test knows. Every byte is asked for by a step, so a test
//! can say how many blocks must reach the device. Entries: [`Step`], [`main`].

mod async_io;
mod calls;
mod random;
mod run;

use std::io::BufRead;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

pub use calls::FS_IOC_FIEMAP;
pub use random::Random;

/// One step of a writer. `{i}` in a path is the number of the round of the
/// innermost [`Step::Repeat`], `{t}` the number of the thread.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Step {
    /// Opens the current file, dropping the last one. Flags, separated by
    /// spaces: ro wo rw creat trunc excl append direct sync dsync.
    Open {
        path: PathBuf,
        flags: String,
    },
    /// Closes the current file.
    Close,
    /// write(2) of so many bytes at the file's position.
    Write {
        len: u64,
    },
    /// pwrite(2).
    Pwrite {
        at: u64,
        len: u64,
    },
    /// pwrites at random places.
    Random(Random),
    /// The same writes, `depth` in flight at once from one thread.
    Queued {
        queue: Queue,
        depth: u64,
        random: Random,
    },
    /// As the random step, without its count, until a byte arrives on standard
    /// input.
    RandomUntilTold(Random),
    /// pread(2).
    Read {
        at: u64,
        len: u64,
    },
    /// `count` stores of eight bytes, `stride` bytes apart, through a shared
    /// map of the current file; then `msync(MS_SYNC)` of the whole, if asked.
    MmapStore {
        at: u64,
        stride: u64,
        count: u64,
        msync: bool,
    },
    /// Stores of eight bytes at random places of the current file through a
    /// shared map, then `msync(MS_SYNC)`. Places that ascend would make the
    /// kernel read ahead into larger folios.
    MmapRandom(Random),
    Truncate {
        len: u64,
    },
    /// fallocate(2) with the mode's bits.
    Fallocate {
        mode: i32,
        at: u64,
        len: u64,
    },
    /// fsync, fdatasync, syncfs (of the current file) or sync.
    Sync(SyncCall),
    /// `sync_file_range` with `WAIT_BEFORE`, WRITE and `WAIT_AFTER`.
    SyncRange {
        at: u64,
        len: u64,
    },
    /// `posix_fadvise(DONTNEED)` of the whole file.
    DontNeed,
    /// `FS_IOC_FIEMAP` with `FIEMAP_FLAG_SYNC` on the current file.
    FiemapSync,
    /// FIFREEZE, then FITHAW, of the filesystem of the current file.
    FreezeThaw,
    /// FIFREEZE of the filesystem of the current file; says `frozen`; FITHAW
    /// when a byte arrives on standard input, or its end.
    Frozen,
    /// FITRIM of the whole filesystem of the current file.
    Trim,
    /// BLKDISCARD or BLKZEROOUT of a range of the current file, a device.
    BlockRange {
        zero: bool,
        at: u64,
        len: u64,
    },
    Mkdir {
        path: PathBuf,
    },
    Rename {
        from: PathBuf,
        to: PathBuf,
    },
    Unlink {
        path: PathBuf,
    },
    Umount {
        path: PathBuf,
    },
    /// mount(2) with `MS_REMOUNT` and options as `mount -o` takes them.
    Remount {
        path: PathBuf,
        options: String,
    },
    /// A new file of `len` bytes, written in one go and closed.
    Create {
        path: PathBuf,
        len: u64,
    },
    /// Writes one byte after another into the current file until there is no
    /// space left, in pieces of `len` bytes.
    Fill {
        len: u64,
    },
    Sleep {
        ms: u64,
    },
    Repeat {
        count: u64,
        steps: Vec<Step>,
    },
    /// The steps in `count` threads at once, each with a file of its own.
    Threads {
        count: u64,
        steps: Vec<Step>,
    },
    /// Carries on when the inner step fails, as it must.
    Fails(Box<Step>),
    /// Waits for a byte on standard input ([`crate::writers::Writer::go`]).
    Wait,
    /// Prints a line ([`crate::writers::Writer::hear`]).
    Say(String),
}

/// The ways to have several writes in flight.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Queue {
    /// `io_submit`
    Aio,
    /// `io_uring`
    Uring,
}

/// The calls that write back.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum SyncCall {
    Fsync,
    Fdatasync,
    Syncfs,
    Sync,
}

/// The writer's process: its steps come as one line of JSON on standard input.
pub fn main(comm: &str) -> ExitCode {
    match script(comm) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("writer {comm}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn script(comm: &str) -> Result<()> {
    let name = std::ffi::CString::new(comm)?;
    rustix::thread::set_name(&name).context("setting the name")?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    let steps: Vec<Step> = serde_json::from_str(&line).context("reading the steps")?;
    run::all(&steps)
}
