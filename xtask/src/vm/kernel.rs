//! Debian kernels for guests: finds the newest package of a series, takes the
//! bare vmlinux and the modules that a guest needs out of it, and keeps both
//! in the cache. Entry: [`Kernel::get`].

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::modules;
use crate::process::Cmd;
use crate::workspace;

/// A kernel series and the Debian suites that carry it.
struct Series {
    name: &'static str,
    suites: &'static [&'static str],
}

/// The series of a guest unless another is asked for.
pub const DEFAULT: &str = "6.1";

/// What `vm` can boot.
const SERIES: &[Series] = &[Series {
    name: "6.1",
    suites: &["bookworm", "bookworm-security"],
}];

/// Debian's keys: the packages come over plain HTTP.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// A kernel in the cache.
pub struct Kernel {
    /// As `uname -r` says.
    pub release: String,
    dir: PathBuf,
}

impl Kernel {
    /// The kernel of a series, from the cache or from Debian.
    pub fn get(wanted: &str) -> Result<Self> {
        let Some(series) = SERIES.iter().find(|series| series.name == wanted) else {
            let names: Vec<&str> = SERIES.iter().map(|series| series.name).collect();
            bail!("no kernel {wanted}: there is {}", names.join(", "));
        };
        let kernels = workspace::cache_dir()?.join("kernels");
        let dir = kernels.join(series.name);
        if let Some(kernel) = Self::cached(&dir) {
            println!(
                "vm: kernel {} from {} (delete that for a newer one)",
                kernel.release,
                dir.display()
            );
            return Ok(kernel);
        }
        fs::create_dir_all(&kernels).with_context(|| kernels.display().to_string())?;
        // Made aside and renamed: a run that dies leaves no half kernel.
        let work = kernels.join(format!("{}.{}", series.name, std::process::id()));
        fs::create_dir_all(&work).with_context(|| work.display().to_string())?;
        let made = download(series, &work).and_then(|deb| unpack(&deb, &work));
        if made.is_ok() {
            // Another run may have put its own there meanwhile; one is enough.
            let _ = fs::remove_dir_all(&dir);
            fs::rename(work.join("kernel"), &dir).with_context(|| dir.display().to_string())?;
        }
        fs::remove_dir_all(&work).with_context(|| work.display().to_string())?;
        made?;
        Self::cached(&dir).with_context(|| format!("{}: incomplete", dir.display()))
    }

    fn cached(dir: &Path) -> Option<Self> {
        let release = fs::read_to_string(dir.join("release")).ok()?;
        // A cache made for another list of modules does not serve.
        let wanted = fs::read_to_string(dir.join("wanted")).ok()?;
        (wanted == modules::wanted()).then(|| Self {
            release,
            dir: dir.to_path_buf(),
        })
    }

    /// The uncompressed kernel, which boots without unpacking itself.
    pub fn vmlinux(&self) -> PathBuf {
        self.dir.join("vmlinux")
    }

    /// Holds lib/modules/RELEASE with the modules and depmod's indices.
    pub fn modules(&self) -> PathBuf {
        self.dir.join("modules")
    }
}

/// Fetches the package with an apt state of its own: the host may run another
/// release of Debian, and its state is not ours to change.
fn download(series: &Series, work: &Path) -> Result<PathBuf> {
    println!("vm: looking up Debian's kernel {}", series.name);
    let sources = work.join("sources.list");
    let mut text = String::new();
    for suite in series.suites {
        let archive = if suite.ends_with("-security") {
            "debian-security"
        } else {
            "debian"
        };
        let mirror = mirror(archive)?;
        let _ = writeln!(text, "deb [signed-by={KEYRING}] {mirror} {suite} main");
    }
    fs::write(&sources, text).with_context(|| sources.display().to_string())?;
    for dir in ["state/lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(work.join(dir))?;
    }
    fs::write(work.join("status"), "")?;
    let apt = |program: &str| {
        let place = |key: &str, name: &str| format!("Dir::{key}={}", work.join(name).display());
        Cmd::new(program)
            .args([
                "-o",
                "APT::Architecture=amd64",
                "-o",
                "APT::Architectures::=amd64",
            ])
            .args(["-o", "Dir::Etc::sourceparts=/dev/null"])
            .args(["-o", &place("Etc::sourcelist", "sources.list")])
            .args(["-o", &place("State", "state")])
            .args(["-o", &place("State::status", "status")])
            .args(["-o", &place("Cache", "cache")])
            // The unprivileged user of apt cannot enter a home directory.
            .args(["-o", "APT::Sandbox::User=root"])
            .dir(work)
            .timeout_s(600)
    };
    let help = "check the network and Debian's mirror in /etc/apt";
    apt("apt-get")
        .args(["-q", "update"])
        .run_quiet()
        .context(help)?;
    let depends = apt("apt-cache")
        .args(["depends", "linux-image-amd64"])
        .output()?;
    let package = depends
        .split_whitespace()
        .find(|word| word.starts_with(&format!("linux-image-{}", series.name)))
        .with_context(|| {
            format!(
                "Debian's linux-image-amd64 is not {}: {depends}",
                series.name
            )
        })?;
    println!("vm: downloading {package}");
    apt("apt-get")
        .args(["-q", "download", package])
        .run_quiet()
        .context(help)?;
    fs::read_dir(work)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .context("apt-get download left no package")
}

