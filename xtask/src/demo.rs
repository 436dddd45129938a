//! `cargo xtask demo`: from a fresh clone to the ledger of a real workload, on
//! a throw-away image, in one command.

use anyhow::{Result, bail};

use crate::build::{self, Profile, Target};
use crate::process::{self, Cmd};
use crate::setup;

/// Arguments of `writepath trace`: the image goes when it ends.
const TRACE: &[&str] = &["trace", "--image", "1G", "--top", "8"];

/// The workload: the published experiment on eMMC, smaller and quicker, so
/// that the kernel's timers (5 s for commits, 30 s for dirty data) show within
/// a minute.
const WORKLOAD: &[&str] = &[
    "workload",
    "run",
    "iot-files",
    "--on",
    ".",
    "--files",
    "500",
    "--file-kib",
    "8",
    "--threads",
    "20",
    "--period",
    "10s",
    "--periods",
    "7",
];

/// The command.
pub fn run() -> Result<()> {
    setup::run()?;
    build::userspace(&["tracer"], Profile::Release, Target::Host)?;
    if !process::is_root() {
        bail!("tracing needs root; all is built: run `sudo env PATH=\"$PATH\" cargo xtask demo`");
    }
    let writepath = build::binary("writepath", Profile::Release, Target::Host)?;
    println!(
        "\ndemo: 500 files, each updated every 10 s and never synced, and one of 440 KiB\n\
         that is fsynced every 10 s, on an ext4 image made for this. 70 s of:\n\n  \
         writepath {} \\\n    -- writepath {} \\\n       {}\n",
        TRACE.join(" "),
        WORKLOAD[..9].join(" "),
        WORKLOAD[9..].join(" ")
    );
    Cmd::new(&writepath)
        .args(TRACE)
        .arg("--")
        .arg(&writepath)
        .args(WORKLOAD)
        .timeout_s(300)
        .run()?;
    println!(
        "\ndemo: each sector that reached the device is in one row of each table. `async`\n\
         is what the kernel may hold back and merge: 3500 updates became far fewer\n\
         writes (`writeback sync` is the making of the files). `sync` was forced by the\n\
         fsyncs; journal and metadata are what the filesystem added. The image is gone.\n\
         Next: `{} trace -d DIR --duration 60s`",
        writepath.display()
    );
    Ok(())
}
