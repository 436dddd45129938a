//! What is wrong or suspicious about a profile: ranges, pairs, and the traps
//! that people fall into (units above all).

use super::{Knob, Profile, Unit, Value, Values};

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// May be meant; is said.
    Warning,
    /// Cannot be meant, or the kernel would refuse it: is not applied.
    Error,
}

impl Severity {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// Something that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// Where.
    pub knob: Knob,
    /// What, why and what to do.
    pub text: String,
}

/// Looks at a profile alone. Errors first, then in the order of the knobs.
pub fn lint(profile: &Profile) -> Vec<Finding> {
    lint_with(profile, &Values::new())
}

/// Looks at a profile as it would be over the values in force.
pub fn lint_with(profile: &Profile, in_force: &Values) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (knob, value) in &profile.values {
        if let Some(finding) = out_of_range(*knob, *value).or_else(|| trap(*knob, *value)) {
            findings.push(finding);
        }
    }
    findings.extend(pairs(&profile.values));
    // What concerns knobs that the profile leaves alone is not its fault.
    findings.extend(
        together(&profile.over(in_force))
            .into_iter()
            .filter(|(knobs, _)| knobs.iter().any(|knob| profile.values.contains_key(knob)))
            .map(|(_, finding)| finding),
    );
    findings.sort_by_key(|finding| (std::cmp::Reverse(finding.severity), finding.knob));
    findings
}

fn warning(knob: Knob, text: String) -> Finding {
    Finding {
        severity: Severity::Warning,
        knob,
        text,
    }
}

fn error(knob: Knob, text: String) -> Finding {
    Finding {
        severity: Severity::Error,
        knob,
        text,
    }
}

/// Bytes up to this look like percent.
const PERCENT: Value = 100;
/// A limit in bytes below this is hit by every write.
const FEW_BYTES: Value = 1 << 20;

fn out_of_range(knob: Knob, value: Value) -> Option<Finding> {
    if matches!(knob.unit(), Unit::Bytes) && value <= PERCENT {
        let ratio = knob.partner().map_or("", Knob::name);
        let text = format!("{value} looks like percent; bytes are meant here, or {ratio}");
        return Some(error(knob, text));
    }
    let (least, most) = knob.range();
    if (least..=most).contains(&value) {
        return None;
    }
    let unit = knob.unit();
    let mut text = format!("{value} is out of range: {least} to {most} {}", unit.name());
    if knob == Knob::Commit && value == 0 {
        text += "; 0 would mean ext4's own default, which is 5: say 5";
    }
    Some(error(knob, text))
}

/// A value that the kernel takes but that is seldom meant.
fn trap(knob: Knob, value: Value) -> Option<Finding> {
    let unit = knob.unit();
    let said = unit.say(value);
    let text = match knob {
        Knob::DirtyBackgroundBytes | Knob::DirtyBytes if value < FEW_BYTES => {
            format!("{said} is less than one large write; is another unit meant?")
        }
        Knob::DirtyBackgroundRatio if value == 0 => {
            "0 % has the flusher write everything at once".to_owned()
        }
        Knob::DirtyRatio if value == 0 => "0 % makes every writer wait".to_owned(),
        Knob::DirtyRatio | Knob::DirtyBackgroundRatio if value > 60 => {
            format!("{said} of memory may be dirty: reclaim has little left to take")
        }
        Knob::DirtyWritebackCentisecs if value == 0 => {
            "0 switches the periodic flusher off: data that nobody syncs waits for ever".to_owned()
        }
        Knob::DirtyExpireCentisecs if value == 0 => {
            "0 lets data expire at once: each tick writes everything".to_owned()
        }
        Knob::DirtyWritebackCentisecs | Knob::DirtyExpireCentisecs if value < 100 => format!(
            "{value} centiseconds are {said}; if {value} s are meant, say {}",
            value * 100
        ),
        Knob::DirtyWritebackCentisecs | Knob::DirtyExpireCentisecs if value > 60_000 => {
            format!(
                "{value} centiseconds are {said}; if milliseconds are meant, say {}",
                value / 10
            )
        }
        Knob::Commit if value >= 300 => {
            format!("{said} between commits; the unit is seconds, not centiseconds")
        }
        _ => return None,
    };
    Some(warning(knob, text))
}

/// Both members of a pair, of which the kernel keeps the one set last.
fn pairs(values: &Values) -> Vec<Finding> {
    let both = values.keys().filter_map(|knob| {
        let partner = knob.partner()?;
        (*knob < partner && values.contains_key(&partner)).then_some((*knob, partner))
    });
    both.map(|(knob, partner)| {
        error(
            knob,
            format!("{partner} is set too, and each zeroes the other; keep one of them"),
        )
    })
    .collect()
}

