//! Which modules a guest gets: those wanted, and what they depend on, out of
//! the thousands of a Debian kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::process::Cmd;

/// Loaded before the root is mounted, in this order.
const BOOT: &[&str] = &[
    "virtio_pci",
    "virtio_blk",
    "virtio_console",
    // ext4 asks for a crc32c by name only.
    "crc32c_generic",
    "crc32c_intel",
    "ext4",
    "loop",
];

/// On the guest's disk, for modprobe: schedulers and devices of the tests.
const ON_DEMAND: &[&str] = &["bfq", "kyber_iosched", "scsi_debug", "sd_mod", "dm_mod"];

/// The list as text: a cache made from another one is stale.
pub fn wanted() -> String {
    format!("{}\n{}\n", BOOT.join(" "), ON_DEMAND.join(" "))
}

/// Copies the wanted modules of TREE/lib/modules to `to` and indexes them.
pub fn select(tree: &Path, release: &str, to: &Path) -> Result<()> {
    depmod(tree, release)?;
    let deps = Dependencies::read(tree, release)?;
    let below = Path::new("lib/modules").join(release);
    for file in deps.closure(BOOT.iter().chain(ON_DEMAND)) {
        let (from, to) = (tree.join(&below).join(&file), to.join(&below).join(&file));
        if let Some(dir) = to.parent() {
            fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
        }
        fs::copy(&from, &to).with_context(|| from.display().to_string())?;
    }
    for name in [
        "modules.order",
        "modules.builtin",
        "modules.builtin.modinfo",
    ] {
        let from = tree.join(&below).join(name);
        fs::copy(&from, to.join(&below).join(name)).with_context(|| from.display().to_string())?;
    }
    depmod(to, release)
}

/// Files of the boot modules below lib/modules/RELEASE, dependencies first.
pub fn boot_files(modules: &Path, release: &str) -> Result<Vec<PathBuf>> {
    Ok(Dependencies::read(modules, release)?.closure(BOOT))
}

fn depmod(base: &Path, release: &str) -> Result<()> {
    Cmd::new(crate::workspace::find_program("depmod").context("depmod is not installed")?)
        .arg("-b")
        .arg(base)
        .arg(release)
        .run_quiet()
}

/// modules.dep: each module's file and the files that it needs.
struct Dependencies {
    files: BTreeMap<String, (String, Vec<String>)>,
}

impl Dependencies {
    fn read(base: &Path, release: &str) -> Result<Self> {
        let file = base.join("lib/modules").join(release).join("modules.dep");
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        Ok(Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let files = text
            .lines()
            .filter_map(|line| line.split_once(':'))
            .map(|(file, needs)| {
                let needs = needs.split_whitespace().map(module_name).collect();
                (module_name(file), (file.to_owned(), needs))
            })
            .collect();
        Self { files }
    }

    /// The files of `names` and of all that they need, dependencies first.
    /// A name without a file is built into the kernel.
    fn closure<'a>(&self, names: impl IntoIterator<Item = &'a &'a str>) -> Vec<PathBuf> {
        let mut order = Vec::new();
        let mut seen = BTreeSet::new();
        for name in names {
            self.visit(name, &mut seen, &mut order);
        }
        order
    }

    fn visit(&self, name: &str, seen: &mut BTreeSet<String>, order: &mut Vec<PathBuf>) {
        let Some((file, needs)) = self.files.get(name) else {
            return;
        };
        if seen.insert(name.to_owned()) {
            for need in needs {
                self.visit(need, seen, order);
            }
            order.push(PathBuf::from(file));
        }
    }
}

/// The module's name as the kernel writes it.
fn module_name(file: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    let name = name.split_once(".ko").map_or(name, |(name, _)| name);
    name.replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closure_puts_dependencies_first() {
        let deps = Dependencies::parse(
            "kernel/fs/ext4/ext4.ko: kernel/fs/jbd2/jbd2.ko kernel/lib/crc16.ko\n\
             kernel/fs/jbd2/jbd2.ko:\nkernel/lib/crc16.ko:\n\
             kernel/block/kyber-iosched.ko.xz:\nkernel/x/unused.ko:\n",
        );
        let files = deps.closure(&["built_in", "ext4", "kyber_iosched", "jbd2"]);
        let files: Vec<&str> = files.iter().filter_map(|file| file.to_str()).collect();
        assert_eq!(
            files,
            [
                "kernel/fs/jbd2/jbd2.ko",
                "kernel/lib/crc16.ko",
                "kernel/fs/ext4/ext4.ko",
                "kernel/block/kyber-iosched.ko.xz"
            ]
        );
    }
}
