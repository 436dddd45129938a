//! The page cache of the whole machine: what is dirty, the thresholds that
//! the kernel holds against it, and the knobs that these come from.

use crate::profile::{Knob, Place};
use std::{fs, io, path::Path};

/// State of the page cache, in bytes (/proc/vmstat has pages).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PageCache {
    /// Dirty, not yet submitted (`nr_dirty`).
    pub dirty: u64,
    /// Submitted, not yet completed (`nr_writeback`).
    pub writeback: u64,
    /// Above it the flusher runs (`nr_dirty_background_threshold`).
    pub background: u64,
    /// Above it writers are slowed (`nr_dirty_threshold`).
    pub threshold: u64,
}

/// Its state now.
pub fn sample() -> io::Result<PageCache> {
    let text = fs::read_to_string("/proc/vmstat")?;
    parse(&text, rustix::param::page_size() as u64)
        .ok_or_else(|| io::Error::other("/proc/vmstat in an unknown form"))
}

fn parse(text: &str, page: u64) -> Option<PageCache> {
    let bytes = |key: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        let (_, pages) = lines.find(|(name, _)| *name == key)?;
        pages.trim().parse::<u64>().ok()?.checked_mul(page)
    };
    Some(PageCache {
        dirty: bytes("nr_dirty")?,
        writeback: bytes("nr_writeback")?,
        background: bytes("nr_dirty_background_threshold")?,
        threshold: bytes("nr_dirty_threshold")?,
    })
}

/// Values of the write-back knobs in force. Of a ratio and its bytes, the one
/// that is not in force is 0.
pub fn knobs() -> Vec<(&'static str, u64)> {
    Knob::all()
        .filter_map(|knob| {
            let Place::Sysctl(file) = knob.place() else {
                return None;
            };
            let text = fs::read_to_string(Path::new("/proc/sys").join(file)).ok()?;
            Some((knob.name(), text.trim().parse().ok()?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_become_bytes() {
        let text = "nr_dirtied 9\nnr_dirty 3\nnr_writeback 0\n\
                    nr_dirty_threshold 200\nnr_dirty_background_threshold 100\n";
        let expected = PageCache {
            dirty: 12288,
            writeback: 0,
            background: 409_600,
            threshold: 819_200,
        };
        assert_eq!(parse(text, 4096), Some(expected));
        assert_eq!(parse("nr_dirty 3\n", 4096), None);
    }
}
