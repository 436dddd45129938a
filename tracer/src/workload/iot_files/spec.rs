//! The parameters of `iot-files`, checked, and what follows from them alone:
//! how many updates and how many bytes.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::place::{self, Place, Sizes};
use crate::workload::WorkloadError;
use crate::workload::pacing::{Offsets, Slots, Spread, share};

/// When files of one kind are flushed with fsync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fsync {
    /// Not at all.
    Never,
    /// With each update, before the file is closed.
    Update,
    /// At each tick of a timer, every file updated since its last fsync.
    Every(Duration),
    /// The same at the interval of the kernel's writeback timer, which was
    /// read from `vm.dirty_writeback_centisecs` when the run was set up.
    Writeback(Duration),
}

impl Fsync {
    /// Reads `never`, `update`, `every=DUR` or `writeback`; for the last,
    /// `timer` gives the text of `/proc/sys/vm/dirty_writeback_centisecs`.
    pub fn parse(
        text: &str,
        timer: impl FnOnce() -> std::io::Result<String>,
    ) -> Result<Self, WorkloadError> {
        let wrong = |why: String| WorkloadError::Parameter {
            option: "--fsync/--mgmt-fsync",
            why,
        };
        match text {
            "never" => Ok(Fsync::Never),
            "update" => Ok(Fsync::Update),
            "writeback" => {
                let missing = |why: String| WorkloadError::NoWritebackTimer { why };
                let text = timer()
                    .map_err(|error| missing(format!("vm.dirty_writeback_centisecs: {error}")))?;
                let centisecs: u64 = text.trim().parse().map_err(|_| {
                    missing(format!(
                        "vm.dirty_writeback_centisecs is {:?}, not a number",
                        text.trim()
                    ))
                })?;
                if centisecs == 0 {
                    return Err(missing(
                        "vm.dirty_writeback_centisecs is 0, periodic writeback is off".into(),
                    ));
                }
                Ok(Fsync::Writeback(Duration::from_millis(
                    centisecs.saturating_mul(10),
                )))
            }
            _ => {
                let duration = text.strip_prefix("every=").ok_or_else(|| {
                    wrong(format!(
                        "`{text}` is none of never, update, every=DUR, writeback"
                    ))
                })?;
                let every = humantime::parse_duration(duration)
                    .map_err(|error| wrong(format!("`{text}`: {error}")))?;
                if every < Duration::from_millis(1) {
                    return Err(wrong(format!("`{text}`: at least 1ms")));
                }
                Ok(Fsync::Every(every))
            }
        }
    }

    /// The interval of the timer, where there is one.
    pub fn interval(self) -> Option<Duration> {
        match self {
            Fsync::Never | Fsync::Update => None,
            Fsync::Every(every) | Fsync::Writeback(every) => Some(every),
        }
    }
}

impl fmt::Display for Fsync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fsync::Never => f.write_str("never"),
            Fsync::Update => f.write_str("update"),
            Fsync::Every(every) => write!(f, "every={}", humantime::format_duration(*every)),
            Fsync::Writeback(_) => f.write_str("writeback"),
        }
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        named(&Place::ALL, text)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(name_of(&Place::ALL, *self))
    }
}

const SPREADS: [(Spread, &str); 2] = [(Spread::Even, "even"), (Spread::Burst, "burst")];

impl FromStr for Spread {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        named(&SPREADS, text)
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(name_of(&SPREADS, *self))
    }
}

