//! Three tracers that are wrong in ways that meet the total of the device to
//! the sector. They are driven by the referee's own trace; each must fail the
//! comparison, or the comparison is worth nothing. Pure.

use super::classify::classify;
use super::compare::Account;
use super::trace::{Event, Kind};

/// A wrong tracer: what it is called and how it counts a trace.
pub type Wrong = (&'static str, fn(&[Event]) -> Account);

pub const ALL: &[Wrong] = &[
    ("all file data is `writeback`", all_writeback),
    ("the path is taken at block_rq_issue", path_at_issue),
    ("`ordered` is counted as `journal`", ordered_as_journal),
];

fn submitted(events: &[Event]) -> impl Iterator<Item = &Event> {
    events
        .iter()
        .filter(|e| e.kind == Kind::Queue && e.is_write() && e.sectors > 0)
}

fn count<'a>(rows: impl Iterator<Item = (&'a str, u64)>) -> Account {
    let mut account = Account::new();
    for (path, sectors) in rows {
        *account.entry(path.to_owned()).or_default() += sectors;
    }
    account
}

/// Page cache in, writeback out: what a tool sees that only knows inodes.
fn all_writeback(events: &[Event]) -> Account {
    count(submitted(events).map(|event| {
        let path = match classify(event).map(|v| v.path) {
            Some("fsync" | "ordered" | "forced" | "writeback") => "writeback",
            Some(other) => other,
            None => "unattributed",
        };
        (path, event.sectors)
    }))
}

/// What the issuing task is doing when the request leaves the scheduler.
fn path_at_issue(events: &[Event]) -> Account {
    let issued = events
        .iter()
        .filter(|e| e.kind == Kind::Issue && e.is_write() && e.sectors > 0);
    count(issued.map(|event| {
        let verdict = classify(event).or_else(|| classify(&in_context(event)));
        (verdict.map_or("unattributed", |v| v.path), event.sectors)
    }))
}

/// A task that issues what it has plugged is still inside its call, but no
/// longer inside the function that writes: be fair and say what that was.
fn in_context(event: &Event) -> Event {
    let writes = if event.is_meta() {
        "ext4_handle_dirty_metadata"
    } else {
        "ext4_writepages"
    };
    let mut event = event.clone();
    event.stack.insert(0, writes.to_owned());
    event
}

/// All that a journal thread submits is the journal.
fn ordered_as_journal(events: &[Event]) -> Account {
    count(submitted(events).map(|event| {
        let path = match classify(event).map(|v| v.path) {
            Some("ordered") => "journal",
            Some(other) => other,
            None => "unattributed",
        };
        (path, event.sectors)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stacks::compare::{differences, referee};
    use crate::stacks::trace;

    const REAL: &str = include_str!("../../fixtures/stacks/6.18.trace");

    #[test]
    fn each_wrong_tracer_fails_on_the_recorded_stacks() {
        let events = trace::parse(REAL).expect("parses");
        let right = referee(&events).paths;
        for (name, tracer) in ALL {
            assert!(!differences(&right, &tracer(&events)).is_empty(), "{name}");
        }
    }

    #[test]
    fn the_sum_of_a_wrong_tracer_is_right() {
        let events = trace::parse(REAL).expect("parses");
        let total: u64 = referee(&events).paths.values().sum();
        assert_eq!(all_writeback(&events).values().sum::<u64>(), total);
        assert_eq!(ordered_as_journal(&events).values().sum::<u64>(), total);
    }
}
