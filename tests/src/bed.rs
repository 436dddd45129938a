//! A throw-away filesystem: an image in the test's directory, a loop device,
//! mkfs, a mount that only the test sees. Everything goes when it is dropped.
//! Entry: [`Spec`] and [`Bed`].

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, bail, ensure};
use rustix::mount::{MountFlags, UnmountFlags};

use crate::disk::{DiskStat, Loop};
use crate::harness;
use crate::knob::{self, Knob};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// What the image lies on.
#[derive(Clone, PartialEq, Eq)]
pub enum Backing {
    /// A file below the test directory, direct I/O.
    Disk,
    /// A file in ramfs, which knows no fallocate: the loop device then has
    /// neither discard nor write-zeroes.
    Ramfs,
    /// A file in this directory, through the page cache.
    Dir(PathBuf),
    /// A sparse file in a tmpfs of so many MiB: writes fail when it is full.
    Tmpfs(u64),
}

/// How to make a bed.
#[derive(Clone)]
pub struct Spec {
    pub size_mib: u64,
    pub backing: Backing,
    /// Arguments of mkfs.ext4 beside those that make the bed quiet.
    pub mkfs: Vec<String>,
    /// Mount options, as `mount -o` takes them.
    pub mount: String,
    /// Let the kernel initialise inode tables and journal after the mount.
    pub lazy: bool,
    /// Partition 1 of so many MiB in front; the filesystem is on partition 2.
    pub partition_mib: Option<u64>,
    /// `queue/scheduler`
    pub scheduler: String,
    /// `queue/max_sectors_kb`
    pub max_sectors_kb: Option<u32>,
}

impl Spec {
    /// ext4 with 4 KiB blocks on a loop device with direct I/O.
    pub fn ext4(size_mib: u64) -> Spec {
        Spec {
            size_mib,
            backing: Backing::Disk,
            mkfs: Vec::new(),
            mount: String::new(),
            lazy: false,
            partition_mib: None,
            scheduler: "none".to_owned(),
            max_sectors_kb: None,
        }
    }

    /// More arguments for mkfs.ext4, separated by spaces.
    pub fn mkfs(mut self, args: &str) -> Spec {
        self.mkfs.extend(args.split_whitespace().map(str::to_owned));
        self
    }

    pub fn mount(mut self, options: &str) -> Spec {
        options.clone_into(&mut self.mount);
        self
    }

    /// Size of the journal in MiB.
    pub fn journal(self, mib: u32) -> Spec {
        self.mkfs(&format!("-J size={mib}"))
    }

    pub fn scheduler(mut self, name: &str) -> Spec {
        name.clone_into(&mut self.scheduler);
        self
    }

    pub fn max_sectors_kb(mut self, kib: u32) -> Spec {
        self.max_sectors_kb = Some(kib);
        self
    }

    pub fn backing(mut self, backing: Backing) -> Spec {
        self.backing = backing;
        self
    }

    pub fn lazy(mut self) -> Spec {
        self.lazy = true;
        self
    }

    pub fn partition(mut self, first_mib: u64) -> Spec {
        self.partition_mib = Some(first_mib);
        self
    }
}

/// A made bed. Fields drop in order: knobs, then the device, then the files.
pub struct Bed {
    knobs: Vec<Knob>,
    device: Loop,
    dir: PathBuf,
    fs_node: PathBuf,
    /// Bytes from the start of the disk to the filesystem.
    fs_offset: u64,
    spec: Spec,
    mounted: bool,
    own_mount: bool,
}

impl Bed {
    /// Makes the image and the filesystem, mounts it and lets it settle.
    pub fn new(spec: Spec) -> Result<Bed> {
        let mut bed = Bed::unmounted(spec)?;
        bed.mount()?;
        bed.settle()?;
        Ok(bed)
    }

    /// As [`Bed::new`], but not mounted.
    pub fn unmounted(spec: Spec) -> Result<Bed> {
        let bed = Bed::raw(spec)?;
        bed.mkfs()?;
        Ok(bed)
    }

