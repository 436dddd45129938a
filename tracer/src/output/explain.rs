//! An explanation as people read it, within 80 columns, and as JSON.

pub mod json;

use super::escape::{shorten, terminal};
use crate::{
    explain::{DeviceFindings, Explanation, Finding, Part, short, spelled},
    profile::Unit,
};
use std::io::{self, Write};

/// Columns of a terminal that nobody has widened.
const WIDTH: usize = 80;

/// Writes an explanation.
pub fn write(out: &mut dyn Write, explanation: &Explanation) -> io::Result<()> {
    for (index, device) in explanation.devices.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        if let Some(profile) = &explanation.profile {
            writeln!(out, "under profile {}:\n", terminal(profile.as_bytes()))?;
        }
        of_device(out, device)?;
    }
    Ok(())
}

fn of_device(out: &mut dyn Write, device: &DeviceFindings) -> io::Result<()> {
    for contradiction in &device.contradictions {
        wrapped(out, "CONTRADICTION: ", "  ", contradiction)?;
    }
    wrapped(out, "", "", &device.sentence)?;
    writeln!(
        out,
        "\n  what a knob can act on              sectors    share"
    )?;
    for finding in &device.findings {
        writeln!(
            out,
            "  {:<32} {:>10}  {:>7}",
            shorten(&name(finding), 32),
            finding.ceiling,
            percent(finding.ceiling, device.sectors_written)
        )?;
    }
    if device.parts.is_empty() {
        writeln!(out)?;
    } else {
        writeln!(
            out,
            "\n  where the sectors are               sectors    share  knobs"
        )?;
    }
    for part in &device.parts {
        let name = terminal(format!("{} {}", part.path, part.trigger).as_bytes());
        let head = format!(
            "  {:<32} {:>10}  {:>7}  ",
            shorten(&name, 32),
            part.sectors,
            format!("{}.{} %", part.tenths / 10, part.tenths % 10)
        );
        let left = WIDTH.saturating_sub(head.chars().count());
        writeln!(out, "{head}{}", shorten(&knobs(part), left))?;
        wrapped(out, "    ", "    ", &part.why)?;
    }
    for finding in &device.findings {
        writeln!(out)?;
        wrapped(out, "- ", "  ", &finding.sentence)?;
    }
    if !device.notes.is_empty() {
        writeln!(out)?;
    }
    for note in &device.notes {
        wrapped(out, "note: ", "  ", note)?;
    }
    Ok(())
}

fn name(finding: &Finding) -> String {
    match finding.value {
        Some(value) if finding.knob.unit() == Unit::Centiseconds => {
            format!("{}={value}", short(finding.knob))
        }
        Some(value) => spelled(finding.knob, value),
        None => short(finding.knob).to_owned(),
    }
}

/// What can act on a part, in one word each.
fn knobs(part: &Part) -> String {
    use crate::explain::Lever::{Background, Commit, Expire, Limit, Writeback};
    if !part.known {
        return "not known".to_owned();
    }
    if part.levers.is_empty() {
        return "none".to_owned();
    }
    let words = part.levers.iter().map(|lever| match lever {
        Commit => "commit",
        Expire => "expire",
        Writeback => "writeback",
        Background => "background",
        Limit => "limit",
    });
    words.collect::<Vec<_>>().join(" ")
}

fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    format!("{:.1} %", part as f64 * 100.0 / whole as f64)
}

/// Words of a text; a number keeps its unit.
fn words(text: &str) -> Vec<String> {
    const UNITS: [&str; 9] = ["%", "s", "ms", "min", "h", "B", "KiB", "MiB", "GiB"];
    let mut words: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let unit = word.trim_end_matches(|c: char| c.is_ascii_punctuation() && c != '%');
        match words.last_mut() {
            Some(last) if UNITS.contains(&unit) && last.ends_with(|c: char| c.is_ascii_digit()) => {
                last.push(' ');
                last.push_str(word);
            }
            _ => words.push(word.to_owned()),
        }
    }
    words
}

/// Writes a paragraph; a word that does not fit a line is cut.
fn wrapped(out: &mut dyn Write, first: &str, indent: &str, text: &str) -> io::Result<()> {
    let mut line = first.to_owned();
    let mut empty = true;
    for word in words(text) {
        let word = shorten(&word, WIDTH - indent.len());
        let wide = line.chars().count() + usize::from(!empty) + word.chars().count();
        if wide > WIDTH && !empty {
            writeln!(out, "{line}")?;
            indent.clone_into(&mut line);
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line += &word;
        empty = false;
    }
    writeln!(out, "{line}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_fit_a_terminal() {
        let mut out = Vec::new();
        let text = "word ".repeat(40) + &"x".repeat(200);
        wrapped(&mut out, "note: ", "  ", &text).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH));
        assert!(text.lines().skip(1).all(|line| line.starts_with("  ")));
        assert_eq!(text.matches("word").count(), 40);
        let kept = words("at 20.7 %, or 4 MiB: not a % of 5 s.");
        assert_eq!(kept.join("|"), "at|20.7 %,|or|4 MiB:|not|a|%|of|5 s.");
    }
}
