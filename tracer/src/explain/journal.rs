//! What another `commit=` would have made of the commits that were seen.
//!
//! A transaction ends when it is older than `commit=`, or when something
//! forces it: fsync, sync, a full log. Raising `commit=` merges commits of the
//! timer with what follows, up to the next one that is forced; it never moves
//! a forced one. A ceiling must not be too low, so that whatever cannot be
//! known (which of two transactions a block would have been in) is taken in
//! favour of the knob.

use super::evidence::{Commit, is_timer};
use std::collections::BTreeMap;

/// The kernel rounds the timer up to a whole second, and a commit may wait a
/// little for handles to end.
const LATE_S: f64 = 1.1;

/// Commits as they were and as they would have been.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Merged {
    /// Commits of the timer that would not have been.
    pub commits: u64,
    /// At most so many sectors in the journal's place less.
    pub sectors: u64,
    /// Data that the commits that would not have been had to write first.
    pub ordered: u64,
}

/// Merges the commits of each filesystem under another `commit=`.
pub fn merge(list: &[Commit], commit_s: f64) -> Merged {
    let mut sum = Merged::default();
    for own in by_filesystem(list).values() {
        let late = lateness(own);
        let mut at = 0;
        while at < own.len() {
            let end = own[at].opened() + commit_s + late;
            let next = group_end(own, at, end);
            let group = &own[at..next];
            at = next;
            let timers: Vec<&&Commit> = group.iter().filter(|one| is_timer(&one.trigger)).collect();
            if group.len() < 2 || timers.is_empty() {
                continue;
            }
            let all = total(group.iter().map(|one| one.sectors));
            // One commit stays, at least as large as any that lies wholly
            // within; what straddles the end may have gone to the next.
            let stays = group
                .iter()
                .enumerate()
                .filter(|(index, one)| *index == 0 || one.t_s <= end)
                .map(|(_, one)| one.sectors)
                .max()
                .unwrap_or_default();
            let of_timers = total(timers.iter().map(|one| one.sectors));
            let forced = group.len() - timers.len();
            sum.sectors = sum.sectors.saturating_add((all - stays).min(of_timers));
            sum.commits += (timers.len() - usize::from(forced == 0)) as u64;
            sum.ordered = sum
                .ordered
                .saturating_add(total(timers.iter().map(|one| one.ordered)));
        }
    }
    sum
}

/// Above how many seconds `commit=` cannot act any further, because a forced
/// commit came before; none where no commit was forced, or where the timer's
/// went on after the last that was.
pub fn saturation_s(list: &[Commit]) -> Option<f64> {
    let mut longest: Option<f64> = None;
    for own in by_filesystem(list).values() {
        let mut opened = None;
        for one in own {
            let from = *opened.get_or_insert(one.opened());
            if !is_timer(&one.trigger) {
                let span = one.t_s - from;
                longest = Some(longest.map_or(span, |before| before.max(span)));
                opened = None;
            }
        }
        if let (Some(from), Some(last)) = (opened, own.last()) {
            // The end is open: it tells nothing unless it is shorter.
            if longest.is_none_or(|longest| last.t_s - from > longest) {
                return None;
            }
        }
    }
    longest.filter(|span| span.is_finite())
}

/// How often something happens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cadence {
    /// Seconds between two, the median.
    pub every_s: f64,
    /// Whether most are about so far apart.
    pub regular: bool,
}

/// From the times of each watched stretch; none with fewer than three.
pub fn cadence(stretches: &[Vec<f64>]) -> Option<Cadence> {
    let mut gaps: Vec<f64> = stretches
        .iter()
        .flat_map(|times| times.windows(2).map(|pair| pair[1] - pair[0]))
        .collect();
    if gaps.len() < 2 {
        return None;
    }
    gaps.sort_by(f64::total_cmp);
    let every_s = gaps[gaps.len() / 2];
    let near = gaps
        .iter()
        .filter(|gap| (*gap - every_s).abs() <= every_s * 0.25);
    let regular = every_s > 0.0 && every_s.is_finite() && near.count() * 3 >= gaps.len() * 2;
    Some(Cadence { every_s, regular })
}

