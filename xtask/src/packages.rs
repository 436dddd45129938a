//! The Debian packages that the tasks need, and how to get those that are
//! missing. A package is there when the programs or files that we want of it
//! are, so that other distributions and hand-built tools do as well.

use std::path::Path;

use anyhow::{Result, bail};

use crate::process::{self, Cmd};
use crate::workspace::find_program;

/// A Debian package, known by what we use of it.
#[derive(Clone, Copy)]
pub struct Package {
    /// Name for apt-get.
    pub name: &'static str,
    /// Programs (looked for on PATH and in the sbin directories) or absolute
    /// files that show that it is installed.
    pub gives: &'static [&'static str],
}

const fn package(name: &'static str, gives: &'static [&'static str]) -> Package {
    Package { name, gives }
}

/// For demonstrating and testing on this machine. The C compiler is not among
/// them: xtask could not have been linked without one (see .cargo/linker).
pub const BASE: &[Package] = &[
    package("mount", &["mount", "losetup"]),
    package(
        "e2fsprogs",
        &["mkfs.ext4", "debugfs", "dumpe2fs", "tune2fs"],
    ),
    package("btrfs-progs", &["mkfs.btrfs"]),
    package("xfsprogs", &["mkfs.xfs"]),
    package("sqlite3", &["sqlite3"]),
];

/// For `vm`: QEMU and the tools that make a guest.
pub const VM: &[Package] = &[
    package("qemu-system-x86", &["qemu-system-x86_64"]),
    package("busybox-static", &["busybox"]),
    package("kmod", &["depmod"]),
    package("cpio", &["cpio"]),
    package("xz-utils", &["xz"]),
];

/// For `bench`: the load and the tracer to compare with.
pub const BENCH: &[Package] = &[package("fio", &["fio"]), package("bpftrace", &["bpftrace"])];

impl Package {
    fn is_there(&self) -> bool {
        self.gives.iter().all(|what| {
            if what.starts_with('/') {
                Path::new(what).exists()
            } else {
                find_program(what).is_some()
            }
        })
    }
}

/// Installs those of `wanted` that are missing; says what it did.
pub fn ensure(label: &str, wanted: &[Package]) -> Result<()> {
    let missing: Vec<&str> = wanted
        .iter()
        .filter(|package| !package.is_there())
        .map(|package| package.name)
        .collect();
    if missing.is_empty() {
        let names: Vec<&str> = wanted.iter().map(|package| package.name).collect();
        println!("{label}: found {}", names.join(" "));
        return Ok(());
    }
    install(label, &missing)
}

/// Installs Debian packages by name.
pub fn install(label: &str, names: &[&str]) -> Result<()> {
    let list = names.join(" ");
    if find_program("apt-get").is_none() {
        bail!("{label}: missing, and there is no apt-get: install what Debian calls {list}");
    }
    if !process::is_root() {
        bail!("{label}: missing: run this as root, or: sudo apt-get install {list}");
    }
    println!("{label}: installing {list}");
    // Index files of a fresh image are missing or stale. A third-party source
    // that fails here may not matter: the installation decides.
    if let Err(error) = apt(&["update"]) {
        eprintln!("{label}: apt-get update: {error:#}; going on with what it has");
    }
    let mut args = vec!["install", "-y", "--no-install-recommends"];
    args.extend(names);
    if let Err(error) = apt(&args) {
        bail!(
            "{label}: apt-get install {list}: {error:#}\nCheck the network and /etc/apt/sources.list, then run `cargo xtask setup` again"
        );
    }
    Ok(())
}

fn apt(args: &[&str]) -> Result<()> {
    Cmd::new("apt-get")
        .args([
            "-q",
            "-o",
            "DPkg::Lock::Timeout=300",
            "-o",
            "Dpkg::Use-Pty=0",
        ])
        .args(args)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .timeout_s(1200)
        .run_quiet()
}
