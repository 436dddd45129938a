//! Throttles of a device: the root group of cgroup v1's blkio controller.

use std::{
    fs::OpenOptions,
    io::{self, Write as _},
    path::PathBuf,
};

use super::{mountinfo, target::Setting};
use crate::{
    kernel::block::DevNumber,
    profile::{Knob, Place},
};

/// The root group's directory, where the controller is mounted.
pub fn root() -> io::Result<Option<PathBuf>> {
    let found = mountinfo::own()?.into_iter().find(|mount| {
        mount.kind == "cgroup"
            && mount.root == "/"
            && mount.super_options().any(|option| option == "blkio")
    });
    Ok(found.map(|mount| mount.point))
}

fn file(knob: Knob) -> io::Result<PathBuf> {
    let Place::Throttle(name) = knob.place() else {
        return Err(io::Error::other("no throttle"));
    };
    let root = root()?.ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::NotFound,
            "the blkio controller of cgroup v1 is not mounted",
        )
    })?;
    Ok(root.join(name))
}

/// What is in force for a device; 0 for no limit.
pub fn read(knob: Knob, dev: DevNumber) -> io::Result<Setting> {
    let text = std::fs::read_to_string(file(knob)?)?;
    Ok(Setting::new(knob, parse(&text, dev).unwrap_or(0)))
}

/// The value of a device among lines `MAJOR:MINOR VALUE`.
fn parse(text: &str, dev: DevNumber) -> Option<u64> {
    let dev = dev.to_string();
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(name, _)| *name == dev)
        .and_then(|(_, value)| value.trim().parse().ok())
}

/// Sets it.
pub fn write(to: Setting, dev: DevNumber) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(file(to.knob)?)?;
    file.write_all(format!("{dev} {}", to.value).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_without_a_line_has_no_limit() {
        let dev = |minor| DevNumber { major: 7, minor };
        let text = "7:10 5\n7:1 31457280\n";
        assert_eq!(parse(text, dev(1)), Some(31_457_280));
        assert_eq!(parse(text, dev(10)), Some(5));
        assert_eq!(parse(text, dev(0)), None);
    }
}
