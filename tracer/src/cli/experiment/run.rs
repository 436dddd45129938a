//! Runs an experiment: one workload a place, one session for all, a profile
//! for each block.

use super::{
    RunArgs,
    place::{Place, ended},
    prepare::Prepared,
};
use crate::{
    attribute::summary::Filter,
    cli::{
        command::{self, User},
        profile::{say, tell},
        status,
        stop::Signals,
        verdict::{MAX_LOST, MAX_UNATTRIBUTED, open_books},
    },
    experiment::plan::Step,
    output::experiment as text,
    session::Session,
    tune::Tuning,
};
use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use std::{io::Write, path::PathBuf, process::ExitCode, time::Duration};
use tokio::time::{Instant, MissedTickBehavior, interval, interval_at, sleep_until};

/// Runs it.
pub fn run(args: &RunArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let prepared = Prepared::new(args)?;
    if args.dry_run {
        prepared.show(args, out)?;
        return Ok(ExitCode::SUCCESS);
    }
    crate::kernel::probe::privileges().map_err(crate::session::SessionError::Privileges)?;
    let user = command::user(args.user.as_deref())?;
    if args.place.len() > 1 {
        super::store::Store::new(&prepared.output, user)?;
    }
    // Mounts of images are private to this thread, so they come first.
    let mut places = Vec::new();
    for place in &args.place {
        places.push(Place::new(args, &prepared, *place, user)?);
    }
    say(&format!(
        "{} blocks in {:.0} min, seed {}; Ctrl-C ends and keeps what is done",
        prepared.steps.len(),
        prepared.duration().as_secs_f64() / 60.0,
        prepared.seed
    ));
    prepared.warn();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the event loop")?;
    let code = runtime.block_on(tuned(args, &prepared, &mut places, user))?;
    for place in &places {
        if !place.result.blocks.is_empty() {
            text::write(out, &place.result)?;
            say(&format!("result in {}", place.dir().display()));
        }
    }
    Ok(code)
}

/// What an experiment takes of the machine, given back however it ends.
async fn tuned(
    args: &RunArgs,
    prepared: &Prepared,
    places: &mut [Place],
    user: Option<User>,
) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::new().context("cannot catch signals")?;
    // First, for it refuses a second run before anything is made.
    let roots: Vec<PathBuf> = places.iter().map(|place| place.root().to_owned()).collect();
    let mut tuning = Tuning::begin(&roots)?;
    if !tuning.leftover().is_empty() {
        say("an earlier run had died; first, what it has left:");
        tell(tuning.leftover());
    }
    let done = blocks(args, prepared, places, user, &mut tuning, &mut signals).await;
    let mut kept = Ok(());
    for place in places {
        let finished = place.finish().await;
        kept = kept.and(finished);
    }
    let back = tuning.put_back();
    let code = tell(&back);
    let closed = done?;
    kept?;
    Ok(if !back.is_clean() {
        code
    } else if closed {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(status::OPEN_BOOKS)
    })
}

/// Makes the files, then runs all blocks; says whether the books closed.
async fn blocks(
    args: &RunArgs,
    prepared: &Prepared,
    places: &mut [Place],
    user: Option<User>,
    tuning: &mut Tuning,
    signals: &mut Signals,
) -> anyhow::Result<bool> {
    for place in &mut *places {
        say(&format!("making files on {}", place.device()));
        let made = place.make_files(args, prepared.seed, user, signals);
        if made.await?.is_none() {
            return Ok(true);
        }
    }
    if let Some(speed) = args.emulate {
        for place in &*places {
            if let Some(below) = place.below()? {
                tuning.throttle(below, Some(speed.bytes_per_s), speed.iops)?;
            }
        }
    }
    let devices: Vec<String> = places
        .iter()
        .map(|place| place.device().to_owned())
        .collect();
    let mut session = Session::begin(&devices)?;
    for place in &mut *places {
        session.marking(|| place.start(args, prepared, user))??;
    }
    let bar = bar(prepared.duration());
    let started = Instant::now();
    let mut closed = true;
    for (order, step) in prepared.steps.iter().enumerate() {
        let profile = &prepared.profiles[step.profile];
        tuning.apply(profile)?;
        bar.set_message(format!(
            "block {}/{} {}",
            order + 1,
            prepared.steps.len(),
            profile.name
        ));
        let mut block = BlockRun {
            places: &mut *places,
            session: &mut session,
            signals: &mut *signals,
            bar: &bar,
            started,
        };
        let Some(books) = block
            .run(step, &profile.name, order, prepared.period)
            .await?
        else {
            bar.finish_and_clear();
            say(&format!(
                "ended after {order} of {} blocks",
                prepared.steps.len()
            ));
            return Ok(closed);
        };
        closed &= books;
        if bar.is_hidden() {
            let left = prepared.duration().saturating_sub(started.elapsed());
            say(&format!(
                "block {} of {} done ({}), {:.0} s left",
                order + 1,
                prepared.steps.len(),
                profile.name,
                left.as_secs_f64()
            ));
        }
    }
    bar.finish_and_clear();
    Ok(closed)
}

