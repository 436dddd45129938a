//! A traced run as commands share it: what is typed for it, its image, its
//! command, its signals, its end.

use super::{
    command::{self, Traced, User, Voice},
    status,
    stop::{Asked, Signals},
    typed::{create, parse_duration, parse_size},
    verdict::{MAX_LOST, MAX_UNATTRIBUTED},
};
use crate::{
    bed::{Bed, BedOptions},
    model::ledger::CommandEnd,
    session::{Session, SessionError, record::RecordError},
};
use anyhow::{Context, bail};
use clap::Args;
use std::{
    ffi::OsString,
    fs::File,
    io,
    path::PathBuf,
    process::{ExitCode, ExitStatus},
    time::Duration,
};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

/// Options of every traced run, as typed.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Disk, partition or directory; repeatable. Default: each disk that is
    /// not loop, ram or zram and not built on another.
    #[arg(short, long, value_name = "DEV|DIR")]
    pub device: Vec<String>,
    /// Make a throw-away ext4 image of this size, trace it, and run CMD in it.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, conflicts_with = "device")]
    pub image: Option<u64>,
    /// Mount options of that image.
    #[arg(long, value_name = "OPTIONS", requires = "image", default_value = "")]
    pub image_mount: String,
    /// End after this time.
    #[arg(long, value_name = "DUR", value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// After CMD, wait until the device has got its data, at most this long.
    #[arg(long, value_name = "DUR", value_parser = parse_duration, num_args = 0..=1,
          require_equals = true, default_missing_value = "120s")]
    pub drain: Option<Duration>,
    /// After CMD, call syncfs; its writes are booked to writepath.
    #[arg(long)]
    pub sync: bool,
    /// Make this file once tracing has begun.
    #[arg(long, value_name = "FILE")]
    pub ready_file: Option<PathBuf>,
    /// Exit with 0 although CMD failed.
    #[arg(long)]
    pub ignore_failure: bool,
    /// Run CMD as this user (default: who called sudo).
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
    /// Ring records that may be lost before the status is 4, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = MAX_LOST)]
    pub max_lost: f64,
    /// Sectors that may be unattributed before the status is 4, in percent;
    /// those in flight before do not count.
    #[arg(long, value_name = "PERCENT", default_value_t = MAX_UNATTRIBUTED)]
    pub max_unattributed: f64,
    /// Say on stderr what was attached.
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Command to trace, after `--`.
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// What a command does while its run goes on.
pub trait Watcher {
    /// How often [`Self::step`] is due; none for never.
    fn every(&self) -> Option<Duration>;
    /// The ring was read; several times a second.
    fn heard(&mut self, session: &mut Session) -> anyhow::Result<()>;
    /// The time of a step has come.
    fn step(&mut self, session: &mut Session) -> anyhow::Result<()>;
    /// Somebody asked for a snapshot.
    fn snapshot(&mut self, session: &mut Session) -> anyhow::Result<()>;
}

impl RunArgs {
    /// Whom CMD runs as, and whose the files are that are made.
    pub fn user(&self) -> anyhow::Result<Option<User>> {
        command::user(self.user.as_deref())
    }

    /// Runs `body` with the image that was asked for, inside an event loop.
    pub fn with_bed(
        &self,
        body: impl AsyncFnOnce(Option<&Bed>) -> anyhow::Result<ExitCode>,
    ) -> anyhow::Result<ExitCode> {
        if self.command.is_empty() && (self.sync || self.drain.is_some()) {
            bail!("--sync and --drain need a command, after --");
        }
        // The image's mount is private to this thread and what it starts, so
        // it is made before there are others.
        let bed = self.image.map(|size| self.make_bed(size)).transpose()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the event loop")?;
        let result = runtime.block_on(body(bed.as_ref()));
        drop(bed);
        match result {
            Ok(code) => Ok(code),
            Err(error) if is_unable(&error) => {
                eprintln!("writepath: {error:#}");
                Ok(ExitCode::from(status::UNABLE))
            }
            Err(error) => Err(error),
        }
    }

    fn make_bed(&self, size: u64) -> anyhow::Result<Bed> {
        let bed = Bed::new(&BedOptions {
            size_bytes: size,
            mount_options: self.image_mount.clone(),
            owner: self.user()?.map(|user| (user.uid, user.gid)),
            ..BedOptions::default()
        })?;
        eprintln!(
            "writepath: ext4 image of {} MiB on {}",
            size >> 20,
            bed.device_name()
        );
        Ok(bed)
    }

    /// The devices to trace, as typed.
    pub fn devices(&self, bed: Option<&Bed>) -> Vec<String> {
        match bed {
            Some(bed) => vec![bed.device_name().to_owned()],
            None => self.device.clone(),
        }
    }

