//! The routes by which sectors reach a device.

use tracer_common::{op, path};

/// A path; `in_flight_before` is a named part of unattributed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Path {
    /// File data written by the flusher.
    Writeback,
    /// File data written inside a call that syncs.
    Fsync,
    /// File data that a commit had to write first.
    Ordered,
    /// What lands in the journal's place.
    Journal,
    /// Metadata written in place.
    Metadata,
    /// `O_DIRECT`.
    Direct,
    /// File data that a call other than a sync had to write first.
    Forced,
    /// Anonymous and tmpfs memory.
    Swap,
    /// The filesystem's own threads.
    Fs,
    /// Writes to the block device itself.
    Raw,
    /// Writes of a filesystem whose paths are not known.
    Other,
    /// No known path.
    Unattributed,
    /// Submitted before the probes were on.
    InFlightBefore,
    /// A number of another version.
    Unknown(u8),
}

/// The roll-up of paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Write-back.
    Async,
    /// Written because a call waited for it.
    Sync,
    /// The journal and what it forced.
    Journal,
    /// Metadata in place.
    Metadata,
    /// The rest.
    Other,
}

impl Path {
    /// From the programs' number.
    pub fn from_code(code: u8) -> Self {
        match code {
            path::WRITEBACK => Self::Writeback,
            path::FSYNC => Self::Fsync,
            path::ORDERED => Self::Ordered,
            path::JOURNAL => Self::Journal,
            path::METADATA => Self::Metadata,
            path::DIRECT => Self::Direct,
            path::FORCED => Self::Forced,
            path::SWAP => Self::Swap,
            path::FS => Self::Fs,
            path::RAW => Self::Raw,
            path::OTHER => Self::Other,
            path::UNATTRIBUTED => Self::Unattributed,
            path::BEFORE => Self::InFlightBefore,
            code => Self::Unknown(code),
        }
    }

    /// The number of [`Self::from_code`].
    pub fn code(self) -> u8 {
        match self {
            Self::Writeback => path::WRITEBACK,
            Self::Fsync => path::FSYNC,
            Self::Ordered => path::ORDERED,
            Self::Journal => path::JOURNAL,
            Self::Metadata => path::METADATA,
            Self::Direct => path::DIRECT,
            Self::Forced => path::FORCED,
            Self::Swap => path::SWAP,
            Self::Fs => path::FS,
            Self::Raw => path::RAW,
            Self::Other => path::OTHER,
            Self::Unattributed => path::UNATTRIBUTED,
            Self::InFlightBefore => path::BEFORE,
            Self::Unknown(code) => code,
        }
    }

    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Writeback => "writeback",
            Self::Fsync => "fsync",
            Self::Ordered => "ordered",
            Self::Journal => "journal",
            Self::Metadata => "metadata",
            Self::Direct => "direct",
            Self::Forced => "forced",
            Self::Swap => "swap",
            Self::Fs => "fs",
            Self::Raw => "raw",
            Self::Other => "other",
            Self::Unattributed | Self::Unknown(_) => "unattributed",
            Self::InFlightBefore => "in_flight_before",
        }
    }

    /// Its class.
    pub fn class(self) -> Class {
        match self {
            Self::Writeback | Self::Swap => Class::Async,
            Self::Fsync | Self::Direct | Self::Forced | Self::Raw => Class::Sync,
            Self::Ordered | Self::Journal => Class::Journal,
            Self::Metadata => Class::Metadata,
            Self::Fs
            | Self::Other
            | Self::Unattributed
            | Self::InFlightBefore
            | Self::Unknown(_) => Class::Other,
        }
    }

    /// Whether the ledger knows how these sectors came.
    pub fn attributed(self) -> bool {
        !matches!(
            self,
            Self::Unattributed | Self::InFlightBefore | Self::Unknown(_)
        )
    }
}

impl Class {
    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Async => "async",
            Self::Sync => "sync",
            Self::Journal => "journal",
            Self::Metadata => "metadata",
            Self::Other => "other",
        }
    }
}

/// What was done to the sectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Op {
    /// An ordinary write.
    Write,
    /// Write zeroes: counted as sectors written.
    WriteZeroes,
    /// Secure erase: counted as sectors written.
    SecureErase,
    /// Discard: beside the ledger.
    Discard,
    /// A flush that the device did: beside the ledger.
    Flush,
    /// A write that failed: beside the ledger, also in a row of its own.
    Failed,
    /// A number of another version.
    Unknown(u8),
}

impl Op {
    /// From the programs' number.
    pub fn from_code(code: u8) -> Self {
        match code {
            op::WRITE => Self::Write,
            op::WRITE_ZEROES => Self::WriteZeroes,
            op::SECURE_ERASE => Self::SecureErase,
            op::DISCARD => Self::Discard,
            op::FLUSH => Self::Flush,
            op::FAILED => Self::Failed,
            code => Self::Unknown(code),
        }
    }

    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::WriteZeroes => "write-zeroes",
            Self::SecureErase => "secure-erase",
            Self::Discard => "discard",
            Self::Flush => "flush",
            Self::Failed => "failed",
            Self::Unknown(_) => "unknown",
        }
    }

    /// Whether stat counts it as sectors written.
    pub fn in_ledger(self) -> bool {
        matches!(self, Self::Write | Self::WriteZeroes | Self::SecureErase)
    }
}
