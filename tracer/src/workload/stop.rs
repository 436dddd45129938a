//! The flag by which a signal ends a workload early.
//!
//! Whoever handles signals holds a clone and raises it; the run sees it within
//! a tenth of a second and ends with its account intact.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A shared flag, raised once and never lowered.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// A flag that is not raised.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks the run to end.
    pub fn raise(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether the run was asked to end.
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
