//! Names of files and processes are hostile: they may hold escape codes, new
//! lines, and bytes that are no UTF-8.

use std::fmt::Write;

/// For a terminal: one line, no control characters, nothing that turns the
/// direction of text.
pub fn terminal(bytes: &[u8]) -> String {
    let mut out = String::new();
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control()
                || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
            {
                out.extend(c.escape_default());
            } else {
                out.push(c);
            }
        }
        for byte in chunk.invalid() {
            // Writing to a string does not fail.
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out
}

/// For JSON: lossy text, and the bytes in hexadecimal where that differs.
pub fn json(bytes: &[u8]) -> (String, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (text.to_owned(), None),
        Err(_) => (
            String::from_utf8_lossy(bytes).into_owned(),
            Some(hex(bytes)),
        ),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        // Writing to a string does not fail.
        let _ = write!(out, "{byte:02x}");
        out
    })
}

/// The end of a text that has more characters than fit: what tells files
/// apart is at the end.
pub fn shorten(text: &str, width: usize) -> String {
    let count = text.chars().count();
    if count <= width {
        return text.to_owned();
    }
    let skip = count - width.saturating_sub(1);
    format!("…{}", text.chars().skip(skip).collect::<String>())
}

/// The beginning of a text that has more characters than fit: what tells
/// processes apart is in front.
pub fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_stay_on_their_line() {
        assert_eq!(terminal(b"a\nb\x1b[2J"), "a\\nb\\u{1b}[2J");
        assert_eq!(terminal(b"\xffx"), "\\xffx");
        assert_eq!(terminal("a\u{202e}b".as_bytes()), "a\\u{202e}b");
        assert_eq!(
            json(b"\xffx"),
            ("\u{fffd}x".to_owned(), Some("ff78".to_owned()))
        );
        assert_eq!(json(b"x"), ("x".to_owned(), None));
    }

    #[test]
    fn long_names_keep_their_end() {
        assert_eq!(shorten("var/log/messages", 9), "…messages");
        assert_eq!(shorten("log", 9), "log");
        assert_eq!(cut("logger (17) +2", 9), "logger (…");
        assert_eq!(cut("logger", 9), "logger");
    }
}
