//! The known writers: a script of steps, run in a process of its own whose
//! name and pid the test knows. Every byte is asked for by a step, so a test
//! can say how many blocks must reach the device. Entries: [`Step`], [`main`].

use std::alloc::Layout;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use crate::disk::ioctl;

/// One step of a writer. `{i}` in a path is the number of the round of the
/// innermost [`Step::Repeat`], `{t}` the number of the thread.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Step {
    /// Opens the current file, dropping the last one. Flags, separated by
    /// spaces: ro wo rw creat trunc excl append direct sync dsync.
    Open {
        path: PathBuf,
        flags: String,
    },
    /// Closes the current file.
    Close,
    /// write(2) of so many bytes at the file's position.
    Write {
        len: u64,
    },
    /// pwrite(2).
    Pwrite {
        at: u64,
        len: u64,
    },
    /// `count` pwrites at random multiples of `align` below `area`, each of a
    /// random multiple of `align` from `min` to `max` bytes, never past `area`.
    Random {
        area: u64,
        align: u64,
        min: u64,
        max: u64,
        count: u64,
        seed: u64,
    },
    /// As the random step until a byte arrives on standard input.
    RandomUntilTold {
        area: u64,
        align: u64,
        seed: u64,
    },
    /// pread(2).
    Read {
        at: u64,
        len: u64,
    },
    /// `count` stores of eight bytes, `stride` bytes apart, through a shared
    /// map of the current file; then `msync(MS_SYNC)` of the whole, if asked.
    MmapStore {
        at: u64,
        stride: u64,
        count: u64,
        msync: bool,
    },
    Truncate {
        len: u64,
    },
    /// fallocate(2) with the mode's bits.
    Fallocate {
        mode: i32,
        at: u64,
        len: u64,
    },
    /// fsync, fdatasync, syncfs (of the current file) or sync.
    Sync(SyncCall),
    /// `sync_file_range` with `WAIT_BEFORE`, WRITE and `WAIT_AFTER`.
    SyncRange {
        at: u64,
        len: u64,
    },
    /// `posix_fadvise(DONTNEED)` of the whole file.
    DontNeed,
    /// `FS_IOC_FIEMAP` with `FIEMAP_FLAG_SYNC` on the current file.
    FiemapSync,
    /// FIFREEZE, then FITHAW, of the filesystem of the current file.
    FreezeThaw,
    /// FITRIM of the whole filesystem of the current file.
    Trim,
    /// BLKDISCARD or BLKZEROOUT of a range of the current file, a device.
    BlockRange {
        zero: bool,
        at: u64,
        len: u64,
    },
    Mkdir {
        path: PathBuf,
    },
    Rename {
        from: PathBuf,
        to: PathBuf,
    },
    Unlink {
        path: PathBuf,
    },
    Umount {
        path: PathBuf,
    },
    /// mount(2) with `MS_REMOUNT` and options as `mount -o` takes them.
    Remount {
        path: PathBuf,
        options: String,
    },
    /// A new file of `len` bytes, written in one go and closed.
    Create {
        path: PathBuf,
        len: u64,
    },
    /// Writes one byte after another into the current file until there is no
    /// space left, in pieces of `len` bytes.
    Fill {
        len: u64,
    },
    Sleep {
        ms: u64,
    },
    Repeat {
        count: u64,
        steps: Vec<Step>,
    },
    /// The steps in `count` threads at once, each with a file of its own.
    Threads {
        count: u64,
        steps: Vec<Step>,
    },
    /// Carries on when the inner step fails, as it must.
    Fails(Box<Step>),
    /// Waits for a byte on standard input ([`crate::writers::Writer::go`]).
    Wait,
    /// Prints a line ([`crate::writers::Writer::hear`]).
    Say(String),
}

/// The calls that write back.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum SyncCall {
    Fsync,
    Fdatasync,
    Syncfs,
    Sync,
}

/// What a running script holds.
struct State {
    file: Option<File>,
    round: u64,
    thread: u64,
}

