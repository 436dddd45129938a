//! The table of knobs: what can be tuned, in which unit, within which range,
//! and where the kernel keeps it. A new knob is a variant and a row.

use std::fmt;

use super::Value;

/// A tunable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Knob {
    /// `vm.dirty_background_ratio`
    DirtyBackgroundRatio,
    /// `vm.dirty_background_bytes`
    DirtyBackgroundBytes,
    /// `vm.dirty_ratio`
    DirtyRatio,
    /// `vm.dirty_bytes`
    DirtyBytes,
    /// `vm.dirty_writeback_centisecs`
    DirtyWritebackCentisecs,
    /// `vm.dirty_expire_centisecs`
    DirtyExpireCentisecs,
    /// `commit=` of an ext4 mount
    Commit,
    /// Bytes written per second to a device, by the root group of cgroup v1
    ThrottleWriteBps,
    /// Writes per second to a device, by the root group of cgroup v1
    ThrottleWriteIops,
}

/// Where the kernel keeps a knob, and so what one value of it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// /proc/sys, for the machine: the file below it.
    Sysctl(&'static str),
    /// An option of an ext4 filesystem, for each: its name without `=`.
    Ext4Option(&'static str),
    /// A file of the root group of cgroup v1's blkio, for each device. Set by
    /// an experiment that emulates a device; no profile may name it.
    Throttle(&'static str),
}

/// What a value counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Percent of the memory that can be dirty.
    Percent,
    /// Bytes.
    Bytes,
    /// Hundredths of a second.
    Centiseconds,
    /// Seconds.
    Seconds,
    /// Bytes a second; 0 for no limit.
    BytesPerSecond,
    /// Operations a second; 0 for no limit.
    PerSecond,
}

struct Row {
    knob: Knob,
    name: &'static str,
    place: Place,
    unit: Unit,
    /// Smallest and largest value that the kernel takes and that means what
    /// it says.
    range: (Value, Value),
    /// The other member of a pair of which the kernel keeps one: setting the
    /// one zeroes the other.
    partner: Option<Knob>,
    about: &'static str,
}

/// The kernel refuses a `dirty_bytes` below two pages (mm/page-writeback.c).
pub const LEAST_DIRTY_BYTES: Value = 8192;
const INT_MAX: Value = i32::MAX as Value;

/// In the order of [`Knob`].
const TABLE: &[Row] = &[
    Row {
        knob: Knob::DirtyBackgroundRatio,
        name: "vm.dirty_background_ratio",
        place: Place::Sysctl("vm/dirty_background_ratio"),
        unit: Unit::Percent,
        range: (0, 100),
        partner: Some(Knob::DirtyBackgroundBytes),
        about: "above it the flusher writes whatever its age",
    },
    Row {
        knob: Knob::DirtyBackgroundBytes,
        name: "vm.dirty_background_bytes",
        place: Place::Sysctl("vm/dirty_background_bytes"),
        unit: Unit::Bytes,
        range: (1, i64::MAX as Value),
        partner: Some(Knob::DirtyBackgroundRatio),
        about: "above it the flusher writes whatever its age",
    },
    Row {
        knob: Knob::DirtyRatio,
        name: "vm.dirty_ratio",
        place: Place::Sysctl("vm/dirty_ratio"),
        unit: Unit::Percent,
        range: (0, 100),
        partner: Some(Knob::DirtyBytes),
        about: "towards it writers are made to wait",
    },
    Row {
        knob: Knob::DirtyBytes,
        name: "vm.dirty_bytes",
        place: Place::Sysctl("vm/dirty_bytes"),
        unit: Unit::Bytes,
        range: (LEAST_DIRTY_BYTES, i64::MAX as Value),
        partner: Some(Knob::DirtyRatio),
        about: "towards it writers are made to wait",
    },
    Row {
        knob: Knob::DirtyWritebackCentisecs,
        name: "vm.dirty_writeback_centisecs",
        place: Place::Sysctl("vm/dirty_writeback_centisecs"),
        unit: Unit::Centiseconds,
        range: (0, INT_MAX),
        partner: None,
        about: "how often the flusher looks for data that has expired; 0: never",
    },
    Row {
        knob: Knob::DirtyExpireCentisecs,
        name: "vm.dirty_expire_centisecs",
        place: Place::Sysctl("vm/dirty_expire_centisecs"),
        unit: Unit::Centiseconds,
        range: (0, INT_MAX),
        partner: None,
        about: "age from which the flusher writes data that it finds",
    },
    Row {
        knob: Knob::Commit,
        name: "commit",
        place: Place::Ext4Option("commit"),
        unit: Unit::Seconds,
        // The kernel takes INT_MAX / HZ; 1000 is the largest HZ.
        range: (1, INT_MAX / 1000),
        partner: None,
        about: "age at which ext4 commits a transaction that nobody forced",
    },
    Row {
        knob: Knob::ThrottleWriteBps,
        name: "blkio.throttle.write_bps_device",
        place: Place::Throttle("blkio.throttle.write_bps_device"),
        unit: Unit::BytesPerSecond,
        range: (0, i64::MAX as Value),
        partner: None,
        about: "bytes a second that a device is given to write",
    },
    Row {
        knob: Knob::ThrottleWriteIops,
        name: "blkio.throttle.write_iops_device",
        place: Place::Throttle("blkio.throttle.write_iops_device"),
        unit: Unit::PerSecond,
        range: (0, u32::MAX as Value),
        partner: None,
        about: "writes a second that a device is given",
    },
];

impl Knob {
    /// Every knob, in the order of the table.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|row| row.knob)
    }

    /// Those that a profile may set.
    pub fn of_profiles() -> impl Iterator<Item = Self> {
        Self::all().filter(|knob| !matches!(knob.place(), Place::Throttle(_)))
    }

    /// The knob of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::all().find(|knob| knob.name() == name)
    }

    fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    /// Its name: that of the sysctl, or of the mount option without `=`.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Where the kernel keeps it.
    pub fn place(self) -> Place {
        self.row().place
    }

    /// What its values count.
    pub fn unit(self) -> Unit {
        self.row().unit
    }

    /// Smallest and largest value.
    pub fn range(self) -> (Value, Value) {
        self.row().range
    }

    /// The other member of its pair.
    pub fn partner(self) -> Option<Self> {
        self.row().partner
    }

    /// What it does, in one line.
    pub fn about(self) -> &'static str {
        self.row().about
    }

    /// Knob and value as one would type them: `commit=60`,
    /// `vm.dirty_ratio=40`.
    pub fn with(self, value: Value) -> String {
        format!("{self}={value}")
    }
}

