//! A device with its sectors in parts, and what follows from both.

use super::{
    evidence::Device,
    findings::Part,
    journal::{self, Merged},
    lever::Lever,
    reach,
    rewrites::Writes,
    table,
};
use crate::profile::Value;

/// The flusher's tick comes later than it is set: by about 2 % in trials.
pub const TICK_LATE: f64 = 1.1;

/// What is needed to find the ceilings of a device.
pub struct Scene<'a> {
    /// The device.
    pub device: &'a Device,
    /// Its sectors in parts.
    pub parts: &'a [Part],
    /// Writes that a recording kept.
    pub writes: Option<&'a Writes>,
    /// `commit=`, known or told by ages.
    pub commit_s: Option<Value>,
    /// `dirty_expire` in seconds.
    pub expire_s: Option<f64>,
    /// `dirty_writeback` in seconds.
    pub writeback_s: Option<f64>,
}

impl<'a> Scene<'a> {
    /// Of a device and its parts.
    pub fn new(device: &'a Device, parts: &'a [Part], writes: Option<&'a Writes>) -> Self {
        let seconds = |lever: Lever| {
            let value = lever.in_force(device).1;
            value.map(|centisecs| centisecs as f64 / 100.0)
        };
        let lists = device.lists.as_deref().unwrap_or_default();
        Self {
            device,
            parts,
            writes,
            commit_s: Lever::Commit
                .in_force(device)
                .1
                .or_else(|| journal::inferred_commit_s(lists)),
            expire_s: seconds(Lever::Expire),
            writeback_s: seconds(Lever::Writeback),
        }
    }

    /// Sectors that a lever reaches.
    pub fn reach(&self, lever: Lever) -> u64 {
        table::reached_by(self.parts, &[lever])
    }

    /// Sectors of one path that a lever reaches.
    pub fn reach_of(&self, lever: Lever, path: &str) -> u64 {
        let own = self.parts.iter();
        table::sum(own.filter(|part| part.path == path && part.levers.contains(&lever)))
    }

    /// Sectors of some paths.
    pub fn of_paths(&self, paths: &[&str]) -> u64 {
        let own = self.parts.iter();
        table::sum(own.filter(|part| paths.contains(&part.path.as_str())))
    }

    /// Sectors of the journal, beside those that the levers reach, which
    /// writes of file data that they reach may have caused.
    pub fn indirect(&self, levers: &[Lever]) -> u64 {
        let theirs = |part: &Part| part.levers.iter().any(|own| levers.contains(own));
        let data = self
            .parts
            .iter()
            .any(|part| part.path == "writeback" && theirs(part));
        if !data {
            return 0;
        }
        let journal = self
            .parts
            .iter()
            .filter(|part| reach::in_journal(&part.path));
        table::sum(journal.filter(|part| !theirs(part)))
    }

    /// What `commit=` of so many seconds would have merged; none where commits
    /// were not kept one by one.
    pub fn merged(&self, commit_s: Value) -> Option<Merged> {
        let lists = self.device.lists.as_deref()?;
        let sum = lists.iter().fold(Merged::default(), |mut sum, list| {
            let one = journal::merge(list, commit_s as f64);
            sum.commits += one.commits;
            sum.sectors = sum.sectors.saturating_add(one.sectors);
            sum.ordered = sum.ordered.saturating_add(one.ordered);
            sum
        });
        Some(sum)
    }

    /// Above which value `commit=` cannot act any further.
    pub fn saturation(&self) -> Option<Value> {
        if self.reach(Lever::Commit) == 0 {
            return None;
        }
        let lists = self.device.lists.as_deref()?;
        let mut longest: Option<f64> = None;
        for list in lists.iter().filter(|list| !list.is_empty()) {
            let own = journal::saturation_s(list)?;
            longest = Some(longest.map_or(own, |before| before.max(own)));
        }
        longest.map(|s| s.max(1.0).ceil() as Value)
    }

    /// Which of the two times periodic write-back waited for. An inode that
    /// was dirty at an earlier tick was passed over because of `dirty_expire`.
    pub fn decided(&self, lever: Lever) -> Option<u64> {
        if !matches!(lever, Lever::Expire | Lever::Writeback) {
            return None;
        }
        let periodic = self.reach(Lever::Expire);
        if periodic == 0 {
            return Some(0);
        }
        let (expire, tick) = (self.expire_s?, self.writeback_s?);
        let by_expire = if expire >= tick * TICK_LATE {
            // Whatever is old enough was there at the tick before.
            periodic
        } else {
            self.older_than(tick * TICK_LATE, periodic)?
        };
        Some(match lever {
            Lever::Expire => by_expire,
            _ => periodic - by_expire,
        })
    }

    /// How much of what periodic write-back wrote was older, by the ages of
    /// the pages; none where other write-back is among them.
    fn older_than(&self, age_s: f64, periodic: u64) -> Option<u64> {
        let sum = |least: f64| {
            let own = self.device.ages.iter().filter(|(age, _)| *age >= least);
            own.fold(0_u64, |sum, (_, sectors)| sum.saturating_add(*sectors))
        };
        let (all, old) = (sum(0.0), sum(age_s));
        let only = self.of_paths(&["writeback"]) == self.reach_of(Lever::Expire, "writeback");
        (all > 0 && only).then(|| (u128::from(periodic) * u128::from(old) / u128::from(all)) as u64)
    }

    /// A share of all sectors in percent.
    pub fn percent(&self, sectors: u64) -> f64 {
        let all = table::sum(self.parts.iter()).max(self.device.sectors_written);
        sectors as f64 * 100.0 / all.max(1) as f64
    }
}
