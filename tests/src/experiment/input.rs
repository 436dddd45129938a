//! Bad input: a clear error with its status, nothing made and nothing left.

use std::fs;

use anyhow::{Result, ensure};

use super::short::Short;
use crate::bad_input::call::Call;
use crate::bed::{Backing, Bed, Spec};
use crate::harness::Test;
use crate::profiles::held::Held;
use crate::profiles::machine;

pub fn tests() -> Vec<Test> {
    vec![
        Test::new("experiment::bad_arguments", arguments),
        Test::new("experiment::second_tuning_run", second),
        Test::new("experiment::full_disk", full_disk),
    ]
}

fn arguments() -> Result<()> {
    let short = Short::new(0)?;
    let before = short.left()?;
    let bad = short.out.with_file_name("bad.toml");
    fs::write(&bad, "name = \"bad\"\nvm.dirty_background_bytes = 5\n")?;
    let bad = bad.to_string_lossy().into_owned();
    for (more, words) in [
        (vec!["--time-scale", "3"], "commit=1"),
        (vec!["--time-scale", "0"], "scale"),
        (vec!["--emulate", "fast"], "30MB/s"),
        (vec!["--emulate", "30MB/s,iops=0"], "slow"),
        (vec!["--on", "/proc", "--dry-run"], "--on"),
        (vec!["--place", "nowhere"], "nowhere"),
        (vec!["--blocks", "0"], "--blocks"),
        (vec!["--tbw", "0"], "tbw"),
    ] {
        let ended = short.call(&more)?.run()?;
        ended.status(&[2])?.says(&[words])?.silent()?;
        ensure!(!short.out.exists(), "a result was made: {}", ended.told());
        short.comes_back(&before)?;
    }
    let run = |more: &[&str]| {
        let args = ["experiment", "run"].iter().chain(more);
        Call::new(args)?.run()
    };
    let out = short.out.to_string_lossy().into_owned();
    let tuning = "emmc-dirty-tuning";
    run(&["no-such-experiment", "-o", &out])?
        .status(&[2])?
        .says(&[tuning])?;
    run(&[tuning, "-o", &out, "--profiles", "default,fastest"])?
        .status(&[2])?
        .says(&["fastest"])?;
    run(&[tuning, "-o", &out, "--profiles", &bad])?
        .status(&[2])?
        .says(&["percent"])?;
    run(&[tuning, "-o", &out, "--time-scale", "2"])?
        .status(&[2])?
        .says(&["1, 5"])?;
    run(&[tuning, "-o", &out, "--on", "/proc"])?
        .status(&[2])?
        .says(&["ext4"])?;
    run(&[tuning, "-o", &out, "--on", "/no/such/dir"])?
        .status(&[1, 2])?
        .says(&["/no/such/dir"])?;
    Call::new(["experiment", "show", "/no/such/dir"])?
        .run()?
        .status(&[2])?
        .says(&["/no/such/dir"])?;
    ensure!(!short.out.exists(), "a result was made");
    short.comes_back(&before)?;
    machine::no_state()
}

/// One tuning run at a time.
fn second() -> Result<()> {
    let bed = Bed::new(Spec::ext4(64))?;
    let short = Short::new(0)?;
    let held = Held::new("coalescing", &bed, &[])?;
    let before = short.left()?;
    let ended = short.call(&["--quick"])?.run()?;
    ended.status(&[5])?.says(&[&held.pid().to_string()])?;
    short.comes_back(&before)?;
    held.end()?.status(&[0])?;
    Ok(())
}

/// A directory for the image, or on which to work, that has no room.
fn full_disk() -> Result<()> {
    let short = Short::new(0)?;
    let small = Bed::new(Spec::ext4(32).backing(Backing::Disk))?;
    let before = short.left()?;
    let mnt = small.mnt().to_string_lossy().into_owned();
    let out = short.out.to_string_lossy().into_owned();
    let run = ["experiment", "run", "emmc-dirty-tuning", "-o", &out];
    let places: [(&[&str], &str); 2] = [
        (&["--image-dir", &mnt, "--image", "512M"], "fit"),
        (&["--on", &mnt], "free"),
    ];
    for (place, why) in places {
        let ended = Call::new([&run[..], place].concat())?.run()?;
        ended.status(&[1])?.says(&[why, "space"])?.silent()?;
        short.comes_back(&before)?;
        let _ = fs::remove_dir_all(&short.out);
    }
    let names: Vec<_> = fs::read_dir(&mnt)?
        .flatten()
        .map(|e| e.file_name())
        .collect();
    ensure!(names == ["lost+found"], "left on it: {names:?}");
    machine::no_state()
}
