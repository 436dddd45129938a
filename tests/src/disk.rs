//! Loop devices, partitions and what the kernel says about a disk, by system
//! calls alone. Only devices made here are ever opened for writing.
//! Entry: [`Loop::attach`], [`DiskStat::read`].

use std::fs::{self, File, OpenOptions};
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

const LOOP_CTL_GET_FREE: u32 = 0x4C82;
const LOOP_CONFIGURE: u32 = 0x4C0A;
const LOOP_CLR_FD: u32 = 0x4C01;
const LOOP_GET_STATUS64: u32 = 0x4C05;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LO_FLAGS_PARTSCAN: u32 = 8;
const LO_FLAGS_DIRECT_IO: u32 = 16;
const BLKPG: u32 = 0x1269;
const BLKPG_ADD_PARTITION: i32 = 1;
const BLKPG_DEL_PARTITION: i32 = 2;

/// struct `loop_info64` of linux/loop.h.
#[repr(C)]
#[derive(Clone, Copy)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    sizelimit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// struct `loop_config` of linux/loop.h.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

/// struct `blkpg_ioctl_arg` of linux/blkpg.h.
#[repr(C)]
struct BlkpgArg {
    op: i32,
    flags: i32,
    datalen: i32,
    data: *const BlkpgPartition,
}

/// struct `blkpg_partition` of linux/blkpg.h.
#[repr(C)]
struct BlkpgPartition {
    start: i64,
    length: i64,
    pno: i32,
    devname: [u8; 64],
    volname: [u8; 64],
}

/// An ioctl whose argument is a pointer to `arg`.
///
/// # Safety
/// `arg` must be what `request` reads and writes.
pub unsafe fn ioctl<T>(fd: RawFd, request: u32, arg: *mut T) -> std::io::Result<i32> {
    // SAFETY: the caller vouches for `arg`. By number, since the type of a
    // request differs between C libraries.
    let result = unsafe { libc::syscall(libc::SYS_ioctl, fd, u64::from(request), arg) };
    if result < 0 {
        Err(std::io::Error::last_os_error())
    } else {
        Ok(result as i32)
    }
}

/// An attached loop device; detached when dropped, or with the last process
/// that has it open.
pub struct Loop {
    file: File,
    number: u32,
}

impl Loop {
    /// Attaches `image` to a free loop device, under `name`.
    pub fn attach(image: &Path, name: &str, direct_io: bool, block_size: u32) -> Result<Loop> {
        let backing = OpenOptions::new().read(true).write(true).open(image)?;
        let control = File::open("/dev/loop-control").context("opening /dev/loop-control")?;
        for _ in 0..64 {
            // SAFETY: this request takes no argument.
            let number = unsafe {
                ioctl(
                    control.as_raw_fd(),
                    LOOP_CTL_GET_FREE,
                    std::ptr::null_mut::<u8>(),
                )
            }
            .context("asking for a free loop device")?;
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .open(format!("/dev/loop{number}"))
                .with_context(|| format!("opening /dev/loop{number}"))?;
            let mut config = LoopConfig {
                fd: backing.as_raw_fd() as u32,
                block_size,
                info: LoopInfo::zeroed(),
                reserved: [0; 8],
            };
            // With PARTSCAN the partitions go when the device is detached.
            config.info.flags = LO_FLAGS_AUTOCLEAR | LO_FLAGS_PARTSCAN;
            if direct_io {
                config.info.flags |= LO_FLAGS_DIRECT_IO;
            }
            let tag = name.as_bytes();
            let len = tag.len().min(63);
            config.info.file_name[..len].copy_from_slice(&tag[..len]);
            // SAFETY: the structure that LOOP_CONFIGURE reads.
            match unsafe { ioctl(file.as_raw_fd(), LOOP_CONFIGURE, &raw mut config) } {
                Ok(_) => {
                    let device = Loop {
                        file,
                        number: number as u32,
                    };
                    device.drop_old_partitions()?;
                    return Ok(device);
                }
                // Somebody else was faster.
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
                Err(error) => bail!("attaching {} to loop{number}: {error}", image.display()),
            }
        }
        bail!("no free loop device in 64 attempts")
    }

    /// `loop3`
    pub fn name(&self) -> String {
        format!("loop{}", self.number)
    }

    /// The device's open file: reading and writing, buffered.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Adds partition `number` from `start` of `len` bytes, as `partx -a` does;
    /// returns its node.
    pub fn add_partition(&self, number: i32, start: u64, len: u64) -> Result<PathBuf> {
        self.blkpg(BLKPG_ADD_PARTITION, number, start, len)
            .with_context(|| format!("adding partition {number} to {}", self.name()))?;
        Ok(PathBuf::from(format!("/dev/{}p{number}", self.name())))
    }

