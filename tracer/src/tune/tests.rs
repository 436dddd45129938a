//! What a run sets, notes and puts back, against a machine made of a map.

use proptest::prelude::*;
use std::{collections::HashMap, convert::Infallible, path::PathBuf};

use super::{
    plan::{self, Verdict, verdict},
    state::State,
    target::{Change, Entry, On, Setting, group},
};
use crate::{
    kernel::block::DevNumber,
    profile::{Knob, Place},
};

fn on(knob: Knob) -> On {
    let dev = DevNumber { major: 7, minor: 3 };
    match knob.place() {
        Place::Sysctl(_) => On::Machine,
        Place::Ext4Option(_) => On::Filesystem {
            dev,
            point: PathBuf::from("/mnt/a b"),
        },
        Place::Throttle(_) => On::Device { dev },
    }
}

/// What is in force, by the knob that stands for its pair.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Machine(HashMap<Knob, Setting>);

impl Machine {
    fn new() -> Self {
        let defaults = [
            (Knob::DirtyBackgroundRatio, 10),
            (Knob::DirtyRatio, 20),
            (Knob::DirtyWritebackCentisecs, 500),
            (Knob::DirtyExpireCentisecs, 3000),
            (Knob::Commit, 5),
            (Knob::ThrottleWriteBps, 0),
            (Knob::ThrottleWriteIops, 0),
        ];
        let settings = defaults.map(|(knob, value)| (knob, Setting::new(knob, value)));
        Self(settings.into())
    }

    fn get(&self, knob: Knob) -> Setting {
        self.0[&group(knob)]
    }

    fn set(&mut self, to: Setting) {
        self.0.insert(group(to.knob), to);
    }
}

fn wanted(settings: &[Setting]) -> Vec<(On, Setting)> {
    settings.iter().map(|s| (on(s.knob), *s)).collect()
}

fn plan_for(machine: &Machine, entries: &[Entry], settings: &[Setting]) -> Option<Vec<Change>> {
    let current = |_: &On, s: Setting| Ok::<_, Infallible>(machine.get(s.knob));
    let Ok(planned) = plan::plan(entries, &wanted(settings), |_| true, current);
    planned.ok()
}

fn put_back(machine: &mut Machine, entries: &[Entry]) {
    for entry in entries {
        let current = machine.get(entry.original.knob);
        if verdict(entry, current) == Verdict::PutBack {
            machine.set(entry.original);
        }
    }
}

fn a_setting() -> impl Strategy<Value = Setting> {
    let knobs: Vec<Knob> = Knob::all().collect();
    (0..knobs.len(), 0_u64..4).prop_map(move |(index, n)| {
        let (least, _) = knobs[index].range();
        Setting::new(knobs[index], least + n)
    })
}

/// One setting for each group at most, as a profile has.
fn a_profile() -> impl Strategy<Value = Vec<Setting>> {
    proptest::collection::vec(a_setting(), 0..6).prop_map(|settings| {
        let by_group: HashMap<Knob, Setting> =
            settings.into_iter().map(|s| (group(s.knob), s)).collect();
        by_group.into_values().collect()
    })
}

