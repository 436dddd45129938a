//! `cargo xtask build`: the eBPF object, once for all profiles and targets,
//! then the userspace programs that carry it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::process::Cmd;
use crate::toolchain;
use crate::workspace::{self, MUSL};

/// Tells tracer/build.rs which object to carry.
const OBJECT_VARIABLE: &str = "WRITEPATH_BPF_OBJECT";

/// Target of the eBPF crate.
pub const BPF_TARGET: &str = "bpfel-unknown-none";

/// Instruction set of the programs: every kernel in reach (5.10 and later)
/// and every architecture's JIT runs v2.
const BPF_CPU: &str = "v2";

#[derive(clap::Args)]
pub struct Args {
    /// Optimise (the default).
    #[arg(long, conflicts_with = "dev")]
    release: bool,
    /// Build quickly, with debug assertions.
    #[arg(long)]
    dev: bool,
    /// Build for this machine or, as static programs, for others.
    #[arg(long, value_enum, default_value_t = Target::Host)]
    target: Target,
}

/// What userspace is built for.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Target {
    /// This machine.
    Host,
    /// Any x86-64 Linux: static, with musl.
    Musl,
}

/// How userspace is optimised.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// `target/debug`
    Dev,
    /// `target/release`
    Release,
}

/// The command.
pub fn run(args: &Args) -> Result<()> {
    let profile = if args.dev {
        Profile::Dev
    } else {
        Profile::Release
    };
    userspace(&["tracer"], profile, args.target)?;
    let file = binary("writepath", profile, args.target)?;
    println!("build: {}", file.display());
    Ok(())
}

/// Where `program` lies after a build.
pub fn binary(program: &str, profile: Profile, target: Target) -> Result<PathBuf> {
    let mut dir = workspace::target_dir()?;
    if target == Target::Musl {
        dir.push(MUSL);
    }
    dir.push(match profile {
        Profile::Dev => "debug",
        Profile::Release => "release",
    });
    Ok(dir.join(program))
}

/// Builds packages of userspace, the eBPF object first.
pub fn userspace(packages: &[&str], profile: Profile, target: Target) -> Result<()> {
    let mut cargo = cargo("build", &object()?);
    for package in packages {
        cargo = cargo.args(["--package", package]);
    }
    if profile == Profile::Release {
        cargo = cargo.arg("--release");
    }
    if target == Target::Musl {
        cargo = cargo.args(["--target", MUSL]);
    }
    cargo.run()
}

/// A cargo command in the workspace, with the object for tracer/build.rs.
pub fn cargo(subcommand: &str, object: &Path) -> Cmd {
    Cmd::new("cargo")
        .arg(subcommand)
        .dir(workspace::root())
        .env(OBJECT_VARIABLE, object)
        .timeout_s(1800)
}

/// A cargo command on the eBPF crate for its own target. The target has no
/// prebuilt core, hence build-std, which a stable compiler allows only to
/// those who ask for it.
pub fn ebpf_cargo(subcommand: &str) -> Result<Cmd> {
    let linker = toolchain::bpf_linker()
        .context("bpf-linker is not installed: run `cargo xtask setup` first")?;
    let flags = [
        "-Cdebuginfo=2".to_owned(),
        "-Clink-arg=--btf".to_owned(),
        format!("-Ctarget-cpu={BPF_CPU}"),
        format!("-Clinker={}", linker.display()),
    ];
    Ok(Cmd::new("cargo")
        .arg(subcommand)
        .args(["--package", "tracer-ebpf", "--target", BPF_TARGET])
        .args(["-Z", "build-std=core", "--release"])
        .arg("--target-dir")
        .arg(workspace::target_dir()?.join("bpf-build"))
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1")
        .dir(workspace::root())
        .timeout_s(1800))
}

/// Builds the eBPF object and gives its place.
pub fn object() -> Result<PathBuf> {
    ebpf_cargo("build")?
        .run()
        .context("the eBPF programs do not build; `cargo xtask setup` checks what they need")?;
    let target = workspace::target_dir()?;
    let built = target
        .join("bpf-build")
        .join(BPF_TARGET)
        .join("release/writepath-ebpf");
    let kept = target.join("bpf/writepath.bpf.o");
    copy_if_changed(&built, &kept)?;
    Ok(kept)
}

/// Copies unless equal, so that userspace is rebuilt only for a new object.
fn copy_if_changed(from: &Path, to: &Path) -> Result<()> {
    let new = fs::read(from).with_context(|| format!("the built {}", from.display()))?;
    if fs::read(to).is_ok_and(|old| old == new) {
        return Ok(());
    }
    if let Some(dir) = to.parent() {
        fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    }
    fs::write(to, new).with_context(|| to.display().to_string())
}
