//! The pinned Rust toolchain and what the eBPF build needs beside it: core's
//! source, the musl target, and a bpf-linker for the compiler's LLVM.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::packages;
use crate::process::Cmd;
use crate::workspace::{self, MUSL, find_program};

/// The release series of bpf-linker that was tested.
const BPF_LINKER: &str = "0.13";

/// The compiler that cargo uses in the workspace.
pub struct Toolchain {
    /// LLVM's major version: bpf-linker must read this compiler's bitcode.
    llvm: u32,
    sysroot: PathBuf,
}

impl Toolchain {
    /// Asks rustc.
    pub fn probe() -> Result<Self> {
        let verbose = rustc(&["-vV"])?;
        let llvm = verbose
            .lines()
            .find_map(|line| line.strip_prefix("LLVM version: "))
            .and_then(|version| version.split('.').next()?.parse().ok())
            .context("rustc -vV names no LLVM version: this compiler cannot build eBPF programs")?;
        let sysroot = rustc(&["--print", "sysroot"])?.trim().into();
        Ok(Self { llvm, sysroot })
    }

    /// Adds what rustup may have left out of the toolchain.
    pub fn ensure_parts(&self) -> Result<()> {
        let lib = self.sysroot.join("lib/rustlib");
        let parts: [(&str, &str, PathBuf); 4] = [
            ("component", "rust-src", lib.join("src/rust/library/core")),
            ("component", "clippy", self.sysroot.join("bin/cargo-clippy")),
            ("component", "rustfmt", self.sysroot.join("bin/rustfmt")),
            ("target", MUSL, lib.join(MUSL).join("lib")),
        ];
        for (kind, name, file) in parts {
            if file.exists() {
                println!("rust: found {name}");
                continue;
            }
            println!("rust: adding {kind} {name}");
            Cmd::new("rustup")
                .args([kind, "add", name])
                .dir(workspace::root())
                .run()
                .with_context(|| {
                    format!("{name} is missing: check the network, then `rustup {kind} add {name}`")
                })?;
        }
        Ok(())
    }

    /// Finds bpf-linker, or builds it with the LLVM of this compiler.
    pub fn ensure_bpf_linker(&self) -> Result<()> {
        match bpf_linker().map(|file| self.check(&file)) {
            Some(Ok(found)) => {
                println!("bpf-linker: found {found}");
                return Ok(());
            }
            Some(Err(why)) => println!("bpf-linker: {why:#}; installing another"),
            None => println!("bpf-linker: installing (about 75 s)"),
        }
        let prefix = self.ensure_llvm()?;
        let mut path = vec![prefix.join("bin")];
        path.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
        Cmd::new("cargo")
            .args(["install", "bpf-linker", "--force", "--no-default-features"])
            .args(["--version", &format!("^{BPF_LINKER}")])
            .args(["--features", &format!("llvm-{}", self.llvm)])
            .env("LLVM_PREFIX", &prefix)
            .env("PATH", env::join_paths(path).context("PATH")?)
            // Not below the workspace, whose linker and lints are not its.
            .dir("/")
            .timeout_s(1800)
            .run_quiet()
            .context("bpf-linker cannot be built")?;
        let file = bpf_linker()
            .context("cargo installed bpf-linker where neither PATH nor CARGO_HOME/bin leads")?;
        println!("bpf-linker: installed {}", self.check(&file)?);
        Ok(())
    }

    /// LLVM's development files for the compiler's major version.
    fn ensure_llvm(&self) -> Result<PathBuf> {
        let major = self.llvm;
        let prefix = env::var_os("LLVM_PREFIX").map_or_else(
            || PathBuf::from(format!("/usr/lib/llvm-{major}")),
            PathBuf::from,
        );
        if prefix.join("bin/llvm-config").exists() {
            println!("llvm: found {}", prefix.display());
            return Ok(prefix);
        }
        packages::install("llvm", &["g++", &format!("llvm-{major}-dev")]).with_context(|| {
            format!(
                "rustc uses LLVM {major} and bpf-linker must be built with it: where no package has it, install LLVM {major} with its development files and set LLVM_PREFIX to it"
            )
        })?;
        Ok(prefix)
    }

    /// The linker's version, or why it does not do.
    fn check(&self, file: &Path) -> Result<String> {
        let version = Cmd::new(file).arg("--version").output()?;
        let version = version.trim();
        let number = version.rsplit(' ').next().unwrap_or_default();
        if !number.starts_with(&format!("{BPF_LINKER}.")) {
            bail!("{version} is not {BPF_LINKER}");
        }
        let libraries = Cmd::new("ldd").arg(file).output().unwrap_or_default();
        let major = libraries
            .split_once("libLLVM.so.")
            .or_else(|| libraries.split_once("libLLVM-"))
            .and_then(|(_, rest)| rest.split(|c: char| !c.is_ascii_digit()).next());
        match major {
            Some(major) if major != self.llvm.to_string() => {
                bail!("{version} uses LLVM {major}, rustc {}", self.llvm)
            }
            Some(major) => Ok(format!("{version} with LLVM {major}")),
            // Linked statically: the first build will tell.
            None => Ok(version.to_owned()),
        }
    }
}

/// bpf-linker on PATH or where cargo installs programs.
pub fn bpf_linker() -> Option<PathBuf> {
    let cargo_home = env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cargo")));
    find_program("bpf-linker").or_else(|| {
        let file = cargo_home?.join("bin/bpf-linker");
        file.is_file().then_some(file)
    })
}

fn rustc(args: &[&str]) -> Result<String> {
    Cmd::new("rustc").args(args).dir(workspace::root()).output()
}
