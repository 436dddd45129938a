//! Knobs of /proc/sys. Of a pair the kernel keeps the member that was set last
//! and zeroes the other; the member that is not zero is the one in force.

use std::{
    fs::OpenOptions,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use super::target::{Setting, group};
use crate::profile::{Knob, Place, Value};

fn file(knob: Knob) -> io::Result<PathBuf> {
    match knob.place() {
        Place::Sysctl(file) => Ok(Path::new("/proc/sys").join(file)),
        _ => Err(io::Error::other("no sysctl")),
    }
}

fn number(knob: Knob) -> io::Result<Value> {
    let text = std::fs::read_to_string(file(knob)?)?;
    let text = text.trim();
    text.parse()
        .map_err(|_| io::Error::other(format!("`{}` is no number", text.escape_debug())))
}

/// What is in force, of the knob or of its pair.
pub fn read(knob: Knob) -> io::Result<Setting> {
    // The first of a pair is in force when both are 0.
    let first = group(knob);
    if let Some(second) = first.partner() {
        let value = number(second)?;
        if value != 0 {
            return Ok(Setting::new(second, value));
        }
    }
    Ok(Setting::new(first, number(first)?))
}

/// Sets it.
pub fn write(to: Setting) -> io::Result<()> {
    put(to.knob, to.value)?;
    // A 0 that was a 0 before is no change for the kernel, which then leaves
    // the other member in force.
    if to.value == 0
        && let Some(partner) = to.knob.partner()
        && number(partner)? != 0
    {
        put(to.knob, 1)?;
        put(to.knob, 0)?;
    }
    Ok(())
}

fn put(knob: Knob, value: Value) -> io::Result<()> {
    // Never create: a missing file is a knob that this kernel lacks.
    let mut file = OpenOptions::new().write(true).open(file(knob)?)?;
    file.write_all(value.to_string().as_bytes())
}
