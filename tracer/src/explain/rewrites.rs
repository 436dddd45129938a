//! What another time of write-back would have made of the writes that a
//! recording kept: an estimate beside the ceiling.
//!
//! The flusher is played over the recorded writes, once with the times in
//! force and once with others; the change of the pages that it writes is the
//! estimate. An inode is due at the first tick after it has been dirty for
//! `dirty_expire`, and then all its dirty pages are written. Other flushes
//! write pages when they did, and do not make the inode younger.

use crate::{
    model::path::Path,
    recording::{Dirtied, Event, What},
};
use std::collections::{HashMap, HashSet, VecDeque};

/// More than an hour of a busy recording; a hostile file ends here.
const MOST_STEPS: usize = 4 << 20;
/// Pages of all writes together, each counted as often as it is written.
const MOST_PAGES: u64 = 64 << 20;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Step {
    /// Blocks of an inode became dirty.
    Dirty(u64, u64),
    /// Its dirty pages were written by something else than the timer.
    Written,
    /// It left, and what was dirty with it.
    Gone,
}

/// Writes of a recording.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Writes {
    steps: Vec<(f64, u32, Step)>,
    inodes: HashMap<(u32, u64), u32>,
    pages: u64,
    periodic: Option<u16>,
    end_s: f64,
    /// Some are missing: nothing can be estimated.
    lost: bool,
}

#[derive(Default)]
struct Inode {
    since: Option<f64>,
    dirty: HashSet<u64>,
}

impl Writes {
    /// None yet; `periodic` is the number of the flusher's reason.
    pub fn new(periodic: Option<u16>) -> Self {
        Self {
            periodic,
            ..Self::default()
        }
    }

    /// Takes an event, in order of time.
    pub fn take(&mut self, event: &Event) {
        let t_s = event.t_ns as f64 / 1e9;
        self.end_s = self.end_s.max(t_s);
        match &event.what {
            What::Write(Dirtied {
                fs,
                ino,
                first,
                last,
                ..
            })
            | What::Store(Dirtied {
                fs,
                ino,
                first,
                last,
                ..
            }) => {
                let pages = last.saturating_sub(*first).saturating_add(1);
                self.pages = self.pages.saturating_add(pages);
                self.step(t_s, (*fs, *ino), Step::Dirty(*first, *last));
            }
            What::Flush {
                fs,
                ino,
                path,
                code,
                ..
            } => {
                let timer = *path == Path::Writeback && Some(*code) == self.periodic;
                if !timer {
                    self.step(t_s, (*fs, *ino), Step::Written);
                }
            }
            What::Evict { fs, ino }
            | What::Truncate {
                fs,
                ino,
                size: Some(0),
            } => {
                self.step(t_s, (*fs, *ino), Step::Gone);
            }
            What::Lost { kind, .. } => self.lost |= kind.of_writes(),
            What::Full => self.lost = true,
            _ => {}
        }
    }

    fn step(&mut self, t_s: f64, inode: (u32, u64), step: Step) {
        if self.steps.len() >= MOST_STEPS || self.pages > MOST_PAGES {
            self.lost = true;
            return;
        }
        let next = self.inodes.len() as u32;
        let number = *self.inodes.entry(inode).or_insert(next);
        self.steps.push((t_s, number, step));
    }

    /// Share of the flusher's pages that other times would have saved; none
    /// where writes are missing, or none was due.
    pub fn saved(&self, now: (f64, f64), then: (f64, f64)) -> Option<f64> {
        if self.lost {
            return None;
        }
        let before = self.play(now.0, now.1);
        let after = self.play(then.0, then.1);
        // What is dirty at the end would still be written, with either.
        let sum = |(written, left): (u64, u64)| (written + left) as f64;
        (before.0 > 0).then(|| (1.0 - sum(after) / sum(before)).max(0.0))
    }