/// The writer's process: its steps come as one line of JSON on standard input.
pub fn main(comm: &str) -> ExitCode {
    match script(comm) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("writer {comm}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn script(comm: &str) -> Result<()> {
    let name = std::ffi::CString::new(comm)?;
    rustix::thread::set_name(&name).context("setting the name")?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    let steps: Vec<Step> = serde_json::from_str(&line).context("reading the steps")?;
    let mut state = State {
        file: None,
        round: 0,
        thread: 0,
    };
    state.run(&steps)?;
    // The file, if open, is closed by the process's end, not by close(2).
    std::mem::forget(state.file.take());
    Ok(())
}

impl State {
    fn run(&mut self, steps: &[Step]) -> Result<()> {
        for step in steps {
            self.step(step).with_context(|| format!("{step:?}"))?;
        }
        Ok(())
    }

    fn file(&self) -> Result<&File> {
        self.file.as_ref().context("no file is open")
    }

    fn fd(&self) -> Result<i32> {
        Ok(self.file()?.as_raw_fd())
    }

    fn path(&self, path: &Path) -> PathBuf {
        let text = path.to_string_lossy();
        let text = text.replace("{i}", &self.round.to_string());
        PathBuf::from(text.replace("{t}", &self.thread.to_string()))
    }

    fn step(&mut self, step: &Step) -> Result<()> {
        match step {
            Step::Open { path, flags } => {
                self.file = None;
                self.file = Some(open(&self.path(path), flags)?);
            }
            Step::Close => drop(self.file.take()),
            Step::Write { len } => {
                let done = self.file()?.write(Buffer::new(*len).bytes())?;
                check_len(done, *len)?;
            }
            Step::Pwrite { at, len } => {
                let done = self.file()?.write_at(Buffer::new(*len).bytes(), *at)?;
                check_len(done, *len)?;
            }
            Step::Random {
                area,
                align,
                min,
                max,
                count,
                seed,
            } => {
                self.random(*area, *align, (*min, *max), *seed, |done| done == *count)?;
            }
            Step::RandomUntilTold { area, align, seed } => {
                self.random(*area, *align, (*align, *align), *seed, |_| told())?;
            }
            Step::Read { at, len } => {
                let mut buffer = Buffer::new(*len);
                self.file()?.read_at(buffer.bytes_mut(), *at)?;
            }
            Step::MmapStore {
                at,
                stride,
                count,
                msync,
            } => {
                self.mmap_store(*at, *stride, *count, *msync)?;
            }
            Step::Truncate { len } => self.file()?.set_len(*len)?,
            Step::Fallocate { mode, at, len } => {
                // SAFETY: a system call on an open file.
                done(unsafe { libc::fallocate64(self.fd()?, *mode, *at as i64, *len as i64) })?;
            }
            Step::Sync(call) => self.sync(*call)?,
            Step::SyncRange { at, len } => {
                let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE
                    | libc::SYNC_FILE_RANGE_WRITE
                    | libc::SYNC_FILE_RANGE_WAIT_AFTER;
                sync_file_range(self.fd()?, *at as i64, *len as i64, flags)?;
            }
            Step::DontNeed => {
                // SAFETY: a system call on an open file.
                let error =
                    unsafe { libc::posix_fadvise(self.fd()?, 0, 0, libc::POSIX_FADV_DONTNEED) };
                if error != 0 {
                    return Err(std::io::Error::from_raw_os_error(error).into());
                }
            }
            Step::FiemapSync => fiemap_sync(self.fd()?)?,
            Step::FreezeThaw => {
                let mut unused = 0_u32;
                // SAFETY: both requests ignore their argument.
                unsafe {
                    ioctl(self.fd()?, FIFREEZE, &raw mut unused)?;
                    ioctl(self.fd()?, FITHAW, &raw mut unused)?;
                }
            }
            Step::Trim => {
                let mut range = [0_u64, u64::MAX, 0];
                // SAFETY: struct fstrim_range is three u64.
                unsafe { ioctl(self.fd()?, FITRIM, &raw mut range)? };
            }
            Step::BlockRange { zero, at, len } => {
                let request = if *zero { BLKZEROOUT } else { BLKDISCARD };
                let mut range = [*at, *len];
                // SAFETY: both requests read two u64.
                unsafe { ioctl(self.fd()?, request, &raw mut range)? };
            }
            Step::Mkdir { path } => fs::create_dir(self.path(path))?,
            Step::Rename { from, to } => fs::rename(self.path(from), self.path(to))?,
            Step::Unlink { path } => fs::remove_file(self.path(path))?,
            Step::Umount { path } => {
                rustix::mount::unmount(self.path(path), rustix::mount::UnmountFlags::empty())?;
            }
            Step::Remount { path, options } => {
                let (flags, data) = crate::bed::mount_options(options);
                let data = std::ffi::CString::new(data)?;
                rustix::mount::mount_remount(self.path(path), flags, data.as_c_str())?;
            }
            Step::Create { path, len } => {
                let file = File::create_new(self.path(path))?;
                check_len((&file).write(Buffer::new(*len).bytes())?, *len)?;
            }
            Step::Fill { len } => self.fill(*len)?,
            Step::Sleep { ms } => std::thread::sleep(Duration::from_millis(*ms)),
            Step::Repeat { count, steps } => {
                let outer = self.round;
                for round in 0..*count {
                    self.round = round;
                    self.run(steps)?;
                }
                self.round = outer;
            }
            Step::Threads { count, steps } => threads(*count, self.round, steps)?,
            Step::Fails(inner) => {
                if self.step(inner).is_ok() {
                    bail!("it did not fail");
                }
            }
            Step::Wait => {
                let mut byte = [0];
                std::io::stdin().read_exact(&mut byte).context("waiting")?;
            }
            Step::Say(line) => {
                println!("{line}");
                std::io::stdout().flush()?;
            }
        }
        Ok(())
    }

    fn random(
        &self,
        area: u64,
        align: u64,
        (min, max): (u64, u64),
        seed: u64,
        mut enough: impl FnMut(u64) -> bool,
    ) -> Result<()> {
        let mut random = ChaCha8Rng::seed_from_u64(seed + self.thread * 7919);
        let buffer = Buffer::new(max);
        let mut count = 0;
        while !enough(count) {
            let len = align * random.random_range(min / align..=max / align);
            let at = align * random.random_range(0..=(area - len) / align);
            let written = self.file()?.write_at(&buffer.bytes()[..len as usize], at)?;
            check_len(written, len)?;
            count += 1;
        }
        Ok(())
    }

    fn mmap_store(&self, at: u64, stride: u64, count: u64, msync: bool) -> Result<()> {
        use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};
        let len = self.file()?.metadata()?.len() as usize;
        if at + (count - 1) * stride + 8 > len as u64 {
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
                self.file()?,
                0,
            )?;
            for index in 0..count {
                let target = map.cast::<u8>().add((at + index * stride) as usize);
                target.cast::<u64>().write_unaligned(0x5A5A_0000 + index);
            }
            if msync {
                rustix::mm::msync(map, len, MsyncFlags::SYNC)?;
            }
            rustix::mm::munmap(map, len)?;
        }
        Ok(())
    }

    fn sync(&self, call: SyncCall) -> Result<()> {
        // SAFETY: system calls on an open file.
        unsafe {
            match call {
                SyncCall::Fsync => done(libc::fsync(self.fd()?)),
                SyncCall::Fdatasync => done(libc::fdatasync(self.fd()?)),
                SyncCall::Syncfs => done(libc::syncfs(self.fd()?)),
                SyncCall::Sync => {
                    libc::sync();
                    Ok(())
                }
            }
        }
    }

    fn fill(&self, len: u64) -> Result<()> {
        let buffer = Buffer::new(len);
        loop {
            match self.file()?.write(buffer.bytes()) {
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOSPC) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn threads(count: u64, round: u64, steps: &[Step]) -> Result<()> {
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..count)
            .map(|thread| {
                scope.spawn(move || {
                    let file = None;
                    State {
                        file,
                        round,
                        thread,
                    }
                    .run(steps)
                })
            })
            .collect();
        for thread in running {
            thread.join().expect("a writer's thread panicked")?;
        }
        Ok(())
    })
}

