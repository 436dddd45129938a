//! From accounts to a ledger: rows grouped by path, by file, by dirtier.
//! Every sector is in exactly one row of each.

use super::{
    ledger::{Accounts, CommitEntry, Counts, Row, Trigger},
    names::Names,
};
use crate::model::{
    calls,
    ledger::{
        By, CommitGroup, CommitRow, DeviceLedger, DirtierRow, Durations, FileRow, FlushRow,
        PathRow, PathSectors, ProcessName, ProcessSectors,
    },
    path::{Op, Path},
    trigger,
};
use hdrhistogram::Histogram;
use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
};
use tracer_common::{CALL_NONE, RowKey};

/// What is known beside the rows.
pub struct Context<'a> {
    /// Names of files and processes.
    pub names: &'a Names,
    /// Bytes dirtied, by file and process.
    pub shares: &'a HashMap<u32, Vec<(u32, u64)>>,
    /// Metadata blocks dirtied, by device and process.
    pub blocks: &'a HashMap<u32, Vec<(u32, u64)>>,
    /// Names of the flusher's reasons.
    pub reasons: &'a [(u64, String)],
    /// Formats a device number.
    pub dev_name: &'a dyn Fn(u32) -> String,
    /// Start of the run, monotonic nanoseconds.
    pub started_ns: u64,
    /// Nanoseconds of a kernel tick.
    pub tick_ns: u64,
    /// Filesystems of the disk, by device number.
    pub fs_devs: &'a dyn Fn(u32) -> Option<u16>,
}

/// Which rows are shown; never what is counted.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Dirtier's process ids.
    pub pids: Vec<u32>,
    /// Dirtier's names.
    pub comms: Vec<String>,
    /// Part of the dirtier's cgroup.
    pub cgroups: Vec<String>,
    /// Part of the file's name.
    pub files: Vec<String>,
}

impl Filter {
    /// Whether it hides anything.
    pub fn is_empty(&self) -> bool {
        self.pids.is_empty()
            && self.comms.is_empty()
            && self.cgroups.is_empty()
            && self.files.is_empty()
    }
}

/// A row whose dirtier is one process, or none.
type Piece = (Row, Option<u32>, Counts);

/// Fills in everything of a device that comes from rows.
pub fn fill(
    ledger: &mut DeviceLedger,
    disk: u16,
    accounts: &Accounts,
    context: &Context<'_>,
    filter: &Filter,
) {
    let rows = || accounts.rows.iter().filter(|(row, _)| row.disk == disk);
    for (row, counts) in rows() {
        match row.op {
            Op::Discard | Op::Flush | Op::Unknown(_) => {}
            Op::Failed => {
                ledger.failed += counts.bios;
                ledger.sectors_failed += counts.sectors;
            }
            Op::WriteZeroes | Op::Write | Op::SecureErase => {
                ledger.flushes_requested += counts.flushes;
                if row.op == Op::WriteZeroes {
                    ledger.sectors_zeroed += counts.sectors;
                }
                if row.path.attributed() {
                    ledger.sectors_attributed += counts.sectors;
                } else {
                    ledger.sectors_unattributed += counts.sectors;
                }
                if row.path == Path::InFlightBefore {
                    ledger.in_flight_before += counts.sectors;
                }
            }
        }
    }
    let pieces: Vec<Piece> = rows()
        .filter(|(row, _)| row.op.in_ledger())
        .flat_map(|(row, counts)| split(row, *counts, context))
        .filter(|piece| shown(piece, context, filter))
        .collect();
    ledger.paths = paths(&pieces, context);
    ledger.files = files(&pieces, context);
    ledger.dirtiers = dirtiers(&pieces, context);
    ledger.flush_requests = flushes(&pieces, context);
    let commits: Vec<&CommitEntry> = accounts
        .commits
        .iter()
        .filter(|entry| (context.fs_devs)(entry.commit.dev) == Some(disk))
        .collect();
    ledger.commits = groups(&commits, context);
    ledger.commit_list = Some(commits.iter().map(|entry| one(entry, context)).collect());
}