    /// Says that tracing has begun, starts CMD where there is one, and follows
    /// until the end. Gives how CMD ended, where it ended by itself.
    pub async fn follow(
        &self,
        session: &mut Session,
        bed: Option<&Bed>,
        signals: &mut Signals,
        stdout_is_taken: bool,
        watcher: &mut dyn Watcher,
    ) -> anyhow::Result<Option<CommandEnd>> {
        if self.verbose > 0 {
            say_hooks(session);
        }
        if let Some(path) = &self.ready_file {
            create(path, None)?;
        }
        let mut traced = if self.command.is_empty() {
            eprintln!(
                "writepath: tracing {}; Ctrl-C ends",
                session.disk_names().join(" ")
            );
            None
        } else {
            let user = self.user()?;
            let dir = bed.map(Bed::mount_point);
            let voice = if stdout_is_taken {
                Voice::Stderr
            } else {
                Voice::Ours
            };
            let start = || command::start(&self.command, user, dir, voice);
            Some(session.marking(start)??)
        };
        let ended = self.watch(session, &mut traced, signals, watcher).await?;
        if let Some(ended) = &ended
            && ended.status.is_some()
        {
            self.settle_down(bed, session).await?;
        }
        Ok(ended.and_then(|ended| ended.end))
    }

    async fn watch(
        &self,
        session: &mut Session,
        traced: &mut Option<Traced>,
        signals: &mut Signals,
        watcher: &mut dyn Watcher,
    ) -> anyhow::Result<Option<Ended>> {
        let mut ring = interval(Duration::from_millis(100));
        let mut tick = interval(Duration::from_millis(500));
        for timer in [&mut ring, &mut tick] {
            timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        }
        let far = Duration::from_hours(24 * 365);
        let mut step = interval(watcher.every().unwrap_or(far));
        step.tick().await;
        let mut until = Instant::now() + self.duration.unwrap_or(far);
        let mut told_to_end = false;
        loop {
            tokio::select! {
                asked = signals.next() => match asked {
                    Asked::Snapshot => watcher.snapshot(session)?,
                    Asked::End(signal) => {
                        let Some(traced) = traced.as_ref().filter(|_| !told_to_end) else {
                            return Ok(None);
                        };
                        traced.signal(signal);
                        told_to_end = true;
                        until = Instant::now() + MANNERS;
                    }
                },
                status = ended(traced) => {
                    let status = status.context("cannot wait for the command")?;
                    let end = traced.as_ref().map(|traced| traced.end(status));
                    // A command that was told to end did as it was told.
                    let status = (!told_to_end).then_some(status);
                    return Ok(Some(Ended { status, end: end.filter(|_| !told_to_end) }));
                }
                _ = ring.tick() => {
                    session.read_ring();
                    watcher.heard(session)?;
                }
                _ = tick.tick() => {
                    if !session.tick()? {
                        eprintln!("writepath: a traced device vanished; ending");
                        return Ok(None);
                    }
                }
                _ = step.tick() => watcher.step(session)?,
                () = sleep_until(until) => {
                    let Some(traced) = traced.as_ref() else {
                        return Ok(None);
                    };
                    if told_to_end {
                        eprintln!("writepath: the command does not end; killing its group");
                        traced.signal(rustix::process::Signal::KILL);
                        return Ok(None);
                    }
                    traced.signal(rustix::process::Signal::TERM);
                    told_to_end = true;
                    until = Instant::now() + MANNERS;
                }
            }
        }
    }

    /// After the command: `--sync` and `--drain`.
    async fn settle_down(&self, bed: Option<&Bed>, session: &mut Session) -> anyhow::Result<()> {
        if self.sync {
            let mut points: Vec<PathBuf> = session.mount_points();
            points.extend(bed.map(|bed| bed.mount_point().to_owned()));
            for point in points {
                let dir = File::open(&point)
                    .with_context(|| format!("cannot sync {}", point.display()))?;
                rustix::fs::syncfs(&dir)
                    .with_context(|| format!("syncfs of {}", point.display()))?;
            }
        }
        let Some(drain) = self.drain else {
            return Ok(());
        };
        let until = Instant::now() + drain;
        while Instant::now() < until {
            match session.dirty_bytes() {
                Ok(0) => return Ok(()),
                Ok(left) => eprint!("\rwritepath: {} KiB still dirty   ", left / 1024),
                Err(why) => bail!("--drain cannot see what is dirty: {why}"),
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
            session.tick()?;
        }
        eprintln!("\nwritepath: --drain gave up: the rest is in still_dirty_bytes");
        Ok(())
    }
}

/// Whether this kernel or these privileges lack what was asked.
fn is_unable(error: &anyhow::Error) -> bool {
    let session = match error.downcast_ref::<RecordError>() {
        Some(RecordError::Probe(_)) => return true,
        Some(RecordError::Session(error)) => Some(error),
        Some(RecordError::Write(_)) => None,
        None => error.downcast_ref::<SessionError>(),
    };
    matches!(
        session,
        Some(SessionError::Privileges(_) | SessionError::Tracefs(_) | SessionError::Probe(_))
    )
}

/// How following ended, where there was a command.
struct Ended {
    status: Option<ExitStatus>,
    end: Option<CommandEnd>,
}

/// How long a command's group has to end after a signal.
const MANNERS: Duration = Duration::from_secs(10);

async fn ended(traced: &mut Option<Traced>) -> io::Result<ExitStatus> {
    match traced {
        Some(traced) => traced.wait().await,
        None => std::future::pending().await,
    }
}

fn say_hooks(session: &Session) {
    for hook in session.hooks() {
        let by = hook.by.map_or("missing", |candidate| candidate.program);
        eprintln!("writepath: {:<34} {by}", hook.step.hook.name);
        for failure in &hook.failures {
            eprintln!("writepath:   passed over: {failure}");
        }
    }
}
