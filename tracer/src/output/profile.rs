//! Profiles and what is in force, as people and programs read it. Pure.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use serde::Serialize;

use super::{escape, wrap};
use crate::profile::{Exposure, Finding, Knob, Profile, Value, Values, file::to_toml};

/// The schema of [`list_json`].
pub const LIST_SCHEMA: &str = "writepath.profiles/1";
/// The schema of [`show_json`].
pub const SHOW_SCHEMA: &str = "writepath.profile/1";
/// The schema of [`active_json`].
pub const ACTIVE_SCHEMA: &str = "writepath.active/1";

/// A profile as it is shown, with what was made of it.
#[derive(Debug, Clone)]
pub struct Shown {
    /// After turning ratios to bytes and dividing times.
    pub profile: Profile,
    /// The memory that ratios were turned into bytes of.
    pub as_ram_bytes: Option<u64>,
    /// What times were divided by.
    pub time_scale: u32,
    /// What is wrong with it, before dividing.
    pub findings: Vec<Finding>,
}

/// A value somewhere: on the machine where neither of the two is named.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Where {
    /// Mount point of the filesystem.
    pub mount: Option<Vec<u8>>,
    /// Number of the device.
    pub dev: Option<String>,
}

impl Where {
    fn say(&self) -> String {
        let mount = self.mount.as_ref();
        let mount = mount.map(|mount| format!(" on {}", escape::terminal(mount)));
        let dev = self.dev.as_ref().filter(|_| mount.is_none());
        mount
            .or_else(|| dev.map(|dev| format!(" of {dev}")))
            .unwrap_or_default()
    }
}

/// A value that was changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// On what.
    pub on: Where,
    /// What was there.
    pub from: (Knob, Value),
    /// What is there now.
    pub to: (Knob, Value),
}

/// A profile that is in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Match {
    /// Its name.
    pub name: String,
    /// Mount points of the filesystems whose values are its own too.
    pub mounts: Vec<Vec<u8>>,
}

/// What is in force.
#[derive(Debug, Clone, Default)]
pub struct Active {
    /// Of the machine.
    pub machine: Values,
    /// Of filesystems: mount point, knob and value.
    pub filesystems: Vec<(Vec<u8>, Knob, Value)>,
    /// The profiles that this is.
    pub profiles: Vec<Match>,
    /// The process that tunes, and what it has changed.
    pub run: Option<(u32, Vec<Changed>)>,
    /// What was left in force on purpose.
    pub kept: Vec<Changed>,
    /// Whether run and kept could be looked at, which takes root.
    pub looked: bool,
}

impl Active {
    fn exposure(&self) -> Exposure {
        let commits = self.filesystems.iter();
        let most = commits
            .filter(|(_, knob, _)| *knob == Knob::Commit)
            .map(|(_, _, value)| *value)
            .max();
        let mut values = self.machine.clone();
        values.extend(most.map(|value| (Knob::Commit, value)));
        Exposure::of(&values)
    }
}

/// The profiles, a line each.
pub fn list(out: &mut dyn Write, profiles: &[Profile]) -> io::Result<()> {
    for profile in profiles {
        writeln!(out, "{:<22}{}", profile.name, profile.about)?;
    }
    Ok(())
}

/// One profile, as a file to start from.
pub fn show(out: &mut dyn Write, shown: &Shown) -> io::Result<()> {
    let profile = &shown.profile;
    if let Some(bytes) = shown.as_ram_bytes {
        writeln!(out, "# ratios as bytes of {} MiB of memory", bytes >> 20)?;
    }
    if shown.time_scale > 1 {
        writeln!(out, "# times divided by {}", shown.time_scale)?;
    }
    for line in to_toml(profile).lines() {
        let knob = line.split_once(" = ").and_then(|(n, _)| Knob::from_name(n));
        if let Some((knob, value)) = knob.and_then(|k| Some((k, profile.values.get(&k)?))) {
            writeln!(out, "# {}: {}", knob.unit().say(*value), knob.about())?;
        }
        writeln!(out, "{line}")?;
    }
    for line in risk(Exposure::of(&profile.values)) {
        writeln!(out, "# {line}")?;
    }
    for finding in &shown.findings {
        for line in wrap::lines(&say(finding), wrap::WIDTH - 2) {
            writeln!(out, "# {line}")?;
        }
    }
    Ok(())
}

