//! /proc/PID/mountinfo, each line kept whole, so that a remount can be judged
//! by comparing.

use std::{ffi::OsString, io, os::unix::ffi::OsStringExt as _, path::PathBuf};

use crate::kernel::block::DevNumber;

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// The kernel's number of it.
    pub id: u64,
    /// Device of the filesystem.
    pub dev: DevNumber,
    /// What of the filesystem is mounted.
    pub root: String,
    /// Where.
    pub point: PathBuf,
    /// Type of the filesystem.
    pub kind: String,
    /// Options of the filesystem, as they stand there.
    super_options: String,
    /// The line without them.
    rest: String,
}

impl Mount {
    /// The filesystem's options, one by one.
    pub fn super_options(&self) -> impl Iterator<Item = &str> {
        self.super_options.split(',')
    }

    /// The whole line, but for `commit=`.
    pub fn but_commit(&self) -> String {
        let options: Vec<&str> = self
            .super_options()
            .filter(|option| !option.starts_with("commit="))
            .collect();
        format!("{} {}", self.rest, options.join(","))
    }
}

/// The mounts of this thread's namespace.
pub fn own() -> io::Result<Vec<Mount>> {
    read("/proc/thread-self/mountinfo")
}

/// The mounts in a file of that form.
pub fn read(path: &str) -> io::Result<Vec<Mount>> {
    let bytes = std::fs::read(path)?;
    Ok(bytes
        .split(|byte| *byte == b'\n')
        .filter_map(parse)
        .collect())
}

/// A line: `36 35 98:0 /root /point options [tags…] - type source options`.
fn parse(line: &[u8]) -> Option<Mount> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let dash = words.iter().skip(6).position(|word| *word == b"-")? + 6;
    let number = std::str::from_utf8(words[2]).ok()?;
    let (major, minor) = number.split_once(':')?;
    let (options, rest) = words.split_last()?;
    // type, source, options
    (words.len() == dash + 4).then_some(())?;
    Some(Mount {
        id: std::str::from_utf8(words[0]).ok()?.parse().ok()?,
        dev: DevNumber {
            major: major.parse().ok()?,
            minor: minor.parse().ok()?,
        },
        root: text(words[3]),
        point: unescape(words[4]),
        kind: text(words[dash + 1]),
        super_options: text(options),
        rest: text(&rest.join(&b' ')),
    })
}

/// Space, tab, new line and backslash stand as three octal digits.
fn unescape(word: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word;
    while let [first, tail @ ..] = rest {
        let octal = (*first == b'\\')
            .then(|| tail.get(..3))
            .flatten()
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        if let Some(byte) = octal {
            bytes.push(byte);
            rest = &tail[3..];
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r"36 35 7:1 / /mnt/a\040b rw,nosuid,noatime shared:1 - ext4 /dev/loop1 ro,sync,lazytime,commit=60,data=ordered";

    #[test]
    fn a_line_is_taken_apart() {
        let mount = parse(LINE.as_bytes()).unwrap();
        assert_eq!(mount.point, PathBuf::from("/mnt/a b"));
        assert_eq!(mount.dev, DevNumber { major: 7, minor: 1 });
        assert_eq!(mount.kind, "ext4");
        assert!(mount.super_options().any(|option| option == "lazytime"));
        assert!(
            mount
                .but_commit()
                .ends_with("/dev/loop1 ro,sync,lazytime,data=ordered")
        );
        assert!(mount.but_commit().contains("nosuid,noatime"));
    }

    #[test]
    fn other_lines_are_passed_over() {
        for line in ["", "1 2 3", "36 35 7:1 / / rw -", "a b 7:1 / / rw - x y z"] {
            assert_eq!(parse(line.as_bytes()), None, "{line}");
        }
        let no_tags = "36 35 7:1 / /mnt rw - ext4 none rw";
        assert!(parse(no_tags.as_bytes()).is_some());
    }
}
