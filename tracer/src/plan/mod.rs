//! The attach plan: which program on which kernel hook, made from facts.
//!
//! A pure value. Every hook has alternatives in order; losing an optional
//! hook degrades an answer, and the plan says which. No kernel version is
//! ever compared: what is there is what counts.

mod hooks;
mod writes;

pub use hooks::{Answer, Candidate, HOOKS, Hook, Kind, SEES_BIOS};
pub use writes::WRITES;

/// What a plan is made from.
pub trait Facts {
    /// Whether tracefs has the event (`group/name`) with these fields.
    fn has_event(&self, event: &str) -> bool;
    /// Whether all fields of the event that the table names are there.
    fn has_fields(&self, event: &str) -> bool;
    /// Whether the member (an index of `BTF_MEMBERS`) was found.
    fn has_member(&self, index: usize) -> bool;
    /// Whether a bio of direct I/O tells its file by itself.
    fn direct_is_told(&self) -> bool;
    /// Arguments of the event's raw tracepoint, where BTF tells them.
    fn arguments(&self, event: &str) -> Option<Vec<Option<String>>>;
}

/// One hook as it will be attached.
#[derive(Debug, Clone)]
pub struct Step {
    /// The hook.
    pub hook: &'static Hook,
    /// Alternatives that this kernel allows, best first.
    pub candidates: Vec<&'static Candidate>,
    /// Why better alternatives were passed over.
    pub passed_over: Vec<String>,
    /// Not needed where the kernel takes this program.
    pub unless: Option<&'static str>,
}

/// All hooks of a traced run, in order of attachment.
pub fn make(facts: &dyn Facts) -> Vec<Step> {
    let mut steps: Vec<Step> = steps(HOOKS, facts);
    let sees_bios = steps
        .iter()
        .flat_map(|step| &step.candidates)
        .any(|candidate| candidate.program == SEES_BIOS);
    if sees_bios && facts.direct_is_told() {
        for step in &mut steps {
            step.unless = step.hook.for_direct.then_some(SEES_BIOS);
        }
    }
    steps
}

/// The hooks of a recording with every write, to be attached after those.
pub fn writes(facts: &dyn Facts) -> Vec<Step> {
    steps(WRITES, facts)
}

fn steps(hooks: &'static [Hook], facts: &dyn Facts) -> Vec<Step> {
    hooks
        .iter()
        .filter(|hook| !hook.unless.is_some_and(|event| facts.has_event(event)))
        .map(|hook| step(hook, facts))
        .collect()
}

fn step(hook: &'static Hook, facts: &dyn Facts) -> Step {
    let mut candidates = Vec::new();
    let mut passed_over = Vec::new();
    for candidate in hook.candidates {
        match refusal(candidate, facts) {
            None => candidates.push(candidate),
            Some(why) => passed_over.push(why),
        }
    }
    Step {
        hook,
        candidates,
        passed_over,
        unless: None,
    }
}

/// Why this kernel does not allow a candidate.
fn refusal(candidate: &Candidate, facts: &dyn Facts) -> Option<String> {
    for event in candidate.events {
        if !facts.has_event(event) {
            return Some(format!("no tracepoint {event}"));
        }
        match candidate.kind {
            Kind::Plain if !facts.has_fields(event) => {
                return Some(format!("{event} lacks a field"));
            }
            Kind::Plain => {}
            Kind::Raw => {
                if let Some(why) = refused_arguments(candidate, event, facts) {
                    return Some(why);
                }
            }
        }
    }
    candidate
        .members
        .iter()
        .find(|index| !facts.has_member(**index))
        .map(|index| {
            let (structure, member) = tracer_common::BTF_MEMBERS[*index];
            format!("BTF does not tell {structure}.{member}")
        })
}

fn refused_arguments(candidate: &Candidate, event: &str, facts: &dyn Facts) -> Option<String> {
    let Some(arguments) = facts.arguments(event) else {
        let needed = !candidate.arguments.is_empty();
        return needed.then(|| format!("BTF does not tell the arguments of {event}"));
    };
    candidate.arguments.iter().find_map(|(index, expected)| {
        let found = arguments.get(*index).cloned().flatten();
        (found.as_deref() != Some(*expected))
            .then(|| format!("argument {index} of {event} is not a struct {expected}"))
    })
}
