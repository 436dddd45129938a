//! Reads the text of a tracefs instance: block events and the kernel stacks
//! that follow them. Pure: text in, events out; nothing is judged here.

use std::collections::HashMap;

/// A block event, as far as the referee needs it. Sectors are of 512 bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub kind: Kind,
    /// The task that ran when the event fired.
    pub pid: u32,
    /// Microseconds of the instance's clock.
    pub time_us: u64,
    /// The kernel's letters for the operation (`W`, `FWFSM`, `NS` …).
    pub rwbs: String,
    pub sector: u64,
    pub sectors: u64,
    /// Functions from the innermost to the outermost; empty when the event
    /// was recorded without one.
    pub stack: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Queue,
    Issue,
    Complete,
}

impl Event {
    /// Whether /sys/block/*/stat counts this operation as written: writes and
    /// write-zeroes; a leading F is a flush in front of either.
    pub fn is_write(&self) -> bool {
        let op = self.rwbs.strip_prefix('F').unwrap_or(&self.rwbs);
        op.starts_with('W') || op.starts_with('N')
    }

    /// The submitter marked it as filesystem metadata or journal.
    pub fn is_meta(&self) -> bool {
        self.rwbs.contains('M')
    }
}

/// One line of trace text that starts an event.
#[derive(Debug, PartialEq, Eq)]
pub struct Line<'a> {
    pub pid: u32,
    pub cpu: u32,
    pub time_us: u64,
    /// The event's name, or `<stack trace>`.
    pub name: &'a str,
    pub fields: &'a str,
}

/// Splits `comm-PID [CPU] flags SECONDS.MICROS: name: fields`.
///
/// The name of the task is padded to 16 columns and may hold anything, also
/// spaces, colons and brackets, so columns are counted instead.
pub fn line(text: &str) -> Option<Line<'_>> {
    let bytes = text.as_bytes();
    // Names are at most 15 bytes; lossy decoding may lengthen them, so take
    // the first dash at or after column 16 that digits follow.
    let dash = (16..bytes.len().min(64))
        .find(|&i| bytes[i] == b'-' && bytes.get(i + 1).is_some_and(u8::is_ascii_digit))?;
    let (pid, rest) = text[dash + 1..].split_once(|c: char| !c.is_ascii_digit())?;
    let rest = rest.trim_start().strip_prefix('[')?;
    let (cpu, rest) = rest.split_once(']')?;
    let rest = rest.trim_start();
    // The flags' column is followed by the time.
    let (_flags, rest) = rest.split_once(' ')?;
    let (time, rest) = rest.trim_start().split_once(": ")?;
    let (seconds, micros) = time.split_once('.')?;
    let (name, fields) = match rest.split_once(": ") {
        Some((name, fields)) if !name.contains(' ') => (name, fields),
        _ => (rest.trim_end(), ""),
    };
    Some(Line {
        pid: pid.parse().ok()?,
        cpu: cpu.parse().ok()?,
        time_us: seconds.parse::<u64>().ok()? * 1_000_000 + micros.parse::<u64>().ok()?,
        name,
        fields,
    })
}

/// All block events of a trace, each with the stack that was dumped after it.
///
/// An interrupt may put events of its own, and their stacks, between the two;
/// it is over before the interrupted stack is dumped.
///
/// Fails on a block event that it cannot read and on events that the kernel
/// says were lost: a referee that skips is no referee.
pub fn parse(text: &str) -> anyhow::Result<Vec<Event>> {
    let mut events: Vec<Event> = Vec::new();
    let mut awaiting: HashMap<(u32, u32), Vec<usize>> = HashMap::new();
    let mut open: Option<usize> = None;
    for row in text.lines() {
        if let Some(function) = row.strip_prefix(" => ") {
            if let Some(at) = open {
                events[at].stack.push(function_name(function));
            }
            continue;
        }
        open = None;
        anyhow::ensure!(
            !(row.starts_with("CPU:") && row.contains("LOST")),
            "the kernel lost trace events: {row}"
        );
        let Some(line) = line(row) else { continue };
        let kind = match line.name {
            "block_bio_queue" => Kind::Queue,
            "block_rq_issue" => Kind::Issue,
            "block_rq_complete" => Kind::Complete,
            "<stack trace>" => {
                open = awaiting.get_mut(&(line.cpu, line.pid)).and_then(Vec::pop);
                continue;
            }
            _ => continue,
        };
        let Some((rwbs, sector, sectors)) = fields(line.fields) else {
            anyhow::bail!("unreadable block event: {row}");
        };
        if kind != Kind::Complete {
            let of_task = awaiting.entry((line.cpu, line.pid)).or_default();
            of_task.push(events.len());
        }
        events.push(Event {
            kind,
            pid: line.pid,
            time_us: line.time_us,
            rwbs,
            sector,
            sectors,
            stack: Vec::new(),
        });
    }
    Ok(events)
}

