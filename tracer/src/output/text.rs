//! The ledger as people read it: within 80 columns.

use super::escape::{cut, shorten, terminal};
use crate::model::{
    ledger::{DeviceLedger, PathSectors, ProcessName, Run},
    path::Class,
};
use std::io::{self, Write};

/// What is asked of the output.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Rows of files and dirtiers.
    pub top: usize,
    /// Commits one by one.
    pub commits: bool,
}

/// Writes every device of a run.
pub fn write(out: &mut dyn Write, run: &Run, options: Options) -> io::Result<()> {
    for ledger in &run.devices {
        device(out, run, ledger, options)?;
    }
    lost(out, run)
}

/// Sectors as a size: MiB is 2^20 bytes.
fn size(sectors: u64) -> String {
    let kib = sectors as f64 / 2.0;
    if kib < 1024.0 {
        format!("{kib:.1} KiB")
    } else if kib < 1024.0 * 1024.0 {
        format!("{:.1} MiB", kib / 1024.0)
    } else {
        format!("{:.2} GiB", kib / 1024.0 / 1024.0)
    }
}

fn bytes(bytes: u64) -> String {
    size(bytes.div_ceil(512))
}

fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    format!("{:.1} %", part as f64 * 100.0 / whole as f64)
}

/// Microseconds as a duration.
fn time(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} µs"),
        1_000..1_000_000 => format!("{:.1} ms", us as f64 / 1e3),
        _ => format!("{:.1} s", us as f64 / 1e6),
    }
}

fn process(name: &ProcessName) -> String {
    match (name.pid, name.comm.is_empty()) {
        (Some(pid), false) => format!("{} ({pid})", terminal(&name.comm)),
        (Some(pid), true) => format!("({pid})"),
        (None, _) => "-".to_owned(),
    }
}

fn paths_of(paths: &[PathSectors]) -> String {
    let words: Vec<&str> = paths.iter().map(|row| row.path.name()).collect();
    words.join(" ")
}

fn device(
    out: &mut dyn Write,
    run: &Run,
    ledger: &DeviceLedger,
    options: Options,
) -> io::Result<()> {
    let written = ledger.sectors_written;
    writeln!(
        out,
        "{} ({})  {} sectors written ({}) in {:.1} s",
        ledger.name,
        ledger.dev,
        written,
        size(written),
        run.duration_s
    )?;
    if ledger.vanished {
        writeln!(out, "  the device vanished: counted until then")?;
    }
    let journal = ledger.of_class(Class::Journal) + ledger.of_class(Class::Metadata);
    for (name, sectors) in [
        ("async", ledger.of_class(Class::Async)),
        ("sync", ledger.of_class(Class::Sync)),
        ("journal and metadata", journal),
    ] {
        writeln!(
            out,
            "  {name:<22}{sectors:>12}  {:>7}",
            percent(sectors, written)
        )?;
    }
    let other = ledger.of_class(Class::Other)
        - ledger
            .sectors_unattributed
            .min(ledger.of_class(Class::Other));
    if other > 0 {
        writeln!(
            out,
            "  {:<22}{other:>12}  {:>7}",
            "other",
            percent(other, written)
        )?;
    }
    writeln!(
        out,
        "  unattributed {} (in flight before {})   residual {}",
        ledger.sectors_unattributed, ledger.in_flight_before, ledger.residual
    )?;
    beside(out, ledger)?;
    paths(out, ledger)?;
    files(out, ledger, options)?;
    dirtiers(out, ledger, options)?;
    ages(out, ledger)?;
    commits(out, ledger)?;
    if options.commits {
        commit_list(out, ledger)?;
    }
    for note in &ledger.notes {
        writeln!(out, "  note: {note}")?;
    }
    writeln!(out)
}

fn beside(out: &mut dyn Write, ledger: &DeviceLedger) -> io::Result<()> {
    writeln!(
        out,
        "  flushes {} asked, {} done   zeroed {}   discarded {}   failed {}",
        ledger.flushes_requested,
        ledger.flushes_done,
        ledger.sectors_zeroed,
        ledger.sectors_discarded,
        ledger.failed
    )?;
    match (ledger.still_dirty_bytes, &ledger.still_dirty_missing) {
        (Some(dirty), _) => {
            write!(out, "  still dirty {}", bytes(dirty))?;
            if let Some(error) = ledger.still_dirty_error_bytes {
                write!(out, " (± {})", bytes(error))?;
            }
            if let Some(eta) = ledger.drain_eta_s {
                write!(out, ", {eta:.1} s at this rate")?;
            }
            writeln!(out)
        }
        (None, Some(why)) => writeln!(out, "  still dirty: not known ({why})"),
        (None, None) => Ok(()),
    }
}

fn paths(out: &mut dyn Write, ledger: &DeviceLedger) -> io::Result<()> {
    if ledger.paths.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\n  path        trigger          sectors    share   bios  by"
    )?;
    for row in &ledger.paths {
        let by = row.by.first().map(|by| {
            let more = row.by.len() - 1;
            let more = if more > 0 {
                format!(" +{more}")
            } else {
                String::new()
            };
            format!("{}{more}", process(&by.process))
        });
        let zero = if row.op.name() == "write" {
            ""
        } else {
            row.op.name()
        };
        let by = [zero.to_owned(), by.unwrap_or_default()].join(" ");
        writeln!(
            out,
            "  {:<11} {:<14} {:>9}  {:>7} {:>6}  {}",
            row.path.name(),
            shorten(&row.trigger, 14),
            row.sectors,
            percent(row.sectors, ledger.sectors_written),
            row.bios,
            cut(by.trim(), 23)
        )?;
    }
    Ok(())
}

