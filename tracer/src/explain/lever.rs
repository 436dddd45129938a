//! The knobs that act on write-back: of a ratio and its bytes the kernel has
//! one in force, so that a pair is one lever.

use super::evidence::Device;
use crate::profile::{Knob, Value};
use std::str::FromStr;

/// A knob, or a pair of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lever {
    /// ext4's `commit=`, in seconds.
    Commit,
    /// `vm.dirty_expire_centisecs`
    Expire,
    /// `vm.dirty_writeback_centisecs`
    Writeback,
    /// `vm.dirty_background_ratio`, `vm.dirty_background_bytes`
    Background,
    /// `vm.dirty_ratio`, `vm.dirty_bytes`
    Limit,
}

impl Lever {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 5] = [
        Self::Commit,
        Self::Expire,
        Self::Writeback,
        Self::Background,
        Self::Limit,
    ];

    /// The lever that a knob belongs to; none where it does not act on
    /// write-back.
    pub fn of(knob: Knob) -> Option<Self> {
        match knob {
            Knob::Commit => Some(Self::Commit),
            Knob::DirtyExpireCentisecs => Some(Self::Expire),
            Knob::DirtyWritebackCentisecs => Some(Self::Writeback),
            Knob::DirtyBackgroundRatio | Knob::DirtyBackgroundBytes => Some(Self::Background),
            Knob::DirtyRatio | Knob::DirtyBytes => Some(Self::Limit),
            Knob::ThrottleWriteBps | Knob::ThrottleWriteIops => None,
        }
    }

    /// Its usual knob.
    fn usual(self) -> Knob {
        match self {
            Self::Commit => Knob::Commit,
            Self::Expire => Knob::DirtyExpireCentisecs,
            Self::Writeback => Knob::DirtyWritebackCentisecs,
            Self::Background => Knob::DirtyBackgroundRatio,
            Self::Limit => Knob::DirtyRatio,
        }
    }

    /// The knob and value in force on a device: bytes where they are not 0.
    pub fn in_force(self, device: &Device) -> (Knob, Option<Value>) {
        let usual = self.usual();
        let bytes = usual.partner().and_then(|bytes| {
            let value = device.knobs.get(&bytes).filter(|value| **value != 0)?;
            Some((bytes, Some(*value)))
        });
        bytes.unwrap_or_else(|| (usual, device.knobs.get(&usual).copied()))
    }
}

/// A knob and value as people read them: `dirty_expire_centisecs=3000 (30 s)`.
pub fn spelled(knob: Knob, value: Value) -> String {
    let name = short(knob);
    match knob {
        Knob::DirtyExpireCentisecs
        | Knob::DirtyWritebackCentisecs
        | Knob::DirtyBackgroundBytes
        | Knob::DirtyBytes => format!("{name}={value} ({})", knob.unit().say(value)),
        _ => format!("{name}={value}"),
    }
}

/// A knob's name without `vm.`.
pub fn short(knob: Knob) -> &'static str {
    let name = knob.name();
    name.strip_prefix("vm.").unwrap_or(name)
}

/// Why a `--knob` makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AskedError {
    /// No `=`.
    #[error("{0} has no value; write NAME=VALUE, such as commit=30")]
    NoValue(String),
    /// Not a knob of write-back.
    #[error("no knob {name} of write-back; there are {known}")]
    Unknown {
        /// What was typed.
        name: String,
        /// What could have been.
        known: String,
    },
    /// Not a number in its range.
    #[error("{knob}={value}: expected a whole number of {unit} from {least} to {most}")]
    Value {
        /// The knob.
        knob: Knob,
        /// What was typed.
        value: String,
        /// What it counts.
        unit: &'static str,
        /// Its smallest value.
        least: Value,
        /// Its largest value.
        most: Value,
    },
}

/// A value that was asked for: `commit=30`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// The lever.
    pub lever: Lever,
    /// The knob.
    pub knob: Knob,
    /// The value, in the knob's own unit.
    pub value: Value,
}

impl FromStr for Asked {
    type Err = AskedError;

    /// `vm.` may be left out.
    fn from_str(text: &str) -> Result<Self, AskedError> {
        let (name, typed) = text
            .split_once('=')
            .ok_or_else(|| AskedError::NoValue(text.to_owned()))?;
        let all = || Knob::all().filter_map(|knob| Some((knob, Lever::of(knob)?)));
        let Some((knob, lever)) =
            all().find(|(knob, _)| [knob.name(), short(*knob)].contains(&name))
        else {
            let known: Vec<&str> = all().map(|(knob, _)| short(knob)).collect();
            return Err(AskedError::Unknown {
                name: name.to_owned(),
                known: known.join(", "),
            });
        };
        let (least, most) = knob.range();
        match typed.parse() {
            Ok(value) if (least..=most).contains(&value) => Ok(Self { lever, knob, value }),
            _ => Err(AskedError::Value {
                knob,
                value: typed.to_owned(),
                unit: knob.unit().name(),
                least,
                most,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knobs_are_read_as_typed() {
        let asked: Asked = "commit=30".parse().unwrap();
        assert_eq!((asked.lever, asked.value), (Lever::Commit, 30));
        let asked: Asked = "vm.dirty_expire_centisecs=6000".parse().unwrap();
        assert_eq!((asked.lever, asked.value), (Lever::Expire, 6000));
        let asked: Asked = "dirty_bytes=8192".parse().unwrap();
        assert_eq!((asked.lever, asked.knob), (Lever::Limit, Knob::DirtyBytes));
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        for (text, part) in [
            ("commit", "no value"),
            ("commit_timeout=5", "no knob commit_timeout"),
            ("blkio.throttle.write_bps_device=5", "no knob"),
            ("commit=0", "from 1"),
            ("commit=-1", "from 1"),
            ("commit=1.5", "whole number of seconds"),
            ("dirty_ratio=101", "0 to 100"),
            ("dirty_bytes=99999999999999999999", "bytes"),
        ] {
            let error = text.parse::<Asked>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn of_a_pair_the_bytes_win_where_they_are_set() {
        let mut device = Device::default();
        let limit = Lever::Limit;
        assert_eq!(limit.in_force(&device), (Knob::DirtyRatio, None));
        device
            .knobs
            .extend([(Knob::DirtyRatio, 20), (Knob::DirtyBytes, 0)]);
        assert_eq!(limit.in_force(&device), (Knob::DirtyRatio, Some(20)));
        device.knobs.insert(Knob::DirtyBytes, 8192);
        assert_eq!(limit.in_force(&device), (Knob::DirtyBytes, Some(8192)));
    }
}
