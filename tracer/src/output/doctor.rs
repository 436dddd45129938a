//! What `doctor` found, as people and programs read it. Pure: the values are
//! gathered elsewhere; what follows from them for each answer is judged here.

use super::wrap;
use crate::plan::{Answer, Kind};
use serde::Serialize;
use std::io::{self, Write};

/// The schema of [`json`].
pub const SCHEMA: &str = "writepath.doctor/1";

/// How a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Nothing is lost.
    Ok,
    /// Tracing is possible, and less precise.
    Lost,
    /// Tracing is not possible.
    Unable,
}

impl State {
    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Lost => "lost",
            Self::Unable => "unable",
        }
    }

    /// Its mark at the start of a line.
    fn mark(self) -> char {
        match self {
            Self::Ok => ' ',
            Self::Lost => '-',
            Self::Unable => '!',
        }
    }
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// What.
    pub name: &'static str,
    /// How it came out.
    pub state: State,
    /// What was found.
    pub found: String,
    /// What is lost for it.
    pub lost: Option<String>,
    /// What to do.
    pub advice: Option<String>,
    /// Answers that lose it.
    pub answers: &'static [Answer],
}

impl Check {
    /// A check that lost nothing.
    pub fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self {
            name,
            state: State::Ok,
            found: found.into(),
            lost: None,
            advice: None,
            answers: &[],
        }
    }

    /// A check that makes answers less precise.
    pub fn lost(
        name: &'static str,
        found: impl Into<String>,
        lost: &str,
        advice: &str,
        answers: &'static [Answer],
    ) -> Self {
        Self {
            state: State::Lost,
            lost: Some(lost.to_owned()),
            advice: Some(advice.to_owned()),
            answers,
            ..Self::ok(name, found)
        }
    }

    /// A check without which there is no tracing.
    pub fn unable(name: &'static str, found: impl Into<String>, advice: &str) -> Self {
        Self {
            state: State::Unable,
            advice: Some(advice.to_owned()),
            ..Self::ok(name, found)
        }
    }
}

/// One hook of the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookLine {
    /// Its name.
    pub name: &'static str,
    /// The answer that depends on it.
    pub answer: Answer,
    /// Nothing works without it.
    pub required: bool,
    /// How it is attached, or would be, and to which event; none when lost.
    pub by: Option<(Kind, &'static str)>,
    /// What is lost without it.
    pub lost: &'static str,
    /// Why better alternatives were passed over.
    pub why: Vec<String>,
}

/// Everything that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnosis {
    /// The kernel's release.
    pub kernel: String,
    /// Hardware name.
    pub machine: String,
    /// What was looked at.
    pub checks: Vec<Check>,
    /// Hooks of the plan; empty where it could not be made.
    pub hooks: Vec<HookLine>,
    /// Whether the programs were really loaded and attached.
    pub tried: bool,
}

/// What becomes of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerLine {
    /// The answer.
    pub answer: Answer,
    /// Nothing is lost; none where it is not known.
    pub complete: Option<bool>,
    /// What is lost.
    pub lost: Vec<String>,
}

const ANSWERS: [Answer; 7] = [
    Answer::Sectors,
    Answer::Paths,
    Answer::Triggers,
    Answer::Files,
    Answer::Dirtiers,
    Answer::Commits,
    Answer::Writes,
];

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Raw => "raw",
        Kind::Plain => "plain",
    }
}

impl Diagnosis {
    /// Whether `trace` can work here.
    pub fn able(&self) -> bool {
        self.checks.iter().all(|check| check.state != State::Unable)
            && !self.hooks.is_empty()
            && self
                .hooks
                .iter()
                .all(|hook| hook.by.is_some() || !hook.required)
    }

    /// What becomes of each answer.
    pub fn answers(&self) -> Vec<AnswerLine> {
        ANSWERS
            .into_iter()
            .map(|answer| {
                let hooks = self.hooks.iter().filter(|hook| hook.by.is_none());
                let hooks = hooks.filter(|hook| hook.answer == answer);
                let checks = self.checks.iter();
                let checks = checks.filter(|check| check.answers.contains(&answer));
                let mut lost: Vec<String> = hooks.map(|hook| hook.lost.to_owned()).collect();
                lost.extend(checks.filter_map(|check| check.lost.clone()));
                let mut seen = Vec::new();
                lost.retain(|text| {
                    let new = !seen.contains(text);
                    seen.push(text.clone());
                    new
                });
                AnswerLine {
                    answer,
                    complete: self.tried.then_some(self.able() && lost.is_empty()),
                    lost,
                }
            })
            .collect()
    }
}

