//! Means of blocks and changes between two sets of them, with 95 % intervals.
//!
//! Rates of wear are positive and their spread grows with them, and what
//! people ask for is a ratio. So a change is taken on logarithms, where a ratio
//! is a difference, by Welch's t test, which does not ask for equal spreads.
//! With one block there is no spread and no interval.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// A mean.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mean {
    /// The arithmetic mean.
    pub mean: f64,
    /// Half the width of its 95 % interval; none for one value.
    pub half: Option<f64>,
}

/// A relative change: 0.1 is 10 % more.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Change {
    /// Of the (geometric) means.
    pub change: f64,
    /// Its 95 % interval; none where one side has one value.
    pub interval: Option<(f64, f64)>,
}

impl Change {
    /// Whether it can be told from no change; none without an interval.
    pub fn is_told(&self) -> Option<bool> {
        self.interval.map(|(low, high)| low > 0.0 || high < 0.0)
    }
}

/// Upper 97.5 % point of Student's t.
fn t975(freedom: f64) -> Option<f64> {
    let t = StudentsT::new(0.0, 1.0, freedom).ok()?;
    Some(t.inverse_cdf(0.975))
}

/// Mean and variance of the mean; none for no value.
fn moments(values: &[f64]) -> Option<(f64, f64)> {
    let n = values.len() as f64;
    if values.is_empty() {
        return None;
    }
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((mean, squares / (n - 1.0).max(1.0) / n))
}

/// Mean of blocks; none for no block.
pub fn mean(values: &[f64]) -> Option<Mean> {
    let (mean, variance) = moments(values)?;
    let half = (values.len() > 1)
        .then(|| t975(values.len() as f64 - 1.0))
        .flatten()
        .map(|t| t * variance.sqrt());
    Some(Mean { mean, half })
}

/// Change from `base` to `other`; none where one has no value or is 0.
pub fn change(base: &[f64], other: &[f64]) -> Option<Change> {
    let logs = |values: &[f64]| -> Option<Vec<f64>> {
        values
            .iter()
            .map(|value| (*value > 0.0).then(|| value.ln()))
            .collect()
    };
    let (base, other) = (logs(base)?, logs(other)?);
    let (base_mean, base_variance) = moments(&base)?;
    let (other_mean, other_variance) = moments(&other)?;
    let difference = other_mean - base_mean;
    let sum = base_variance + other_variance;
    let interval = (base.len() > 1 && other.len() > 1)
        .then(|| {
            if sum <= 0.0 {
                return Some((difference.exp_m1(), difference.exp_m1()));
            }
            // Welch and Satterthwaite.
            let part = |variance: f64, n: usize| variance.powi(2) / (n as f64 - 1.0);
            let freedom =
                sum.powi(2) / (part(base_variance, base.len()) + part(other_variance, other.len()));
            let half = t975(freedom)? * sum.sqrt();
            Some(((difference - half).exp_m1(), (difference + half).exp_m1()))
        })
        .flatten();
    Some(Change {
        change: difference.exp_m1(),
        interval,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn a_mean_has_students_interval() {
        let found = mean(&[10.0, 12.0, 14.0]).unwrap();
        assert!((found.mean - 12.0).abs() < 1e-12);
        // t(0.975, 2) = 4.3027, s = 2, n = 3.
        assert!((found.half.unwrap() - 4.3027 * 2.0 / 3.0_f64.sqrt()).abs() < 1e-3);
        assert_eq!(mean(&[10.0]).unwrap().half, None);
        assert_eq!(mean(&[]), None);
    }

    #[test]
    fn a_change_is_a_ratio() {
        let found = change(&[100.0, 102.0, 98.0], &[71.0, 73.0, 72.0]).unwrap();
        assert!((found.change + 0.28).abs() < 0.01, "{found:?}");
        assert_eq!(found.is_told(), Some(true));
        assert_eq!(change(&[100.0], &[50.0]).unwrap().is_told(), None);
        assert_eq!(change(&[0.0], &[50.0]), None);
        let noise = change(&[100.0, 120.0], &[95.0, 118.0]).unwrap();
        assert_eq!(noise.is_told(), Some(false));
    }

    #[test]
    fn no_change_is_found_in_nineteen_of_twenty() {
        let mut random = ChaCha8Rng::seed_from_u64(7);
        let mut told = 0;
        for _ in 0..2000 {
            let mut blocks = || -> Vec<f64> {
                (0..4)
                    .map(|_| 100.0 * (1.0 + 0.1 * (random.random::<f64>() - 0.5)))
                    .collect()
            };
            let (base, other) = (blocks(), blocks());
            told += u32::from(change(&base, &other).unwrap().is_told() == Some(true));
        }
        assert!((60..140).contains(&told), "{told} of 2000");
    }
}