fn rest(out: &mut dyn Write, left: usize, sectors: u64) -> io::Result<()> {
    if left == 0 {
        return Ok(());
    }
    writeln!(out, "  {sectors:>9}           … {left} more")
}

fn files(out: &mut dyn Write, ledger: &DeviceLedger, options: Options) -> io::Result<()> {
    if ledger.files.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\n    sectors    share  file                             dirtied by"
    )?;
    for row in ledger.files.iter().take(options.top) {
        let name = match (&row.file, row.of, row.ino) {
            (Some(name), _, _) => terminal(name),
            (None, Some(of), _) => format!("[{of}]"),
            (None, None, Some(0)) => "[the device itself]".to_owned(),
            (None, None, ino) => {
                let dev = row.fs_dev.as_deref().unwrap_or("?");
                format!("[{dev} inode {}]", ino.unwrap_or_default())
            }
        };
        let mut known = row.dirtiers.iter().filter(|who| who.process.pid.is_some());
        let who = known.next().map(|first| match known.count() {
            0 => process(&first.process),
            more => format!("{} +{more}", process(&first.process)),
        });
        writeln!(
            out,
            "  {:>9}  {:>7}  {:<32} {}",
            row.sectors,
            percent(row.sectors, ledger.sectors_written),
            shorten(&name, 32),
            cut(&who.unwrap_or_default(), 25)
        )?;
    }
    let tail = ledger.files.iter().skip(options.top);
    rest(out, tail.clone().count(), tail.map(|row| row.sectors).sum())
}

fn dirtiers(out: &mut dyn Write, ledger: &DeviceLedger, options: Options) -> io::Result<()> {
    if ledger.dirtiers.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\n    sectors    share  process                  by path"
    )?;
    for row in ledger.dirtiers.iter().take(options.top) {
        let name = match row.of {
            Some(of) => format!("[{of}]"),
            None => process(&row.process),
        };
        let exited = if row.exited { " (ended)" } else { "" };
        writeln!(
            out,
            "  {:>9}  {:>7}  {:<24} {}{exited}",
            row.sectors,
            percent(row.sectors, ledger.sectors_written),
            cut(&name, 24),
            cut(&paths_of(&row.paths), 33 - exited.len())
        )?;
    }
    let tail = ledger.dirtiers.iter().skip(options.top);
    rest(out, tail.clone().count(), tail.map(|row| row.sectors).sum())
}

fn ages(out: &mut dyn Write, ledger: &DeviceLedger) -> io::Result<()> {
    if ledger.ages.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n  age when submitted    median       p99       max")?;
    for row in &ledger.ages {
        writeln!(
            out,
            "  {:<18} {:>9} {:>9} {:>9}",
            row.path.name(),
            time(row.median_us),
            time(row.p99_us),
            time(row.max_us)
        )?;
    }
    Ok(())
}

/// Who, and on which file, in so many characters: the process first, for the
/// rest the end of the file's name.
fn who(by: Option<&ProcessName>, call: Option<&str>, file: Option<&[u8]>, width: usize) -> String {
    let words: Vec<String> = by
        .map(process)
        .into_iter()
        .chain(call.map(str::to_owned))
        .collect();
    let mut text = words.join(" ");
    let left = width.saturating_sub(text.chars().count() + 1);
    if let Some(file) = file
        && left > 3
    {
        text = format!("{text} {}", shorten(&terminal(file), left));
    }
    cut(text.trim(), width)
}

fn commits(out: &mut dyn Write, ledger: &DeviceLedger) -> io::Result<()> {
    if ledger.commits.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\n  commits  trigger       sectors  ordered    median  by"
    )?;
    for group in &ledger.commits {
        writeln!(
            out,
            "  {:>7}  {:<11} {:>9} {:>8} {:>9}  {}",
            group.count,
            group.trigger,
            group.sectors,
            group.ordered_sectors,
            time(group.duration.median_us),
            who(
                group.by.as_ref(),
                group.call.filter(|call| *call != group.trigger),
                group.file.as_deref(),
                28
            )
        )?;
    }
    Ok(())
}

fn commit_list(out: &mut dyn Write, ledger: &DeviceLedger) -> io::Result<()> {
    let Some(list) = ledger.commit_list.as_ref().filter(|list| !list.is_empty()) else {
        return Ok(());
    };
    writeln!(
        out,
        "\n       t s  commit       trigger     blocks  took       by"
    )?;
    for row in list {
        let tid = if row.tid == 0 {
            "fast".to_owned()
        } else {
            row.tid.to_string()
        };
        writeln!(
            out,
            "  {:>8.3}  {tid:<11}  {:<11} {:>6}  {:<9}  {}",
            row.t_s,
            row.trigger,
            row.blocks_logged,
            time(row.duration_us),
            who(row.by.as_ref(), None, row.file.as_deref(), 25)
        )?;
    }
    Ok(())
}

fn lost(out: &mut dyn Write, run: &Run) -> io::Result<()> {
    writeln!(
        out,
        "lost: {} of {} ring records, {} map entries, {} hooks",
        run.lost.ring,
        run.lost.ring_offered,
        run.lost.in_maps(),
        run.lost.hooks.len()
    )?;
    for (hook, lost) in &run.lost.hooks {
        writeln!(out, "  no hook for {hook}: {lost}")?;
    }
    Ok(())
}
