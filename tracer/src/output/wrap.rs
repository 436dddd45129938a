//! Texts in lines that fit a terminal.

use std::io::{self, Write};

/// Columns of a terminal.
pub const WIDTH: usize = 80;

/// Words of a text in lines of `width` columns; a longer word has a line of
/// its own.
pub fn lines(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split_whitespace() {
        let long = word.chars().count();
        if used > 0 && used + 1 + long > width {
            lines.push(String::new());
            used = 0;
        }
        if let Some(line) = lines.last_mut() {
            if used > 0 {
                line.push(' ');
                used += 1;
            }
            line.push_str(word);
            used += long;
        }
    }
    lines
}

/// Writes a text after a head, its other lines below its first.
pub fn write(out: &mut dyn Write, head: &str, text: &str) -> io::Result<()> {
    let indent = head.chars().count();
    for (index, line) in lines(text, WIDTH.saturating_sub(indent)).iter().enumerate() {
        if index == 0 {
            writeln!(out, "{head}{line}")?;
        } else {
            writeln!(out, "{:indent$}{line}", "")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_kept_whole() {
        assert_eq!(lines("a bb ccc", 4), ["a bb", "ccc"]);
        assert_eq!(lines("a abcdefg b", 4), ["a", "abcdefg", "b"]);
        assert_eq!(lines("", 4), [""]);
        let mut out = Vec::new();
        write(&mut out, "head: ", &"word ".repeat(20)).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.lines().count(), 2);
        assert!(text.lines().all(|line| line.len() <= WIDTH));
        assert!(text.lines().nth(1).unwrap().starts_with("      word"));
    }
}