fn open(path: &Path, flags: &str) -> Result<File> {
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

/// Page-aligned bytes that are neither zero nor all the same.
struct Buffer {
    start: *mut u8,
    layout: Layout,
}

impl Buffer {
    fn new(len: u64) -> Buffer {
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

    fn bytes(&self) -> &[u8] {
        // SAFETY: allocated with this size, initialised with zeroes.
        unsafe { std::slice::from_raw_parts(self.start, self.layout.size()) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
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
fn told() -> bool {
    let mut poll = libc::pollfd {
        fd: 0,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one pollfd, no waiting.
    unsafe { libc::poll(&raw mut poll, 1, 0) > 0 }
}

fn check_len(done: usize, asked: u64) -> Result<()> {
    if done as u64 == asked {
        Ok(())
    } else {
        bail!("short write: {done} of {asked} bytes")
    }
}

fn done(result: i32) -> Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error().into())
    }
}

fn sync_file_range(fd: i32, at: i64, len: i64, flags: u32) -> Result<()> {
    // SAFETY: a system call on an open file; musl has no wrapper in this crate.
    let result = unsafe { libc::syscall(libc::SYS_sync_file_range, fd, at, len, flags) };
    done(result as i32)
}

/// struct fiemap with room for no extents: asks only how many there are.
fn fiemap_sync(fd: i32) -> Result<()> {
    const FIEMAP_FLAG_SYNC: u64 = 1;
    // fm_start, fm_length, (fm_flags, fm_mapped_extents), (fm_extent_count, reserved)
    let mut request = [0_u64, u64::MAX, FIEMAP_FLAG_SYNC, 0];
    // SAFETY: struct fiemap without extents is 32 bytes.
    unsafe { ioctl(fd, FS_IOC_FIEMAP, &raw mut request)? };
    Ok(())
}

const FIFREEZE: u32 = 0xC004_5877;
const FITHAW: u32 = 0xC004_5878;
const FITRIM: u32 = 0xC018_5879;
const BLKDISCARD: u32 = 0x1277;
const BLKZEROOUT: u32 = 0x127F;
pub const FS_IOC_FIEMAP: u32 = 0xC020_660B;