    /// Partitions outlive a detached device when nobody removes them.
    fn drop_old_partitions(&self) -> Result<()> {
        let prefix = format!("{}p", self.name());
        let dir = format!("/sys/block/{}", self.name());
        for entry in fs::read_dir(&dir).with_context(|| format!("reading {dir}"))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let number = name.strip_prefix(&prefix).and_then(|n| n.parse().ok());
            if let Some(number) = number {
                self.blkpg(BLKPG_DEL_PARTITION, number, 0, 0)
                    .with_context(|| format!("removing the old partition {name}"))?;
            }
        }
        Ok(())
    }

    fn blkpg(&self, op: i32, number: i32, start: u64, len: u64) -> std::io::Result<i32> {
        let mut part = BlkpgPartition {
            start: start as i64,
            length: len as i64,
            pno: number,
            devname: [0; 64],
            volname: [0; 64],
        };
        let mut arg = BlkpgArg {
            op,
            flags: 0,
            datalen: size_of::<BlkpgPartition>() as i32,
            data: &raw mut part,
        };
        // SAFETY: the structures that BLKPG reads.
        unsafe { ioctl(self.file.as_raw_fd(), BLKPG, &raw mut arg) }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // SAFETY: this request takes no argument.
        let _ = unsafe {
            ioctl(
                self.file.as_raw_fd(),
                LOOP_CLR_FD,
                std::ptr::null_mut::<u8>(),
            )
        };
    }
}

impl LoopInfo {
    fn zeroed() -> LoopInfo {
        LoopInfo {
            device: 0,
            inode: 0,
            rdevice: 0,
            offset: 0,
            sizelimit: 0,
            number: 0,
            encrypt_type: 0,
            encrypt_key_size: 0,
            flags: 0,
            file_name: [0; 64],
            crypt_name: [0; 64],
            encrypt_key: [0; 32],
            init: [0; 2],
        }
    }
}

/// Detaches loop devices that were attached under a name with `prefix`.
/// A device on its way out gets a moment to go by itself.
pub fn detach_left_over(prefix: &str) -> Vec<String> {
    let until = std::time::Instant::now() + std::time::Duration::from_secs(2);
    loop {
        let ours = attached(prefix);
        if ours.is_empty() {
            return Vec::new();
        }
        if std::time::Instant::now() > until {
            for (_, file) in &ours {
                // SAFETY: this request takes no argument.
                let _ = unsafe { ioctl(file.as_raw_fd(), LOOP_CLR_FD, std::ptr::null_mut::<u8>()) };
            }
            return ours.into_iter().map(|(name, _)| name).collect();
        }
        drop(ours);
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

fn attached(prefix: &str) -> Vec<(String, File)> {
    let mut ours = Vec::new();
    for entry in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with("loop") || !entry.path().join("loop").exists() {
            continue;
        }
        let Ok(file) = File::open(format!("/dev/{name}")) else {
            continue;
        };
        let mut info = LoopInfo::zeroed();
        // SAFETY: the structure that LOOP_GET_STATUS64 fills.
        let status = unsafe { ioctl(file.as_raw_fd(), LOOP_GET_STATUS64, &raw mut info) };
        if status.is_ok() && info.file_name.starts_with(prefix.as_bytes()) {
            ours.push((name, file));
        }
    }
    ours
}

/// What `/sys/block/DEV/stat` counts of writes; sectors of 512 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskStat {
    pub write_ios: u64,
    pub write_merges: u64,
    pub write_sectors: u64,
    pub in_flight: u64,
    pub discard_sectors: u64,
    pub flushes: u64,
}

impl DiskStat {
    /// Reads `/sys/block/NAME/stat`.
    pub fn read(name: &str) -> Result<DiskStat> {
        let path = format!("/sys/block/{name}/stat");
        let text = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
        let fields: Vec<u64> = text
            .split_whitespace()
            .map(|field| field.parse().unwrap_or(0))
            .collect();
        let at = |index: usize| fields.get(index).copied().unwrap_or(0);
        Ok(DiskStat {
            write_ios: at(4),
            write_merges: at(5),
            write_sectors: at(6),
            in_flight: at(8),
            discard_sectors: at(13),
            flushes: at(15),
        })
    }

    /// What was counted since `before`; `in_flight` stays as it is now.
    pub fn since(self, before: DiskStat) -> DiskStat {
        DiskStat {
            write_ios: self.write_ios - before.write_ios,
            write_merges: self.write_merges - before.write_merges,
            write_sectors: self.write_sectors - before.write_sectors,
            in_flight: self.in_flight,
            discard_sectors: self.discard_sectors - before.discard_sectors,
            flushes: self.flushes - before.flushes,
        }
    }
}
