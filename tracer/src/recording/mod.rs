//! The file that a recorded run leaves: its format, written and read as
//! streams. docs/recording.md documents every byte.
//!
//! Pure: bytes come from a reader and go to a writer that others open. What
//! is read is hostile: every length is bounded before anything is allocated,
//! and a file cut at any byte reads up to its last whole section.
//!
//! Entry types: [`Writer`], and [`Reader`], an iterator of [`Event`]s.

mod codec;
mod event;
mod format;
pub mod kept;
mod reader;
pub mod start;
#[cfg(test)]
mod tests;
mod writer;

pub use codec::Column;
pub use event::{CommitEvent, Dirtied, Event, Kind, Memory, What};
pub use format::{End, FormatError, Header, MAGIC, MAX_EVENTS, MAX_LEDGER, MAX_NAME};
pub use reader::{Reader, Totals};
pub use start::Start;
pub use writer::Writer;
