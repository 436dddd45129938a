//! Pictures of an experiment, as SVG: what people would rather look at.

use super::escape::terminal;
use crate::experiment::result::Experiment;
use std::{collections::BTreeMap, fmt::Write};

const WIDTH: f64 = 800.0;
const LEFT: f64 = 190.0;
const RIGHT: f64 = 20.0;
/// Colours that the colour-blind can tell apart (Okabe and Ito).
const COLOURS: [&str; 8] = [
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#999999",
];

/// All pictures, by name of file.
pub fn draw(experiment: &Experiment) -> Vec<(&'static str, String)> {
    vec![
        ("paths.svg", paths(experiment)),
        ("windows.svg", windows(experiment)),
    ]
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    let words = terminal(words.as_bytes())
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    // Writing to a String cannot fail.
    let _ = writeln!(
        svg,
        r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{words}</text>"#
    );
}

fn bar(svg: &mut String, (x, y): (f64, f64), (width, height): (f64, f64), colour: &str) {
    let _ = writeln!(
        svg,
        r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.2}" height="{height:.1}" fill="{colour}"/>"#
    );
}

fn frame(height: f64, body: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"{WIDTH}\" \
         height=\"{height}\" fill=\"white\"/>\n{body}</svg>\n"
    )
}

/// A step of 1, 2 or 5 by a power of ten, for about five marks.
fn step(most: f64) -> f64 {
    let rough = (most / 5.0).max(1e-9);
    let power = 10_f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|f| f * power >= rough);
    factor.unwrap_or(10.0) * power
}

fn axis(svg: &mut String, most: f64, top: f64, bottom: f64, unit: &str) {
    let scale = (WIDTH - LEFT - RIGHT) / most;
    let step = step(most);
    // As many digits as the step needs; marks are multiples, not sums.
    let digits = (-step.log10().floor()).max(0.0) as usize;
    for index in 0..=(most / step * 1.0001) as u32 {
        let mark = f64::from(index) * step;
        let x = LEFT + mark * scale;
        let _ = writeln!(
            svg,
            r##"<line x1="{x:.1}" y1="{top}" x2="{x:.1}" y2="{bottom}" stroke="#ddd"/>"##
        );
        text(svg, x, bottom + 16.0, "middle", &format!("{mark:.digits$}"));
    }
    text(svg, WIDTH - RIGHT, bottom + 32.0, "end", unit);
}

/// MiB a minute by path, a bar for each profile.
fn paths(experiment: &Experiment) -> String {
    let scale_k = f64::from(experiment.time_scale.max(1));
    let mut rows = Vec::new();
    let mut names: BTreeMap<String, f64> = BTreeMap::new();
    for used in &experiment.profiles {
        let mut by_path: BTreeMap<String, f64> = BTreeMap::new();
        for ((path, trigger), sectors) in experiment.by_path(&used.name) {
            let mib = sectors / 2048.0 / scale_k;
            let name = match path.as_str() {
                "journal" => format!("journal {trigger}"),
                _ => path,
            };
            *by_path.entry(name.clone()).or_default() += mib;
            *names.entry(name).or_default() += mib;
        }
        if !by_path.is_empty() {
            rows.push((used.name.clone(), by_path));
        }
    }
    let mut names: Vec<(String, f64)> = names.into_iter().collect();
    names.sort_by(|a, b| b.1.total_cmp(&a.1));
    let most = rows.iter().map(|(_, paths)| paths.values().sum::<f64>());
    let most = most.fold(1e-9, f64::max);
    let bottom = 20.0 + rows.len() as f64 * 34.0;
    let mut svg = String::new();
    axis(&mut svg, most, 12.0, bottom, "MiB/min by path");
    for (index, (name, by_path)) in rows.iter().enumerate() {
        let y = 18.0 + index as f64 * 34.0;
        text(&mut svg, LEFT - 8.0, y + 17.0, "end", name);
        let mut x = LEFT;
        for (colour, (path, _)) in names.iter().enumerate() {
            let width =
                by_path.get(path).copied().unwrap_or_default() / most * (WIDTH - LEFT - RIGHT);
            bar(&mut svg, (x, y), (width, 24.0), COLOURS[colour.min(7)]);
            x += width;
        }
    }
    let mut y = bottom + 34.0;
    for (colour, (path, _)) in names.iter().enumerate() {
        let x = LEFT + (colour % 3) as f64 * 200.0;
        bar(&mut svg, (x, y), (12.0, 12.0), COLOURS[colour.min(7)]);
        text(&mut svg, x + 18.0, y + 11.0, "start", path);
        if colour % 3 == 2 {
            y += 20.0;
        }
    }
    frame(y + 30.0, &svg)
}

/// MiB of each window over time, a row for each block.
fn windows(experiment: &Experiment) -> String {
    const ROW: f64 = 64.0;
    let lasts = experiment.blocks.iter().map(|block| block.duration_s);
    let lasts = lasts.fold(1.0, f64::max);
    let mib = |sectors: u64| sectors as f64 / 2048.0;
    let all = experiment.blocks.iter().flat_map(|block| &block.windows);
    let most = all.map(|window| mib(window.sectors)).fold(1e-9, f64::max);
    let bottom = 20.0 + experiment.blocks.len() as f64 * ROW;
    let mut svg = String::new();
    axis(&mut svg, lasts, 12.0, bottom, "seconds of the block");
    for (index, block) in experiment.blocks.iter().enumerate() {
        let floor = 12.0 + (index + 1) as f64 * ROW;
        let label = format!("{}. {}", block.order + 1, block.profile);
        text(&mut svg, LEFT - 8.0, floor - 24.0, "end", &label);
        text(
            &mut svg,
            LEFT - 8.0,
            floor - 8.0,
            "end",
            &format!("up to {most:.1} MiB"),
        );
        let mut from = 0.0;
        for window in &block.windows {
            let at = |t: f64| LEFT + t / lasts * (WIDTH - LEFT - RIGHT);
            let height = mib(window.sectors) / most * (ROW - 12.0);
            let width = (at(window.t_s) - at(from) - 1.0).max(0.5);
            bar(
                &mut svg,
                (at(from), floor - height),
                (width, height),
                COLOURS[0],
            );
            from = window.t_s;
        }
    }
    frame(bottom + 44.0, &svg)
}
