//! Output of children, line by line.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, PipeReader};
use std::sync::mpsc::{self, Receiver};

/// Kept lines of a quiet child: enough to show why it failed.
const KEPT_LINES: usize = 400;

/// Reads lines in a thread of its own until the last writer is gone.
pub fn read_lines(reader: PipeReader) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut reader = BufReader::new(reader);
        let mut line = Vec::new();
        while matches!(reader.read_until(b'\n', &mut line), Ok(n) if n > 0) {
            let text = String::from_utf8_lossy(&line);
            if sender
                .send(text.trim_end_matches(['\r', '\n']).to_owned())
                .is_err()
            {
                break;
            }
            line.clear();
        }
    });
    receiver
}

/// The last lines of an output.
#[derive(Default)]
pub struct Tail {
    lines: VecDeque<String>,
}

impl Tail {
    /// Adds a line; the oldest goes when there are too many.
    pub fn push(&mut self, line: &str) {
        if self.lines.len() == KEPT_LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(line.to_owned());
    }

    /// The kept lines, each with its newline.
    pub fn text(&self) -> String {
        self.lines.iter().fold(String::new(), |mut text, line| {
            let _ = writeln!(text, "{line}");
            text
        })
    }
}
