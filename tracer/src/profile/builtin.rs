//! The built-in profiles: those of the published eMMC experiment, and `commit=`
//! changed alone.

use super::{Knob, Profile, Values};

/// Name, what it is, background limit and limit in percent, writeback
/// interval and expiry in centiseconds, `commit=` in seconds.
type Row = (&'static str, &'static str, [u64; 4], u64);

const TABLE: &[Row] = &[
    (
        "default",
        "what Linux and ext4 set by themselves",
        [10, 20, 500, 3000],
        5,
    ),
    (
        "balanced",
        "data may wait twice as long",
        [10, 30, 2000, 6000],
        5,
    ),
    (
        "coalescing",
        "data waits long, so that rewrites meet in memory",
        [15, 40, 3000, 10_000],
        5,
    ),
    (
        "commit-60",
        "default, but ext4 commits every 60 s",
        [10, 20, 500, 3000],
        60,
    ),
    (
        "coalescing-commit-60",
        "coalescing, and ext4 commits every 60 s",
        [15, 40, 3000, 10_000],
        60,
    ),
];

/// The built-in profiles, in the order in which they are shown.
pub fn builtins() -> Vec<Profile> {
    TABLE.iter().map(profile).collect()
}

/// The built-in profile of this name.
pub fn builtin(name: &str) -> Option<Profile> {
    TABLE.iter().find(|row| row.0 == name).map(profile)
}

fn profile(&(name, about, [background, limit, writeback, expire], commit): &Row) -> Profile {
    Profile {
        name: name.to_owned(),
        about: about.to_owned(),
        values: Values::from([
            (Knob::DirtyBackgroundRatio, background),
            (Knob::DirtyRatio, limit),
            (Knob::DirtyWritebackCentisecs, writeback),
            (Knob::DirtyExpireCentisecs, expire),
            (Knob::Commit, commit),
        ]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Severity, lint};

    #[test]
    fn they_have_the_published_values() {
        let balanced = builtin("balanced").unwrap();
        assert_eq!(balanced.values[&Knob::DirtyRatio], 30);
        assert_eq!(balanced.values[&Knob::DirtyExpireCentisecs], 6000);
        assert_eq!(balanced.values[&Knob::Commit], 5);
        assert_eq!(builtin("coalescing").unwrap().values[&Knob::Commit], 5);
        assert!(builtin("fast").is_none());
    }

    #[test]
    fn nothing_is_wrong_with_them() {
        for profile in builtins() {
            let findings = lint(&profile);
            assert!(
                findings.iter().all(|f| f.severity != Severity::Error),
                "{}: {findings:?}",
                profile.name
            );
            assert_eq!(findings, [], "{}", profile.name);
        }
    }
}