fn shown((row, dirtier, _): &Piece, context: &Context<'_>, filter: &Filter) -> bool {
    let program = dirtier.and_then(|pid| context.names.program(pid));
    let name = context
        .names
        .file(row.file)
        .and_then(|file| file.name.clone());
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let pid = filter.pids.is_empty() || dirtier.is_some_and(|pid| filter.pids.contains(&pid));
    let comm = filter.comms.is_empty()
        || program.is_some_and(|program| filter.comms.contains(&lossy(&program.comm)));
    let cgroup = filter.cgroups.is_empty()
        || program
            .and_then(|program| program.cgroup.as_ref())
            .is_some_and(|cgroup| {
                filter
                    .cgroups
                    .iter()
                    .any(|part| lossy(cgroup).contains(part))
            });
    let file = filter.files.is_empty()
        || name.is_some_and(|name| filter.files.iter().any(|part| lossy(&name).contains(part)));
    pid && comm && cgroup && file
}

/// The process that a row is charged to: who dirtied it, else who triggered
/// it from a system call.
fn charged(row: &Row) -> Option<u32> {
    match row.dirtier {
        0 => {
            let no_owner = matches!(row.path, Path::Journal | Path::Metadata);
            (no_owner && row.by != 0 && row.call != CALL_NONE).then_some(row.by)
        }
        pid => Some(pid),
    }
}

/// Data that several processes dirtied is split by their shares.
fn split(row: &Row, counts: Counts, context: &Context<'_>) -> Vec<Piece> {
    let shares = if row.dirtier == RowKey::SHARED {
        context.shares.get(&row.file)
    } else if row.path == Path::Metadata && row.dirtier == 0 {
        // Whoever asked for it, the blocks were dirtied by these.
        context.blocks.get(&row.fs_dev)
    } else {
        None
    };
    let Some(shares) = shares.filter(|shares| !shares.is_empty()) else {
        let known = row.dirtier != RowKey::SHARED;
        return vec![(*row, charged(row).filter(|_| known), counts)];
    };
    let weights: Vec<u64> = shares.iter().map(|(_, bytes)| *bytes).collect();
    let parts = [counts.sectors, counts.bios, counts.flushes].map(|n| apportion(n, &weights));
    shares
        .iter()
        .enumerate()
        .map(|(index, (pid, _))| {
            let counts = Counts {
                sectors: parts[0][index],
                bios: parts[1][index],
                flushes: parts[2][index],
            };
            (*row, Some(*pid), counts)
        })
        .filter(|(_, _, counts)| counts.sectors + counts.bios + counts.flushes > 0)
        .collect()
}

/// Splits a whole by weights, by the largest remainders, so that the parts
/// add up to it.
pub fn apportion(whole: u64, weights: &[u64]) -> Vec<u64> {
    let sum: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    if sum == 0 {
        let mut parts = vec![0; weights.len()];
        if let Some(first) = parts.first_mut() {
            *first = whole;
        }
        return parts;
    }
    let exact = |weight: u64| u128::from(whole) * u128::from(weight);
    let mut parts: Vec<u64> = weights.iter().map(|w| (exact(*w) / sum) as u64).collect();
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by_key(|index| std::cmp::Reverse(exact(weights[*index]) % sum));
    let missing = whole - parts.iter().sum::<u64>();
    for index in order.into_iter().take(missing as usize) {
        parts[index] += 1;
    }
    parts
}

fn process(pid: Option<u32>, context: &Context<'_>) -> ProcessName {
    ProcessName {
        pid,
        comm: pid
            .and_then(|pid| context.names.program(pid))
            .map(|program| program.comm.clone())
            .unwrap_or_default(),
    }
}

/// The word for a row's trigger.
pub fn trigger_name(row: &Row, context: &Context<'_>) -> String {
    match row.trigger {
        Trigger::Reason(code) => context
            .reasons
            .iter()
            .find(|(value, _)| *value == u64::from(code))
            .map_or_else(|| format!("reason-{code}"), |(_, name)| name.clone()),
        Trigger::Call(call) => trigger::of_call(row.path, call).to_owned(),
        Trigger::Job(code) => trigger::of_job(code).to_owned(),
        Trigger::Commit(trigger) => trigger.name().to_owned(),
        Trigger::Unknown => "unknown".to_owned(),
    }
}

/// Sums by key, largest first, then by key.
fn sum<K: Hash + Eq + Ord + Clone>(
    items: impl IntoIterator<Item = (K, Counts)>,
) -> Vec<(K, Counts)> {
    let mut sums: HashMap<K, Counts> = HashMap::new();
    for (key, counts) in items {
        sums.entry(key).or_default().add(counts);
    }
    let mut sorted: Vec<(K, Counts)> = sums.into_iter().collect();
    sorted.sort_by(|a, b| b.1.sectors.cmp(&a.1.sectors).then_with(|| a.0.cmp(&b.0)));
    sorted
}

