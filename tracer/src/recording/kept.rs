//! Records of the programs become events.
//!
//! Total: a short record or one of an unknown kind is none, never a panic.

use super::event::{Dirtied, What};
use crate::model::path::Path;
use bytes::Buf;
use tracer_common::kept;

/// Sizes that positions are turned into blocks with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Bytes of a page of memory.
    pub page: u64,
    /// Bytes of a block of the filesystem.
    pub block: u64,
}

/// Decodes a record: its `CLOCK_MONOTONIC` nanoseconds and what happened.
/// `sizes` is asked for the filesystem's, `disk` for the device number of
/// `major:minor`, where that is traced.
pub fn decode(
    mut bytes: &[u8],
    sizes: impl Fn(u32) -> Sizes,
    disk: impl Fn(&str) -> Option<u32>,
) -> Option<(u64, What)> {
    let kind = bytes.try_get_u32_ne().ok()?;
    let fs = bytes.try_get_u32_ne().ok()?;
    let ino = bytes.try_get_u64_ne().ok()?;
    let ns = bytes.try_get_u64_ne().ok()?;
    let first = bytes.try_get_u64_ne().ok()?;
    let second = bytes.try_get_u64_ne().ok()?;
    let pid = bytes.try_get_u32_ne().ok()?;
    let code = bytes.try_get_u32_ne().ok()?;
    let dirtied = |position: u64, length: u64| {
        let block = sizes(fs).block.max(1);
        let end = position.saturating_add(length.max(1) - 1);
        Dirtied {
            fs,
            ino,
            first: position / block,
            last: end / block,
            pid,
        }
    };
    let what = match kind {
        kept::WRITE => What::Write(dirtied(first, second)),
        kept::STORE => {
            let page = sizes(fs).page;
            What::Store(dirtied(
                first.saturating_mul(page),
                second.saturating_mul(page),
            ))
        }
        kept::TOUCH => What::Touch { fs, ino },
        kept::SYNC => What::Sync {
            fs,
            ino,
            pid,
            data_only: code != 0,
        },
        kept::SYNC_FS => What::SyncFs { fs, pid },
        kept::FLUSH => What::Flush {
            fs,
            ino,
            path: Path::from_code(second as u8),
            code: code as u16,
            pages: first,
        },
        kept::TRUNCATE => What::Truncate {
            fs,
            ino,
            size: (first != u64::MAX).then_some(first),
        },
        kept::EVICT => What::Evict { fs, ino },
        kept::WAKE => {
            let name = [first.to_ne_bytes(), second.to_ne_bytes()].concat();
            let end = name.iter().position(|byte| *byte == 0);
            let name = std::str::from_utf8(&name[..end.unwrap_or(name.len())]).ok()?;
            What::Wake {
                disk: disk(name)?,
                reason: code as u16,
            }
        }
        _ => return None,
    };
    Some((ns, what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::Kind;
    use proptest::prelude::*;

    fn record(kind: u32, first: u64, second: u64, code: u32) -> Vec<u8> {
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend(7_u32.to_ne_bytes());
        for number in [12, 99, first, second] {
            bytes.extend(number.to_ne_bytes());
        }
        bytes.extend(42_u32.to_ne_bytes());
        bytes.extend(code.to_ne_bytes());
        bytes
    }

    fn what(bytes: &[u8]) -> Option<What> {
        let sizes = |_| Sizes {
            page: 4096,
            block: 1024,
        };
        let disk = |name: &str| (name == "7:0").then_some(7 << 20);
        decode(bytes, sizes, disk).map(|(_, what)| what)
    }

    #[test]
    fn kinds_are_the_files() {
        for kind in kept::WRITE..=kept::WAKE {
            let name = u64::from_ne_bytes(*b"7:0\0\0\0\0\0");
            let found = what(&record(kind, name, 0, 0)).map(|what| what.kind());
            assert_eq!(found, Kind::from_code(kind as u8), "{kind}");
            assert!(found.is_some_and(Kind::of_writes));
        }
    }

    #[test]
    fn bytes_and_pages_become_blocks() {
        let blocks = |kind, first, second| match what(&record(kind, first, second, 0)) {
            Some(What::Write(found) | What::Store(found)) => (found.first, found.last),
            other => panic!("{other:?}"),
        };
        assert_eq!(blocks(kept::WRITE, 1024, 1), (1, 1));
        assert_eq!(blocks(kept::WRITE, 1023, 2), (0, 1));
        assert_eq!(blocks(kept::WRITE, 4096, 4096), (4, 7));
        assert_eq!(blocks(kept::STORE, 1, 2), (4, 11));
    }

    #[test]
    fn rounds_of_other_disks_are_none() {
        let name = u64::from_ne_bytes(*b"8:16\0\0\0\0");
        assert_eq!(what(&record(kept::WAKE, name, 0, 3)), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken(kind in 0..40_u32, bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = what(&[&kind.to_ne_bytes(), bytes.as_slice()].concat());
        }
    }
}
