//! Files of sysfs, procfs and the like that a test sets and puts back, also
//! when it is killed: each change is written down in the test's directory
//! before it is made. Entry: [`Knob::set`].

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};

use crate::harness;

/// Notes of changes: one file each, numbered so that they are undone backwards.
const UNDO: &str = "undo-";
static NEXT: AtomicU32 = AtomicU32::new(0);

/// One changed file; put back when dropped.
pub struct Knob {
    path: PathBuf,
    before: String,
    note: PathBuf,
}

impl Knob {
    /// Writes `value` and remembers what was there.
    pub fn set(path: impl Into<PathBuf>, value: &str) -> Result<Knob> {
        let path = path.into();
        let before = read(&path)?;
        Knob::set_with_undo(path, value, &before)
    }

    /// For files that do not read back as they are written.
    pub fn set_with_undo(path: impl Into<PathBuf>, value: &str, undo: &str) -> Result<Knob> {
        let path = path.into();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let note = harness::run_dir().join(format!("{UNDO}{number:04}"));
        fs::write(&note, format!("{}\n{undo}", path.display()))
            .with_context(|| format!("writing {}", note.display()))?;
        let knob = Knob {
            path,
            before: undo.to_owned(),
            note,
        };
        write(&knob.path, value)?;
        Ok(knob)
    }
}

impl Drop for Knob {
    fn drop(&mut self) {
        match write(&self.path, &self.before) {
            Ok(()) => drop(fs::remove_file(&self.note)),
            Err(error) => eprintln!("{error:#}"),
        }
    }
}

/// The value in use: the word in brackets where a file lists choices.
pub fn read(path: &Path) -> Result<String> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let chosen = text
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    Ok(chosen.map_or_else(|| text.trim().to_owned(), |(word, _)| word.to_owned()))
}

pub fn write(path: &Path, value: &str) -> Result<()> {
    fs::write(path, value).with_context(|| format!("writing {value:?} to {}", path.display()))
}

/// Puts back what a killed test changed, and names it.
pub fn undo(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut notes: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(UNDO))
        .map(|entry| entry.path())
        .collect();
    notes.sort();
    let mut left = Vec::new();
    for note in notes.iter().rev() {
        let text = fs::read_to_string(note).unwrap_or_default();
        if let Some((path, value)) = text.split_once('\n') {
            let outcome = write(Path::new(path), value);
            left.push(match outcome {
                Ok(()) => format!("knob {path}"),
                Err(error) => format!("knob {path}, not put back: {error:#}"),
            });
        }
        let _ = fs::remove_file(note);
    }
    left
}