/// `7,0 WS 4096 () 1234 + 8 …` or `7,0 WS 1234 + 8 …`: operation, first
/// sector, number of sectors. The bytes and the command in between are those
/// of requests only.
fn fields(text: &str) -> Option<(String, u64, u64)> {
    let mut words = text.split_ascii_whitespace();
    words.next()?;
    let rwbs = words.next()?.to_owned();
    let words: Vec<&str> = words.collect();
    let plus = words.iter().position(|w| *w == "+")?;
    let sector = words.get(plus.checked_sub(1)?)?.parse().ok()?;
    let sectors = words.get(plus + 1)?.parse().ok()?;
    Some((rwbs, sector, sectors))
}

/// The bare function: without offset, module and the compiler's suffixes
/// (`.part.0`, `.isra.0`, `.constprop.0`), which differ between builds.
fn function_name(text: &str) -> String {
    let word = text.split_ascii_whitespace().next().unwrap_or("");
    let word = word.split('+').next().unwrap_or("");
    word.split('.').next().unwrap_or("").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_split_by_columns_whatever_the_task_is_called() {
        for comm in ["dd", "a-7 [1] x: y", "-1-2-3-4-5-6-7-"] {
            let text = format!(
                "{comm:>16}-8537    [000] .....   828.077833: block_bio_queue: 7,0 WS 16 + 8 [{comm}]"
            );
            let got = line(&text).expect(comm);
            assert_eq!(
                (got.pid, got.time_us, got.name),
                (8537, 828_077_833, "block_bio_queue"),
                "{comm}"
            );
        }
    }

    #[test]
    fn bio_and_request_events_give_the_same_fields() {
        assert_eq!(fields("7,0 WS 16 + 8 [dd]"), Some(("WS".to_owned(), 16, 8)));
        assert_eq!(
            fields("7,0 FWFSM 4096 () 1234 + 8 none,0,0 [jbd2/loop0-8]"),
            Some(("FWFSM".to_owned(), 1234, 8))
        );
        assert_eq!(
            fields("7,0 FF () 18446744073709551615 + 0 none,0,0 [0]"),
            Some(("FF".to_owned(), u64::MAX, 0))
        );
        assert_eq!(fields("7,0 WS"), None);
    }

    #[test]
    fn a_stack_belongs_to_the_event_that_was_interrupted() {
        let text = "# tracer: nop
              dd-10      [000] .....     1.000001: block_bio_queue: 7,0 W 0 + 8 [dd]
              dd-10      [000] d.h..     1.000002: block_rq_complete: 7,0 W () 80 + 8 none,0,0 [0]
              dd-10      [000] d.h..     1.000003: block_rq_issue: 7,0 W 4096 () 90 + 8 none,0,0 [dd]
              dd-10      [000] d.h..     1.000004: <stack trace>
 => blk_mq_dispatch
              dd-10      [000] .....     1.000005: <stack trace>
 => swap_writeout
";
        let events = parse(text).expect("parses");
        assert_eq!(events[0].stack, ["swap_writeout"]);
        assert!(events[1].stack.is_empty());
        assert_eq!(events[2].stack, ["blk_mq_dispatch"]);
    }

    #[test]
    fn a_stack_belongs_to_the_last_event_of_its_task() {
        let text = "# tracer: nop
              dd-10      [000] .....     1.000001: block_bio_queue: 7,0 W 0 + 8 [dd]
          sync-1-11      [001] .....     1.000002: block_bio_queue: 7,0 WM 8 + 8 [sync-1]
          sync-1-11      [001] .....     1.000003: <stack trace>
 => submit_bio_noacct_nocheck
 => sync_filesystem.part.0
              dd-10      [000] .....     1.000004: <stack trace>
 => ext4_writepages+0x10/0x20 [ext4]
              dd-10      [000] .....     1.000005: block_rq_complete: 7,0 W () 0 + 8 none,0,0 [0]
";
        let events = parse(text).expect("parses");
        assert_eq!(events.len(), 3);
        assert_eq!(events[0].stack, ["ext4_writepages"]);
        assert_eq!(
            events[1].stack,
            ["submit_bio_noacct_nocheck", "sync_filesystem"]
        );
        assert_eq!(events[2].kind, Kind::Complete);
        assert!(events[2].stack.is_empty());
        assert!(events[1].is_meta() && events[1].is_write());
    }

    #[test]
    fn lost_events_and_unreadable_ones_are_errors() {
        assert!(parse("CPU:1 [LOST 12 EVENTS]\n").is_err());
        assert!(
            parse("              dd-10      [000] .....     1.000001: block_bio_queue: junk\n")
                .is_err()
        );
    }

    #[test]
    fn what_stat_counts() {
        let with = |rwbs: &str| Event {
            kind: Kind::Queue,
            pid: 1,
            time_us: 0,
            rwbs: rwbs.to_owned(),
            sector: 0,
            sectors: 8,
            stack: Vec::new(),
        };
        for yes in ["W", "WS", "FWFSM", "NS", "N"] {
            assert!(with(yes).is_write(), "{yes}");
        }
        for no in ["R", "RA", "FF", "DS", "D"] {
            assert!(!with(no).is_write(), "{no}");
        }
    }
}
