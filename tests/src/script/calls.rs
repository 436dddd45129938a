//! System calls of the writers that the standard library does not offer.

use std::alloc::Layout;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::disk::ioctl;

pub fn open(path: &Path, flags: &str) -> Result<File> {
    let mut options = OpenOptions::new();
    let mut custom = 0;
    for flag in flags.split_whitespace() {
        match flag {
            "ro" => drop(options.read(true)),
            "wo" => drop(options.write(true)),
            "rw" => drop(options.read(true).write(true)),
            "creat" => drop(options.create(true)),
            "excl" => drop(options.create_new(true)),
            "trunc" => drop(options.truncate(true)),
            "append" => drop(options.append(true)),
            "direct" => custom |= libc::O_DIRECT,
            "sync" => custom |= libc::O_SYNC,
            "dsync" => custom |= libc::O_DSYNC,
            other => bail!("unknown flag {other}"),
        }
    }
    options
        .custom_flags(custom)
        .open(path)
        .with_context(|| format!("opening {}", path.display()))
}

/// Stores of eight bytes through a shared map, then `msync(MS_SYNC)` if asked.
pub fn mmap_store(file: &File, places: &[u64], msync: bool) -> Result<()> {
    use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};
    let len = file.metadata()?.len() as usize;
    if places.iter().any(|at| at + 8 > len as u64) {
        bail!("the stores reach past the file's {len} bytes");
    }
    // SAFETY: a fresh map of `len` bytes, kept until munmap; the stores are
    // inside by the test above, and nobody truncates the file meanwhile.
    unsafe {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let map = rustix::mm::mmap(
            std::ptr::null_mut(),
            len,
            protection,
            MapFlags::SHARED,
            file,
            0,
        )?;
        for at in places {
            let target = map.cast::<u8>().add(*at as usize);
            target.cast::<u64>().write_unaligned(0x5A5A_0000 + at);
        }
        if msync {
            rustix::mm::msync(map, len, MsyncFlags::SYNC)?;
        }
        rustix::mm::munmap(map, len)?;
    }
    Ok(())
}

/// Page-aligned bytes that are neither zero nor all the same.
pub struct Buffer {
    start: *mut u8,
    layout: Layout,
}

impl Buffer {
    pub fn new(len: u64) -> Buffer {
        let layout = Layout::from_size_align(len.max(1) as usize, 4096).expect("a sane size");
        // SAFETY: the size is not zero.
        let start = unsafe { std::alloc::alloc_zeroed(layout) };
        assert!(!start.is_null(), "out of memory for {len} bytes");
        let mut buffer = Buffer { start, layout };
        for (index, byte) in buffer.bytes_mut().iter_mut().enumerate() {
            *byte = (index * 31 + index / 4096) as u8 | 1;
        }
        buffer
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: allocated with this size, initialised with zeroes.
        unsafe { std::slice::from_raw_parts(self.start, self.layout.size()) }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.layout.size()) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated with the same layout.
        unsafe { std::alloc::dealloc(self.start, self.layout) }
    }
}

/// Whether standard input has something, or has ended.
pub fn told() -> bool {
    let mut poll = libc::pollfd {
        fd: 0,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one pollfd, no waiting.
    unsafe { libc::poll(&raw mut poll, 1, 0) > 0 }
}

pub fn check_len(done: usize, asked: u64) -> Result<()> {
    if done as u64 == asked {
        Ok(())
    } else {
        bail!("short write: {done} of {asked} bytes")
    }
}

pub fn done(result: i32) -> Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error().into())
    }
}

pub fn sync_file_range(fd: i32, at: i64, len: i64, flags: u32) -> Result<()> {
    // SAFETY: a system call on an open file; musl has no wrapper in this crate.
    let result = unsafe { libc::syscall(libc::SYS_sync_file_range, fd, at, len, flags) };
    done(result as i32)
}

/// FIFREEZE: writes everything back, then lets nobody write.
pub fn freeze(fd: i32) -> Result<()> {
    let mut unused = 0_u32;
    // SAFETY: the request ignores its argument.
    unsafe { ioctl(fd, FIFREEZE, &raw mut unused)? };
    Ok(())
}

/// FITHAW
pub fn thaw(fd: i32) -> Result<()> {
    let mut unused = 0_u32;
    // SAFETY: the request ignores its argument.
    unsafe { ioctl(fd, FITHAW, &raw mut unused)? };
    Ok(())
}

/// struct fiemap with room for no extents: asks only how many there are.
pub fn fiemap_sync(fd: i32) -> Result<()> {
    const FIEMAP_FLAG_SYNC: u64 = 1;
    // fm_start, fm_length, (fm_flags, fm_mapped_extents), (fm_extent_count, reserved)
    let mut request = [0_u64, u64::MAX, FIEMAP_FLAG_SYNC, 0];
    // SAFETY: struct fiemap without extents is 32 bytes.
    unsafe { ioctl(fd, FS_IOC_FIEMAP, &raw mut request)? };
    Ok(())
}

const FIFREEZE: u32 = 0xC004_5877;
const FITHAW: u32 = 0xC004_5878;
pub const FITRIM: u32 = 0xC018_5879;
pub const BLKDISCARD: u32 = 0x1277;
pub const BLKZEROOUT: u32 = 0x127F;
pub const FS_IOC_FIEMAP: u32 = 0xC020_660B;
