//! When each update is due: pure arithmetic on absolute deadlines.
//!
//! Deadlines count from the start of the run and do not move when an update is
//! late, so that a slow device cannot thin out the load. Nothing here reads a
//! clock.

use std::time::Duration;

/// How the updates of a period lie in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spread {
    /// Evenly, each thread shifted against the others.
    Even,
    /// All at the start of the period, as fast as the threads go.
    Burst,
}

/// One update that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// The number of the period, from 0.
    pub period: u32,
    /// Which of the thread's files, from 0.
    pub file: u32,
    /// When, from the start of the run.
    pub at: Duration,
}

/// The slots of one thread in order of time.
#[derive(Debug, Clone)]
pub struct Slots {
    period: Duration,
    end: Duration,
    offsets: Offsets,
    next: (u32, u32),
}

/// Where the thread's files lie within a period.
#[derive(Debug, Clone, Copy)]
pub struct Offsets {
    /// How the updates of a period lie in it.
    pub spread: Spread,
    /// The thread's number, from 0.
    pub thread: u32,
    /// How many threads there are.
    pub threads: u32,
    /// How many files this thread has.
    pub files: u32,
}

impl Offsets {
    /// How far into the period of length `period` the update of the thread's
    /// file number `file` is due: always less than `period`.
    pub fn of(&self, file: u32, period: Duration) -> Duration {
        match self.spread {
            Spread::Burst => Duration::ZERO,
            Spread::Even => {
                let threads = u128::from(self.threads);
                let step = u128::from(file) * threads + u128::from(self.thread);
                let steps = u128::from(self.files) * threads;
                nanos(period.as_nanos() * step / steps)
            }
        }
    }
}

impl Slots {
    /// The slots before `end` of a thread.
    pub fn new(offsets: Offsets, period: Duration, end: Duration) -> Self {
        Self {
            period,
            end,
            offsets,
            next: (0, 0),
        }
    }

    /// The next slot, without passing it.
    pub fn peek(&self) -> Option<Slot> {
        let (period, file) = self.next;
        if self.offsets.files == 0 {
            return None;
        }
        let at = self.period * period + self.offsets.of(file, self.period);
        (at < self.end).then_some(Slot { period, file, at })
    }

    /// How many slots there are from the start to `end`, computed, not walked.
    pub fn planned(&self) -> u64 {
        let whole = self.end.as_nanos() / self.period.as_nanos();
        let rest = nanos(self.end.as_nanos() % self.period.as_nanos());
        let files = u64::from(self.offsets.files);
        let started = (0..self.offsets.files)
            .filter(|&file| self.offsets.of(file, self.period) < rest)
            .count();
        whole as u64 * files + started as u64
    }
}

impl Iterator for Slots {
    type Item = Slot;

    fn next(&mut self) -> Option<Slot> {
        let slot = self.peek()?;
        self.next = if slot.file + 1 < self.offsets.files {
            (slot.period, slot.file + 1)
        } else {
            (slot.period + 1, 0)
        };
        Some(slot)
    }
}

/// The ticks of a timer: at every whole multiple of its interval before `end`.
/// A tick that is missed is not made up for, as no timer does.
#[derive(Debug, Clone)]
pub struct Ticks {
    every: Duration,
    end: Duration,
    next: Duration,
}

impl Ticks {
    /// The ticks of a timer with this interval, which must not be zero.
    pub fn new(every: Duration, end: Duration) -> Self {
        Self {
            every,
            end,
            next: every,
        }
    }

    /// The next tick, without passing it.
    pub fn peek(&self) -> Option<Duration> {
        (self.next < self.end).then_some(self.next)
    }

    /// Passes the pending tick and every other up to `now`.
    pub fn pass(&mut self, now: Duration) {
        let now = now.max(self.next);
        let passed = now.as_nanos() / self.every.as_nanos();
        self.next = nanos((passed + 1) * self.every.as_nanos());
    }
}

/// Whether an update that starts at `started` is late for its slot: by more
/// than a whole period.
pub fn is_late(slot: Duration, started: Duration, period: Duration) -> bool {
    started.saturating_sub(slot) > period
}

/// The files of thread `thread`: `count` of them from number `first`. The
/// files are dealt out in contiguous runs whose lengths differ by one at most.
pub fn share(files: u32, threads: u32, thread: u32) -> std::ops::Range<u32> {
    let bound = |t: u32| (u64::from(files) * u64::from(t) / u64::from(threads)) as u32;
    bound(thread)..bound(thread + 1)
}

