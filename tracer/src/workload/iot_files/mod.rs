//! `iot-files`: many small files each updated once a period and one management
//! file that is fsynced, after a published experiment on eMMC.
//!
//! [`spec::IotFiles`] says what to do, [`files::Files`] makes, finds again and
//! removes the files, [`run::run`] does the measured part.

pub mod files;
pub mod place;
pub mod run;
pub mod spec;
#[cfg(test)]
pub(crate) mod tests;

pub use files::Files;
pub use place::Place;
pub use run::{End, Outcome, Progress, run};
pub use spec::{Fsync, IotFiles, Plan, Shape};

/// Its name on the command line.
pub const NAME: &str = "iot-files";

/// What `workload show` says.
pub const DESCRIPTION: &str = "\
Many small data files, each updated once a period by one of many threads: open
the existing file, overwrite a part of it, close; the data stays in the page
cache and is not fsynced. Beside them one management file that one thread
overwrites as a whole and fsyncs once a period.

The files are made and synced to the device before the clock starts. Threads
keep to absolute deadlines: what a slow device delays is done late, not left
out; an update that starts more than a period after its slot is counted late.

--place  where in its file an update goes:
  fixed          the first --update-bytes again: coalesces while still dirty
  moving         the next --update-bytes each time, round and round
  header+moving  both: the first and one of the others, two writes
  random         a random multiple of --update-bytes
  append         at the end, the file grows
  replace        truncated at open and written anew as a whole
  rename         a new file written as a whole and renamed over the old one
--spread  even: over the period; burst: all at its start
--fsync, --mgmt-fsync  never; update: with each update; every=DUR: at each tick
  every file updated since its last fsync; writeback: the same at the interval
  of the kernel's writeback timer (vm.dirty_writeback_centisecs)

Threads are named iot-data and iot-mgmt.
";
