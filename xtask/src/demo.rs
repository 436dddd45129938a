//! `cargo xtask demo`: from a fresh clone to the answer why `commit=` barely
//! helps, on a throw-away image, in one command.

use anyhow::{Context, Result, bail};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::build::{self, Profile, Target};
use crate::process::{self, Cmd};
use crate::{setup, workspace};

/// Arguments of `cargo xtask demo`.
#[derive(clap::Args)]
pub struct Args {
    /// One block of each profile, and so no intervals: half the time.
    #[arg(long)]
    quick: bool,
}

/// Arguments of `writepath experiment run`: the published experiment, five
/// times as fast. Ratios stay those of this machine's memory: bytes as of the
/// published board could be reached by what else this machine has dirty.
const EXPERIMENT: &[&str] = &[
    "experiment",
    "run",
    "emmc-dirty-tuning",
    "--profiles",
    "default,commit-60,coalescing",
    "--time-scale",
    "5",
    "--cycles",
    "5",
];

/// The longest that it may take, in seconds; all blocks take 560 s.
const LONGEST_S: u64 = 1800;

/// The command.
pub fn run(args: &Args) -> Result<()> {
    setup::run()?;
    build::userspace(&["tracer"], Profile::Release, Target::Host)?;
    if !process::is_root() {
        bail!("tracing needs root; all is built: run `sudo env PATH=\"$PATH\" cargo xtask demo`");
    }
    let writepath = build::binary("writepath", Profile::Release, Target::Host)?;
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .context("the clock is before 1970")?;
    let result = workspace::target_dir()?.join(format!("demo-{}", now.as_secs()));
    let blocks: &[&str] = if args.quick {
        &["--quick"]
    } else {
        &["--blocks", "2"]
    };
    println!(
        "\ndemo: 5000 files, each updated every 6 s and never synced, and one of 440 KiB\n\
         that is fsynced every 6 s, on an ext4 image made for this, under three profiles\n\
         of the kernel's write-back settings:\n\n  \
         writepath {} \\\n    {} {}\n",
        EXPERIMENT[..5].join(" "),
        EXPERIMENT[5..].join(" "),
        blocks.join(" ")
    );
    Cmd::new(&writepath)
        .args(EXPERIMENT)
        .args(blocks)
        .arg("--output")
        .arg(&result)
        .timeout_s(LONGEST_S)
        .run()?;
    println!("\ndemo: which knob can act on which sectors, and why not on the rest:\n");
    Cmd::new(&writepath).arg("explain").arg(&result).run()?;
    println!(
        "\ndemo: the image is gone and the settings are as before. The result is in\n\
         {}. Next: `{} trace -d DIR --duration 60s`",
        result.display(),
        writepath.display()
    );
    Ok(())
}
