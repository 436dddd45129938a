//! What was typed: unknown options, devices that are none, no privileges.

use std::path::Path;

use anyhow::{Context, Result};

use super::call::Call;
use crate::bed::{Bed, Spec};
use crate::harness::{self, Test};
use crate::tracer;

pub fn tests() -> Vec<Test> {
    let test = |name: &str, body: fn() -> Result<()>| {
        Test::new(format!("bad_input::{name}"), body).needs(tracer::available)
    };
    vec![
        test("usage", usage),
        test("no_such_device", no_such_device),
        test("not_a_block_device", not_a_block_device),
        test("no_root", no_root),
        test("doctor_without_root", doctor_without_root),
    ]
}

fn usage() -> Result<()> {
    let wrong: [&[&str]; 8] = [
        &["trace", "--no-such-option"],
        &["trace", "--duration", "soon"],
        &["trace", "--duration", "-5s"],
        &["trace", "-i", ""],
        &["trace", "--top", "many"],
        &["trace", "-p", "me"],
        &["no-such-command"],
        &[],
    ];
    for args in wrong {
        let ended = Call::new(args)?.run()?;
        ended.status(&[2])?.silent()?;
        ended.says(&["usage", "error"])?;
    }
    Ok(())
}

fn no_such_device() -> Result<()> {
    for name in [
        "loop9999",
        "/dev/no-such-device",
        "7:1048575",
        "/no/such/directory",
        "",
    ] {
        let ended = Call::trace(Path::new(name), &["--duration", "1s"])?.run()?;
        ended
            .status(&[1, 2])?
            .silent()?
            .says(&[if name.is_empty() { "device" } else { name }])?;
    }
    Ok(())
}

fn not_a_block_device() -> Result<()> {
    let file = harness::run_dir().join("regular");
    std::fs::write(&file, "text")?;
    // A character device, a file, directories that no disk carries.
    for path in [
        Path::new("/dev/null"),
        &file,
        Path::new("/proc"),
        Path::new("/sys"),
    ] {
        let ended = Call::trace(path, &["--duration", "1s"])?.run()?;
        ended
            .status(&[1, 2])?
            .silent()?
            .says(&[&path.to_string_lossy()])?;
    }
    Ok(())
}

/// A copy of the program that every user may run.
fn copy_for_all() -> Result<std::path::PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let copy = harness::run_dir().join("writepath");
    std::fs::copy(tracer::binary()?, &copy).context("copying the program")?;
    std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o755))?;
    Ok(copy)
}

const NOBODY: u32 = 65534;

fn no_root() -> Result<()> {
    let bed = Bed::new(Spec::ext4(64))?;
    let copy = copy_for_all()?;
    for args in [&["--duration", "1s"][..], &["--duration", "1s", "--json"]] {
        let ended = Call::trace(&bed.node(), args)?
            .by_user(NOBODY, &copy)
            .run()?;
        ended.status(&[3])?.silent()?;
        ended.says(&["root", "CAP_", "privilege", "permission"])?;
    }
    Ok(())
}

/// It may know less, but must say so rather than fail.
fn doctor_without_root() -> Result<()> {
    let copy = copy_for_all()?;
    let ended = Call::new(["doctor"])?.by_user(NOBODY, &copy).run()?;
    ended.status(&[0, 3])?;
    let all = format!("{}{}", ended.stdout, ended.stderr).to_lowercase();
    anyhow::ensure!(
        ["root", "cap_", "privilege", "permission"]
            .iter()
            .any(|word| all.contains(word)),
        "doctor does not tell the missing privileges: {}",
        ended.told()
    );
    Ok(())
}
