//! The ledger as parts: every sector in exactly one, with who can act on it.

use super::{
    evidence::Device,
    findings::Part,
    lever::Lever,
    reach::{self, Facts, Reach},
    why,
};
use crate::attribute::summary::apportion;

/// All sectors of a device, largest part first.
pub fn parts(device: &Device) -> Vec<Part> {
    let facts = Facts::of(device);
    let mut parts: Vec<Part> = device
        .rows
        .iter()
        .filter(|row| row.sectors > 0)
        .map(|row| {
            let (levers, known) = match reach::of(row, facts) {
                Reach::Known(levers) => (levers, true),
                Reach::Unknown => (Vec::new(), false),
            };
            let cause = why::of(row, device);
            Part {
                path: row.path.clone(),
                trigger: row.trigger.clone(),
                sectors: row.sectors,
                tenths: 0,
                levers,
                known,
                why: cause.text,
                by: cause.by,
                file: cause.file,
                every_s: cause.every_s,
            }
        })
        .collect();
    let seen = sum(parts.iter());
    if device.sectors_written > seen {
        let filtered = !device.filters.is_empty();
        parts.push(Part {
            path: if filtered { "filtered" } else { "residual" }.to_owned(),
            trigger: "unknown".to_owned(),
            sectors: device.sectors_written - seen,
            tenths: 0,
            levers: Vec::new(),
            known: false,
            why: if filtered {
                format!(
                    "left out by the trace's filters: {}",
                    device.filters.join(" ")
                )
            } else {
                "in no row of the ledger".to_owned()
            },
            by: None,
            file: None,
            every_s: None,
        });
    }
    parts.sort_by(|a, b| {
        let key = |part: &Part| (part.path.clone(), part.trigger.clone());
        b.sectors.cmp(&a.sectors).then_with(|| key(a).cmp(&key(b)))
    });
    let weights: Vec<u64> = parts.iter().map(|part| part.sectors).collect();
    if weights.iter().any(|weight| *weight > 0) {
        for (part, tenths) in parts.iter_mut().zip(apportion(1000, &weights)) {
            part.tenths = tenths;
        }
    }
    parts
}

/// Sectors of some parts.
pub fn sum<'a>(parts: impl Iterator<Item = &'a Part>) -> u64 {
    parts.fold(0, |sum, part| sum.saturating_add(part.sectors))
}

/// Sectors that at least one of these can act on.
pub fn reached_by(parts: &[Part], levers: &[Lever]) -> u64 {
    let own = parts
        .iter()
        .filter(|part| part.levers.iter().any(|own| levers.contains(own)));
    sum(own)
}