/// What does not go together, with the knobs that it is about.
fn together(values: &Values) -> Vec<([Knob; 2], Finding)> {
    let mut found = Vec::new();
    let limits = [
        (Knob::DirtyBackgroundRatio, Knob::DirtyRatio),
        (Knob::DirtyBackgroundBytes, Knob::DirtyBytes),
    ];
    for (background, limit) in limits {
        if let (Some(low), Some(high)) = (values.get(&background), values.get(&limit))
            && low >= high
        {
            let text = format!(
                "{} is not below {} ({}); the kernel then takes half of the latter instead",
                background.unit().say(*low),
                limit.with(*high),
                limit.unit().say(*high),
            );
            found.push(([background, limit], warning(background, text)));
        }
    }
    let knobs = [Knob::DirtyExpireCentisecs, Knob::DirtyWritebackCentisecs];
    if let [Some(expire), Some(interval)] = knobs.map(|knob| values.get(&knob))
        && expire < interval
        && *expire > 0
    {
        let text = format!(
            "{} is less than {} ({}): the interval decides alone how long data waits",
            Unit::Centiseconds.say(*expire),
            knobs[1].with(*interval),
            Unit::Centiseconds.say(*interval),
        );
        found.push((knobs, warning(knobs[0], text)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::builtin;

    fn of(values: &[(Knob, Value)]) -> Vec<Finding> {
        lint(&Profile {
            name: "x".to_owned(),
            about: String::new(),
            values: values.iter().copied().collect(),
        })
    }

    fn only(values: &[(Knob, Value)], severity: Severity, word: &str) {
        let found = of(values);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].severity, severity, "{found:?}");
        assert!(found[0].text.contains(word), "{found:?}");
    }

    #[test]
    fn bytes_that_look_like_percent() {
        only(
            &[(Knob::DirtyBackgroundBytes, 5)],
            Severity::Error,
            "percent",
        );
        only(&[(Knob::DirtyBytes, 40)], Severity::Error, "vm.dirty_ratio");
        only(&[(Knob::DirtyBytes, 5000)], Severity::Error, "out of range");
        only(
            &[(Knob::DirtyBytes, 65_536)],
            Severity::Warning,
            "another unit",
        );
    }

    #[test]
    fn ranges() {
        only(
            &[(Knob::DirtyRatio, 101)],
            Severity::Error,
            "0 to 100 percent",
        );
        only(&[(Knob::Commit, 0)], Severity::Error, "say 5");
        only(&[(Knob::Commit, 1 << 40)], Severity::Error, "out of range");
    }

    #[test]
    fn units() {
        only(
            &[(Knob::DirtyExpireCentisecs, 30)],
            Severity::Warning,
            "3000",
        );
        only(
            &[(Knob::DirtyWritebackCentisecs, 5)],
            Severity::Warning,
            "500",
        );
        only(
            &[(Knob::DirtyExpireCentisecs, 100_000)],
            Severity::Warning,
            "10000",
        );
        only(&[(Knob::Commit, 6000)], Severity::Warning, "seconds");
        only(
            &[(Knob::DirtyWritebackCentisecs, 0)],
            Severity::Warning,
            "for ever",
        );
    }

    #[test]
    fn members_of_a_pair_exclude_each_other() {
        let both = [(Knob::DirtyBytes, 64 << 20), (Knob::DirtyRatio, 20)];
        only(&both, Severity::Error, "zeroes");
    }

    #[test]
    fn a_background_limit_over_the_limit() {
        let over = [(Knob::DirtyBackgroundRatio, 30), (Knob::DirtyRatio, 20)];
        only(&over, Severity::Warning, "half");
        let bytes = [
            (Knob::DirtyBackgroundBytes, 64 << 20),
            (Knob::DirtyBytes, 64 << 20),
        ];
        only(&bytes, Severity::Warning, "half");
    }

    #[test]
    fn an_expiry_below_the_interval() {
        let short = [
            (Knob::DirtyExpireCentisecs, 400),
            (Knob::DirtyWritebackCentisecs, 500),
        ];
        only(&short, Severity::Warning, "interval decides");
    }

    #[test]
    fn values_in_force_count_where_the_profile_touches_them() {
        let in_force = builtin("default").unwrap().values;
        let profile = |values: &[(Knob, Value)]| Profile {
            name: "x".to_owned(),
            about: String::new(),
            values: values.iter().copied().collect(),
        };
        let over = profile(&[(Knob::DirtyBackgroundRatio, 30)]);
        assert_eq!(lint(&over), []);
        assert_eq!(lint_with(&over, &in_force).len(), 1);
        // Both wrong in force already, neither set: not said.
        let mut odd = in_force.clone();
        odd.insert(Knob::DirtyBackgroundRatio, 50);
        assert_eq!(lint_with(&profile(&[(Knob::Commit, 60)]), &odd), []);
    }
}
