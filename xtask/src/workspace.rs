//! Where things are: the workspace, its target directory, the cache outside
//! the repository, programs.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Target triple of the static programs for virtual machines and boards.
pub const MUSL: &str = "x86_64-unknown-linux-musl";

/// The repository's root.
pub fn root() -> PathBuf {
    // Cargo names the directory when it runs xtask; a binary started by hand
    // falls back on where it was built.
    let xtask =
        env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let xtask = PathBuf::from(xtask);
    xtask.parent().map(Path::to_path_buf).unwrap_or(xtask)
}

/// Cargo's target directory: `CARGO_TARGET_DIR`, else `target`.
pub fn target_dir() -> Result<PathBuf> {
    match env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => std::path::absolute(dir).context("CARGO_TARGET_DIR"),
        None => Ok(root().join("target")),
    }
}

/// Where kernels and other downloads are kept between runs and clones.
pub fn cache_dir() -> Result<PathBuf> {
    let base = match env::var_os("XDG_CACHE_HOME").filter(|dir| !dir.is_empty()) {
        Some(dir) => PathBuf::from(dir),
        None => PathBuf::from(env::var_os("HOME").context(
            "neither XDG_CACHE_HOME nor HOME is set: set one to a directory for downloads",
        )?)
        .join(".cache"),
    };
    Ok(base.join("writepath"))
}

/// The program `name` on PATH or in the directories of root, which the PATH
/// of a login often lacks; else the path itself where `name` is absolute.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
}
