//! Medians, intervals and shuffled orders. Pure, and the same for the same
//! seed.

use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Resamples of an interval.
const RESAMPLES: usize = 10_000;

/// A median with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Lower end.
    pub low: f64,
    /// Median of the sample.
    pub median: f64,
    /// Upper end.
    pub high: f64,
}

/// The generator of a run.
pub fn generator(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}

/// The items in a new order.
pub fn shuffled<T: Copy>(items: &[T], random: &mut ChaCha8Rng) -> Vec<T> {
    let mut items = items.to_vec();
    items.shuffle(random);
    items
}

/// The median, and the percentile bootstrap of it: medians of resamples of the
/// same size, drawn with replacement, without the outer 2.5 % at either end.
/// None for an empty sample.
pub fn estimate(sample: &[f64], random: &mut ChaCha8Rng) -> Option<Estimate> {
    let median_of_all = median(&mut sample.to_vec())?;
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .filter_map(|_| {
            let mut resample: Vec<f64> = (0..sample.len())
                .map(|_| sample[random.random_range(0..sample.len())])
                .collect();
            median(&mut resample)
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    Some(Estimate {
        low: medians[RESAMPLES * 25 / 1000],
        median: median_of_all,
        high: medians[RESAMPLES * 975 / 1000],
    })
}

/// The middle value, or the mean of the two middle values.
pub fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values {
        [] => None,
        values if values.len().is_multiple_of(2) => {
            Some(f64::midpoint(values[middle - 1], values[middle]))
        }
        values => Some(values[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&mut []), None);
        assert_eq!(median(&mut [3.0]), Some(3.0));
        assert_eq!(median(&mut [9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 9.0]), Some(3.0));
    }

    #[test]
    fn interval_of_equal_values_is_a_point() {
        let estimate = estimate(&[7.0; 9], &mut generator(1));
        assert_eq!(
            estimate,
            Some(Estimate {
                low: 7.0,
                median: 7.0,
                high: 7.0
            })
        );
    }

    #[test]
    fn interval_covers_the_true_median_about_95_times_of_100() {
        let mut random = generator(2);
        let covered = (0..200)
            .filter(|_| {
                let sample: Vec<f64> = (0..30).map(|_| random.random_range(-1.0..1.0)).collect();
                let estimate = estimate(&sample, &mut random).unwrap();
                estimate.low <= 0.0 && 0.0 <= estimate.high
            })
            .count();
        assert!((182..=199).contains(&covered), "{covered} of 200");
    }

    #[test]
    fn orders_differ_and_repeat_with_the_seed() {
        let orders = |seed| {
            let mut random = generator(seed);
            (0..20)
                .map(|_| shuffled(&[1, 2, 3], &mut random))
                .collect::<Vec<_>>()
        };
        assert_eq!(orders(5), orders(5));
        assert_ne!(orders(5), orders(6));
        assert!(orders(5).iter().any(|order| order[0] != 1));
    }
}