/// The `commit=` that the ages of the timer's commits tell, where nobody else
/// does: the timer rounds up, so the youngest is nearest.
pub fn inferred_commit_s(lists: &[Vec<Commit>]) -> Option<u64> {
    lists
        .iter()
        .flatten()
        .filter(|one| one.trigger == "timer" && one.age_s >= 0.9)
        .map(|one| one.age_s)
        .min_by(f64::total_cmp)
        .map(|age| (age + 0.1).floor() as u64)
}

impl Commit {
    /// When its transaction was opened.
    fn opened(&self) -> f64 {
        self.t_s - self.age_s
    }
}

/// How late the timer was at most.
fn lateness(own: &[&Commit]) -> f64 {
    let ages = own.iter().filter(|one| one.trigger == "timer");
    let (least, most) = ages.fold((f64::MAX, 0.0_f64), |(least, most), one| {
        (least.min(one.age_s), most.max(one.age_s))
    });
    LATE_S.max(most - least)
}

/// Where the transaction that was opened with `own[at]` would have ended: with
/// the next forced commit, else before the first that was opened too late.
fn group_end(own: &[&Commit], at: usize, end: f64) -> usize {
    let mut next = at;
    while let Some(one) = own.get(next) {
        if next > at && one.opened() >= end {
            break;
        }
        next += 1;
        if !is_timer(&one.trigger) {
            break;
        }
    }
    next.max(at + 1)
}

fn by_filesystem(list: &[Commit]) -> BTreeMap<&str, Vec<&Commit>> {
    let mut own: BTreeMap<&str, Vec<&Commit>> = BTreeMap::new();
    for one in list {
        own.entry(&one.fs_dev).or_default().push(one);
    }
    for commits in own.values_mut() {
        commits.sort_by(|a, b| a.t_s.total_cmp(&b.t_s));
    }
    own
}

