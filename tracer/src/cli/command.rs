//! The traced command: a process group of its own, as the invoking user.

use crate::{kernel::processes::dies_with_us, model::ledger::CommandEnd};
use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process_group};
use std::{
    env,
    ffi::OsString,
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{ExitStatus, Stdio},
};
use tokio::process::{Child, Command};

/// Whom the command runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct User {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// The user that is asked for, else the one who called sudo; none to stay.
pub fn user(asked: Option<&str>) -> anyhow::Result<Option<User>> {
    if let Some(name) = asked {
        return lookup(name).map(Some);
    }
    let id = |name| env::var(name).ok().and_then(|text| text.parse().ok());
    match (id("SUDO_UID"), id("SUDO_GID")) {
        (Some(0) | None, _) => Ok(None),
        (Some(uid), gid) => Ok(Some(User {
            uid,
            gid: gid.unwrap_or(uid),
        })),
    }
}

/// A user by name or number, from /etc/passwd.
fn lookup(name: &str) -> anyhow::Result<User> {
    let table = std::fs::read_to_string("/etc/passwd").context("cannot read /etc/passwd")?;
    for line in table.lines() {
        let fields: Vec<&str> = line.split(':').collect();
        if let [user, _, uid, gid, ..] = fields.as_slice()
            && (*user == name || *uid == name)
        {
            return Ok(User {
                uid: uid.parse()?,
                gid: gid.parse()?,
            });
        }
    }
    bail!("no user {name} in /etc/passwd; give a name or number that is there")
}

/// Where the command's output goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Voice {
    /// Where ours goes.
    Ours,
    /// All to stderr, for stdout is taken.
    Stderr,
    /// Nowhere: a part of ourselves, which dies with us.
    Mute,
}

/// A running command.
pub struct Traced {
    program: String,
    child: Child,
    group: Option<Pid>,
}

/// Starts the command.
pub fn start(
    words: &[OsString],
    user: Option<User>,
    dir: Option<&Path>,
    voice: Voice,
) -> anyhow::Result<Traced> {
    let (program, args) = words.split_first().context("no command")?;
    let name = program.to_string_lossy().into_owned();
    let mut command = Command::new(program);
    command.args(args).process_group(0).kill_on_drop(true);
    if let Some(user) = user {
        command.gid(user.gid).uid(user.uid);
    }
    if let Some(dir) = dir {
        command.current_dir(dir);
    }
    match voice {
        Voice::Ours => {}
        Voice::Stderr => {
            let stderr = rustix::io::dup(std::io::stderr()).context("stderr")?;
            command.stdout(Stdio::from(stderr));
        }
        Voice::Mute => {
            command.stdin(Stdio::null());
            command.stdout(Stdio::null());
            command.stderr(Stdio::null());
            dies_with_us(command.as_std_mut());
        }
    }
    let child = command
        .spawn()
        .with_context(|| format!("cannot start {name}"))?;
    let group = child
        .id()
        .and_then(|pid| i32::try_from(pid).ok())
        .and_then(Pid::from_raw);
    Ok(Traced {
        program: name,
        child,
        group,
    })
}

impl Traced {
    /// Waits for its end.
    pub async fn wait(&mut self) -> std::io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Sends its group a signal.
    pub fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // An error says that the group is gone.
            let _ = kill_process_group(group, signal);
        }
    }

    /// How it ended.
    pub fn end(&self, status: ExitStatus) -> CommandEnd {
        CommandEnd {
            program: self.program.clone(),
            code: status.code(),
            signal: status.signal(),
        }
    }
}