/// What a block needs.
struct BlockRun<'a> {
    places: &'a mut [Place],
    session: &'a mut Session,
    signals: &'a mut Signals,
    bar: &'a ProgressBar,
    started: Instant,
}

impl BlockRun<'_> {
    /// Settles and measures; none when it was told to end, else whether the
    /// books of the block closed.
    async fn run(
        &mut self,
        step: &Step,
        profile: &str,
        order: usize,
        period: Duration,
    ) -> anyhow::Result<Option<bool>> {
        for place in &mut *self.places {
            place.settle(order)?;
        }
        if !self.pass(step.settle, None).await? {
            return Ok(None);
        }
        let settled = self.session.interval(&Filter::default())?;
        for (index, place) in self.places.iter_mut().enumerate() {
            place.begin(&settled, self.session.edge(index));
        }
        if !self.pass(step.length, Some(period)).await? {
            return Ok(None);
        }
        let measured = self.session.interval(&Filter::default())?;
        let open = open_books(&measured, MAX_UNATTRIBUTED, MAX_LOST);
        if !open.is_empty() {
            self.bar
                .suspend(|| say(&format!("block {}: {}", order + 1, open.join("; "))));
        }
        for (index, place) in self.places.iter_mut().enumerate() {
            place.end(&measured, self.session.edge(index), profile, order)?;
        }
        Ok(Some(open.is_empty()))
    }

    /// Lets time pass; says whether it passed without a signal to end.
    async fn pass(&mut self, time: Duration, window: Option<Duration>) -> anyhow::Result<bool> {
        let begin = Instant::now();
        let until = begin + time;
        let mut ring = interval(Duration::from_millis(100));
        let mut tick = interval(Duration::from_millis(500));
        let mut sample = interval(Duration::from_secs(1));
        let every = window.unwrap_or(Duration::from_hours(24 * 365));
        let mut windows = interval_at(begin + every, every);
        for timer in [&mut ring, &mut tick, &mut sample] {
            timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        }
        loop {
            tokio::select! {
                biased;
                () = ended(self.signals) => return Ok(false),
                error = first_ended(self.places) => return Err(error),
                _ = windows.tick() => {
                    for place in &mut *self.places {
                        place.window()?;
                    }
                }
                () = sleep_until(until) => {
                    return Ok(true);
                }
                _ = ring.tick() => self.session.read_ring(),
                _ = tick.tick() => {
                    self.bar.set_position(self.started.elapsed().as_secs());
                    if !self.session.tick()? {
                        anyhow::bail!("a traced device vanished");
                    }
                }
                _ = sample.tick() => {
                    for (index, place) in self.places.iter_mut().enumerate() {
                        place.sample(self.session, index)?;
                    }
                }
            }
        }
    }
}

/// Waits for the first workload that ends too early.
async fn first_ended(places: &mut [Place]) -> anyhow::Error {
    let mut waits: Vec<_> = places
        .iter_mut()
        .map(|place| Box::pin(place.workload_ended()))
        .collect();
    std::future::poll_fn(|context| {
        for wait in &mut waits {
            if let std::task::Poll::Ready(error) = wait.as_mut().poll(context) {
                return std::task::Poll::Ready(error);
            }
        }
        std::task::Poll::Pending
    })
    .await
}

fn bar(time: Duration) -> ProgressBar {
    let bar = ProgressBar::new(time.as_secs());
    let style = ProgressStyle::with_template("{bar:20} {msg}, {eta_precise} left");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar
}
