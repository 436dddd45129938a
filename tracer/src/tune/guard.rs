//! The guard: a process in a session of its own that puts everything back
//! when the run dies, whatever of.
//!
//! It is this program again, so that it holds no memory, no descriptor and no
//! thread of the run: its standard input is one end of a pair of sockets,
//! whose other end only the run has; its standard output is the lock, which
//! it therefore keeps until all is back. The run says goodbye when it has put
//! back by itself; an end without that is its death.

use std::{
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsFd, OwnedFd},
        unix::{net::UnixStream, process::CommandExt as _},
    },
    process::{Child, Command, Stdio},
    time::Duration,
};

use super::{
    TuneError,
    dir::{Dir, RUN},
    report::Report,
    restore::restore,
};

/// The hidden command that a guard is started as.
pub const COMMAND: &str = "tuning-guard";

const READY: u8 = b'r';
const GOODBYE: u8 = b'g';
/// How long a guard is given to start.
const START: Duration = Duration::from_secs(10);

/// A running guard, as its run sees it.
#[derive(Debug)]
pub struct Guard {
    child: Child,
    line: UnixStream,
}

impl Guard {
    /// Starts one that shares the lock, and waits until it watches.
    pub fn start(dir: &Dir) -> Result<Self, TuneError> {
        Self::spawn(dir).map_err(TuneError::Guard)
    }

    fn spawn(dir: &Dir) -> io::Result<Self> {
        let (line, theirs) = UnixStream::pair()?;
        let child = Command::new("/proc/self/exe")
            .arg0("writepath")
            .arg(COMMAND)
            .current_dir("/")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::from(dir.lock_fd().try_clone_to_owned()?))
            .spawn()?;
        let mut guard = Self { child, line };
        guard.line.set_read_timeout(Some(START))?;
        let mut word = [0];
        let heard = guard.line.read_exact(&mut word);
        if heard.is_err() || word != [READY] {
            // Whatever it is, it shall not act.
            let _ = guard.child.kill();
            let _ = guard.child.wait();
            return Err(io::Error::other("it does not answer"));
        }
        Ok(guard)
    }

    /// Whether it is there.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Tells it that there is nothing left to do, and waits for its end.
    pub fn dismiss(mut self) {
        // One that is dead cannot hear it, and need not.
        let _ = self.line.write_all(&[GOODBYE]);
        let _ = self.child.wait();
    }

    /// Has it put everything back as if the run had died, and waits for that.
    pub fn unleash(mut self) {
        let _ = self.line.shutdown(std::net::Shutdown::Both);
        let _ = self.child.wait();
    }
}

/// What a guard has done.
#[derive(Debug)]
pub enum Watched {
    /// The run has put back by itself.
    Goodbye,
    /// The run died; this was put back.
    Died(Report),
}

/// The guard's life. Standard input and output are as [`Guard::start`] gave
/// them.
pub fn watch() -> Result<Watched, TuneError> {
    // What ends the run must not end its guard.
    let _ = rustix::process::setsid();
    // It was started as /proc/self/exe, of which the kernel makes `exe`.
    let _ = rustix::thread::set_name(c"writepath-guard");
    for signal in [
        libc::SIGINT,
        libc::SIGTERM,
        libc::SIGHUP,
        libc::SIGQUIT,
        libc::SIGPIPE,
    ] {
        // SAFETY: sets a disposition of this process, to one that runs no code.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    // Memory that runs out shall take others first; not all may say so.
    let _ = std::fs::write("/proc/self/oom_score_adj", "-1000");
    let dir = Dir::of_guard(io::stdout().as_fd())?;
    let line = io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .map_err(TuneError::Guard)?;
    let mut line = UnixStream::from(line);
    // A run that is dead already is heard of by the read.
    let _ = line.write_all(&[READY]);
    let mut word = [0];
    loop {
        match line.read(&mut word) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(1) if word == [GOODBYE] => return Ok(Watched::Goodbye),
            Ok(1) => {}
            Ok(_) | Err(_) => break,
        }
    }
    let report = restore(&dir, RUN)?;
    dir.leave();
    Ok(Watched::Died(report))
}