    /// Only the device, with its partitions, and no filesystem.
    pub fn raw(spec: Spec) -> Result<Bed> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = harness::run_dir().join(format!("bed{number}"));
        let mnt = dir.join("mnt");
        fs::create_dir_all(&mnt).with_context(|| format!("creating {}", mnt.display()))?;
        let mut store = dir.join("store");
        fs::create_dir_all(&store)?;
        let own_mount = match &spec.backing {
            Backing::Disk => false,
            Backing::Dir(other) => {
                other.clone_into(&mut store);
                false
            }
            Backing::Ramfs => mount_memory("ramfs", &store, "")?,
            Backing::Tmpfs(mib) => mount_memory("tmpfs", &store, &format!("size={mib}m"))?,
        };
        let image = store.join("image");
        let file = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&image)
            .with_context(|| format!("creating {}", image.display()))?;
        file.set_len(spec.size_mib << 20)?;
        drop(file);
        let tag = harness::PREFIX.to_owned() + &std::process::id().to_string();
        let device = Loop::attach(&image, &tag, spec.backing == Backing::Disk, 512)?;
        let fs_node = PathBuf::from("/dev").join(device.name());
        let mut bed = Bed {
            knobs: Vec::new(),
            device,
            dir,
            fs_node,
            fs_offset: 0,
            spec,
            mounted: false,
            own_mount,
        };
        bed.tune()?;
        bed.partition()?;
        Ok(bed)
    }

    /// Queue and bdi settings outlive a loop device: set what we count on.
    fn tune(&mut self) -> Result<()> {
        for (file, value) in [
            ("strict_limit", "0"),
            ("min_ratio", "0"),
            ("max_ratio", "100"),
        ] {
            let path = self.bdi_file(file);
            if path.exists() && knob::read(&path)? != value {
                knob::write(&path, value)?;
            }
        }
        for (file, value) in [("iostats", "1"), ("nomerges", "0")] {
            knob::write(&self.queue_file(file), value)?;
        }
        let hardware: u32 = knob::read(&self.queue_file("max_hw_sectors_kb"))?.parse()?;
        let usual = hardware.min(1280).to_string();
        knob::write(&self.queue_file("max_sectors_kb"), &usual)?;
        knob::write(&self.queue_file("scheduler"), "none")?;
        let scheduler = self.spec.scheduler.clone();
        if scheduler != "none" {
            self.queue("scheduler", &scheduler)?;
        }
        if let Some(kib) = self.spec.max_sectors_kb {
            self.queue("max_sectors_kb", &kib.to_string())?;
        }
        Ok(())
    }

    /// Sets `/sys/block/DEV/queue/FILE` until the bed is dropped.
    pub fn queue(&mut self, file: &str, value: &str) -> Result<()> {
        let knob = Knob::set(self.queue_file(file), value)?;
        self.knobs.push(knob);
        Ok(())
    }

    pub fn queue_file(&self, file: &str) -> PathBuf {
        PathBuf::from(format!("/sys/block/{}/queue/{file}", self.name()))
    }

    fn bdi_file(&self, file: &str) -> PathBuf {
        let (major, minor) = self.devno();
        PathBuf::from(format!("/sys/class/bdi/{major}:{minor}/{file}"))
    }

    fn partition(&mut self) -> Result<()> {
        const MIB: u64 = 1 << 20;
        let Some(first) = self.spec.partition_mib else {
            return Ok(());
        };
        let second = 1 + first;
        let rest = self.spec.size_mib - second;
        // A real table, so that other tools see what we see.
        let mut table = [0_u8; 512];
        for (slot, (start, len)) in [(1, first), (second, rest)].into_iter().enumerate() {
            let entry = &mut table[446 + slot * 16..462 + slot * 16];
            entry[4] = 0x83;
            entry[8..12].copy_from_slice(&((start * MIB / 512) as u32).to_le_bytes());
            entry[12..16].copy_from_slice(&((len * MIB / 512) as u32).to_le_bytes());
        }
        table[510..].copy_from_slice(&[0x55, 0xAA]);
        self.device.file().write_all_at(&table, 0)?;
        self.device.file().sync_all()?;
        self.device.add_partition(1, MIB, first * MIB)?;
        self.fs_node = self.device.add_partition(2, second * MIB, rest * MIB)?;
        self.fs_offset = second * MIB;
        Ok(())
    }

    fn mkfs(&self) -> Result<()> {
        let lazy = u8::from(self.spec.lazy);
        let mut command = Command::new("mkfs.ext4");
        command
            .args(["-q", "-F"])
            .arg("-E")
            .arg(format!(
                "nodiscard,lazy_itable_init={lazy},lazy_journal_init={lazy}"
            ))
            .args(["-b", "4096"])
            .args(&self.spec.mkfs)
            .arg(&self.fs_node);
        let output = command.output().context("running mkfs.ext4")?;
        ensure!(
            output.status.success(),
            "mkfs.ext4 failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    }

    /// Mounts the filesystem with the options of the spec.
    pub fn mount(&mut self) -> Result<()> {
        let (flags, data) = mount_options(&self.spec.mount);
        let data = std::ffi::CString::new(data)?;
        rustix::mount::mount(&self.fs_node, self.mnt(), "ext4", flags, data.as_c_str())
            .with_context(|| {
                format!("mounting {} -o {}", self.fs_node.display(), self.spec.mount)
            })?;
        self.mounted = true;
        Ok(())
    }

    pub fn umount(&mut self) -> Result<()> {
        rustix::mount::unmount(self.mnt(), UnmountFlags::empty())
            .with_context(|| format!("unmounting {}", self.mnt().display()))?;
        self.mounted = false;
        Ok(())
    }

    /// Says that a writer has unmounted it.
    pub fn was_unmounted(&mut self) {
        self.mounted = false;
    }

    /// Brings everything to the device and waits until it is still.
    pub fn settle(&self) -> Result<()> {
        if self.mounted {
            self.syncfs()?;
        } else {
            self.device.file().sync_all()?;
        }
        self.rest()
    }

    /// Waits until the device is still.
    pub fn rest(&self) -> Result<()> {
        let mut before = self.stat()?;
        for _ in 0..200 {
            std::thread::sleep(std::time::Duration::from_millis(10));
            let now = self.stat()?;
            if now == before && now.in_flight == 0 {
                return Ok(());
            }
            before = now;
        }
        bail!("{} does not come to rest", self.name())
    }

    /// syncfs(2) by this process.
    pub fn syncfs(&self) -> Result<()> {
        let root = File::open(self.mnt())?;
        // SAFETY: a system call on an open file.
        let result = unsafe { libc::syncfs(std::os::fd::AsRawFd::as_raw_fd(&root.as_fd())) };
        ensure!(result == 0, "syncfs: {}", std::io::Error::last_os_error());
        Ok(())
    }

    /// `loop3`
    pub fn name(&self) -> String {
        self.device.name()
    }

    /// `/dev/loop3`
    pub fn node(&self) -> PathBuf {
        PathBuf::from("/dev").join(self.name())
    }

    /// The node of partition `number`.
    pub fn partition_node(&self, number: u32) -> PathBuf {
        PathBuf::from(format!("/dev/{}p{number}", self.name()))
    }

    /// What carries the filesystem: the disk or its second partition.
    pub fn fs_node(&self) -> &Path {
        &self.fs_node
    }

    /// Bytes from the start of the disk to the filesystem.
    pub fn fs_offset(&self) -> u64 {
        self.fs_offset
    }

    /// Major and minor number of the disk.
    pub fn devno(&self) -> (u32, u32) {
        let number = fs::metadata(self.node()).map_or(0, |node| node.rdev());
        (rustix::fs::major(number), rustix::fs::minor(number))
    }

    /// Where the filesystem is mounted.
    pub fn mnt(&self) -> PathBuf {
        self.dir.join("mnt")
    }

    /// A file of the filesystem.
    pub fn path(&self, name: &str) -> PathBuf {
        self.mnt().join(name)
    }

    /// A place beside the filesystem, on the host's disk.
    pub fn scratch(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Inode number of a file of the filesystem.
    pub fn ino(&self, name: &str) -> Result<u64> {
        let path = self.path(name);
        let metadata = fs::symlink_metadata(&path);
        Ok(metadata
            .with_context(|| format!("inode of {}", path.display()))?
            .ino())
    }

    pub fn stat(&self) -> Result<DiskStat> {
        DiskStat::read(&self.name())
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        if self.mounted {
            // A killed writer may hold it for a moment; the namespace ends it then.
            let _ = rustix::mount::unmount(self.mnt(), UnmountFlags::empty())
                .or_else(|_| rustix::mount::unmount(self.mnt(), UnmountFlags::DETACH));
        }
        if self.own_mount {
            let _ = rustix::mount::unmount(self.dir.join("store"), UnmountFlags::DETACH);
        }
    }
}

fn mount_memory(kind: &str, at: &Path, options: &str) -> Result<bool> {
    let data = std::ffi::CString::new(options)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount(kind, at, kind, flags, data.as_c_str())
        .with_context(|| format!("mounting {kind} on {}", at.display()))?;
    Ok(true)
}

/// Splits `mount -o` options into the flags of mount(2) and the filesystem's own.
pub fn mount_options(options: &str) -> (MountFlags, String) {
    let mut flags = MountFlags::NOSUID | MountFlags::NODEV;
    let mut data = Vec::new();
    for option in options.split(',').filter(|option| !option.is_empty()) {
        match option {
            "ro" => flags |= MountFlags::RDONLY,
            "rw" => {}
            "sync" => flags |= MountFlags::SYNCHRONOUS,
            "dirsync" => flags |= MountFlags::DIRSYNC,
            "noatime" => flags |= MountFlags::NOATIME,
            "strictatime" => flags |= MountFlags::STRICTATIME,
            "lazytime" => flags |= MountFlags::LAZYTIME,
            "noexec" => flags |= MountFlags::NOEXEC,
            other => data.push(other),
        }
    }
    (flags, data.join(","))
}
