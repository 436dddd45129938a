//! How long data had been dirty when it was submitted.

use hdrhistogram::Histogram;
use tracer_common::age_bucket_floor_ms;

/// Ages of a path's data, weighted by sectors, in microseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ages {
    /// Half of the sectors were younger.
    pub median_us: u64,
    /// 99 % were younger.
    pub p99_us: u64,
    /// The oldest.
    pub max_us: u64,
    /// Sectors whose age is known.
    pub sectors: u64,
    /// Sectors by the least age of their bucket, in microseconds.
    pub buckets: Vec<(u64, u64)>,
}

/// What came to the programs' histogram since it was `before`.
pub fn since(now: &[u64], before: &[u64]) -> Vec<u64> {
    now.iter()
        .zip(before)
        .map(|(now, before)| now.saturating_sub(*before))
        .collect()
}

/// From the programs' histogram (sectors per bucket of milliseconds).
pub fn summarize(buckets: &[u64]) -> Option<Ages> {
    // Three digits span the 12.5 % width of the programs' buckets.
    let mut histogram = Histogram::<u64>::new(3).ok()?;
    let mut by_age = Vec::new();
    for (bucket, sectors) in buckets.iter().enumerate() {
        if *sectors > 0 {
            let floor = age_bucket_floor_ms(bucket as u32) * 1000;
            let next = age_bucket_floor_ms(bucket as u32 + 1) * 1000;
            let middle = u64::midpoint(floor, next);
            histogram.record_n(middle, *sectors).ok()?;
            by_age.push((floor, *sectors));
        }
    }
    (!histogram.is_empty()).then(|| Ages {
        median_us: histogram.value_at_quantile(0.5),
        p99_us: histogram.value_at_quantile(0.99),
        max_us: histogram.max(),
        sectors: histogram.len(),
        buckets: by_age,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracer_common::{AGE_BUCKETS, age_bucket};

    #[test]
    fn an_interval_has_its_own_ages() {
        let mut before = vec![0; AGE_BUCKETS as usize];
        before[age_bucket(30_000) as usize] = 900;
        let mut now = before.clone();
        now[age_bucket(5_000) as usize] = 8;
        let ages = summarize(&since(&now, &before)).unwrap();
        assert_eq!(ages.sectors, 8);
        assert!(ages.max_us < 6_000_000, "{ages:?}");
        assert_eq!(summarize(&since(&now, &now)), None);
    }

    #[test]
    fn ages_are_within_a_bucket() {
        let mut buckets = vec![0; AGE_BUCKETS as usize];
        assert_eq!(summarize(&buckets), None);
        buckets[age_bucket(30_000) as usize] = 99;
        buckets[age_bucket(35_000) as usize] = 1;
        let ages = summarize(&buckets).unwrap();
        assert_eq!(ages.sectors, 100);
        let sectors: Vec<u64> = ages.buckets.iter().map(|bucket| bucket.1).collect();
        assert_eq!(sectors, [99, 1]);
        assert!(ages.buckets[1].0 <= 35_000_000);
        assert!(
            (28_000_000..34_000_000).contains(&ages.median_us),
            "{ages:?}"
        );
        assert!((32_000_000..38_000_000).contains(&ages.max_us), "{ages:?}");
    }
}