/// What is in force.
pub fn active(out: &mut dyn Write, active: &Active) -> io::Result<()> {
    for (knob, value) in &active.machine {
        let said = knob.unit().say(*value);
        writeln!(out, "{:<30}{value:>14}  {said}", knob.name())?;
    }
    for (mount, knob, value) in &active.filesystems {
        let said = knob.unit().say(*value);
        let mount = escape::terminal(mount);
        writeln!(out, "{:<30}{value:>14}  {said} on {mount}", knob.name())?;
    }
    writeln!(out)?;
    for found in &active.profiles {
        let some = (found.mounts.len() < active.filesystems.len()).then(|| {
            let mounts: Vec<String> = found.mounts.iter().map(|m| escape::terminal(m)).collect();
            format!(" (on {})", mounts.join(", "))
        });
        writeln!(out, "profile: {}{}", found.name, some.unwrap_or_default())?;
    }
    if active.profiles.is_empty() {
        writeln!(out, "profile: none that is built in")?;
    }
    for line in risk(active.exposure()) {
        writeln!(out, "{line}")?;
    }
    match &active.run {
        Some((pid, changes)) => {
            writeln!(out, "tuning run: process {pid}")?;
            changed(out, changes)?;
        }
        None if active.looked => writeln!(out, "tuning run: none")?,
        None => writeln!(out, "tuning run: not known, which takes root")?,
    }
    if !active.kept.is_empty() {
        writeln!(out, "kept; `writepath profile restore` undoes it:")?;
        changed(out, &active.kept)?;
    }
    Ok(())
}

fn changed(out: &mut dyn Write, changes: &[Changed]) -> io::Result<()> {
    for Changed { on, from, to } in changes {
        writeln!(
            out,
            "  {} → {}{}",
            from.0.with(from.1),
            to.0.with(to.1),
            on.say()
        )?;
    }
    Ok(())
}

fn risk(exposure: Exposure) -> Vec<String> {
    let mut lines = vec![format!(
        "at risk at a power cut: data {}",
        exposure.say_data()
    )];
    if let Some(seconds) = exposure.metadata_s {
        lines.push(format!("at risk at a power cut: metadata {seconds} s"));
    }
    lines
}

/// A finding in one line.
pub fn say(finding: &Finding) -> String {
    format!(
        "{}: {}: {}",
        finding.severity.name(),
        finding.knob,
        finding.text
    )
}

#[derive(Serialize)]
struct JsonList {
    schema: &'static str,
    profiles: Vec<JsonProfile>,
}

#[derive(Serialize)]
struct JsonProfile {
    name: String,
    about: String,
    knobs: BTreeMap<&'static str, Value>,
    at_risk: JsonRisk,
}

#[derive(Serialize)]
struct JsonRisk {
    data_s: Option<f64>,
    metadata_s: Option<Value>,
}

#[derive(Serialize)]
struct JsonShown {
    schema: &'static str,
    #[serde(flatten)]
    profile: JsonProfile,
    as_ram_bytes: Option<u64>,
    time_scale: u32,
    findings: Vec<JsonFinding>,
}

#[derive(Serialize)]
struct JsonFinding {
    severity: &'static str,
    knob: &'static str,
    text: String,
}

#[derive(Serialize)]
struct JsonActive {
    schema: &'static str,
    knobs: BTreeMap<&'static str, Value>,
    filesystems: Vec<JsonFilesystem>,
    profiles: Vec<JsonMatch>,
    at_risk: JsonRisk,
    looked: bool,
    run: Option<JsonRun>,
    kept: Vec<JsonChange>,
}

#[derive(Serialize)]
struct JsonFilesystem {
    mount: String,
    knobs: BTreeMap<&'static str, Value>,
}

#[derive(Serialize)]
struct JsonMatch {
    name: String,
    mounts: Vec<String>,
}

#[derive(Serialize)]
struct JsonRun {
    pid: u32,
    changes: Vec<JsonChange>,
}

#[derive(Serialize)]
struct JsonChange {
    mount: Option<String>,
    dev: Option<String>,
    from: JsonSetting,
    to: JsonSetting,
}

#[derive(Serialize)]
struct JsonSetting {
    knob: &'static str,
    value: Value,
}

fn json_profile(profile: &Profile) -> JsonProfile {
    JsonProfile {
        name: profile.name.clone(),
        about: profile.about.clone(),
        knobs: json_knobs(&profile.values),
        at_risk: json_risk(Exposure::of(&profile.values)),
    }
}

fn json_knobs(values: &Values) -> BTreeMap<&'static str, Value> {
    values.iter().map(|(k, value)| (k.name(), *value)).collect()
}