    /// Pages that the flusher writes with these times, in seconds, and those
    /// that it leaves.
    fn play(&self, expire: f64, tick: f64) -> (u64, u64) {
        let mut inodes: Vec<Inode> = Vec::new();
        inodes.resize_with(self.inodes.len(), Inode::default);
        // Inodes in the order in which they became dirty, so of their turns.
        let mut queue: VecDeque<(f64, u32)> = VecDeque::new();
        let mut written = 0;
        for (t_s, number, step) in &self.steps {
            written += turns(&mut queue, &mut inodes, *t_s, expire, tick);
            let inode = &mut inodes[*number as usize];
            match step {
                Step::Dirty(first, last) => {
                    if inode.since.is_none() {
                        inode.since = Some(*t_s);
                        queue.push_back((*t_s, *number));
                    }
                    inode.dirty.extend(*first..=*last);
                }
                Step::Written => inode.dirty.clear(),
                Step::Gone => *inode = Inode::default(),
            }
        }
        written += turns(&mut queue, &mut inodes, self.end_s, expire, tick);
        let left = inodes.iter().map(|inode| inode.dirty.len() as u64).sum();
        (written, left)
    }
}

/// Ticks up to now: pages of inodes whose turn came.
fn turns(
    queue: &mut VecDeque<(f64, u32)>,
    inodes: &mut [Inode],
    now: f64,
    expire: f64,
    tick: f64,
) -> u64 {
    let mut written = 0;
    // No tick, no periodic write-back.
    while tick > 0.0
        && let Some((since, number)) = queue.front().copied()
        && ((since + expire) / tick).ceil() * tick <= now
    {
        queue.pop_front();
        let inode = &mut inodes[number as usize];
        if inode.since == Some(since) {
            written += inode.dirty.len() as u64;
            *inode = Inode::default();
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::Kind;

    fn write(t_s: u64, ino: u64, block: u64) -> Event {
        let dirtied = Dirtied {
            fs: 7,
            ino,
            first: block,
            last: block,
            pid: 1,
        };
        Event {
            t_ns: t_s * 1_000_000_000,
            what: What::Write(dirtied),
        }
    }

    fn all(events: &[Event]) -> Writes {
        let mut writes = Writes::new(Some(3));
        for event in events {
            writes.take(event);
        }
        writes
    }

    #[test]
    fn the_same_page_again_is_saved_and_others_are_not() {
        // One page every 20 s: with 10 s each is written, with 30 s every
        // second one.
        let fixed: Vec<Event> = (0..60).map(|n| write(n * 20, 9, 0)).collect();
        let saved = all(&fixed).saved((10.0, 1.0), (30.0, 1.0)).unwrap();
        assert!((0.4..0.6).contains(&saved), "{saved}");
        let moving: Vec<Event> = (0..60).map(|n| write(n * 20, 9, n)).collect();
        let saved = all(&moving).saved((10.0, 1.0), (30.0, 1.0)).unwrap();
        assert!(saved < 1e-9, "nothing coalesces: {saved}");
        assert_eq!(all(&fixed).saved((10.0, 1.0), (10.0, 1.0)), Some(0.0));
        let never = all(&fixed).saved((10.0, 1.0), (10.0, 0.0)).unwrap();
        assert!((0.98..1.0).contains(&never), "one is left: {never}");
    }

    #[test]
    fn what_others_wrote_or_dropped_is_not_the_timers() {
        let mut events = vec![write(1, 9, 0)];
        events.push(Event {
            t_ns: 2_000_000_000,
            what: What::Flush {
                fs: 7,
                ino: 9,
                path: Path::Fsync,
                code: 0,
                pages: 1,
            },
        });
        events.push(write(3, 10, 0));
        events.push(Event {
            t_ns: 4_000_000_000,
            what: What::Evict { fs: 7, ino: 10 },
        });
        events.push(write(100, 11, 0));
        assert_eq!(all(&events).play(10.0, 1.0), (0, 1));
        assert_eq!(all(&events).saved((10.0, 1.0), (30.0, 1.0)), None);
    }

    #[test]
    fn missing_writes_make_no_estimate() {
        let mut events: Vec<Event> = (0..60).map(|n| write(n * 20, 9, 0)).collect();
        events.push(Event {
            t_ns: 1,
            what: What::Lost {
                kind: Kind::Write,
                count: 1,
            },
        });
        assert_eq!(all(&events).saved((10.0, 1.0), (30.0, 1.0)), None);
        let mut huge = write(1, 9, 0);
        if let What::Write(dirtied) = &mut huge.what {
            dirtied.last = u64::MAX;
        }
        assert!(all(&[huge]).lost);
    }
}
