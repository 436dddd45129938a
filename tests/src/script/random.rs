//! Random places, the same in the writer and in the test that expects them.
//! Entry: [`Random`].

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

/// Writes at random multiples of `align` below `area`, each of a random
/// multiple of `align` from `min` to `max` bytes, never past `area`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Random {
    pub area: u64,
    pub align: u64,
    pub min: u64,
    pub max: u64,
    pub count: u64,
    pub seed: u64,
}

impl Random {
    /// The places (offset, length) of one thread, without end.
    pub fn places(&self, thread: u64) -> impl Iterator<Item = (u64, u64)> + use<> {
        let Random {
            area,
            align,
            min,
            max,
            seed,
            ..
        } = *self;
        let mut random = ChaCha8Rng::seed_from_u64(seed + thread * 7919);
        std::iter::repeat_with(move || {
            let len = align * random.random_range(min / align..=max / align);
            let at = align * random.random_range(0..=(area - len) / align);
            (at, len)
        })
    }

    /// Bytes that so many threads write in all.
    pub fn bytes(&self, threads: u64) -> u64 {
        let all = (0..threads).flat_map(|thread| self.places(thread).take(self.count as usize));
        all.map(|(_, len)| len).sum()
    }
}
