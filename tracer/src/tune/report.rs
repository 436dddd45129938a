//! What became of everything that a run had changed.

use std::fmt;

use super::target::{Change, On, Setting};

/// What somebody else had changed, and was left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// On what.
    pub on: On,
    /// What was there before the run.
    pub original: Setting,
    /// What the run had set.
    pub ours: Setting,
    /// What is there, and stays.
    pub found: Setting,
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            on,
            original,
            ours,
            found,
        } = self;
        write!(
            f,
            "{found}{on} is somebody else's: this run had set {ours}, and {original} was \
             there before; it is left alone"
        )
    }
}

/// What became of everything that a run had changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Put back, from ours to the original.
    pub back: Vec<Change>,
    /// Left alone, for somebody else had changed it.
    pub left: Vec<Left>,
    /// Gone with its filesystem or device.
    pub gone: Vec<String>,
    /// Not put back, and why. It stays in the state, for
    /// `writepath profile restore`.
    pub failed: Vec<String>,
}

impl Report {
    /// Whether everything is as it was.
    pub fn is_clean(&self) -> bool {
        self.left.is_empty() && self.failed.is_empty()
    }

    /// Whether there was nothing to do.
    pub fn is_empty(&self) -> bool {
        self.back.is_empty() && self.is_clean() && self.gone.is_empty()
    }

    /// Adds another's.
    pub fn extend(&mut self, other: Self) {
        self.back.extend(other.back);
        self.left.extend(other.left);
        self.gone.extend(other.gone);
        self.failed.extend(other.failed);
    }

    /// All of it, a line each.
    pub fn lines(&self) -> Vec<String> {
        let back = self.back.iter().map(|change| format!("put back: {change}"));
        let gone = self.gone.iter().map(|what| format!("gone: {what}"));
        let left = self.left.iter().map(Left::to_string);
        let failed = self
            .failed
            .iter()
            .map(|why| format!("NOT put back: {why}; try `writepath profile restore`"));
        back.chain(gone).chain(left).chain(failed).collect()
    }
}
