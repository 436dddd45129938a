//! Where in its file an update writes: a pure function of the placement, the
//! sizes, the file and the number of the update.

use crate::workload::payload::Payload;

/// Where in a file its updates go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The first `update_bytes`, again and again: coalesces while dirty.
    Fixed,
    /// The next `update_bytes` each time, from the start again at the end.
    Moving,
    /// The first `update_bytes` and the next after them.
    HeaderMoving,
    /// A random multiple of `update_bytes`.
    Random,
    /// `update_bytes` more at the end: the file grows.
    Append,
    /// The whole file anew after a truncation to nothing.
    Replace,
    /// The whole file anew under another name, renamed over the old one.
    Rename,
}

impl Place {
    /// Every placement with its name.
    pub const ALL: [(Place, &'static str); 7] = [
        (Place::Fixed, "fixed"),
        (Place::Moving, "moving"),
        (Place::HeaderMoving, "header+moving"),
        (Place::Random, "random"),
        (Place::Append, "append"),
        (Place::Replace, "replace"),
        (Place::Rename, "rename"),
    ];

    /// The most updates of `update_bytes` that fit a file of `file_bytes`
    /// without overlap; at least this many are needed.
    pub fn slots_needed(self) -> u64 {
        match self {
            Place::HeaderMoving => 2,
            Place::Append | Place::Replace | Place::Rename => 0,
            Place::Fixed | Place::Moving | Place::Random => 1,
        }
    }
}

/// How the file is opened for an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// As it is; pieces are written at their offsets.
    InPlace,
    /// As it is; the piece goes to the end.
    Append,
    /// Truncated to nothing at open.
    Truncate,
    /// A new file, renamed over the old one when it is written.
    Rename,
}

/// One write call of an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Where in the file, in bytes; without meaning in [`Mode::Append`].
    pub offset: u64,
    /// How much, in bytes.
    pub bytes: u64,
}

/// One update: how to open the file and what to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    /// How the file is opened.
    pub mode: Mode,
    /// The writes in order: one or two.
    pub pieces: Vec<Piece>,
}

/// The sizes that a placement works with, in bytes.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// A data file.
    pub file: u64,
    /// An update.
    pub update: u64,
}

/// Update number `number` of file `file`.
pub fn update(place: Place, sizes: Sizes, file: u32, number: u32, payload: &mut Payload) -> Update {
    let slots = sizes.file / sizes.update;
    let turn = u64::from(number);
    let at = |slot: u64| Piece {
        offset: slot * sizes.update,
        bytes: sizes.update,
    };
    let whole = Piece {
        offset: 0,
        bytes: sizes.file,
    };
    let (mode, pieces) = match place {
        Place::Fixed => (Mode::InPlace, vec![at(0)]),
        Place::Moving => (Mode::InPlace, vec![at(turn % slots)]),
        Place::HeaderMoving => (Mode::InPlace, vec![at(0), at(1 + turn % (slots - 1))]),
        Place::Random => (Mode::InPlace, vec![at(payload.choose(file, number, slots))]),
        Place::Append => (Mode::Append, vec![at(0)]),
        Place::Replace => (Mode::Truncate, vec![whole]),
        Place::Rename => (Mode::Rename, vec![whole]),
    };
    Update { mode, pieces }
}

/// Bytes that one update writes: the same for every update of a run.
pub fn bytes_per_update(place: Place, sizes: Sizes) -> u64 {
    match place {
        Place::Fixed | Place::Moving | Place::Random | Place::Append => sizes.update,
        Place::HeaderMoving => 2 * sizes.update,
        Place::Replace | Place::Rename => sizes.file,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SIZES: Sizes = Sizes {
        file: 65536,
        update: 4096,
    };

    fn offsets(place: Place, numbers: std::ops::Range<u32>) -> Vec<Vec<u64>> {
        let mut payload = Payload::new(1);
        numbers
            .map(|number| {
                update(place, SIZES, 3, number, &mut payload)
                    .pieces
                    .iter()
                    .map(|piece| piece.offset)
                    .collect()
            })
            .collect()
    }

    #[test]
    fn fixed_is_the_same_page_again() {
        assert!(
            offsets(Place::Fixed, 0..40)
                .iter()
                .all(|pieces| pieces == &[0])
        );
    }

    #[test]
    fn moving_visits_every_page_in_turn() {
        let expected: Vec<Vec<u64>> = (0..33).map(|n| vec![n % 16 * 4096]).collect();
        assert_eq!(offsets(Place::Moving, 0..33), expected);
    }

    #[test]
    fn header_and_moving_writes_two_pages_that_never_meet() {
        let expected: Vec<Vec<u64>> = (0..31).map(|n| vec![0, (1 + n % 15) * 4096]).collect();
        assert_eq!(offsets(Place::HeaderMoving, 0..31), expected);
    }

    #[test]
    fn random_is_repeatable_and_differs_between_files() {
        assert_eq!(offsets(Place::Random, 0..50), offsets(Place::Random, 0..50));
        let mut payload = Payload::new(1);
        let other: Vec<Vec<u64>> = (0..50)
            .map(|n| vec![update(Place::Random, SIZES, 4, n, &mut payload).pieces[0].offset])
            .collect();
        assert_ne!(offsets(Place::Random, 0..50), other);
    }

    #[test]
    fn whole_file_placements_write_the_whole_file() {
        let mut payload = Payload::new(1);
        for (place, mode) in [
            (Place::Replace, Mode::Truncate),
            (Place::Rename, Mode::Rename),
        ] {
            let update = update(place, SIZES, 0, 5, &mut payload);
            assert_eq!(update.mode, mode);
            assert_eq!(
                update.pieces,
                [Piece {
                    offset: 0,
                    bytes: 65536
                }]
            );
        }
    }

    proptest! {
        #[test]
        fn every_piece_lies_in_the_file_and_sums_as_announced(
            place in proptest::sample::select(Place::ALL.map(|(place, _)| place).to_vec()),
            update_bytes in 1_u64..20_000,
            slots in 2_u64..50,
            odd in 0_u64..20_000,
            file: u32,
            number: u32,
            seed: u64,
        ) {
            let sizes = Sizes {
                file: update_bytes * slots + odd % update_bytes,
                update: update_bytes,
            };
            let update = update(place, sizes, file, number, &mut Payload::new(seed));
            for piece in &update.pieces {
                prop_assert!(piece.bytes > 0);
                prop_assert!(piece.offset + piece.bytes <= sizes.file);
            }
            let sum: u64 = update.pieces.iter().map(|piece| piece.bytes).sum();
            prop_assert_eq!(sum, bytes_per_update(place, sizes));
            if let [first, second] = update.pieces[..] {
                prop_assert!(first.offset + first.bytes <= second.offset);
            }
        }
    }
}
