//! Which profile when, and for how long.
//!
//! A block is one settled stretch under one profile. The flusher works in
//! cycles of expiry and interval, so a block shorter than several of them
//! measures where in the cycle it fell.

use crate::profile::{Knob, Profile, Values};
use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use std::time::Duration;

/// Cycles of expiry and interval in a block.
pub const CYCLES: u32 = 10;
/// The kernel's own commit interval, for profiles that set none.
const COMMIT_S: u64 = 5;

/// One block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Index of the profile.
    pub profile: usize,
    /// Under the profile, before the block.
    pub settle: Duration,
    /// The block; whole periods.
    pub length: Duration,
}

fn centiseconds(values: &Values, knob: Knob) -> Duration {
    Duration::from_millis(10 * values.get(&knob).copied().unwrap_or_default())
}

/// Expiry and interval, one after the other.
fn cycle(values: &Values) -> Duration {
    centiseconds(values, Knob::DirtyExpireCentisecs)
        + centiseconds(values, Knob::DirtyWritebackCentisecs)
}

/// How long a profile takes to show in what is written: expiry, two intervals
/// and a period of the workload, and at least two commits.
pub fn settle(values: &Values, period: Duration) -> Duration {
    let interval = centiseconds(values, Knob::DirtyWritebackCentisecs);
    let commit = values.get(&Knob::Commit).copied().unwrap_or(COMMIT_S);
    (cycle(values) + interval + period).max(2 * Duration::from_secs(commit))
}

/// The least number of whole periods that have so many cycles.
pub fn length(values: &Values, period: Duration, cycles: u32) -> Duration {
    let least = cycle(values) * cycles;
    let periods = least.as_nanos().div_ceil(period.as_nanos().max(1)).max(1);
    period * periods as u32
}

/// All blocks: every profile once in each round, each round in random order.
///
/// `in_force` is what stays of the knobs that a profile does not set.
pub fn plan(
    profiles: &[Profile],
    in_force: &Values,
    period: Duration,
    cycles: u32,
    rounds: u32,
    seed: u64,
) -> Vec<Step> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut steps = Vec::new();
    for _ in 0..rounds {
        let mut order: Vec<usize> = (0..profiles.len()).collect();
        order.shuffle(&mut random);
        for profile in order {
            let values = profiles[profile].over(in_force);
            steps.push(Step {
                profile,
                settle: settle(&values, period),
                length: length(&values, period, cycles),
            });
        }
    }
    steps
}

/// How long all of it takes.
pub fn duration(steps: &[Step]) -> Duration {
    steps.iter().map(|step| step.settle + step.length).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{builtin, builtins};
    use proptest::prelude::*;

    const PERIOD: Duration = Duration::from_secs(30);

    fn values(name: &str) -> Values {
        builtin(name).unwrap().values
    }

    #[test]
    fn times_follow_the_knobs() {
        // 30 s + 2 × 5 s + 30 s; 10 × 35 s is 350 s, in whole periods 360 s.
        assert_eq!(settle(&values("default"), PERIOD).as_secs(), 70);
        assert_eq!(length(&values("default"), PERIOD, 10).as_secs(), 360);
        assert_eq!(settle(&values("commit-60"), PERIOD).as_secs(), 120);
        assert_eq!(settle(&values("coalescing"), PERIOD).as_secs(), 190);
        assert_eq!(length(&values("coalescing"), PERIOD, 10).as_secs(), 1320);
        assert_eq!(length(&Values::new(), PERIOD, 10), PERIOD);
    }

    proptest! {
        #[test]
        fn every_round_has_every_profile(seed: u64, rounds in 1_u32..5) {
            let profiles = builtins();
            let steps = plan(&profiles, &Values::new(), PERIOD, 5, rounds, seed);
            prop_assert_eq!(steps.len(), profiles.len() * rounds as usize);
            for round in steps.chunks(profiles.len()) {
                let mut seen: Vec<usize> = round.iter().map(|step| step.profile).collect();
                seen.sort_unstable();
                prop_assert_eq!(seen, (0..profiles.len()).collect::<Vec<_>>());
            }
            let again = plan(&profiles, &Values::new(), PERIOD, 5, rounds, seed);
            prop_assert_eq!(steps, again);
        }

        #[test]
        fn blocks_are_whole_periods(period_ms in 100_u64..60_000, cycles in 1_u32..20) {
            let period = Duration::from_millis(period_ms);
            let values = values("balanced");
            let length = length(&values, period, cycles);
            prop_assert_eq!(length.as_millis() % period.as_millis(), 0);
            prop_assert!(length >= cycle(&values) * cycles);
            prop_assert!(length < cycle(&values) * cycles + period);
        }
    }

    #[test]
    fn orders_differ_between_seeds() {
        let orders: std::collections::HashSet<Vec<usize>> = (0..20)
            .map(|seed| {
                plan(&builtins(), &Values::new(), PERIOD, 5, 1, seed)
                    .iter()
                    .map(|step| step.profile)
                    .collect()
            })
            .collect();
        assert!(orders.len() > 10);
    }
}
