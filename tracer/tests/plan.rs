//! The attach plan over the tracepoint formats of real kernels: which
//! alternative each of them gets, and whether every field is found that the
//! programs read.

use std::{
    collections::{BTreeSet, HashMap},
    fmt::Write,
    fs,
    path::Path,
};
use tracer_common::{FIELDS, btf};
use writepath::{
    layout::format::Format,
    plan::{self, Facts, Kind, SEES_BIOS},
};

/// Kernels and the members of structures that they lack: before 5.12 a bio
/// has `bi_disk` instead of `bi_bdev`, before 5.15 a queue has no `disk`.
const KERNELS: [(&str, &[usize]); 7] = [
    ("5.10", &[btf::BIO_BDEV, btf::QUEUE_DISK]),
    ("6.1", &[]),
    ("6.1-arm64", &[]),
    ("6.1-armhf", &[]),
    ("6.12", &[]),
    ("6.18", &[]),
    ("7.2", &[]),
];

/// What a kernel told when its fixture was made.
struct Fixture {
    events: HashMap<String, Format>,
    arguments: HashMap<String, Vec<Option<String>>>,
    lacks: &'static [usize],
    /// Whether the kernel's symbols tell which bios are of direct I/O.
    direct: bool,
}

impl Fixture {
    fn read(kernel: &str, lacks: &'static [usize]) -> Self {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/plan");
        let text = fs::read_to_string(dir.join(format!("{kernel}.txt"))).unwrap();
        let mut fixture = Self {
            events: HashMap::new(),
            arguments: HashMap::new(),
            lacks,
            direct: false,
        };
        for part in text.split("\n== ").skip(1) {
            let (event, body) = part.split_once('\n').unwrap();
            if let Some(list) = body.lines().find_map(|line| line.strip_prefix("args: ")) {
                let arguments = list.split(", ").map(structure).collect();
                fixture.arguments.insert(event.to_owned(), arguments);
            }
            fixture.events.insert(event.to_owned(), Format::parse(body));
        }
        fixture
    }

    fn has_btf(&self) -> bool {
        !self.arguments.is_empty()
    }

    fn missing_fields(&self) -> Vec<String> {
        FIELDS
            .iter()
            .filter(|(event, field)| {
                let format = self.events.get(*event);
                format.and_then(|format| format.field(field)).is_none()
            })
            .map(|(event, field)| format!("{event} {field}"))
            .collect()
    }
}

/// `struct bio *` is a pointer to a `bio`; anything else is no structure.
fn structure(argument: &str) -> Option<String> {
    let name = argument.strip_prefix("struct ")?.strip_suffix(" *")?;
    Some(name.to_owned())
}

impl Facts for Fixture {
    fn has_event(&self, event: &str) -> bool {
        self.events.contains_key(event)
    }

    fn has_fields(&self, event: &str) -> bool {
        FIELDS
            .iter()
            .filter(|(owner, _)| *owner == event)
            .all(|(_, field)| self.events[event].field(field).is_some())
    }

    fn has_member(&self, index: usize) -> bool {
        self.has_btf() && !self.lacks.contains(&index)
    }

    fn direct_is_told(&self) -> bool {
        self.direct
    }

    fn arguments(&self, event: &str) -> Option<Vec<Option<String>>> {
        self.arguments.get(event).cloned()
    }
}

fn fixtures() -> Vec<(&'static str, Fixture)> {
    KERNELS
        .into_iter()
        .map(|(kernel, lacks)| (kernel, Fixture::read(kernel, lacks)))
        .collect()
}

#[test]
fn every_field_is_found_where_its_event_is() {
    for (kernel, fixture) in fixtures() {
        let missing = fixture.missing_fields();
        let dio = ["dev", "ino", "count"].map(|field| format!("iomap/iomap_dio_rw_begin {field}"));
        let old = kernel == "5.10" || kernel == "6.1" || kernel.starts_with("6.1-");
        let expected: &[String] = if old { &dio } else { &[] };
        assert_eq!(missing, expected, "{kernel}");
    }
}