fn total(sectors: impl Iterator<Item = u64>) -> u64 {
    sectors.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn commit(trigger: &str, t_s: f64, age_s: f64, sectors: u64) -> Commit {
        Commit {
            fs_dev: "7:0".to_owned(),
            trigger: trigger.to_owned(),
            by: None,
            file: None,
            t_s,
            age_s,
            sectors,
            ordered: 1,
        }
    }

    /// A logger that never syncs: a commit each 5.2 s.
    fn logger(count: u32, sectors: u64) -> Vec<Commit> {
        (1..=count)
            .map(|n| commit("timer", f64::from(n) * 5.2, 5.1, sectors))
            .collect()
    }

    #[test]
    fn commits_of_the_timer_merge() {
        let list = logger(60, 32);
        assert_eq!(merge(&list, 3.0), Merged::default());
        let merged = merge(&list, 30.0);
        // 31 s hold five commits, and one more straddles their end.
        assert!((45..=52).contains(&merged.commits), "{merged:?}");
        assert_eq!(merged.sectors % 32, 0);
        assert!(merged.sectors >= 45 * 32 && merged.sectors < 60 * 32);
        let all = merge(&list, 1000.0);
        assert_eq!((all.commits, all.sectors), (59, 59 * 32));
    }

    #[test]
    fn forced_commits_stay() {
        let list: Vec<Commit> = (1..=10)
            .map(|n| commit("fsync", f64::from(n), 0.9, 24))
            .collect();
        assert_eq!(merge(&list, 1000.0), Merged::default());
        // The timer's commit between two of fsync goes to the next.
        let mixed = [
            commit("timer", 5.1, 5.0, 100),
            commit("fsync", 9.0, 3.8, 10),
        ];
        let merged = merge(&mixed, 30.0);
        // All 100 blocks must still be logged: ten sectors are the gain.
        assert_eq!((merged.commits, merged.sectors), (1, 10));
        assert_eq!(saturation_s(&mixed), Some(9.0 - 0.1 + 0.0));
    }

    #[test]
    fn fsync_every_thirty_seconds_is_the_end_of_commit() {
        let mut list = Vec::new();
        for round in 0..4 {
            let from = f64::from(round) * 30.0;
            for n in 1..=5 {
                list.push(commit("timer", from + f64::from(n) * 5.2, 5.1, 16));
            }
            list.push(commit("fsync", from + 30.0, 3.9, 16));
        }
        let end = saturation_s(&list).unwrap();
        assert!((29.0..30.5).contains(&end), "{end}");
        assert_eq!(merge(&list, 31.0), merge(&list, 600.0));
        assert_eq!(merge(&list, 31.0).commits, 20);
        list.push(commit("timer", 200.0, 5.1, 16));
        assert!(
            saturation_s(&list).is_some(),
            "a short tail changes nothing"
        );
        list.push(commit("timer", 260.0, 5.1, 16));
        assert_eq!(saturation_s(&list), None, "a long one does");
    }

    #[test]
    fn filesystems_do_not_mix() {
        let mut list = logger(2, 8);
        list[1].fs_dev = "7:1".to_owned();
        assert_eq!(merge(&list, 1000.0), Merged::default());
    }

    #[test]
    fn cadences() {
        let even: Vec<f64> = (0..10).map(|n| f64::from(n) * 30.0).collect();
        let found = cadence(&[even]).unwrap();
        assert!(found.regular && (found.every_s - 30.0).abs() < 1e-9);
        assert!(
            !cadence(&[vec![0.0, 1.0, 30.0, 31.5, 90.0]])
                .unwrap()
                .regular
        );
        assert_eq!(cadence(&[vec![0.0, 1.0]]), None);
        // Blocks are apart: the gap between them is none.
        let found = cadence(&[vec![0.0, 1.0, 2.0], vec![0.5, 1.5, 2.5]]).unwrap();
        assert!((found.every_s - 1.0).abs() < 1e-9);
    }

    #[test]
    fn ages_tell_the_interval() {
        assert_eq!(inferred_commit_s(&[logger(3, 8)]), Some(5));
        assert_eq!(
            inferred_commit_s(&[vec![commit("fsync", 1.0, 1.0, 8)]]),
            None
        );
    }

    /// A model of jbd2: blocks are touched at times; a commit logs what was
    /// touched since the transaction was opened.
    fn jbd2(touches: &[(u32, u8)], forced: &[u32], commit: u32) -> Vec<Commit> {
        let mut list = Vec::new();
        let mut blocks = std::collections::BTreeSet::new();
        let mut opened = None;
        let end = touches.iter().map(|(t, _)| *t).max().unwrap_or(0) + 2 * commit;
        for now in 0..=end {
            let due = opened.is_some_and(|from| now >= from + commit);
            let by = forced.contains(&now);
            if let Some(from) = opened.filter(|_| due || by) {
                let trigger = if by { "fsync" } else { "timer" };
                let sectors = 8 * (blocks.len() as u64 + 2);
                let age = f64::from(now - from);
                list.push(super::tests::commit(trigger, f64::from(now), age, sectors));
                blocks.clear();
                opened = None;
            }
            for (_, block) in touches.iter().filter(|(t, _)| *t == now) {
                blocks.insert(*block);
                opened.get_or_insert(now);
            }
        }
        list
    }

    proptest! {
        /// What a longer interval really saves is never above the ceiling.
        #[test]
        fn a_ceiling_is_never_too_low(
            touches in proptest::collection::vec((0u32..200, 0u8..12), 1..120),
            forced in proptest::collection::vec(0u32..220, 0..8),
            short in 2u32..10,
            more in 1u32..60,
        ) {
            let before = jbd2(&touches, &forced, short);
            let after = jbd2(&touches, &forced, short + more);
            let sum = |list: &[Commit]| list.iter().map(|one| one.sectors).sum::<u64>();
            let merged = merge(&before, f64::from(short + more));
            let saved = sum(&before).saturating_sub(sum(&after));
            prop_assert!(saved <= merged.sectors, "saved {} of {:?}", saved, merged);
            let timers: u64 = before
                .iter()
                .filter(|one| is_timer(&one.trigger))
                .map(|one| one.sectors)
                .sum();
            prop_assert!(merged.sectors <= timers);
        }
    }
}
