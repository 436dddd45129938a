//! Statistics of experiments: rates of wear, means of blocks, changes.
//!
//! Pure. A block is the unit: windows inside one are no repeats, for the
//! flusher's cycle ties them together.

pub mod blocks;
pub mod wear;

pub use blocks::{Change, Mean, change, mean};
pub use wear::{gib_per_day, mib_per_min, years};