proptest! {
    /// However many profiles, and wherever the run is killed: what was there
    /// before comes back.
    #[test]
    fn a_run_that_dies_anywhere_leaves_nothing(
        profiles in proptest::collection::vec(a_profile(), 1..5),
        dies_after in 0_usize..20,
    ) {
        let before = Machine::new();
        let mut machine = before.clone();
        let mut entries = Vec::new();
        let mut written = Vec::new();
        let mut steps = 0;
        'run: for profile in &profiles {
            let changes = plan_for(&machine, &entries, profile).expect("nobody else is there");
            plan::announce(&mut entries, &changes);
            written.clone_from(&entries);
            for change in changes {
                if steps == dies_after {
                    break 'run;
                }
                machine.set(change.to);
                steps += 1;
            }
            for setting in profile {
                prop_assert_eq!(machine.get(setting.knob), *setting);
            }
            plan::settle(&mut entries);
            written.clone_from(&entries);
        }
        // Only what was written down is known to who puts back.
        put_back(&mut machine, &written);
        prop_assert_eq!(machine, before);
    }

    /// What somebody else sets is never overwritten, neither by another
    /// profile nor at the end, unless it is what we had set ourselves.
    #[test]
    fn somebody_elses_value_stays(
        profile in a_profile(), next in a_profile(), theirs in a_setting(),
    ) {
        let before = Machine::new();
        let mut machine = before.clone();
        let mut entries = Vec::new();
        let changes = plan_for(&machine, &entries, &profile).expect("nobody else is there");
        plan::announce(&mut entries, &changes);
        for change in &changes {
            machine.set(change.to);
        }
        plan::settle(&mut entries);
        let ours = machine.get(theirs.knob);
        machine.set(theirs);
        let touched = changes.iter().any(|change| group(change.to.knob) == group(theirs.knob));
        if touched && theirs != ours {
            prop_assert_eq!(plan_for(&machine, &entries, &next), None);
        }
        put_back(&mut machine, &entries);
        if theirs != ours || !touched {
            prop_assert_eq!(machine.get(theirs.knob), theirs);
        }
    }

    /// State survives being written and read.
    #[test]
    fn state_reads_back(profile in a_profile(), pid in any::<u32>(), boot in "\\PC{0,40}") {
        let mut entries = Vec::new();
        let machine = Machine::new();
        let changes = plan_for(&machine, &entries, &profile).expect("nobody else is there");
        plan::announce(&mut entries, &changes);
        let state = State { boot, pid, entries };
        prop_assert_eq!(State::parse(&state.text()), Ok(state));
    }

    /// Text that is cut, bent or not ours at all is an answer; what is taken
    /// belongs to the table.
    #[test]
    fn any_text_is_an_answer(
        profile in a_profile(), at in 0_usize..600, cut in 0_usize..9, with in "\\PC{0,3}",
    ) {
        let mut entries = Vec::new();
        let changes = plan_for(&Machine::new(), &entries, &profile).expect("nobody else is there");
        plan::announce(&mut entries, &changes);
        let text = State { boot: "b".to_owned(), pid: 1, entries }.text();
        let at = at.min(text.len());
        let bent = format!("{}{with}{}", &text[..at], &text[(at + cut).min(text.len())..]);
        if let Ok(state) = State::parse(&bent) {
            for entry in state.entries {
                prop_assert!(entry.on.suits(entry.original.knob));
                prop_assert!(entry.ours.iter().all(|s| group(s.knob) == group(entry.original.knob)));
            }
        }
    }
}

#[test]
fn state_with_anything_else_is_refused() {
    let text = |on: &str, knob: &str, value: &str, ours: &str| {
        format!(
            r#"{{"version":1,"boot":"b","pid":1,"entries":[{{"on":{on},"original":{{"knob":"{knob}","value":{value}}},"ours":[{ours}]}}]}}"#
        )
    };
    let ours = r#"{"knob":"vm.dirty_ratio","value":30}"#;
    let machine = r#""machine""#;
    assert!(State::parse(&text(machine, "vm.dirty_ratio", "20", ours)).is_ok());
    for bad in [
        text(machine, "kernel.core_pattern", "20", ours),
        text(machine, "vm.dirty_expire_centisecs", "20", ours),
        text(machine, "commit", "20", ours),
        text(machine, "vm.dirty_ratio", "101", ours),
        text(machine, "vm.dirty_ratio", "-1", ours),
        text(machine, "vm.dirty_ratio", "20", ""),
        text(r#"{"device":{"dev":[7,0]}}"#, "vm.dirty_ratio", "20", ours),
        text(machine, "vm.dirty_ratio", "20", ours).replace("\"pid\"", "\"more\":1,\"pid\""),
        text(machine, "vm.dirty_ratio", "20", ours).replace("\"version\":1", "\"version\":2"),
        String::new(),
        "[".repeat(100_000),
    ] {
        assert!(State::parse(&bad).is_err(), "{bad}");
    }
}

#[test]
fn what_is_kept_goes_back_to_what_was_there_first() {
    let entry = |original, ours| Entry {
        on: On::Machine,
        original: Setting::new(Knob::DirtyRatio, original),
        ours: vec![Setting::new(Knob::DirtyRatio, ours)],
    };
    let mut kept = Vec::new();
    plan::keep(&mut kept, vec![entry(20, 30)]);
    plan::keep(&mut kept, vec![entry(30, 40)]);
    assert_eq!(kept, [entry(20, 40)]);
    // Somebody else came between: theirs is what was there.
    plan::keep(&mut kept, vec![entry(25, 35)]);
    assert_eq!(kept, [entry(25, 35)]);
    // Back to the original: nothing is kept.
    plan::keep(&mut kept, vec![entry(35, 25)]);
    assert_eq!(kept, []);
}
