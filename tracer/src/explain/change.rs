//! The change of a rate between two sets of blocks.

/// 97.5 % quantiles of Student's t for 1 to 30 degrees of freedom.
const T: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

fn t(freedom: f64) -> f64 {
    let index = (freedom.floor().max(1.0) as usize) - 1;
    T.get(index).copied().unwrap_or(1.96)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Variance of the mean; none with fewer than two values.
fn variance(values: &[f64]) -> Option<f64> {
    let count = values.len() as f64;
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (values.len() > 1).then(|| squares / (count - 1.0) / count)
}

/// Mean of `after` over mean of `before`, less one, and its 95 % interval
/// (Welch's, by the delta method; none with fewer than two blocks of either).
pub fn ratio(before: &[f64], after: &[f64]) -> Option<(f64, Option<(f64, f64)>)> {
    if before.is_empty() || after.is_empty() {
        return None;
    }
    let (old, new) = (mean(before), mean(after));
    if !(old > 0.0 && old.is_finite() && new.is_finite()) {
        return None;
    }
    let change = new / old - 1.0;
    let interval = variance(before)
        .zip(variance(after))
        .map(|(of_old, of_new)| {
            let parts = [of_new / old.powi(2), of_old * new.powi(2) / old.powi(4)];
            let sum: f64 = parts.iter().sum();
            let squares = parts[0].powi(2) / (after.len() - 1) as f64
                + parts[1].powi(2) / (before.len() - 1) as f64;
            let freedom = if squares > 0.0 {
                sum.powi(2) / squares
            } else {
                1.0
            };
            let wide = t(freedom) * sum.sqrt();
            (change - wide, change + wide)
        });
    Some((change, interval))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_have_an_interval_where_blocks_can_tell() {
        assert_eq!(ratio(&[], &[1.0]), None);
        assert_eq!(ratio(&[0.0], &[1.0]), None);
        assert_eq!(ratio(&[10.0], &[5.0]), Some((-0.5, None)));
        let (change, interval) = ratio(&[10.0, 10.0, 10.0], &[5.0, 5.0]).unwrap();
        assert!((change + 0.5).abs() < 1e-12);
        let (low, high) = interval.unwrap();
        assert!((low - change).abs() < 1e-12 && (high - change).abs() < 1e-12);
        // Welch by hand: means 10 and 8, variances of the means 1/3 and 1/3.
        let (_, interval) = ratio(&[9.0, 10.0, 11.0], &[7.0, 8.0, 9.0]).unwrap();
        let (low, high) = interval.unwrap();
        assert!((high + low + 0.4).abs() < 1e-9, "around -20 %");
        assert!((0.18..0.25).contains(&((high - low) / 2.0)), "{low} {high}");
    }
}
