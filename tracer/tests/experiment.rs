//! The tables and pictures of an experiment, from made results: what people
//! read, letter by letter, and what hostile or unusual results do to it.

use serde_json::{Value, json};
use writepath::{
    experiment::result::Experiment,
    output::{experiment, pictures},
};

/// A block of 360 s.
fn block(profile: &str, order: usize, mib_per_min: f64, residual: i64) -> Value {
    let sectors = (mib_per_min * 2048.0 * 6.0) as u64;
    let row = |path: &str, trigger: &str, part: u64| json!({"path": path, "trigger": trigger, "sectors": sectors * part / 20});
    json!({
        "profile": profile, "order": order, "settle_s": 70.0, "duration_s": 360.0,
        "sectors": sectors, "mib_per_min": mib_per_min,
        "dirty_before_bytes": 20 << 20, "dirty_after_bytes": 18 << 20,
        "windows": (1..=12).map(|n| json!({"t_s": 30 * n, "sectors": sectors / 12})).collect::<Vec<_>>(),
        "samples_file": format!("samples-{order}.jsonl"),
        "lost": {"ring": 0, "maps": 0},
        "trace": {
            "residual": residual, "sectors_unattributed": 0,
            "age_us": [{"path": "writeback", "p99": 31_000_000}],
            "paths": [
                row("writeback", "periodic", if profile == "commit-60" { 19 } else { 18 }),
                row("journal", "fsync", 1),
                row("journal", "timer", u64::from(profile != "commit-60")),
            ],
        },
    })
}

fn used(name: &str, expire: u64, interval: u64, commit: u64) -> Value {
    let knobs = json!({
        "vm.dirty_expire_centisecs": expire, "vm.dirty_writeback_centisecs": interval,
        "commit": commit,
    });
    json!({"name": name, "knobs": knobs, "nominal": knobs})
}

fn made(profiles: &[Value], blocks: &[Value]) -> Experiment {
    serde_json::from_value(json!({
        "schema": "writepath.experiment/1", "name": "emmc-dirty-tuning", "kernel": "6.1.0",
        "machine": {"arch": "x86_64", "cpus": 2, "memory_bytes": 4_u64 << 30, "device": "loop1"},
        "started_at": "2026-11-30T12:00:00Z", "seed": 7, "time_scale": 1, "cycles": 10,
        "as_ram_bytes": 1 << 30, "emulate": {"bytes_per_s": 30_000_000, "iops": null},
        "tbw_gib": 122_880.0,
        "workload": {"name": "iot-files", "place": "fixed", "files": 5000, "file_kib": 64,
                     "threads": 100, "period_s": 30.0, "account": null},
        "profiles": profiles, "blocks": blocks, "planned": blocks.len(),
    }))
    .unwrap()
}

fn text(experiment: &Experiment) -> String {
    let mut out = Vec::new();
    experiment::write(&mut out, experiment).unwrap();
    String::from_utf8(out).unwrap()
}

fn fits(text: &str) {
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "over 80 columns: {line}");
        assert!(!line.ends_with(' '), "ends in a blank: {line}");
    }
}

/// Three blocks of the published profiles.
fn published() -> Experiment {
    made(
        &[
            used("default", 3000, 500, 5),
            used("commit-60", 3000, 500, 60),
            used("coalescing", 10_000, 3000, 5),
        ],
        &[
            block("default", 0, 62.0, 0),
            block("coalescing", 1, 45.0, 0),
            block("commit-60", 2, 60.6, 0),
            block("commit-60", 3, 61.9, 0),
            block("default", 4, 63.5, 0),
            block("coalescing", 5, 45.5, 0),
            block("coalescing", 6, 44.8, 0),
            block("default", 7, 62.9, 0),
            block("commit-60", 8, 59.8, 0),
        ],
    )
}

#[test]
fn the_tables() {
    let found = text(&published());
    fits(&found);
    let expected = include_str!("fixtures/experiment/published.golden");
    assert!(
        found == expected,
        "another text than the golden one:\n{found}"
    );
}

