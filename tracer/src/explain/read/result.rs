//! An experiment's result: blocks of one workload under several profiles.

use super::{JsonDevice, ReadError, device};
use crate::explain::evidence::{Device, Evidence, Profile, Source};
use crate::profile::{Knob, Values};
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
struct Object {
    #[serde(default)]
    kernel: String,
    #[serde(default)]
    profiles: Vec<JsonProfile>,
    #[serde(default)]
    blocks: Vec<Block>,
}

#[derive(Deserialize)]
struct JsonProfile {
    name: String,
    #[serde(default)]
    knobs: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
struct Block {
    profile: String,
    duration_s: f64,
    sectors: u64,
    trace: JsonDevice,
}

/// Reads `result.json`. The first profile that has a block is what the others
/// are compared with.
pub fn experiment(text: &[u8]) -> Result<Evidence, ReadError> {
    let object: Object = serde_json::from_slice(text)?;
    let mut blocks: BTreeMap<String, (Vec<f64>, Device)> = BTreeMap::new();
    for block in object.blocks {
        if !(block.duration_s > 0.0 && block.duration_s.is_finite()) {
            continue;
        }
        let rate = block.sectors as f64 / block.duration_s;
        let one = device(block.trace, block.duration_s);
        match blocks.get_mut(&block.profile) {
            Some((rates, sum)) => {
                rates.push(rate);
                sum.absorb(one);
            }
            None => {
                blocks.insert(block.profile, (vec![rate], one));
            }
        }
    }
    let named = |profile: &JsonProfile| -> Values {
        let knobs = profile.knobs.iter();
        knobs
            .filter_map(|(name, value)| Some((Knob::from_name(name)?, *value)))
            .collect()
    };
    let mut found = object
        .profiles
        .iter()
        .filter_map(|profile| Some((profile, blocks.remove(&profile.name)?)));
    let (base, (base_rates, mut first)) = found.next().ok_or(ReadError::NoBlock)?;
    let base_knobs = named(base);
    // The profile says what was in force where the trace does not.
    for (knob, value) in &base_knobs {
        first.knobs.entry(*knob).or_insert(*value);
    }
    let profiles = found
        .map(|(profile, (rates, device))| Profile {
            name: profile.name.clone(),
            changed: named(profile)
                .into_iter()
                .filter(|(knob, value)| base_knobs.get(knob) != Some(value))
                .collect(),
            rates,
            base_rates: base_rates.clone(),
            device,
        })
        .collect();
    Ok(Evidence {
        source: Source::Experiment,
        kernel: object.kernel,
        devices: vec![first],
        profiles,
        base: Some(base.name.clone()),
        writes: None,
    })
}
