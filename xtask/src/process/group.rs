//! Signals and process groups: what xtask does when it is told to end, and how
//! it ends its children. The unsafe calls of `process` are here.

use std::process::Child;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

/// The signal that asked xtask to end, or 0.
static SIGNAL: AtomicI32 = AtomicI32::new(0);

extern "C" fn on_signal(signal: libc::c_int) {
    SIGNAL.store(signal, Ordering::Relaxed);
}

/// From now on SIGINT, SIGTERM and SIGHUP end the running child's group, and
/// xtask after it.
pub fn catch_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let handler = on_signal as extern "C" fn(libc::c_int);
        // SAFETY: the handler only stores to an atomic, which is
        // async-signal-safe, and lives as long as the program.
        unsafe { libc::signal(signal, handler as libc::sighandler_t) };
    }
}

/// The signal that asked xtask to end, if one did.
pub fn signalled() -> Option<i32> {
    Some(SIGNAL.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
}

/// Whether xtask runs as root.
pub fn is_root() -> bool {
    // SAFETY: geteuid takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// A child's process group.
pub struct Group(libc::pid_t);

impl Group {
    /// The group of a child that was made to lead one.
    pub fn of(child: &Child) -> Self {
        Self(child.id() as libc::pid_t)
    }

    fn signal(&self, signal: i32) {
        // SAFETY: killpg takes two integers. The group is our child's own: it
        // was made with it, and its number is not given again while a member
        // lives; without members this fails, harmlessly.
        unsafe { libc::killpg(self.0, signal) };
    }

    /// Ends what a finished child left running in its group.
    pub fn kill(&self) {
        self.signal(libc::SIGKILL);
    }

    /// Asks the group to end, gives it ten seconds to put things back, then
    /// kills it.
    pub fn end(&self, child: &mut Child, signal: i32) {
        self.signal(signal);
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(10) {
            if !matches!(child.try_wait(), Ok(None)) {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.kill();
        // Only reaps: the child is dead or cannot be helped.
        let _ = child.wait();
    }
}