fn group<K: Hash + Eq + Ord + Clone>(
    pieces: &[Piece],
    key: impl Fn(&Piece) -> K,
) -> Vec<(K, Counts, Vec<Piece>)> {
    let mut members: HashMap<K, Vec<Piece>> = HashMap::new();
    for piece in pieces {
        members.entry(key(piece)).or_default().push(*piece);
    }
    sum(pieces.iter().map(|piece| (key(piece), piece.2)))
        .into_iter()
        .map(|(key, counts)| {
            let own = members.remove(&key).unwrap_or_default();
            (key, counts, own)
        })
        .collect()
}

fn by_path(pieces: &[Piece]) -> Vec<PathSectors> {
    sum(pieces.iter().map(|(row, _, counts)| (row.path, *counts)))
        .into_iter()
        .filter(|(_, counts)| counts.sectors > 0)
        .map(|(path, counts)| PathSectors {
            path,
            sectors: counts.sectors,
        })
        .collect()
}

fn paths(pieces: &[Piece], context: &Context<'_>) -> Vec<PathRow> {
    let key = |piece: &Piece| (piece.0.path, trigger_name(&piece.0, context), piece.0.op);
    group(pieces, key)
        .into_iter()
        .filter(|(_, counts, _)| counts.sectors > 0)
        .map(|((path, trigger, op), counts, own)| {
            let by = own.iter().filter(|(row, _, _)| row.by != 0);
            let by = sum(by.map(|(row, _, counts)| ((row.by, row.call), *counts)));
            PathRow {
                path,
                trigger,
                op,
                sectors: counts.sectors,
                bios: counts.bios,
                by: by
                    .into_iter()
                    .map(|((pid, call), counts)| By {
                        process: process(Some(pid), context),
                        call: calls::name(call),
                        sectors: counts.sectors,
                    })
                    .collect(),
            }
        })
        .collect()
}

/// What a row without a file is of.
fn of(path: Path) -> &'static str {
    match path {
        Path::Unattributed | Path::InFlightBefore | Path::Unknown(_) => "unattributed",
        // File data whose inode is not known.
        Path::Writeback | Path::Fsync | Path::Ordered | Path::Direct | Path::Forced => "data",
        path => path.name(),
    }
}

fn files(pieces: &[Piece], context: &Context<'_>) -> Vec<FileRow> {
    let key = |piece: &Piece| {
        let row = &piece.0;
        if row.file != 0 {
            (Some(row.file), "")
        } else {
            (None, of(row.path))
        }
    };
    group(pieces, key)
        .into_iter()
        .filter(|(_, counts, _)| counts.sectors > 0)
        .map(|((number, of), counts, own)| {
            let file = number.and_then(|number| context.names.file(number));
            let dirtiers = sum(own.iter().map(|(_, dirtier, counts)| (*dirtier, *counts)));
            FileRow {
                file: file.and_then(|file| file.name.clone()),
                of: number.is_none().then_some(of),
                deleted: file.is_some_and(|file| file.deleted),
                ino: file.map(|file| file.ino),
                fs_dev: file.map(|file| (context.dev_name)(file.dev)),
                sectors: counts.sectors,
                paths: by_path(&own),
                dirtiers: dirtiers
                    .into_iter()
                    .filter(|(_, counts)| counts.sectors > 0)
                    .map(|(pid, counts)| ProcessSectors {
                        process: process(pid, context),
                        sectors: counts.sectors,
                    })
                    .collect(),
            }
        })
        .collect()
}

fn dirtiers(pieces: &[Piece], context: &Context<'_>) -> Vec<DirtierRow> {
    let key = |piece: &Piece| match piece.1 {
        Some(pid) => (Some(pid), ""),
        None => (None, of(piece.0.path)),
    };
    group(pieces, key)
        .into_iter()
        .filter(|(_, counts, _)| counts.sectors > 0)
        .map(|((pid, of), counts, own)| {
            let program = pid.and_then(|pid| context.names.program(pid));
            DirtierRow {
                process: process(pid, context),
                of: pid.is_none().then_some(of),
                cgroup: program.and_then(|program| program.cgroup.clone()),
                in_command: program.is_some_and(|program| program.in_command),
                exited: program.is_some_and(|program| program.exited),
                sectors: counts.sectors,
                paths: by_path(&own),
            }
        })
        .collect()
}

