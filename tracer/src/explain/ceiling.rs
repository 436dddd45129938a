//! Ceilings: what each knob can act on.

use super::{
    evidence::{Device, Evidence, Profile},
    findings::{DeviceFindings, Explanation, Finding},
    lever::{Asked, Lever},
    measured, say,
    scene::Scene,
    table, value,
};

/// Explains evidence; `asked` are values whose ceilings the user wants.
pub fn explain(evidence: &Evidence, asked: &[Asked]) -> Explanation {
    let devices = evidence
        .devices
        .iter()
        .map(|device| of_device(device, evidence, asked))
        .collect();
    Explanation {
        source: evidence.source,
        kernel: evidence.kernel.clone(),
        profile: evidence.base.clone(),
        devices,
    }
}

fn of_device(device: &Device, evidence: &Evidence, asked: &[Asked]) -> DeviceFindings {
    let parts = table::parts(device);
    let scene = Scene::new(device, &parts, evidence.writes.as_ref());
    let profiles = &evidence.profiles;
    let findings: Vec<Finding> = Lever::ALL
        .iter()
        .map(|lever| {
            let mut finding = of_lever(&scene, *lever, profiles, asked);
            finding.sentence = say::of_lever(&scene, &finding);
            finding
        })
        .collect();
    let out_of_reach = parts
        .iter()
        .filter(|part| part.known && part.levers.is_empty());
    let out_of_reach = table::sum(out_of_reach);
    let not_known = table::sum(parts.iter().filter(|part| !part.known));
    DeviceFindings {
        name: device.name.clone(),
        dev: device.dev.clone(),
        duration_s: device.duration_s,
        sectors_written: device.sectors_written,
        out_of_reach,
        not_known,
        sentence: say::of_device(&scene),
        contradictions: measured::contradictions(&findings, device.sectors_written),
        notes: say::notes(&scene, not_known),
        findings,
        parts,
    }
}

fn of_lever(scene: &Scene<'_>, lever: Lever, profiles: &[Profile], asked: &[Asked]) -> Finding {
    let (knob, in_force) = lever.in_force(scene.device);
    let value = match lever {
        Lever::Commit => scene.commit_s,
        _ => in_force,
    };
    let written = scene.device.sectors_written;
    let ceiling = scene.reach(lever).min(written);
    Finding {
        lever,
        knob,
        value,
        ceiling,
        indirect: scene.indirect(&[lever]).min(written - ceiling),
        decided: scene.decided(lever),
        saturates_at: (lever == Lever::Commit)
            .then(|| scene.saturation())
            .flatten(),
        named: value::of_interest(scene, lever, value, profiles, asked),
        measured: profiles
            .iter()
            .filter_map(|profile| measured::of_profile(scene, lever, profile))
            .collect(),
        sentence: String::new(),
    }
}
