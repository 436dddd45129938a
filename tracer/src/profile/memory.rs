//! `--as-ram`: limits in percent as the bytes that they would be on a machine
//! of another memory.

use super::{Knob, Profile, Unit, Value, Values, knob::LEAST_DIRTY_BYTES};

/// Whole pages only; the kernel counts in pages.
const PAGE: Value = 4096;

impl Profile {
    /// The profile with its ratios turned into bytes of a machine that has
    /// `ram_bytes` of memory, rounded down to pages. The kernel takes a ratio
    /// of what can be dirty, which is somewhat less than all memory; this takes
    /// it of all.
    #[must_use]
    pub fn as_ram(&self, ram_bytes: u64) -> Self {
        let values = self
            .values
            .iter()
            .map(|(knob, value)| match (knob.unit(), knob.partner()) {
                (Unit::Percent, Some(bytes)) => (bytes, of(ram_bytes, *value, bytes)),
                _ => (*knob, *value),
            });
        Self {
            values: values.collect::<Values>(),
            ..self.clone()
        }
    }
}

/// `percent` of `ram_bytes`, but no less than knob `bytes` takes.
fn of(ram_bytes: u64, percent: Value, bytes: Knob) -> Value {
    let share = u128::from(ram_bytes) * u128::from(percent) / 100;
    let share = Value::try_from(share).unwrap_or(Value::MAX) / PAGE * PAGE;
    let least = if bytes == Knob::DirtyBytes {
        LEAST_DIRTY_BYTES
    } else {
        PAGE
    };
    share.clamp(least, bytes.range().1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::builtin;

    #[test]
    fn ratios_become_bytes_of_that_machine() {
        let board = builtin("default").unwrap().as_ram(1 << 30);
        assert_eq!(board.values[&Knob::DirtyBackgroundBytes], 107_372_544);
        assert_eq!(board.values[&Knob::DirtyBytes], 214_745_088);
        assert!(!board.values.contains_key(&Knob::DirtyRatio));
        assert_eq!(board.values[&Knob::DirtyExpireCentisecs], 3000);
        // A second time changes nothing.
        assert_eq!(board.as_ram(1 << 40), board);
    }

    #[test]
    fn the_kernels_least_is_kept() {
        let tiny = builtin("default").unwrap().as_ram(1);
        assert_eq!(tiny.values[&Knob::DirtyBytes], LEAST_DIRTY_BYTES);
        assert_eq!(tiny.values[&Knob::DirtyBackgroundBytes], PAGE);
        let huge = builtin("default").unwrap().as_ram(u64::MAX);
        assert!(huge.values[&Knob::DirtyBytes] <= Knob::DirtyBytes.range().1);
    }
}
