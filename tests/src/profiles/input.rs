//! Bad input of `profile`: a clear error with its status, and nothing set.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use anyhow::{Context, Result, ensure};

use super::held::{self, profile};
use super::machine::{self, Machine, Originals};
use crate::bed::{Bed, Spec};
use crate::harness::{self, Test};
use crate::tracer;

pub fn tests() -> Vec<Test> {
    vec![
        Test::new("profiles::bad_names_and_files", names_and_files),
        Test::new("profiles::bad_values", values),
        Test::new("profiles::bad_places_and_scales", places),
        Test::new("profiles::without_root", without_root),
        Test::new("profiles::what_is_shown_agrees", shown),
    ]
}

/// A file of a profile in the test's directory.
fn file(name: &str, text: &[u8]) -> Result<String> {
    let path = harness::run_dir().join(name);
    fs::write(&path, text)?;
    Ok(path.to_string_lossy().into_owned())
}

fn names_and_files() -> Result<()> {
    let dir = harness::run_dir().to_string_lossy().into_owned();
    let garbage: Vec<u8> = (0..=255).cycle().take(4000).collect();
    let huge = "#".repeat(1 << 20);
    let cases: Vec<(String, &str)> = vec![
        ("fast".to_owned(), "coalescing"),
        ("/no/such.toml".to_owned(), "no file"),
        (String::new(), "built in"),
        ("\x1b[31mred".to_owned(), "built in"),
        (dir, "cannot read"),
        ("/dev/zero".to_owned(), "longer"),
        ("/dev/null".to_owned(), "name"),
        (file("garbage.toml", &garbage)?, "text"),
        (file("huge.toml", huge.as_bytes())?, "longer"),
        (
            file("no.toml", b"name = \"x\"\nvm.dirty_ratio =\n")?,
            "line 2",
        ),
        (
            file("unknown.toml", b"name = \"x\"\n\nvm.dirty_ration = 3\n")?,
            "line 3",
        ),
        (
            file(
                "nested.toml",
                format!("a = {}", "[".repeat(60_000)).as_bytes(),
            )?,
            "line 1",
        ),
    ];
    for (name, words) in &cases {
        for action in ["apply", "show", "verify", "lint"] {
            let ended = profile([action, name])?.run()?;
            ended.status(&[2])?.says(&[words])?.silent()?;
        }
    }
    machine::no_state()
}

fn values() -> Result<()> {
    let _originals = Originals::set()?;
    let bed = Bed::new(Spec::ext4(64))?;
    let before = Machine::read(&bed)?;
    for (text, words) in [
        ("vm.dirty_background_bytes = 5", "percent"),
        ("vm.dirty_ratio = 101", "out of range"),
        ("vm.dirty_ratio = -1", "out of range"),
        ("vm.dirty_bytes = 4096", "out of range"),
        ("commit = 0", "out of range"),
        ("commit = 99999999999", "out of range"),
        ("commit = 99999999999999999999999", "out of range"),
        ("vm.dirty_expire_centisecs = \"30s\"", "centiseconds"),
        ("vm.dirty_ratio = 1.5", "whole number"),
        ("vm.dirty_ratio = 20\nvm.dirty_bytes = 20000000", "zeroes"),
    ] {
        let name = file("bad.toml", format!("name = \"bad\"\n{text}\n").as_bytes())?;
        let ended = held::apply(&name, &bed, &["--", "true"])?;
        ended.status(&[2])?.says(&[words])?;
        before.is_still(&bed)?;
        machine::no_state()?;
        let linted = profile(["lint", &name])?.run()?;
        linted.status(&[1, 2])?;
        let all = linted.stdout + &linted.stderr;
        // Wrapped or not.
        let all: Vec<&str> = all.split_whitespace().collect();
        ensure!(all.join(" ").contains(words), "{text}: {all:?}");
    }
    // What may be meant is only said.
    let name = file(
        "odd.toml",
        b"name = \"odd\"\nvm.dirty_expire_centisecs = 30\n",
    )?;
    profile(["lint", &name])?.run()?.status(&[0])?;
    let ended = held::apply(&name, &bed, &["--", "true"])?;
    ended.status(&[0])?.says(&["warning"])?.says(&["3000"])?;
    before.is_still(&bed)
}