/// Writes the text.
pub fn text(out: &mut dyn Write, found: &Diagnosis) -> io::Result<()> {
    writeln!(out, "Linux {} on {}\n", found.kernel, found.machine)?;
    for check in &found.checks {
        let head = format!("{} {:<14}", check.state.mark(), check.name);
        wrap::write(out, &head, &check.found)?;
        if let Some(lost) = &check.lost {
            wrap::write(out, &format!("{:16}lost: ", ""), lost)?;
        }
        if let Some(advice) = &check.advice {
            wrap::write(out, &format!("{:16}do: ", ""), advice)?;
        }
    }
    hooks(out, found)?;
    writeln!(out, "\nanswers")?;
    for line in found.answers() {
        let head = format!("  {:<14}", line.answer.name());
        match (line.complete, line.lost.is_empty()) {
            (None, _) => writeln!(out, "{head}not known: the programs were not tried")?,
            (Some(true), _) => writeln!(out, "{head}complete")?,
            (Some(false), true) => writeln!(out, "{head}none")?,
            (Some(false), false) => {
                for lost in &line.lost {
                    wrap::write(out, &format!("{head}lost: "), lost)?;
                }
            }
        }
    }
    let verdict = if found.able() {
        "tracing is possible"
    } else {
        "tracing is NOT possible"
    };
    writeln!(out, "\n{verdict}")
}

fn hooks(out: &mut dyn Write, found: &Diagnosis) -> io::Result<()> {
    if found.hooks.is_empty() {
        return writeln!(out, "\nhooks: not known");
    }
    let held = found.hooks.iter().filter(|hook| hook.by.is_some()).count();
    let how = if found.tried {
        "attached (to no device, and detached again)"
    } else {
        "planned, not tried"
    };
    writeln!(out, "\nhooks: {held} of {} {how}", found.hooks.len())?;
    for hook in &found.hooks {
        if let Some((by, event)) = hook.by {
            writeln!(out, "  {:<34} {:<6} {event}", hook.name, kind(by))?;
        } else {
            let mark = if hook.required { '!' } else { '-' };
            writeln!(out, "{mark} {:<34} missing", hook.name)?;
            wrap::write(out, "      lost: ", hook.lost)?;
        }
        for why in &hook.why {
            wrap::write(out, "      passed over: ", why)?;
        }
    }
    Ok(())
}

#[derive(Serialize)]
struct Object<'a> {
    schema: &'static str,
    kernel: &'a str,
    machine: &'a str,
    able: bool,
    tried: bool,
    checks: Vec<JsonCheck<'a>>,
    hooks: Vec<JsonHook<'a>>,
    answers: Vec<JsonAnswer>,
}

#[derive(Serialize)]
struct JsonCheck<'a> {
    check: &'a str,
    state: &'static str,
    found: &'a str,
    lost: Option<&'a str>,
    advice: Option<&'a str>,
}

#[derive(Serialize)]
struct JsonHook<'a> {
    hook: &'a str,
    answer: &'static str,
    required: bool,
    by: Option<&'static str>,
    event: Option<&'a str>,
    lost: Option<&'a str>,
    why: &'a [String],
}

#[derive(Serialize)]
struct JsonAnswer {
    answer: &'static str,
    complete: Option<bool>,
    lost: Vec<String>,
}

/// Writes one object and a new line.
pub fn json(out: &mut dyn Write, found: &Diagnosis) -> io::Result<()> {
    let checks = found.checks.iter().map(|check| JsonCheck {
        check: check.name,
        state: check.state.name(),
        found: &check.found,
        lost: check.lost.as_deref(),
        advice: check.advice.as_deref(),
    });
    let hooks = found.hooks.iter().map(|hook| JsonHook {
        hook: hook.name,
        answer: hook.answer.name(),
        required: hook.required,
        by: hook.by.map(|(by, _)| kind(by)),
        event: hook.by.map(|(_, event)| event),
        lost: hook.by.is_none().then_some(hook.lost),
        why: &hook.why,
    });
    let answers = found.answers().into_iter().map(|line| JsonAnswer {
        answer: line.answer.name(),
        complete: line.complete,
        lost: line.lost,
    });
    let object = Object {
        schema: SCHEMA,
        kernel: &found.kernel,
        machine: &found.machine,
        able: found.able(),
        tried: found.tried,
        checks: checks.collect(),
        hooks: hooks.collect(),
        answers: answers.collect(),
    };
    serde_json::to_writer(&mut *out, &object).map_err(io::Error::from)?;
    out.write_all(b"\n")
}