#[test]
fn each_kernel_gets_its_best_alternatives() {
    let mut table = String::new();
    let fixtures = fixtures();
    for hook in plan::HOOKS.iter().chain(plan::WRITES) {
        writeln!(table, "{}", hook.name).unwrap();
        let mut chosen: Vec<(String, Vec<&str>)> = Vec::new();
        for (kernel, fixture) in &fixtures {
            let mut steps = plan::make(fixture);
            steps.extend(plan::writes(fixture));
            let step = steps.iter().find(|step| step.hook.name == hook.name);
            let what = match step {
                None => "not needed".to_owned(),
                Some(step) => match step.candidates.first() {
                    None => format!("missing: {}", step.passed_over.join("; ")),
                    Some(best) if step.passed_over.is_empty() => best.program.to_owned(),
                    Some(best) => format!("{}: {}", best.program, step.passed_over.join("; ")),
                },
            };
            match chosen.iter_mut().find(|(known, _)| *known == what) {
                Some((_, kernels)) => kernels.push(kernel),
                None => chosen.push((what, vec![kernel])),
            }
        }
        for (what, kernels) in chosen {
            let all = kernels.len() == fixtures.len();
            let who = if all {
                "all".to_owned()
            } else {
                kernels.join(" ")
            };
            writeln!(table, "  {who}: {what}").unwrap();
        }
    }
    let golden = include_str!("fixtures/plan/chosen.golden");
    assert!(table == golden, "the plan has changed:\n{table}");
}

#[test]
fn what_is_required_is_there_everywhere() {
    for (kernel, fixture) in fixtures() {
        for step in plan::make(&fixture) {
            assert!(
                !step.hook.required || !step.candidates.is_empty(),
                "{kernel}: {}",
                step.hook.name
            );
        }
    }
}

#[test]
fn direct_io_needs_no_hook_where_bios_tell_it() {
    for (kernel, mut fixture) in fixtures() {
        let without = |fixture: &Fixture| {
            let steps = plan::make(fixture);
            let unneeded = steps.iter().filter_map(|step| step.unless);
            unneeded.filter(|name| *name == SEES_BIOS).count()
        };
        assert_eq!(without(&fixture), 0, "{kernel}");
        fixture.direct = true;
        // Of 5.10's bio and of kernels without types the plain program tells
        // nothing but the record.
        let sees_bios = fixture.has_btf() && !fixture.lacks.contains(&btf::BIO_BDEV);
        let dio = fixture.has_event("iomap/iomap_dio_rw_begin");
        let hooks = if dio { 1 } else { 2 };
        let expected = if sees_bios { hooks } else { 0 };
        assert_eq!(without(&fixture), expected, "{kernel}");
    }
}

#[test]
fn without_types_only_plain_tracepoints_take_arguments() {
    let fixture = Fixture::read("6.1-armhf", &[]);
    for step in plan::make(&fixture) {
        for candidate in &step.candidates {
            let blind = candidate.members.is_empty() && candidate.arguments.is_empty();
            assert!(
                candidate.kind == Kind::Plain || blind,
                "{}",
                candidate.program
            );
        }
    }
}

#[test]
fn fixtures_hold_the_events_of_the_plan_and_no_others() {
    let hooks = plan::HOOKS.iter().chain(plan::WRITES);
    let hooks = hooks.flat_map(|hook| hook.candidates);
    let events = hooks.flat_map(|candidate| candidate.events.iter().copied());
    let used: BTreeSet<&str> = events
        .chain(FIELDS.iter().map(|(event, _)| *event))
        .collect();
    let newest = Fixture::read("7.2", &[]);
    let held: BTreeSet<&str> = newest.events.keys().map(String::as_str).collect();
    assert_eq!(held, used);
}

#[test]
fn reasons_have_the_names_of_their_kernel() {
    let reason = |kernel: &str, value: u64| {
        let fixture = Fixture::read(kernel, &[]);
        let names = fixture.events["writeback/writeback_start"].symbols("reason");
        names
            .into_iter()
            .find(|(code, _)| *code == value)
            .map(|(_, name)| name)
    };
    for (kernel, _) in KERNELS {
        assert_eq!(reason(kernel, 3).as_deref(), Some("periodic"), "{kernel}");
    }
    assert_eq!(reason("5.10", 7), None);
    assert_eq!(reason("6.1", 7).as_deref(), Some("foreign_flush"));
    assert_eq!(reason("7.2", 7).as_deref(), Some("dontcache"));
}
