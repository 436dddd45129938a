//! What an experiment measured, beside what the ceilings allow.

use super::{
    evidence::Profile,
    findings::{Finding, Measured},
    lever::Lever,
    say,
    scene::Scene,
    table,
};
use crate::stats;

/// What a profile of an experiment measured for a lever that it moved.
pub fn of_profile(scene: &Scene<'_>, lever: Lever, profile: &Profile) -> Option<Measured> {
    let mut moved = profile
        .changed
        .iter()
        .filter_map(|(knob, value)| Some((Lever::of(*knob)?, *value)));
    let value = moved.clone().find(|(of, _)| *of == lever)?.1;
    let levers: Vec<Lever> = moved.by_ref().map(|(of, _)| of).collect();
    let written = scene.device.sectors_written;
    let ceiling = table::reached_by(scene.parts, &levers)
        .saturating_add(scene.indirect(&levers))
        .min(written);
    let stats::Change { change, interval } = stats::change(&profile.base_rates, &profile.rates)?;
    // The least that was saved, as far as the blocks can tell.
    let saved = -interval.map_or(change, |(_, high)| high);
    let share = ceiling as f64 / written.max(1) as f64;
    Some(Measured {
        profile: profile.name.clone(),
        value,
        alone: levers.iter().all(|of| *of == lever),
        blocks: (profile.rates.len(), profile.base_rates.len()),
        change,
        interval,
        ceiling,
        contradicts: saved > share + 1e-9,
    })
}

/// Every profile that saved more than its knobs can act on, once.
pub fn contradictions(findings: &[Finding], written: u64) -> Vec<String> {
    let mut found: Vec<String> = findings
        .iter()
        .flat_map(|finding| &finding.measured)
        .filter(|measured| measured.contradicts)
        .map(|measured| say::contradiction(measured, written))
        .collect();
    found.sort();
    found.dedup();
    found
}
