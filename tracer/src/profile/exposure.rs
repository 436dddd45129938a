//! How long data may be in memory alone, which is what a power cut costs.

use super::{Knob, Value, Values, knob::say_centiseconds};

/// What a power cut can cost under some values in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exposure {
    /// Centiseconds that file data which nobody syncs may wait: the age from
    /// which it is written, and the interval at which the flusher looks. The
    /// time to write it comes on top. None: for ever, the flusher never looks.
    pub data_cs: Option<Value>,
    /// Seconds that changes of metadata may wait for their commit; none where
    /// no ext4 filesystem is looked at.
    pub metadata_s: Option<Value>,
}

impl Exposure {
    /// Under these values. A time that is not among them counts as 0.
    pub fn of(values: &Values) -> Self {
        let get = |knob| values.get(&knob).copied();
        let interval = get(Knob::DirtyWritebackCentisecs).unwrap_or(0);
        let expire = get(Knob::DirtyExpireCentisecs).unwrap_or(0);
        Self {
            data_cs: (interval > 0).then(|| expire.saturating_add(interval)),
            metadata_s: get(Knob::Commit),
        }
    }

    /// The bound on data in words.
    pub fn say_data(&self) -> String {
        self.data_cs.map_or_else(
            || "without bound (vm.dirty_writeback_centisecs=0)".to_owned(),
            |cs| format!("{} + the time to write it", say_centiseconds(cs)),
        )
    }

    /// What these values put at risk beyond `now`, in sentences; empty when
    /// they put no more at risk.
    pub fn beyond(&self, now: &Self) -> Vec<String> {
        let mut sentences = Vec::new();
        let forever = Value::MAX;
        if self.data_cs.unwrap_or(forever) > now.data_cs.unwrap_or(forever) {
            sentences.push(format!(
                "more data at risk at a power cut: that of {}, instead of {}",
                self.say_data(),
                now.say_data()
            ));
        }
        if let (Some(then), Some(now)) = (self.metadata_s, now.metadata_s)
            && then > now
        {
            sentences.push(format!(
                "more metadata at risk at a power cut: that of {then} s, instead of {now} s"
            ));
        }
        sentences
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::builtin;

    fn of(name: &str) -> Exposure {
        Exposure::of(&builtin(name).unwrap().values)
    }

    #[test]
    fn it_is_expiry_and_interval_and_commit() {
        assert_eq!(of("default").data_cs, Some(3500));
        assert_eq!(of("coalescing").data_cs, Some(13_000));
        assert_eq!(of("commit-60").metadata_s, Some(60));
    }

    #[test]
    fn only_more_is_said() {
        let text = of("coalescing-commit-60").beyond(&of("default"));
        assert_eq!(text.len(), 2);
        assert!(
            text[0].contains("130 s") && text[0].contains("35 s"),
            "{text:?}"
        );
        assert!(text[1].contains("60 s, instead of 5 s"), "{text:?}");
        assert_eq!(of("commit-60").beyond(&of("default")).len(), 1);
        assert!(of("default").beyond(&of("coalescing")).is_empty());
        assert!(of("default").beyond(&of("default")).is_empty());
    }

    #[test]
    fn an_interval_of_zero_is_for_ever() {
        let mut values = builtin("default").unwrap().values;
        values.insert(Knob::DirtyWritebackCentisecs, 0);
        let never = Exposure::of(&values);
        assert_eq!(never.data_cs, None);
        assert!(never.beyond(&of("default"))[0].contains("without bound"));
        assert!(of("default").beyond(&never).is_empty());
        assert!(never.beyond(&never).is_empty());
    }
}