impl fmt::Display for Knob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Unit {
    /// The unit's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Percent => "percent",
            Self::Bytes => "bytes",
            Self::Centiseconds => "centiseconds",
            Self::Seconds => "seconds",
            Self::BytesPerSecond => "bytes per second",
            Self::PerSecond => "writes per second",
        }
    }

    /// Whether a value is a time.
    pub fn is_time(self) -> bool {
        matches!(self, Self::Centiseconds | Self::Seconds)
    }

    /// A value in words, such as `30 s` or `64 MiB`.
    pub fn say(self, value: Value) -> String {
        match self {
            Self::Percent => format!("{value} %"),
            Self::Bytes => say_bytes(value),
            Self::Centiseconds => say_centiseconds(value),
            Self::Seconds => format!("{value} s"),
            Self::BytesPerSecond => format!("{}/s", say_bytes(value)),
            Self::PerSecond => format!("{value}/s"),
        }
    }
}

/// `64 MiB`, `1.5 GiB`, `4096 B`.
fn say_bytes(bytes: Value) -> String {
    for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
        let one = 1_u64 << shift;
        if bytes >= one {
            return if bytes.is_multiple_of(one) {
                format!("{} {unit}", bytes >> shift)
            } else {
                format!("{:.1} {unit}", bytes as f64 / one as f64)
            };
        }
    }
    format!("{bytes} B")
}

/// `30 s`, `0.05 s`.
pub(super) fn say_centiseconds(centiseconds: Value) -> String {
    let (seconds, rest) = (centiseconds / 100, centiseconds % 100);
    match rest {
        0 => format!("{seconds} s"),
        _ if rest.is_multiple_of(10) => format!("{seconds}.{} s", rest / 10),
        _ => format!("{seconds}.{rest:02} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_knobs() {
        for (index, row) in TABLE.iter().enumerate() {
            assert_eq!(row.knob as usize, index, "{}", row.name);
            assert_eq!(Knob::from_name(row.name), Some(row.knob));
            assert!(row.range.0 <= row.range.1);
            if let Some(partner) = row.partner {
                assert_eq!(partner.partner(), Some(row.knob));
            }
        }
    }

    #[test]
    fn values_are_said_with_their_unit() {
        assert_eq!(Unit::Centiseconds.say(3000), "30 s");
        assert_eq!(Unit::Centiseconds.say(5), "0.05 s");
        assert_eq!(Unit::Centiseconds.say(150), "1.5 s");
        assert_eq!(Unit::Bytes.say(64 << 20), "64 MiB");
        assert_eq!(Unit::Bytes.say(5), "5 B");
        assert_eq!(Unit::Percent.say(40), "40 %");
        assert_eq!(Knob::Commit.with(60), "commit=60");
    }
}
