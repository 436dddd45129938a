//! Keeps the layers apart: the domain knows nothing of the kernel or of the
//! command line, only `kernel` knows aya, only `output` and `cli` print, and
//! only `session` and `cli` see both sides.

use std::{
    fs,
    path::{Path, PathBuf},
};

const PURE: &[&str] = &[
    "model",
    "decode",
    "experiment",
    "explain",
    "attribute",
    "layout",
    "plan",
    "recording",
    "output",
    "stats",
    "profile",
];
const FRONT: &[&str] = &["cli", "main"];

/// A source file: the layer that it belongs to, where it is, and its code
/// without comments.
struct Source {
    layer: String,
    path: PathBuf,
    code: String,
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    walk(&root, &root, &mut found);
    assert!(found.len() > 40, "sources were not found");
    found
}

fn walk(root: &Path, dir: &Path, found: &mut Vec<Source>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        // Tests of a module, in a file of their own, may say why they skip.
        if path.ends_with("tests.rs") {
            continue;
        }
        if path.is_dir() {
            walk(root, &path, found);
            continue;
        }
        let inside = path.strip_prefix(root).unwrap();
        let layer = inside.components().next().unwrap().as_os_str();
        let layer = layer.to_str().unwrap().trim_end_matches(".rs").to_owned();
        let text = fs::read_to_string(&path).unwrap();
        let code = text
            .lines()
            .map(|line| line.split("//").next().unwrap_or_default())
            .collect::<Vec<_>>()
            .join("\n");
        found.push(Source { layer, path, code });
    }
}

impl Source {
    fn is(&self, layers: &[&str]) -> bool {
        layers.contains(&self.layer.as_str())
    }

    /// Whether the code names a module of this crate: `crate::name`, or in a
    /// group `crate::{…, name::…}`.
    fn names_module(&self, name: &str) -> bool {
        let direct = ["::", ";", " "].map(|end| format!("crate::{name}{end}"));
        direct.iter().any(|text| self.code.contains(text))
            || self
                .code
                .split("crate::{")
                .skip(1)
                .any(|group| top_level(group).iter().any(|module| module == name))
    }

    /// Whether the code names a foreign crate.
    fn names_crate(&self, name: &str) -> bool {
        self.code.match_indices(name).any(|(at, _)| {
            let before = self.code[..at].chars().next_back();
            let after = &self.code[at + name.len()..];
            !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | ':'))
                && (after.starts_with("::") || after.starts_with(';'))
        })
    }

    /// Whether the code calls a macro.
    fn calls(&self, name: &str) -> bool {
        self.code.match_indices(name).any(|(at, _)| {
            let before = self.code[..at].chars().next_back();
            !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
        })
    }
}

/// First names of the members of a group of imports, up to its closing brace.
fn top_level(group: &str) -> Vec<String> {
    let mut names = vec![String::new()];
    let mut depth = 0;
    let mut taking = true;
    for c in group.chars() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                names.push(String::new());
                taking = true;
            }
            c if depth == 0 && taking && (c.is_alphanumeric() || c == '_') => {
                names.last_mut().unwrap().push(c);
            }
            ':' => taking = false,
            _ => {}
        }
    }
    names
}

/// Fails with every file that a rule is broken in.
fn rule(what: &str, broken: impl Fn(&Source) -> bool) {
    let found: Vec<String> = sources()
        .iter()
        .filter(|source| broken(source))
        .map(|source| source.path.display().to_string())
        .collect();
    assert!(found.is_empty(), "{what}: {found:#?}");
}

#[test]
fn pure_code_knows_no_edge() {
    let modules = ["kernel", "cli", "session", "bed", "workload", "tune"];
    let crates = ["aya", "tokio", "clap", "procfs", "rustix"];
    rule("pure code names an edge", |source| {
        source.is(PURE)
            && (modules.iter().any(|name| source.names_module(name))
                || crates.iter().any(|name| source.names_crate(name)))
    });
}

#[test]
fn only_the_kernels_edge_knows_aya() {
    rule("aya outside of kernel", |source| {
        !source.is(&["kernel"]) && source.names_crate("aya")
    });
}

#[test]
fn only_output_and_the_command_line_print() {
    let macros = ["println!", "eprintln!", "print!", "eprint!", "dbg!"];
    rule("prints", |source| {
        !source.is(FRONT) && !source.is(&["output"]) && macros.iter().any(|name| source.calls(name))
    });
}

#[test]
fn one_place_joins_kernel_and_attribution() {
    rule("names both kernel and attribute", |source| {
        !source.is(&["session"])
            && !source.is(FRONT)
            && source.names_module("kernel")
            && source.names_module("attribute")
    });
}

#[test]
fn the_kernels_edge_does_not_attribute() {
    rule("kernel names what stands above it", |source| {
        source.is(&["kernel", "bed", "workload", "tune"])
            && ["attribute", "cli", "session", "output"]
                .iter()
                .any(|name| source.names_module(name))
    });
}

#[test]
fn the_rules_see_what_they_look_for() {
    let source = |code: &str| Source {
        layer: "model".to_owned(),
        path: PathBuf::new(),
        code: code.to_owned(),
    };
    let grouped = source("use crate::{\n    model::{kernel, path},\n    kernel::probe,\n};");
    assert!(grouped.names_module("kernel"));
    let nested = source("use crate::{model::{kernel, path}, plan};");
    assert!(!nested.names_module("kernel") && nested.names_module("plan"));
    assert!(source("let x = crate::session::begin();").names_module("session"));
    assert!(source("use aya::Ebpf;").names_crate("aya"));
    assert!(!source("use crate::aya::x; use maya::y;").names_crate("aya"));
    assert!(source("println!(\"x\")").calls("println!"));
    assert!(!source("eprintln!(\"x\")").calls("println!"));
}
