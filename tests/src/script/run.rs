//! Runs the steps of a script, one after another. Entry: [`all`].

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::disk::ioctl;

use super::calls::{self, Buffer, check_len, done, open};
use super::{Step, SyncCall, async_io};

/// Runs a script in this process.
pub fn all(steps: &[Step]) -> Result<()> {
    let mut state = State {
        file: None,
        round: 0,
        thread: 0,
    };
    state.run(steps)?;
    // The file, if open, is closed by the process's end, not by close(2).
    std::mem::forget(state.file.take());
    Ok(())
}

/// What a running script holds.
struct State {
    file: Option<File>,
    round: u64,
    thread: u64,
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
            Step::Random(random) => {
                let places = random.places(self.thread);
                self.write_all(places.take(random.count as usize))?;
            }
            Step::Queued {
                queue,
                depth,
                random,
            } => {
                let places: Vec<_> = random
                    .places(self.thread)
                    .take(random.count as usize)
                    .collect();
                for batch in places.chunks(*depth as usize) {
                    async_io::write(*queue, self.fd()?, batch)?;
                }
            }
            Step::RandomUntilTold(random) => {
                let places = random.places(self.thread);
                self.write_all(places.take_while(|_| !calls::told()))?;
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
                let places: Vec<u64> = (0..*count).map(|n| at + n * stride).collect();
                calls::mmap_store(self.file()?, &places, *msync)?;
            }
            Step::MmapRandom(random) => {
                let places = random.places(self.thread).take(random.count as usize);
                let places: Vec<u64> = places.map(|(at, _)| at).collect();
                calls::mmap_store(self.file()?, &places, true)?;
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
                calls::sync_file_range(self.fd()?, *at as i64, *len as i64, flags)?;
            }
            Step::DontNeed => {
                // SAFETY: a system call on an open file.
                let error =
                    unsafe { libc::posix_fadvise(self.fd()?, 0, 0, libc::POSIX_FADV_DONTNEED) };
                if error != 0 {
                    return Err(std::io::Error::from_raw_os_error(error).into());
                }
            }
            Step::FiemapSync => calls::fiemap_sync(self.fd()?)?,
            Step::FreezeThaw => {
                calls::freeze(self.fd()?)?;
                calls::thaw(self.fd()?)?;
            }
            Step::Frozen => {
                calls::freeze(self.fd()?)?;
                println!("frozen");
                // Whatever happens to the test: thaw.
                let _ = std::io::stdout().flush();
                let _ = std::io::stdin().read(&mut [0]);
                calls::thaw(self.fd()?)?;
            }
            Step::Trim => {
                let mut range = [0_u64, u64::MAX, 0];
                // SAFETY: struct fstrim_range is three u64.
                unsafe { ioctl(self.fd()?, calls::FITRIM, &raw mut range)? };
            }
            Step::BlockRange { zero, at, len } => {
                let request = if *zero {
                    calls::BLKZEROOUT
                } else {
                    calls::BLKDISCARD
                };
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

    fn write_all(&self, places: impl Iterator<Item = (u64, u64)>) -> Result<()> {
        let mut buffer = Buffer::new(1);
        for (at, len) in places {
            if buffer.bytes().len() < len as usize {
                buffer = Buffer::new(len);
            }
            let written = self.file()?.write_at(&buffer.bytes()[..len as usize], at)?;
            check_len(written, len)?;
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