fn places() -> Result<()> {
    let _originals = Originals::set()?;
    let bed = Bed::new(Spec::ext4(64))?;
    let before = Machine::read(&bed)?;
    for (args, words) in [
        (vec!["apply", "commit-60"], "--mount"),
        (vec!["apply", "default", "--mount", "/proc"], "proc"),
        (
            vec!["apply", "default", "--mount", "/no/such/dir"],
            "/no/such/dir",
        ),
        (vec!["apply", "default", "--time-scale", "2"], "1, 5"),
        (vec!["apply", "default", "--time-scale", "0"], "1, 5"),
        (vec!["apply", "commit-60", "--time-scale", "7"], "12, 15"),
        (vec!["show", "default", "--time-scale", "3"], "commit=5"),
        (vec!["apply", "default", "--as-ram", "1T"], "unit"),
        (vec!["apply", "default", "--keep", "--", "true"], "--keep"),
    ] {
        let ended = profile(&args)?.run()?;
        ended.status(&[2])?.says(&[words])?.silent()?;
        before.is_still(&bed)?;
    }
    machine::no_state()
}

fn without_root() -> Result<()> {
    let _originals = Originals::set()?;
    // Where anybody may run it.
    let dir = tempfile::Builder::new()
        .permissions(fs::Permissions::from_mode(0o755))
        .tempdir_in("/dev/shm")?;
    let copy = dir.path().join("writepath");
    fs::copy(tracer::binary()?, &copy).context("a copy of the program")?;
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755))?;
    for args in [vec!["apply", "balanced"], vec!["restore"]] {
        let ended = profile(&args)?.by_user(65534, &copy).run()?;
        ended.status(&[3])?.says(&["root"])?.silent()?;
    }
    for args in [
        vec!["list"],
        vec!["show", "balanced"],
        vec!["active"],
        vec!["lint", "default"],
    ] {
        profile(&args)?.by_user(65534, &copy).run()?.status(&[0])?;
    }
    profile(["verify", "balanced"])?
        .by_user(65534, &copy)
        .run()?
        .status(&[5])?;
    machine::no_state()
}

/// What is listed can be shown, what is shown can be applied as a file, and
/// what is applied is what is active.
fn shown() -> Result<()> {
    let _originals = Originals::set()?;
    let bed = Bed::new(Spec::ext4(64))?;
    let mnt = bed.mnt().to_string_lossy().into_owned();
    let list = profile(["list", "--json"])?.run()?.json()?;
    let profiles = list["profiles"].as_array().context("profiles")?.clone();
    ensure!(profiles.len() == 5, "{list}");
    for listed in profiles {
        let name = listed["name"].as_str().context("name")?;
        let shown = profile(["show", name])?.run()?;
        let copy = file("copy.toml", shown.stdout.as_bytes())?;
        let json = profile(["show", &copy, "--json"])?.run()?.json()?;
        ensure!(json["knobs"] == listed["knobs"], "{json}");
        let held = held::Held::new(&copy, &bed, &[])?;
        let active = profile(["active", "--json", "--mount", &mnt])?
            .run()?
            .json()?;
        let found = active["profiles"].as_array().context("profiles")?;
        ensure!(
            found.len() == 1 && found[0]["name"] == name,
            "{name}: {active}"
        );
        ensure!(active["run"]["pid"] == held.pid(), "{active}");
        profile(["verify", name, "--mount", &mnt])?
            .run()?
            .status(&[0])?;
        let other = if name == "balanced" {
            "default"
        } else {
            "balanced"
        };
        profile(["verify", other, "--mount", &mnt])?
            .run()?
            .status(&[5])?;
        held.end()?.status(&[0])?;
    }
    Ok(())
}
