//! `--time-scale`: every time of a profile divided, so that an experiment of
//! an hour takes minutes.

use super::{Profile, ProfileError, Unit, Value, Values};

/// How many divisors an error names before it says "…".
const NAMED: usize = 12;

impl Profile {
    /// The profile with every time divided by `k`. Refused when a time in
    /// whole seconds (`commit=`) would not stay one of at least 1, or when a
    /// time would become 0, which means something else. Centiseconds are
    /// rounded to the nearest.
    pub fn scaled(&self, k: u32) -> Result<Self, ProfileError> {
        let mut values = Values::new();
        for (knob, value) in &self.values {
            let scaled = match knob.unit() {
                unit if unit.is_time() => {
                    divide(unit, *value, k).map_err(|becomes| ProfileError::Scale {
                        k,
                        profile: self.name.clone(),
                        knob: *knob,
                        value: *value,
                        becomes,
                        advice: advice(&scales(std::slice::from_ref(self))),
                    })?
                }
                _ => *value,
            };
            values.insert(*knob, scaled);
        }
        Ok(Self {
            values,
            ..self.clone()
        })
    }
}

fn divide(unit: Unit, value: Value, k: u32) -> Result<Value, String> {
    if value == 0 && k > 0 {
        return Ok(0);
    }
    let by = Value::from(k);
    if k == 0 {
        return Err("endless".to_owned());
    }
    match unit {
        Unit::Seconds if !value.is_multiple_of(by) => {
            let seconds = value as f64 / f64::from(k);
            Err(format!("{seconds:.2} s, which is no whole second"))
        }
        Unit::Seconds => Ok(value / by),
        _ => match (value + by / 2) / by {
            0 => Err("less than 0.01 s".to_owned()),
            scaled => Ok(scaled),
        },
    }
}

/// The time scales that all of these profiles can be divided by, smallest
/// first; 1 is always one.
pub fn scales(profiles: &[Profile]) -> Vec<u32> {
    let times = || {
        profiles
            .iter()
            .flat_map(|profile| &profile.values)
            .map(|(knob, value)| (knob.unit(), *value))
            .filter(|(unit, value)| unit.is_time() && *value > 0)
    };
    // No scale is larger than the smallest time allows.
    let most = times()
        .map(|(unit, value)| match unit {
            Unit::Seconds => value,
            _ => value * 2,
        })
        .min()
        .unwrap_or(1)
        .min(MOST);
    (1..=most as u32)
        .filter(|k| times().all(|(unit, value)| divide(unit, value, *k).is_ok()))
        .collect()
}

/// Beyond this a scaled experiment measures nothing of the kind.
const MOST: Value = 10_000;

fn advice(scales: &[u32]) -> String {
    let mut named: Vec<String> = scales.iter().take(NAMED).map(u32::to_string).collect();
    match scales.len() {
        0 | 1 => return "this profile runs at full scale only".to_owned(),
        n if n > NAMED => named.push("…".to_owned()),
        _ => {}
    }
    format!("scales that work: {}", named.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Knob, builtin, builtins};

    #[test]
    fn times_are_divided_and_nothing_else() {
        let scaled = builtin("coalescing").unwrap().scaled(5).unwrap();
        assert_eq!(scaled.values[&Knob::Commit], 1);
        assert_eq!(scaled.values[&Knob::DirtyWritebackCentisecs], 600);
        assert_eq!(scaled.values[&Knob::DirtyExpireCentisecs], 2000);
        assert_eq!(scaled.values[&Knob::DirtyRatio], 40);
    }

    #[test]
    fn a_commit_of_a_broken_second_is_refused_with_what_works() {
        let error = builtin("default").unwrap().scaled(2).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("commit=5"), "{text}");
        assert!(text.contains("2.50 s"), "{text}");
        assert!(text.contains("scales that work: 1, 5"), "{text}");
        assert!(builtin("default").unwrap().scaled(0).is_err());
        assert!(builtin("default").unwrap().scaled(60).is_err());
        assert!(builtin("commit-60").unwrap().scaled(12).is_ok());
    }

    #[test]
    fn scales_of_several_profiles_suit_all() {
        assert_eq!(scales(&builtins()), [1, 5]);
        let sixty = [builtin("coalescing-commit-60").unwrap()];
        assert_eq!(scales(&sixty), [1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60]);
        assert_eq!(scales(&[]), [1]);
    }

    #[test]
    fn a_time_never_becomes_zero() {
        let mut profile = builtin("commit-60").unwrap();
        profile.values.insert(Knob::DirtyExpireCentisecs, 10);
        assert!(profile.scaled(20).is_ok());
        let text = profile.scaled(30).unwrap_err().to_string();
        assert!(text.contains("less than 0.01 s"), "{text}");
        // 0 is "never" and stays it.
        profile.values.insert(Knob::DirtyExpireCentisecs, 0);
        assert_eq!(
            profile.scaled(30).unwrap().values[&Knob::DirtyExpireCentisecs],
            0
        );
    }
}