fn flushes(pieces: &[Piece], context: &Context<'_>) -> Vec<FlushRow> {
    let mut sums: BTreeMap<(Path, String), u64> = BTreeMap::new();
    for (row, _, counts) in pieces.iter().filter(|piece| piece.2.flushes > 0) {
        *sums
            .entry((row.path, trigger_name(row, context)))
            .or_default() += counts.flushes;
    }
    let mut rows: Vec<FlushRow> = sums
        .into_iter()
        .map(|((path, trigger), count)| FlushRow {
            path,
            trigger,
            count,
        })
        .collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.count));
    rows
}

fn micros(from: u64, to: u64) -> Option<u64> {
    (from != 0 && to >= from).then(|| (to - from) / 1000)
}

fn one(entry: &CommitEntry, context: &Context<'_>) -> CommitRow {
    let commit = &entry.commit;
    let by = entry.cause.by.as_ref();
    CommitRow {
        fs_dev: (context.dev_name)(commit.dev),
        tid: commit.tid,
        trigger: entry.cause.trigger.name(),
        by: by.map(|by| named(by.tgid, &by.comm, context)),
        call: by.and_then(|by| calls::name(by.call)),
        file: by
            .and_then(|by| context.names.file(by.file))
            .and_then(|file| file.name.clone()),
        t_s: commit.start_ns.saturating_sub(context.started_ns) as f64 / 1e9,
        age_us: commit.running_ticks * context.tick_ns / 1000,
        locked_us: micros(commit.locking_ns, commit.flushing_ns),
        flushing_us: micros(commit.flushing_ns, commit.logging_ns),
        logging_us: micros(commit.logging_ns, commit.end_ns),
        duration_us: micros(commit.start_ns, commit.end_ns).unwrap_or_default(),
        handles: commit.handles,
        blocks: commit.blocks,
        blocks_logged: commit.blocks_logged,
        sectors: entry.sectors,
        ordered_sectors: entry.ordered_sectors,
    }
}

/// A process by its own name, else by that of the thread that was seen.
fn named(pid: u32, thread: &[u8], context: &Context<'_>) -> ProcessName {
    let known = process(Some(pid), context);
    if known.comm.is_empty() {
        ProcessName {
            comm: thread.to_vec(),
            ..known
        }
    } else {
        known
    }
}

fn groups(commits: &[&CommitEntry], context: &Context<'_>) -> Vec<CommitGroup> {
    type Key = (
        String,
        &'static str,
        Option<ProcessName>,
        Option<&'static str>,
        Option<Vec<u8>>,
    );
    let mut groups: BTreeMap<Key, Vec<CommitRow>> = BTreeMap::new();
    for row in commits.iter().map(|entry| one(entry, context)) {
        let key = (
            row.fs_dev.clone(),
            row.trigger,
            row.by.clone(),
            row.call,
            row.file.clone(),
        );
        groups.entry(key).or_default().push(row);
    }
    let mut groups: Vec<CommitGroup> = groups
        .into_iter()
        .map(|((fs_dev, trigger, by, call, file), rows)| {
            let total = |value: fn(&CommitRow) -> u64| rows.iter().map(value).sum();
            CommitGroup {
                fs_dev,
                trigger,
                by,
                call,
                file,
                count: rows.len() as u64,
                handles: total(|row| row.handles.into()),
                blocks: total(|row| row.blocks.into()),
                blocks_logged: total(|row| row.blocks_logged.into()),
                sectors: total(|row| row.sectors),
                ordered_sectors: total(|row| row.ordered_sectors),
                duration: durations(&rows),
            }
        })
        .collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.count));
    groups
}

fn durations(rows: &[CommitRow]) -> Durations {
    let Ok(mut histogram) = Histogram::<u64>::new(3) else {
        return Durations::default();
    };
    for row in rows {
        // A resizing histogram takes any value.
        let _ = histogram.record(row.duration_us.max(1));
    }
    Durations {
        median_us: histogram.value_at_quantile(0.5),
        max_us: rows
            .iter()
            .map(|row| row.duration_us)
            .max()
            .unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parts_add_up(whole in 0u64..1_000_000_000, weights in proptest::collection::vec(0u64..1_000_000, 1..9)) {
            let parts = apportion(whole, &weights);
            prop_assert_eq!(parts.iter().sum::<u64>(), whole);
            let sum: u64 = weights.iter().sum();
            if sum > 0 {
                for (part, weight) in parts.iter().zip(&weights) {
                    let exact = whole as f64 * *weight as f64 / sum as f64;
                    prop_assert!((*part as f64 - exact).abs() <= 1.0);
                }
            }
        }
    }
}
