//! What a guest boots from: an initramfs that loads the modules and mounts the
//! disk, and the disk, an ext4 image with a small system made of this
//! machine's own programs.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::kernel::Kernel;
use super::{make_dir, modules};
use crate::build::{self, Profile, Target};
use crate::process::Cmd;
use crate::workspace::find_program;

/// Size of the guest's disk: room for the tests' images. It is sparse.
const DISK_SIZE: &str = "4G";

/// Programs that a guest must have: those of the tests and of a shell at hand.
const TOOLS: &[&str] = &[
    "bash",
    "blkdiscard",
    "blockdev",
    "busybox",
    "cat",
    "chattr",
    "chmod",
    "chown",
    "cmp",
    "cp",
    "cut",
    "date",
    "dd",
    "debugfs",
    "df",
    "dmesg",
    "dumpe2fs",
    "e2fsck",
    "echo",
    "env",
    "expr",
    "fallocate",
    "false",
    "filefrag",
    "find",
    "findmnt",
    "flock",
    "fsfreeze",
    "fstrim",
    "grep",
    "gzip",
    "head",
    "id",
    "kill",
    "ln",
    "losetup",
    "ls",
    "lsattr",
    "lsblk",
    "mkdir",
    "mkfifo",
    "mkfs.ext2",
    "mkfs.ext4",
    "mknod",
    "mkswap",
    "mktemp",
    "modprobe",
    "mount",
    "mv",
    "nproc",
    "od",
    "partx",
    "printf",
    "ps",
    "pwd",
    "readlink",
    "rm",
    "rmdir",
    "sed",
    "seq",
    "setpriv",
    "setsid",
    "sh",
    "sleep",
    "sort",
    "split",
    "sqlite3",
    "stat",
    "swapoff",
    "swapon",
    "sync",
    "tail",
    "tar",
    "tee",
    "test",
    "timeout",
    "touch",
    "tr",
    "true",
    "truncate",
    "tune2fs",
    "umount",
    "uname",
    "uniq",
    "unshare",
    "wc",
    "xargs",
];

/// First program of the guest, from the initramfs.
const INITRAMFS_INIT: &str = "#!/bin/busybox sh
# Loads the modules of /order, then goes over to the disk.
/bin/busybox mkdir -p /dev /root
/bin/busybox mount -t devtmpfs dev /dev
exec </dev/console >/dev/console 2>&1
while read -r module; do
    /bin/busybox insmod \"/modules/$module\" || echo \"guest: $module does not load\"
done </order
/bin/busybox mount -t ext4 /dev/vda /root || exec /bin/busybox poweroff -f
/bin/busybox mount -o move /dev /root/dev
exec /bin/busybox switch_root /root /init
";

/// First program on the disk. It runs /command with its output on the virtio
/// port `results`, then writes its status there and switches off.
const DISK_INIT: &str = r#"#!/bin/bash
export PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 TERM=dumb
mount -t proc -o nosuid,nodev,noexec proc /proc
mount -t sysfs -o nosuid,nodev,noexec sys /sys
mkdir -p /dev/pts /dev/shm
mount -t devpts dev /dev/pts
mount -t tmpfs shm /dev/shm
mount -t tmpfs run /run
mkdir -p /run/lock
mount -t tmpfs tmp /tmp
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t bpf bpf /sys/fs/bpf
mount -t tracefs tracefs /sys/kernel/tracing
mount -t debugfs debugfs /sys/kernel/debug
mount -t securityfs securityfs /sys/kernel/security
for controller in $(cat /sys/fs/cgroup/cgroup.controllers); do
    echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control
done
mkdir /sys/fs/cgroup/tests
echo $$ >/sys/fs/cgroup/tests/cgroup.procs
ln -sf /proc/self/fd /dev/fd
for port in /sys/class/virtio-ports/*; do
    [ "$(cat "$port/name")" = results ] && results=/dev/${port##*/}
done
[ -c "${results-}" ] || { echo "guest: no virtio port for the results"; exec busybox poweroff -f; }
exec >"$results" 2>&1 </dev/null
cd /root
bash /command
status=$?
echo
echo "@@ guest status $status"
sync
exec busybox poweroff -f
"#;

/// Makes the guest's disk for one run of `command`.
pub fn make(work: &Path, kernel: &Kernel, command: &[String]) -> Result<PathBuf> {
    let tree = Tree::new(work.join("root"))?;
    tree.add_tools()?;
    for program in ["writepath", "kernel-tests"] {
        let from = build::binary(program, Profile::Release, Target::Musl)?;
        tree.copy(&from, &Path::new("/usr/local/bin").join(program))?;
    }
    copy_tree(&kernel.modules(), &tree.root)?;
    tree.write(
        "etc/passwd",
        "root:x:0:0::/root:/bin/bash\nnobody:x:65534:65534::/:/bin/false\n",
        0o644,
    )?;
    tree.write("etc/group", "root:x:0:\nnogroup:x:65534:\n", 0o644)?;
    symlink("/proc/self/mounts", tree.root.join("etc/mtab"))?;
    tree.copy(Path::new("/etc/mke2fs.conf"), Path::new("/etc/mke2fs.conf"))?;
    tree.write("init", DISK_INIT, 0o755)?;
    tree.write("command", &command_script(command), 0o644)?;
    let image = work.join("disk.img");
    fs::File::create_new(&image)?;
    let mkfs = find_program("mkfs.ext4").context("mkfs.ext4 is not installed")?;
    Cmd::new(mkfs)
        .args(["-q", "-F", "-L", "guest", "-d"])
        .arg(&tree.root)
        // All is initialised here: the guest's lazy init would write beside
        // the tests.
        .args([
            "-E",
            "lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0",
        ])
        .arg(&image)
        .arg(DISK_SIZE)
        .run_quiet()?;
    Ok(image)
}

