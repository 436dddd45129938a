//! From sectors to a device's life: the arithmetic of the published table.

/// Endurance that the published experiment took for its eMMC: 120 TiB, in GiB.
pub const TBW_GIB: f64 = 120.0 * 1024.0;

/// MiB a minute of `sectors` of 512 bytes in `seconds`.
pub fn mib_per_min(sectors: u64, seconds: f64) -> f64 {
    sectors as f64 / 2048.0 / (seconds / 60.0)
}

/// GiB a day of MiB a minute.
pub fn gib_per_day(mib_per_min: f64) -> f64 {
    mib_per_min * 1440.0 / 1024.0
}

/// Days until `tbw_gib` GiB are written at a rate in GiB a day.
pub fn days(tbw_gib: f64, gib_per_day: f64) -> f64 {
    tbw_gib / gib_per_day
}

/// The same in years of 365 days.
pub fn years(tbw_gib: f64, gib_per_day: f64) -> f64 {
    days(tbw_gib, gib_per_day) / 365.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_figures_follow() {
        for (rate, gib, life_days, life_years) in [
            (62.98, 88.57, 1387.0, 3.8),
            (45.19, 63.55, 1934.0, 5.3),
            (52.22, 73.43, 1673.0, 4.6),
            (60.63, 85.26, 1441.0, 3.9),
        ] {
            let day = gib_per_day(rate);
            assert!((day - gib).abs() < 0.006, "{rate}: {day}");
            assert!((days(TBW_GIB, day) - life_days).abs() < 1.0, "{rate}");
            assert!((years(TBW_GIB, day) - life_years).abs() < 0.05, "{rate}");
        }
    }

    #[test]
    fn sectors_become_a_rate() {
        assert!((mib_per_min(2048, 60.0) - 1.0).abs() < 1e-12);
        assert!((mib_per_min(2048 * 50, 150.0) - 20.0).abs() < 1e-12);
    }
}
