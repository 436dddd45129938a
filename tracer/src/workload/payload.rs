//! What is written: bytes that do not compress, never repeat between updates,
//! and can be computed again from the seed.
//!
//! `ChaCha8` with one stream per (file, update): 4 KiB cost a few microseconds,
//! and a test can say what a file must hold without having watched the writes.

use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// The file number of the management file.
pub const MGMT: u32 = u32::MAX;
/// The update number of what a file holds when it has been prepared.
pub const PREPARED: u32 = u32::MAX;

/// A source of payload. Cheap to clone: one per thread.
#[derive(Debug, Clone)]
pub struct Payload {
    bytes: ChaCha8Rng,
    choices: ChaCha8Rng,
}

impl Payload {
    /// A source for this seed.
    pub fn new(seed: u64) -> Self {
        Self {
            bytes: ChaCha8Rng::seed_from_u64(seed),
            // A key of its own, so that a random place tells nothing about bytes.
            choices: ChaCha8Rng::seed_from_u64(!seed),
        }
    }

    /// Fills `buffer` with the bytes of update number `update` of file `file`.
    pub fn fill(&mut self, file: u32, update: u32, buffer: &mut [u8]) {
        self.bytes.set_stream(stream(file, update));
        self.bytes.set_word_pos(0);
        self.bytes.fill_bytes(buffer);
    }

    /// A number below `bound` that belongs to update `update` of file `file`.
    /// The bias of at most `bound` / 2^64 is far below anything measurable.
    pub fn choose(&mut self, file: u32, update: u32, bound: u64) -> u64 {
        self.choices.set_stream(stream(file, update));
        self.choices.set_word_pos(0);
        let wide = u128::from(self.choices.next_u64()) * u128::from(bound);
        (wide >> 64) as u64
    }
}

fn stream(file: u32, update: u32) -> u64 {
    u64::from(file) << 32 | u64::from(update)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(seed: u64, file: u32, update: u32) -> Vec<u8> {
        let mut buffer = vec![0; 4096];
        Payload::new(seed).fill(file, update, &mut buffer);
        buffer
    }

    #[test]
    fn the_same_seed_gives_the_same_bytes_whatever_came_before() {
        let mut payload = Payload::new(7);
        let mut buffer = vec![0; 4096];
        payload.fill(1, 1, &mut buffer);
        payload.fill(3, 9, &mut buffer);
        assert_eq!(buffer, block(7, 3, 9));
    }

    #[test]
    fn no_two_blocks_are_alike_within_or_between_updates() {
        let mut seen = std::collections::HashSet::new();
        for seed in [1, 2] {
            for file in [0, 1, MGMT] {
                for update in [0, 1, PREPARED] {
                    for chunk in block(seed, file, update).chunks(512) {
                        assert!(seen.insert(chunk.to_vec()), "{seed} {file} {update}");
                    }
                }
            }
        }
    }

    #[test]
    fn bytes_look_random() {
        // Entropy of 64 KiB by byte value: 8 bits for an incompressible stream.
        let mut buffer = vec![0; 65536];
        Payload::new(1).fill(0, 0, &mut buffer);
        let mut counts = [0_f64; 256];
        for byte in &buffer {
            counts[usize::from(*byte)] += 1.0;
        }
        let entropy: f64 = counts
            .iter()
            .map(|count| count / 65536.0)
            .map(|share| -share * share.log2())
            .sum();
        assert!(entropy > 7.99, "{entropy}");
    }

    #[test]
    fn choices_cover_the_range_and_stay_inside() {
        let mut payload = Payload::new(3);
        let mut seen = [0_u32; 16];
        for update in 0..4096 {
            seen[payload.choose(5, update, 16) as usize] += 1;
        }
        assert!(seen.iter().all(|&count| count > 150), "{seen:?}");
        assert_eq!(payload.choose(1, 1, 1), 0);
    }
}
