//! Reads and sets one knob, wherever the kernel keeps it.

use std::io;

use super::{
    TuneError, ext4, sysctl,
    target::{On, Setting},
    throttle,
};
use crate::profile::Knob;

/// What is in force, of the knob or of its pair.
pub fn read(on: &On, knob: Knob) -> io::Result<Setting> {
    match on {
        On::Machine => sysctl::read(knob),
        On::Filesystem { dev, .. } => ext4::read(*dev),
        On::Device { dev } => throttle::read(knob, *dev),
    }
}

/// As [`read`], with an error that says what could not be read.
pub fn read_named(on: &On, knob: Knob) -> Result<Setting, TuneError> {
    read(on, knob).map_err(|reason| TuneError::Read {
        what: format!("{knob}{on}"),
        reason,
    })
}

/// Sets it and reads it back.
pub fn set(on: &On, to: Setting) -> Result<(), TuneError> {
    let fail = |reason| TuneError::Write {
        what: format!("{}{on}", to.knob),
        value: to.value,
        reason,
    };
    match on {
        On::Machine => sysctl::write(to).map_err(fail)?,
        On::Filesystem { dev, point } => ext4::write(*dev, point, to.value)?,
        On::Device { dev } => throttle::write(to, *dev).map_err(fail)?,
    }
    let found = read_named(on, to.knob)?;
    if found == to {
        Ok(())
    } else {
        Err(TuneError::NotTaken { wanted: to, found })
    }
}

/// Whether an error of [`read`] says that filesystem or device is gone, and
/// with it what was set on it.
pub fn is_gone(on: &On, error: &io::Error) -> bool {
    match on {
        On::Machine => false,
        On::Filesystem { .. } => error.kind() == io::ErrorKind::NotFound,
        On::Device { dev } => !std::path::Path::new(&format!("/sys/dev/block/{dev}")).exists(),
    }
}