/// Makes the initramfs.
pub fn initramfs(work: &Path, kernel: &Kernel) -> Result<PathBuf> {
    let tree = Tree::new(work.join("initramfs"))?;
    tree.add_program("busybox")?;
    let from = kernel.modules().join("lib/modules").join(&kernel.release);
    let mut order = String::new();
    for file in modules::boot_files(&kernel.modules(), &kernel.release)? {
        let name = file.file_name().context("a module without a name")?;
        tree.copy(&from.join(&file), &Path::new("/modules").join(name))?;
        let _ = writeln!(order, "{}", name.display());
    }
    tree.write("order", &order, 0o644)?;
    tree.write("init", INITRAMFS_INIT, 0o755)?;
    let archive = work.join("initramfs.cpio");
    // cpio takes the names on its standard input.
    Cmd::new("sh")
        .args(["-c", "find . | cpio --quiet -o -H newc --owner=0:0"])
        .dir(&tree.root)
        .run_into(fs::File::create_new(&archive)?)?;
    Ok(archive)
}

/// /command: environment of the tests, then the command with its arguments.
fn command_script(command: &[String]) -> String {
    let script =
        "export WRITEPATH_BIN=/usr/local/bin/writepath WRITEPATH_TIER=guest RUST_BACKTRACE=1\n"
            .to_owned();
    let words: Vec<String> = command.iter().map(|word| quote(word)).collect();
    script + "exec " + &words.join(" ") + "\n"
}

/// A word for the shell.
fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// A directory that becomes a root filesystem.
struct Tree {
    root: PathBuf,
}

impl Tree {
    fn new(root: PathBuf) -> Result<Self> {
        for dir in [
            "usr/bin",
            "usr/sbin",
            "usr/lib",
            "usr/lib64",
            "usr/local/bin",
            "etc",
        ] {
            make_dir(&root.join(dir))?;
        }
        for dir in ["dev", "proc", "sys", "run", "tmp", "root", "mnt", "var/tmp"] {
            make_dir(&root.join(dir))?;
        }
        fs::set_permissions(root.join("var/tmp"), fs::Permissions::from_mode(0o1777))?;
        symlink("/run", root.join("var/run"))?;
        // As on this machine, or the programs' paths do not lead to them.
        for dir in ["bin", "sbin", "lib", "lib64"] {
            match fs::read_link(Path::new("/").join(dir)) {
                Ok(target) => symlink(target, root.join(dir))?,
                Err(_) => make_dir(&root.join(dir))?,
            }
        }
        Ok(Self { root })
    }

    fn add_tools(&self) -> Result<()> {
        for tool in TOOLS {
            self.add_program(tool)?;
        }
        Ok(())
    }

    /// Copies a program and the libraries that it needs to the same paths.
    fn add_program(&self, name: &str) -> Result<()> {
        let Some(file) = find_program(name) else {
            bail!("the guest needs {name}, which is not installed here");
        };
        self.copy(&file, &file)?;
        for library in libraries(&file)? {
            self.copy(&library, &library)?;
        }
        Ok(())
    }

    /// Copies a file, following links, to a path inside the tree.
    fn copy(&self, from: &Path, to: &Path) -> Result<()> {
        let to = self.root.join(to.strip_prefix("/").unwrap_or(to));
        if to.exists() {
            return Ok(());
        }
        if let Some(dir) = to.parent() {
            make_dir(dir)?;
        }
        fs::copy(from, &to).with_context(|| format!("{} to the guest", from.display()))?;
        Ok(())
    }

    fn write(&self, name: &str, text: &str, mode: u32) -> Result<()> {
        let file = self.root.join(name);
        fs::write(&file, text).with_context(|| file.display().to_string())?;
        fs::set_permissions(&file, fs::Permissions::from_mode(mode))?;
        Ok(())
    }
}

/// The shared objects of a program, by ldd; none when it is static.
fn libraries(program: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut text = String::new();
    // ldd fails on a static program, which needs nothing.
    Cmd::new("ldd").arg(program).scan(|line| {
        text.push_str(line);
        text.push('\n');
    })?;
    Ok(text
        .split_whitespace()
        .filter(|word| word.starts_with('/') && !word.ends_with(':'))
        .map(PathBuf::from)
        .collect())
}

fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            make_dir(&to)?;
            copy_tree(&entry.path(), &to)?;
        } else {
            fs::copy(entry.path(), &to).with_context(|| to.display().to_string())?;
        }
    }
    Ok(())
}