#[test]
fn several_results_are_compared() {
    let mut later = published();
    later.time_scale = 5;
    for block in &mut later.blocks {
        block.mib_per_min *= 2.5;
    }
    let results = [("one".to_owned(), published()), ("two".to_owned(), later)];
    let mut out = Vec::new();
    experiment::compare(&mut out, &results).unwrap();
    let found = String::from_utf8(out).unwrap();
    fits(&found);
    assert_eq!(found.matches("−50.0 %").count(), 3, "{found}");
}

#[test]
fn residuals_of_blocks_do_not_cancel() {
    let found = text(&made(
        &[used("default", 3000, 500, 5)],
        &[
            block("default", 0, 62.0, 384),
            block("default", 1, 62.0, -384),
        ],
    ));
    assert!(found.contains("residual 768"), "{found}");
}

#[test]
fn names_cannot_reach_the_terminal() {
    let evil = "evil\u{1b}[31mX";
    let experiment = made(
        &[used("default", 3000, 500, 5), used(evil, 3000, 500, 5)],
        &[
            block("default", 0, 62.0, 0),
            block(evil, 1, 61.0, 0),
            block(evil, 2, 64.0, 0),
            block("default", 3, 62.5, 0),
        ],
    );
    let mut all = text(&experiment);
    for (_, svg) in pictures::draw(&experiment) {
        all.push_str(&svg);
    }
    assert!(!all.contains('\u{1b}'));
    assert!(all.contains("Not to be told from no change"));
}

#[test]
fn what_few_blocks_tell_is_said() {
    let profiles = [
        used("default", 3000, 500, 5),
        used("coalescing", 10_000, 3000, 5),
    ];
    let base = [block("default", 0, 62.0, 0), block("default", 1, 63.0, 0)];
    let one = block("coalescing", 2, 45.0, 0);
    let stopped = text(&made(
        &profiles,
        &[&base[..], std::slice::from_ref(&one)].concat(),
    ));
    assert!(stopped.contains("one block (coalescing)"), "{stopped}");
    let without_base = text(&made(&profiles, std::slice::from_ref(&one)));
    assert!(
        without_base.contains("one block (coalescing)"),
        "{without_base}"
    );
    assert!(!without_base.contains("default:"), "{without_base}");
    let two = text(&made(
        &profiles,
        &[&base[..], &[one, block("coalescing", 3, 140.0, 0)]].concat(),
    ));
    assert!(two.contains("Two blocks of a profile tell little"), "{two}");
    for found in [stopped, without_base, two] {
        fits(&found);
    }
}

#[test]
fn numbers_that_no_run_can_give_are_told() {
    assert!(published().is_plausible());
    for mib_per_min in [1e308, -1.0] {
        let mut experiment = published();
        experiment.blocks[0].mib_per_min = mib_per_min;
        assert!(!experiment.is_plausible());
    }
    let mut experiment = published();
    experiment.time_scale = 0;
    assert!(!experiment.is_plausible());
}

#[test]
fn pictures_have_a_bar_for_each_window_and_round_marks() {
    let experiment = published();
    let drawn = pictures::draw(&experiment);
    let windows = &drawn
        .iter()
        .find(|(name, _)| *name == "windows.svg")
        .unwrap()
        .1;
    // One rectangle is the background.
    assert_eq!(windows.matches("<rect").count(), 1 + 9 * 12);
    for (name, svg) in &drawn {
        for profile in &experiment.profiles {
            assert!(svg.contains(&profile.name), "{name}");
        }
        let labels = svg
            .split("</text>")
            .filter_map(|part| part.rsplit('>').next());
        for label in labels {
            let digits = label.split('.').nth(1).map_or(0, str::len);
            let number = label.parse::<f64>().is_ok();
            assert!(!number || digits <= 2, "{name}: {label}");
        }
    }
}
