//! What is tuned: a knob, or a pair of which the kernel keeps one member, on
//! the machine, on a filesystem or on a device. Pure.

use std::{fmt, path::PathBuf};

use crate::{
    kernel::block::DevNumber,
    profile::{Knob, Place, Value},
};

/// What a value is set on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum On {
    /// The machine.
    Machine,
    /// An ext4 filesystem.
    Filesystem {
        /// Its device.
        dev: DevNumber,
        /// A place where it is mounted.
        point: PathBuf,
    },
    /// A block device.
    Device {
        /// Its number.
        dev: DevNumber,
    },
}

impl On {
    /// Whether the knob has its values there.
    pub fn suits(&self, knob: Knob) -> bool {
        matches!(
            (self, knob.place()),
            (Self::Machine, Place::Sysctl(_))
                | (Self::Filesystem { .. }, Place::Ext4Option(_))
                | (Self::Device { .. }, Place::Throttle(_))
        )
    }

    /// Whether this is the same thing, wherever it is mounted.
    pub fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Machine, Self::Machine) => true,
            (Self::Filesystem { dev: a, .. }, Self::Filesystem { dev: b, .. })
            | (Self::Device { dev: a }, Self::Device { dev: b }) => a == b,
            _ => false,
        }
    }
}

/// ` on /mnt`, ` of 7:0`, or nothing.
impl fmt::Display for On {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine => Ok(()),
            Self::Filesystem { point, .. } => write!(f, " on {}", point.display()),
            Self::Device { dev } => write!(f, " of {dev}"),
        }
    }
}

/// A knob and its value. Of a pair: the member in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// The knob.
    pub knob: Knob,
    /// Its value.
    pub value: Value,
}

impl Setting {
    /// Makes one.
    pub fn new(knob: Knob, value: Value) -> Self {
        Self { knob, value }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.knob.with(self.value))
    }
}

/// The knob that stands for a pair, or the knob itself.
pub fn group(knob: Knob) -> Knob {
    knob.partner().map_or(knob, |partner| knob.min(partner))
}

/// A value that was changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// On what.
    pub on: On,
    /// What was in force.
    pub from: Setting,
    /// What is now.
    pub to: Setting,
}

impl Change {
    /// A command that undoes it by hand.
    pub fn undo(&self) -> String {
        let Setting { knob, value } = self.from;
        match &self.on {
            On::Machine => format!("sysctl -w {}", knob.with(value)),
            On::Filesystem { point, .. } => {
                let point = point.to_string_lossy().replace('\'', r"'\''");
                format!("mount -o remount,{} '{point}'", knob.with(value))
            }
            On::Device { dev } => format!("echo '{dev} {value}' > {knob}"),
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { on, from, to } = self;
        if from.knob == to.knob {
            write!(f, "{from} → {}{on}", to.value)
        } else {
            write!(f, "{from} → {to}{on}")
        }
    }
}

/// One thing that a run has changed or is about to: what has to be put back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// On what.
    pub on: On,
    /// What was in force before the run.
    pub original: Setting,
    /// What the run has set: one, or two while it goes from one to another.
    pub ours: Vec<Setting>,
}

impl Entry {
    /// Whether it is about this knob, or about the pair of this knob, there.
    pub fn is_about(&self, knob: Knob, on: &On) -> bool {
        group(self.original.knob) == group(knob) && self.on.is(on)
    }

    /// What it is called: the knob of the original, and where.
    pub fn what(&self) -> String {
        format!("{}{}", self.original.knob, self.on)
    }
}