/// The mirror that the system uses for an archive of Debian.
fn mirror(archive: &str) -> Result<String> {
    let all = Cmd::new("apt-get")
        .args([
            "indextargets",
            "--format",
            "$(REPO_URI)",
            "Created-By: Packages",
        ])
        .output()?;
    let mirrors: Vec<&str> = all.lines().map(|line| line.trim_end_matches('/')).collect();
    if let Some(mirror) = mirrors
        .iter()
        .find(|uri| uri.ends_with(&format!("/{archive}")))
    {
        return Ok((*mirror).to_owned());
    }
    // A machine without security updates: most mirrors carry them next door.
    mirrors
        .iter()
        .find_map(|uri| uri.strip_suffix("/debian"))
        .map(|base| format!("{base}/{archive}"))
        .context("no mirror of Debian among apt's sources: add one to /etc/apt/sources.list")
}

/// Takes the package apart into WORK/kernel.
fn unpack(deb: &Path, work: &Path) -> Result<()> {
    println!("vm: unpacking");
    let tree = work.join("tree");
    Cmd::new("dpkg-deb")
        .arg("-x")
        .arg(deb)
        .arg(&tree)
        .run_quiet()?;
    let release = fs::read_dir(tree.join("lib/modules"))
        .context("the package holds no lib/modules")?
        .find_map(|entry| entry.ok()?.file_name().into_string().ok())
        .context("the package's lib/modules is empty")?;
    let kernel = work.join("kernel");
    fs::create_dir_all(&kernel)?;
    extract_vmlinux(
        &tree.join("boot").join(format!("vmlinuz-{release}")),
        &kernel.join("vmlinux"),
    )?;
    modules::select(&tree, &release, &kernel.join("modules"))?;
    fs::write(kernel.join("wanted"), modules::wanted())?;
    fs::write(kernel.join("release"), release)?;
    Ok(())
}

/// Takes the ELF kernel out of a bzImage: its header says where the
/// compressed payload lies (Documentation/arch/x86/boot.rst).
fn extract_vmlinux(image: &Path, vmlinux: &Path) -> Result<()> {
    let bytes = fs::read(image).with_context(|| image.display().to_string())?;
    let payload = payload(&bytes).with_context(|| format!("{}: no bzImage", image.display()))?;
    if !payload.starts_with(b"\xfd7zXZ\0") {
        bail!("{}: not compressed with xz", image.display());
    }
    let packed = vmlinux.with_extension("xz");
    fs::write(&packed, payload)?;
    Cmd::new("xz")
        .args(["-dc", "--single-stream"])
        .arg(&packed)
        .run_into(fs::File::create(vmlinux)?)?;
    fs::remove_file(&packed)?;
    Ok(())
}

/// The compressed kernel inside a bzImage, without the size that follows it.
fn payload(image: &[u8]) -> Option<&[u8]> {
    let word = |at: usize| {
        let bytes = image.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_le_bytes(bytes) as usize)
    };
    if image.get(0x202..0x206)? != b"HdrS" {
        return None;
    }
    let setup = match image.get(0x1f1)? {
        0 => 4,
        sectors => usize::from(*sectors),
    };
    let start = (setup + 1) * 512 + word(0x248)?;
    image.get(start..start + word(0x24c)?.checked_sub(4)?)
}

#[cfg(test)]
mod tests {
    use super::payload;

    #[test]
    fn payload_is_cut_by_the_header() {
        let mut image = vec![0u8; 4096];
        image[0x1f1] = 2;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x248..0x24c].copy_from_slice(&16u32.to_le_bytes());
        image[0x24c..0x250].copy_from_slice(&9u32.to_le_bytes());
        image[1552..1561].copy_from_slice(b"abcdeSIZE");
        assert_eq!(payload(&image), Some(b"abcde".as_slice()));
    }

    #[test]
    fn other_files_have_no_payload() {
        assert_eq!(payload(&[0; 4096]), None);
        assert_eq!(payload(b"HdrS"), None);
        let mut beyond = vec![0u8; 4096];
        beyond[0x202..0x206].copy_from_slice(b"HdrS");
        beyond[0x24c..0x250].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(payload(&beyond), None);
    }
}