fn named<T: Copy>(table: &[(T, &'static str)], text: &str) -> Result<T, String> {
    table
        .iter()
        .find(|(_, name)| *name == text)
        .map(|(value, _)| *value)
        .ok_or_else(|| {
            let names: Vec<_> = table.iter().map(|(_, name)| *name).collect();
            format!("one of {}", names.join(", "))
        })
}

fn name_of<T: Copy + PartialEq>(table: &[(T, &'static str)], value: T) -> &'static str {
    table
        .iter()
        .find(|(entry, _)| *entry == value)
        .map_or("?", |(_, name)| name)
}

/// What was prepared on disk: the shape that a run has to keep to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Shape {
    /// Number of data files.
    pub files: u32,
    /// Size of a data file in bytes.
    pub file_bytes: u64,
    /// Size of the management file in bytes; 0: there is none.
    pub mgmt_bytes: u64,
}

impl Shape {
    /// Bytes that preparation writes.
    pub fn bytes(&self) -> u64 {
        u64::from(self.files) * self.file_bytes + self.mgmt_bytes
    }
}

/// The parameters of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct IotFiles {
    /// The files.
    pub shape: Shape,
    /// Threads that update data files.
    pub threads: u32,
    /// Each file is updated once in this time.
    pub period: Duration,
    /// Bytes of an update.
    pub update_bytes: u64,
    /// Where in the file updates go.
    pub place: Place,
    /// How updates lie in the period.
    pub spread: Spread,
    /// When data files are fsynced.
    pub fsync: Fsync,
    /// When the management file is fsynced.
    pub mgmt_fsync: Fsync,
    /// How long updates are started.
    pub duration: Duration,
    /// Seed of payload and random places.
    pub seed: u64,
}

/// The most threads: each holds one file open.
pub const MAX_THREADS: u32 = 512;
/// The largest file or update, so that a thread's buffer stays small.
pub const MAX_FILE_BYTES: u64 = 64 << 20;

impl IotFiles {
    /// Refuses what cannot be run.
    pub fn check(&self) -> Result<(), WorkloadError> {
        let fail = |option, why: String| Err(WorkloadError::Parameter { option, why });
        let Shape {
            files,
            file_bytes,
            mgmt_bytes,
        } = self.shape;
        if files == 0 || files > 10_000_000 {
            return fail("--files", format!("{files}: between 1 and 10000000"));
        }
        if file_bytes == 0 || file_bytes > MAX_FILE_BYTES {
            return fail("--file-kib", "between 1 and 65536".into());
        }
        if mgmt_bytes > MAX_FILE_BYTES {
            return fail("--mgmt-kib", "at most 65536".into());
        }
        if self.threads == 0 || self.threads > MAX_THREADS {
            return fail(
                "--threads",
                format!("{}: between 1 and {MAX_THREADS}", self.threads),
            );
        }
        if self.threads > files {
            return fail(
                "--threads",
                format!(
                    "{} threads for {files} files: at most one each",
                    self.threads
                ),
            );
        }
        if self.period < Duration::from_millis(1) || self.period > Duration::from_hours(24) {
            return fail("--period", "between 1ms and 1day".into());
        }
        if self.duration.is_zero() || self.duration > Duration::from_hours(24 * 366) {
            return fail("--duration", "more than 0 and at most 1year".into());
        }
        if self.duration.as_nanos() / self.period.as_nanos() >= u128::from(u32::MAX) {
            return fail("--duration", "more than 2^32 periods".into());
        }
        if self.update_bytes == 0 || self.update_bytes > MAX_FILE_BYTES {
            return fail("--update-bytes", "between 1 and 67108864".into());
        }
        let slots = self.place.slots_needed();
        if self.update_bytes * slots > file_bytes {
            return fail(
                "--update-bytes",
                format!(
                    "{} of `--place {}` takes {slots} x that, a file has {file_bytes}",
                    self.update_bytes, self.place
                ),
            );
        }
        Ok(())
    }

    /// The sizes that placement works with.
    pub fn sizes(&self) -> Sizes {
        Sizes {
            file: self.shape.file_bytes,
            update: self.update_bytes,
        }
    }

    /// The slots of data thread `thread`.
    pub fn slots(&self, thread: u32) -> Slots {
        let offsets = Offsets {
            spread: self.spread,
            thread,
            threads: self.threads,
            files: share(self.shape.files, self.threads, thread).len() as u32,
        };
        Slots::new(offsets, self.period, self.duration)
    }

    /// The slots of the management file: the middle of each period, or with
    /// the burst.
    pub fn mgmt_slots(&self) -> Slots {
        let offsets = Offsets {
            spread: self.spread,
            thread: 1,
            threads: 2,
            files: u32::from(self.shape.mgmt_bytes > 0),
        };
        Slots::new(offsets, self.period, self.duration)
    }

    /// What the run will do.
    pub fn plan(&self) -> Plan {
        let data_updates: u64 = (0..self.threads)
            .map(|thread| self.slots(thread).planned())
            .sum();
        let mgmt_updates = self.mgmt_slots().planned();
        let per_update = place::bytes_per_update(self.place, self.sizes());
        let data_bytes = data_updates * per_update;
        let grows = match self.place {
            Place::Append => data_bytes,
            // The old file goes when the new one is renamed over it.
            Place::Rename => u64::from(self.threads) * self.shape.file_bytes,
            _ => 0,
        };
        Plan {
            data_updates,
            mgmt_updates,
            data_bytes,
            mgmt_bytes: mgmt_updates * self.shape.mgmt_bytes,
            prepare_bytes: self.shape.bytes(),
            grows,
        }
    }
}

/// What a run will do, computed from its parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Updates of data files.
    pub data_updates: u64,
    /// Updates of the management file.
    pub mgmt_updates: u64,
    /// Bytes written to data files.
    pub data_bytes: u64,
    /// Bytes written to the management file.
    pub mgmt_bytes: u64,
    /// Bytes written before, when the files are made.
    pub prepare_bytes: u64,
    /// Bytes by which the files grow, or exist twice, during the run.
    pub grows: u64,
}