fn json_risk(exposure: Exposure) -> JsonRisk {
    JsonRisk {
        data_s: exposure.data_cs.map(|cs| cs as f64 / 100.0),
        metadata_s: exposure.metadata_s,
    }
}

fn json_changes(changes: &[Changed]) -> Vec<JsonChange> {
    let setting = |(knob, value): (Knob, Value)| JsonSetting {
        knob: knob.name(),
        value,
    };
    let changes = changes.iter().map(|change| JsonChange {
        mount: change.on.mount.as_deref().map(lossy),
        dev: change.on.dev.clone(),
        from: setting(change.from),
        to: setting(change.to),
    });
    changes.collect()
}

fn lossy(bytes: &[u8]) -> String {
    escape::json(bytes).0
}

fn write(out: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)
}

/// The profiles as one object.
pub fn list_json(out: &mut dyn Write, profiles: &[Profile]) -> io::Result<()> {
    let list = JsonList {
        schema: LIST_SCHEMA,
        profiles: profiles.iter().map(json_profile).collect(),
    };
    write(out, &list)
}

/// One profile as one object.
pub fn show_json(out: &mut dyn Write, shown: &Shown) -> io::Result<()> {
    let findings = shown.findings.iter().map(|finding| JsonFinding {
        severity: finding.severity.name(),
        knob: finding.knob.name(),
        text: finding.text.clone(),
    });
    let json = JsonShown {
        schema: SHOW_SCHEMA,
        profile: json_profile(&shown.profile),
        as_ram_bytes: shown.as_ram_bytes,
        time_scale: shown.time_scale,
        findings: findings.collect(),
    };
    write(out, &json)
}

/// What is in force as one object.
pub fn active_json(out: &mut dyn Write, active: &Active) -> io::Result<()> {
    let filesystems = active.filesystems.iter();
    let json = JsonActive {
        schema: ACTIVE_SCHEMA,
        knobs: json_knobs(&active.machine),
        filesystems: filesystems
            .map(|(mount, knob, value)| JsonFilesystem {
                mount: lossy(mount),
                knobs: BTreeMap::from([(knob.name(), *value)]),
            })
            .collect(),
        profiles: active
            .profiles
            .iter()
            .map(|found| JsonMatch {
                name: found.name.clone(),
                mounts: found.mounts.iter().map(|mount| lossy(mount)).collect(),
            })
            .collect(),
        at_risk: json_risk(active.exposure()),
        looked: active.looked,
        run: active.run.as_ref().map(|(pid, changes)| JsonRun {
            pid: *pid,
            changes: json_changes(changes),
        }),
        kept: json_changes(&active.kept),
    };
    write(out, &json)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{builtin, builtins, lint, parse_toml};

    fn text(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn fits(text: &str) {
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }

    #[test]
    fn what_is_shown_is_a_file_to_start_from() {
        for profile in builtins() {
            let shown = Shown {
                findings: lint(&profile),
                profile: profile.as_ram(1 << 30).scaled(5).unwrap(),
                as_ram_bytes: Some(1 << 30),
                time_scale: 5,
            };
            let text = text(|out| show(out, &shown));
            fits(&text);
            assert_eq!(parse_toml(&text).unwrap(), shown.profile);
        }
        fits(&text(|out| list(out, &builtins())));
    }

    #[test]
    fn names_of_mounts_are_escaped() {
        let mount = b"/mnt/\x1b[31m\xff".to_vec();
        let mut values = builtin("default").unwrap().values;
        values.remove(&Knob::Commit);
        let change = Changed {
            on: Where {
                mount: Some(mount.clone()),
                dev: Some("7:0".to_owned()),
            },
            from: (Knob::Commit, 5),
            to: (Knob::Commit, 60),
        };
        let found = Active {
            machine: values,
            filesystems: vec![(mount, Knob::Commit, 60), (b"/".to_vec(), Knob::Commit, 5)],
            profiles: vec![Match {
                name: "default".to_owned(),
                mounts: vec![b"/".to_vec()],
            }],
            run: Some((7, vec![change.clone()])),
            kept: vec![change],
            looked: true,
        };
        let text = text(|out| active(out, &found));
        fits(&text);
        assert!(!text.contains('\x1b'), "{text}");
        assert!(text.contains("profile: default (on /)"), "{text}");
        assert!(text.contains("metadata 60 s"), "{text}");
        assert!(text.contains("commit=5 → commit=60 on /mnt/"), "{text}");
    }
}
