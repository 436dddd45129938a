//! The workload's own account: logical bytes, calls and how long they took.
//!
//! It counts what the program asked the kernel for, nothing that the kernel
//! made of it: the denominator of amplification.

use std::time::Duration;

use hdrhistogram::Histogram;

/// What is timed. `Update` is the whole of one update, from before the open
/// to after the close.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// One update as a whole.
    Update,
    /// openat, with or without creation and truncation.
    Open,
    /// write or pwrite.
    Write,
    /// fsync.
    Fsync,
    /// renameat.
    Rename,
    /// close.
    Close,
}

impl Call {
    /// Every call with its name.
    pub const ALL: [(Call, &'static str); 6] = [
        (Call::Update, "update"),
        (Call::Open, "open"),
        (Call::Write, "write"),
        (Call::Fsync, "fsync"),
        (Call::Rename, "rename"),
        (Call::Close, "close"),
    ];
}

/// How long one kind of call took.
#[derive(Debug, Clone)]
pub struct Latency(Histogram<u64>);

/// Three significant digits: an error of at most 0.1 %.
const DIGITS: u8 = 3;
/// A day in nanoseconds: what is longer is counted as this long.
const LONGEST_NS: u64 = 86_400_000_000_000;

impl Default for Latency {
    fn default() -> Self {
        Self(Histogram::new_with_bounds(1, LONGEST_NS, DIGITS).expect("bounds that are allowed"))
    }
}

impl Latency {
    /// Adds one.
    pub fn record(&mut self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.0.saturating_record(nanos.min(LONGEST_NS));
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The value in microseconds that the share `quantile` of all stays at or
    /// below; none when there are none.
    pub fn quantile_us(&self, quantile: f64) -> Option<f64> {
        (self.count() > 0).then(|| self.0.value_at_quantile(quantile) as f64 / 1000.0)
    }

    /// The largest in microseconds.
    pub fn max_us(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.0.max() as f64 / 1000.0)
    }
}

/// The account of one kind of file.
#[derive(Debug, Clone, Default)]
pub struct Account {
    /// Updates that the schedule holds.
    pub planned: u64,
    /// Updates that started later than their slot by more than a period.
    pub late: u64,
    /// Bytes that write calls took.
    pub bytes: u64,
    /// Opens that truncated a file.
    pub truncates: u64,
    /// How much later than their slots updates started.
    pub lateness: Latency,
    calls: [Latency; Call::ALL.len()],
}

impl Account {
    /// An account of a schedule with this many updates.
    pub fn new(planned: u64) -> Self {
        Self {
            planned,
            ..Self::default()
        }
    }

    /// The durations of one kind of call; their number is how often it was made.
    pub fn calls(&self, call: Call) -> &Latency {
        &self.calls[call as usize]
    }

    /// Adds what one update, or one tick of the fsync timer, did.
    pub fn add(&mut self, entry: &Entry) {
        self.bytes += entry.bytes;
        self.truncates += entry.truncates;
        self.late += u64::from(entry.late);
        if let Some(by) = entry.started_after {
            self.lateness.record(by);
        }
        for (call, took) in &entry.calls {
            self.calls[*call as usize].record(*took);
        }
    }

    /// Updates that were made.
    pub fn updates(&self) -> u64 {
        self.calls(Call::Update).count()
    }
}

/// What one update did, collected by its thread and added in one go.
#[derive(Debug, Default)]
pub struct Entry {
    /// Bytes that write calls took.
    pub bytes: u64,
    /// Opens that truncated a file.
    pub truncates: u64,
    /// Whether it started too late.
    pub late: bool,
    /// How much after its slot it started; none for ticks.
    pub started_after: Option<Duration>,
    /// The calls in order.
    pub calls: Vec<(Call, Duration)>,
}

impl Entry {
    /// Forgets everything but the memory.
    pub fn clear(&mut self) {
        let mut calls = std::mem::take(&mut self.calls);
        calls.clear();
        *self = Self {
            calls,
            ..Self::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_in_the_order_of_their_table() {
        for (index, (call, _)) in Call::ALL.iter().enumerate() {
            assert_eq!(*call as usize, index);
        }
    }

    #[test]
    fn sums_and_percentiles() {
        let mut account = Account::new(3);
        for (ms, late) in [(1, false), (2, true), (100, false)] {
            account.add(&Entry {
                bytes: 4096,
                truncates: 1,
                late,
                started_after: Some(Duration::from_millis(ms)),
                calls: vec![
                    (Call::Write, Duration::from_micros(ms * 10)),
                    (Call::Write, Duration::from_micros(ms * 10)),
                    (Call::Update, Duration::from_millis(ms)),
                ],
            });
        }
        assert_eq!((account.planned, account.updates()), (3, 3));
        assert_eq!((account.late, account.truncates), (1, 3));
        assert_eq!(account.bytes, 3 * 4096);
        assert_eq!(account.calls(Call::Write).count(), 6);
        assert_eq!(account.calls(Call::Fsync).count(), 0);
        assert_eq!(account.calls(Call::Fsync).quantile_us(0.5), None);
        let median = account.calls(Call::Write).quantile_us(0.5).unwrap();
        assert!((median - 20.0).abs() < 0.1, "{median}");
        let max = account.lateness.max_us().unwrap();
        assert!((max - 100_000.0).abs() < 100.0, "{max}");
    }

    #[test]
    fn absurd_durations_are_clamped_not_lost() {
        let mut latency = Latency::default();
        latency.record(Duration::MAX);
        latency.record(Duration::ZERO);
        assert_eq!(latency.count(), 2);
    }

    #[test]
    fn a_cleared_entry_adds_nothing() {
        let mut entry = Entry {
            bytes: 1,
            truncates: 1,
            late: true,
            started_after: Some(Duration::ZERO),
            calls: vec![(Call::Open, Duration::ZERO)],
        };
        entry.clear();
        let mut account = Account::new(0);
        account.add(&entry);
        assert_eq!((account.bytes, account.truncates, account.late), (0, 0, 0));
        assert_eq!(account.lateness.count(), 0);
        assert_eq!(account.calls(Call::Open).count(), 0);
    }
}
