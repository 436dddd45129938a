//! `cargo xtask vm`: boots a Debian kernel in QEMU (without KVM: 5 to 15 s)
//! and runs the kernel tests, or any command, on it. The guest's root is an
//! ext4 image with this machine's own tools and our static programs.

mod disk;
mod kernel;
mod modules;
mod qemu;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::build::{self, Profile, Target};
use crate::packages::{self, VM};
use crate::workspace;
use kernel::Kernel;

pub use kernel::DEFAULT as DEFAULT_KERNEL;

/// How long the kernel tests may take in a guest, in seconds.
pub const TESTS_TIMEOUT_S: u64 = 1800;

#[derive(clap::Args)]
pub struct Args {
    /// Series of Debian's kernel.
    #[arg(default_value = DEFAULT_KERNEL)]
    kernel: String,
    /// End the guest after so many seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = TESTS_TIMEOUT_S)]
    timeout: u64,
    /// Run this in the guest instead of the kernel tests.
    #[arg(last = true, value_name = "CMD")]
    command: Vec<String>,
}

/// The command: the guest's output is shown as it comes.
pub fn run(args: &Args) -> Result<()> {
    let command = if args.command.is_empty() {
        tests_command()
    } else {
        args.command.clone()
    };
    let kernel = prepare(&args.kernel)?;
    let status = boot(&kernel, &command, args.timeout, |line| println!("{line}"))?;
    if status != 0 {
        bail!("{}: ended with status {status} in the guest", command[0]);
    }
    Ok(())
}

/// The kernel tests as a command for the guest.
pub fn tests_command() -> Vec<String> {
    vec!["kernel-tests".to_owned()]
}

/// The gate's share of them: `cargo xtask vm` runs all.
pub fn gate_command() -> Vec<String> {
    ["env", "WRITEPATH_TIER=guest-quick", "kernel-tests"]
        .map(str::to_owned)
        .to_vec()
}

/// Gets what a guest needs of other people's: QEMU, tools, a kernel.
pub fn prepare(series: &str) -> Result<Kernel> {
    packages::ensure("vm", VM)?;
    Kernel::get(series)
}

/// Boots a kernel, runs a command, hands over each line of its output and
/// gives its exit status.
pub fn boot(
    kernel: &Kernel,
    command: &[String],
    timeout_s: u64,
    each: impl FnMut(&str),
) -> Result<i32> {
    build::userspace(&["tracer", "tests"], Profile::Release, Target::Musl)?;
    let start = Instant::now();
    let work = WorkDir::new()?;
    let image = disk::make(&work.0, kernel, command)?;
    let initrd = disk::initramfs(&work.0, kernel)?;
    println!(
        "vm: guest's disk made in {:.1} s; booting {}",
        start.elapsed().as_secs_f64(),
        kernel.release
    );
    qemu::run(&work.0, &kernel.vmlinux(), &initrd, &image, timeout_s, each)
}

/// A directory of this run below target/vm, removed with all that is in it.
struct WorkDir(PathBuf);

impl WorkDir {
    fn new() -> Result<Self> {
        let dir = workspace::target_dir()?
            .join("vm")
            .join(std::process::id().to_string());
        make_dir(&dir)?;
        Ok(Self(dir))
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("vm: {} is left: {error}", self.0.display());
        }
    }
}

fn make_dir(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| dir.display().to_string())
}
