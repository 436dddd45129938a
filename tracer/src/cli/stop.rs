//! Signals: SIGINT, SIGTERM and SIGHUP end a run alike, SIGUSR1 asks for a
//! snapshot.

use rustix::process::Signal;
use std::io;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// The end; the signal goes on to the command's group.
    End(Signal),
    /// A snapshot.
    Snapshot,
}

/// The signals of a run, caught from its very start.
pub struct Signals {
    interrupt: Stream,
    terminate: Stream,
    hangup: Stream,
    user: Stream,
}

impl Signals {
    /// Catches them.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            user: signal(SignalKind::user_defined1())?,
        })
    }

    /// The next one.
    pub async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.interrupt.recv() => Asked::End(Signal::INT),
            _ = self.terminate.recv() => Asked::End(Signal::TERM),
            _ = self.hangup.recv() => Asked::End(Signal::HUP),
            _ = self.user.recv() => Asked::Snapshot,
        }
    }
}