fn nanos(value: u128) -> Duration {
    Duration::from_nanos(u64::try_from(value).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const S: Duration = Duration::from_secs(1);

    fn offsets(spread: Spread, thread: u32, threads: u32, files: u32) -> Offsets {
        Offsets {
            spread,
            thread,
            threads,
            files,
        }
    }

    #[test]
    fn even_slots_of_all_threads_interleave_at_one_distance() {
        // 2 threads of 3 files, period 6 s: one update a second, turn about.
        let mut all: Vec<(Duration, u32)> = (0..2)
            .flat_map(|thread| {
                Slots::new(offsets(Spread::Even, thread, 2, 3), 6 * S, 6 * S)
                    .map(move |slot| (slot.at, thread))
            })
            .collect();
        all.sort();
        let expected: Vec<_> = (0..6_u32).map(|n| (n * S, n % 2)).collect();
        assert_eq!(all, expected);
    }

    #[test]
    fn a_burst_puts_every_file_at_the_start() {
        let slots: Vec<_> = Slots::new(offsets(Spread::Burst, 1, 4, 3), 2 * S, 3 * S).collect();
        let at: Vec<_> = slots.iter().map(|s| (s.period, s.file, s.at)).collect();
        assert_eq!(
            at,
            [
                (0, 0, Duration::ZERO),
                (0, 1, Duration::ZERO),
                (0, 2, Duration::ZERO),
                (1, 0, 2 * S),
                (1, 1, 2 * S),
                (1, 2, 2 * S),
            ]
        );
    }

    #[test]
    fn a_thread_without_files_has_no_slots() {
        assert_eq!(
            Slots::new(offsets(Spread::Even, 0, 1, 0), S, 5 * S).count(),
            0
        );
        assert_eq!(
            Slots::new(offsets(Spread::Even, 0, 1, 0), S, 5 * S).planned(),
            0
        );
    }

    #[test]
    fn late_is_more_than_a_period_after_the_slot() {
        assert!(!is_late(5 * S, 4 * S, S));
        assert!(!is_late(5 * S, 6 * S, S));
        assert!(is_late(5 * S, 6 * S + Duration::from_nanos(1), S));
    }

    #[test]
    fn missed_ticks_are_not_made_up_for() {
        let mut ticks = Ticks::new(5 * S, 31 * S);
        assert_eq!(ticks.peek(), Some(5 * S));
        ticks.pass(5 * S);
        assert_eq!(ticks.peek(), Some(10 * S));
        ticks.pass(22 * S);
        assert_eq!(ticks.peek(), Some(25 * S));
        ticks.pass(25 * S + S / 2);
        assert_eq!(ticks.peek(), Some(30 * S));
        ticks.pass(30 * S);
        assert_eq!(ticks.peek(), None);
    }

    #[test]
    fn a_tick_passed_early_is_passed_once() {
        let mut ticks = Ticks::new(5 * S, 100 * S);
        ticks.pass(4 * S);
        assert_eq!(ticks.peek(), Some(10 * S));
    }

    proptest! {
        #[test]
        fn shares_are_a_partition(files in 0_u32..5000, threads in 1_u32..200) {
            let mut next = 0;
            for thread in 0..threads {
                let range = share(files, threads, thread);
                prop_assert_eq!(range.start, next);
                prop_assert!(range.len() as u32 >= files / threads);
                prop_assert!(range.len() as u32 <= files.div_ceil(threads));
                next = range.end;
            }
            prop_assert_eq!(next, files);
        }

        #[test]
        fn slots_rise_stay_before_the_end_and_number_as_planned(
            files in 1_u32..40,
            threads in 1_u32..20,
            thread in 0_u32..20,
            period_ms in 1_u64..1000,
            end_ms in 0_u64..9000,
            burst: bool,
        ) {
            let spread = if burst { Spread::Burst } else { Spread::Even };
            let period = Duration::from_millis(period_ms);
            let end = Duration::from_millis(end_ms.min(period_ms * 20));
            let slots = Slots::new(offsets(spread, thread % threads, threads, files), period, end);
            let all: Vec<_> = slots.clone().collect();
            prop_assert_eq!(all.len() as u64, slots.planned());
            prop_assert!(all.windows(2).all(|pair| pair[0].at <= pair[1].at));
            for slot in &all {
                prop_assert!(slot.at < end);
                prop_assert!(slot.at >= period * slot.period);
                prop_assert!(slot.at < period * (slot.period + 1));
            }
        }
    }
}
