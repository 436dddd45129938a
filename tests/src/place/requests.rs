//! The requests that the device got, from the text of an [`Instance`].
//! Pure; entry: [`issued`].

/// A write (or write-zeroes) request; sectors of the whole disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub sector: u64,
    pub sectors: u64,
    /// A write-zeroes command, not data.
    pub zeroes: bool,
}

/// What stat counts as written among `event` lines (`block_rq_issue`,
/// `block_rq_complete`): all operations but reads, flushes and discards.
pub fn issued(text: &str, event: &str) -> Vec<Request> {
    let marker = format!(": {event}: ");
    let lines = text.lines().filter_map(|line| line.split_once(&marker));
    lines.filter_map(|(_, fields)| parse(fields)).collect()
}

/// `7,0 WS 4096 () 1234 + 8 none,0,0 [comm]`; completions have no byte count.
/// A preflush puts an F before the operation; a lone flush is `FF`.
fn parse(fields: &str) -> Option<Request> {
    let operation = fields.split(' ').nth(1)?;
    let operation = operation.strip_prefix('F').unwrap_or(operation);
    if !operation.starts_with(['W', 'N']) {
        return None;
    }
    let (before, after) = fields.split_once(" + ")?;
    let sector = before.rsplit(' ').next()?.parse().ok()?;
    let sectors = after.split(' ').next()?.parse().ok()?;
    Some(Request {
        sector,
        sectors,
        zeroes: operation.starts_with('N'),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# tracer: nop
 kworker/u8:3-4711    [001] .....  100.000001: block_rq_issue: 7,0 WS 4096 () 2048 + 8 none,0,0 [kworker/u8:3]
 a [1]: + b-9 [000] ..... 100.0: block_rq_issue: 7,0 FWFS 4096 () 16 + 8 [x + y]
 jbd2-1 [000] ..... 100.1: block_rq_issue: 7,0 FF 0 () 18446744073709551615 + 0 none,0,0 [kworker]
 lazy-1 [000] ..... 100.2: block_rq_issue: 7,0 NS 1048576 () 9000 + 2048 none,0,0 [ext4lazyinit]
 rm-1 [000] ..... 100.3: block_rq_issue: 7,0 DS 4096 () 5000 + 8 none,0,0 [jbd2]
 cat-1 [000] ..... 100.4: block_rq_issue: 7,0 RA 4096 () 5000 + 8 none,0,0 [cat]
 s-1 [000] ..... 100.5: block_rq_complete: 7,0 WS () 2048 + 8 none,0,0 [0]
";

    #[test]
    fn only_what_stat_counts_as_written() {
        let requests = issued(TEXT, "block_rq_issue");
        let pairs: Vec<_> = requests.iter().map(|r| (r.sector, r.sectors)).collect();
        assert_eq!(pairs, [(2048, 8), (16, 8), (9000, 2048)]);
        assert_eq!(issued(TEXT, "block_rq_complete").len(), 1);
    }
}
