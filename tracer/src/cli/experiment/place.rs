//! One place of the experiment: its filesystem, its workload, its result.

use super::{RunArgs, prepare::Prepared, store::Store};
use crate::{
    bed::{Bed, BedOptions},
    cli::{
        command::{self, Traced, User, Voice},
        stop::{Asked, Signals},
    },
    experiment::result::{Block, Experiment, Losses, Sample, Window},
    kernel::{
        block::{self, DevNumber, Disk},
        pagecache,
        processes::dies_with_us,
    },
    model::ledger::Run,
    output::json,
    session::{Edge, Session},
    stats,
    workload::iot_files::Place as Where,
};
use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    ffi::OsString,
    fs::OpenOptions,
    io::Read,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};
use tokio::time::{Instant, timeout};

/// How long a workload has to end after a signal.
const MANNERS: Duration = Duration::from_secs(20);

/// The largest account that is read, in bytes.
const MOST_ACCOUNT: u64 = 16 << 20;

/// A place.
pub struct Place {
    updates: Where,
    bed: Option<Bed>,
    root: PathBuf,
    files: PathBuf,
    disk: Disk,
    store: Store,
    /// The result so far.
    pub result: Experiment,
    child: Option<Traced>,
    block: Option<Open>,
}

/// A block that is being measured.
struct Open {
    began: Instant,
    settled: Option<Instant>,
    last_sectors: u64,
    windows: Vec<Window>,
    samples_file: String,
    dirty_before: Option<u64>,
}

impl Open {
    /// A window ends here.
    fn window(&mut self, edge: Edge) {
        let Some(settled) = self.settled else {
            return;
        };
        self.windows.push(Window {
            t_s: (Instant::from_std(edge.at) - settled).as_secs_f64(),
            sectors: edge.sectors_written.saturating_sub(self.last_sectors),
        });
        self.last_sectors = edge.sectors_written;
    }

    /// The block ends here. So does its last window, whose timer fired just
    /// before, so that windows add up to the block.
    fn close(&mut self, edge: Edge) {
        if let [.., before, last] = self.windows[..] {
            let since = self.settled.map(|at| Instant::from_std(edge.at) - at);
            let since = since.unwrap_or_default().as_secs_f64() - last.t_s;
            if since < (last.t_s - before.t_s) / 2.0 {
                self.windows.pop();
                self.last_sectors -= last.sectors;
            }
        }
        self.window(edge);
    }
}

impl Place {
    /// Makes or takes the filesystem, and the directory of the result.
    pub fn new(
        args: &RunArgs,
        prepared: &Prepared,
        place: Where,
        user: Option<User>,
    ) -> anyhow::Result<Self> {
        let bed = match &args.on {
            Some(_) => None,
            None => Some(Bed::new(&BedOptions {
                dir: args.image_dir.clone(),
                size_bytes: Prepared::image_bytes(args),
                owner: user.map(|user| (user.uid, user.gid)),
                stacked: args.emulate.is_some(),
                ..BedOptions::default()
            })?),
        };
        let root = match (&bed, &args.on) {
            (Some(bed), _) => bed.mount_point().to_owned(),
            (None, Some(dir)) => std::fs::canonicalize(dir)
                .with_context(|| format!("cannot find {}", dir.display()))?,
            (None, None) => bail!("neither an image nor a directory"),
        };
        let device = match &bed {
            Some(bed) => bed.device_name().to_owned(),
            None => block::resolve(&root.display().to_string())?,
        };
        let dir = if args.place.len() > 1 {
            prepared.output.join(place.to_string())
        } else {
            prepared.output.clone()
        };
        Ok(Self {
            result: prepared.result(args, place, &device),
            disk: Disk::open(&device)?,
            store: Store::new(&dir, user)?,
            updates: place,
            bed,
            root,
            files: PathBuf::new(),
            child: None,
            block: None,
        })
    }

    /// The traced disk.
    pub fn device(&self) -> &str {
        &self.disk.name
    }

    /// Where its filesystem is mounted, for `commit=`.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The directory of the result.
    pub fn dir(&self) -> &Path {
        self.store.dir()
    }

    /// The device below the traced one, to be slowed down.
    pub fn below(&self) -> anyhow::Result<Option<DevNumber>> {
        let below = self.bed.as_ref().and_then(Bed::below);
        Ok(below.map(Disk::open).transpose()?.map(|disk| disk.dev))
    }

    fn words(&self, args: &RunArgs, seed: u64) -> anyhow::Result<Vec<OsString>> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut words: Vec<OsString> = vec![program.into()];
        words.extend(["workload", "run", "iot-files"].map(OsString::from));
        let mut option = |name: &str, value: String| {
            words.push(name.into());
            words.push(value.into());
        };
        option("--place", self.updates.to_string());
        option("--seed", seed.to_string());
        option(
            "--period",
            format!("{}us", (args.period / args.time_scale).as_micros()),
        );
        option("--threads", args.threads.min(args.files).to_string());
        Ok(words)
    }

    /// Makes the files; none when it was told to end.
    pub async fn make_files(
        &mut self,
        args: &RunArgs,
        seed: u64,
        user: Option<User>,
        signals: &mut Signals,
    ) -> anyhow::Result<Option<()>> {
        let words = self.words(args, seed)?;
        let mut command = tokio::process::Command::new(&words[0]);
        command.args(&words[1..]).arg("--prepare-only").arg("--on");
        command.arg(&self.root).kill_on_drop(true);
        for (name, value) in [
            ("--files", args.files.to_string()),
            ("--file-kib", args.file_kib.to_string()),
            ("--mgmt-kib", args.mgmt_kib.to_string()),
        ] {
            command.arg(name).arg(value);
        }
        if let Some(user) = user {
            command.gid(user.gid).uid(user.uid);
        }
        command.stdin(Stdio::null()).process_group(0);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        dies_with_us(command.as_std_mut());
        let child = command.spawn().context("cannot start the workload")?;
        let id = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let output = child.wait_with_output();
        tokio::pin!(output);
        let output = tokio::select! {
            output = &mut output => output.context("cannot wait for the workload")?,
            () = ended(signals) => {
                // Told to end, it takes away what it has made. What fails here
                // has ended already, or is killed when it is dropped.
                if let Some(id) = id {
                    let _ = kill_process(id, Signal::TERM);
                }
                let _ = timeout(MANNERS, &mut output).await;
                return Ok(None);
            }
        };
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr);
            bail!("the workload cannot make its files: {}", why.trim());
        }
        let path = String::from_utf8_lossy(&output.stdout);
        self.files = PathBuf::from(path.trim());
        Ok(Some(()))
    }

    /// Starts the workload, which lasts longer than all blocks.
    pub fn start(
        &mut self,
        args: &RunArgs,
        prepared: &Prepared,
        user: Option<User>,
    ) -> anyhow::Result<()> {
        let mut words = self.words(args, prepared.seed)?;
        let lasts = prepared.duration() * 2 + Duration::from_hours(1);
        words.extend([OsString::from("--reuse"), self.files.clone().into()]);
        words.extend(["--duration".into(), format!("{}s", lasts.as_secs()).into()]);
        words.extend(["--json".into(), "--output".into()]);
        words.push(self.account().into());
        self.child = Some(command::start(&words, user, None, Voice::Mute)?);
        Ok(())
    }

    /// Where the workload writes its account: beside its files, for it runs
    /// as the user.
    fn account(&self) -> PathBuf {
        self.files.with_extension("account.json")
    }

    /// Waits for the workload, which should not end by itself.
    pub async fn workload_ended(&mut self) -> anyhow::Error {
        match &mut self.child {
            Some(child) => match child.wait().await {
                Ok(status) => anyhow::anyhow!("the workload ended too early: {status}"),
                Err(error) => anyhow::Error::from(error).context("cannot wait for the workload"),
            },
            None => std::future::pending().await,
        }
    }

    /// Begins to settle.
    pub fn settle(&mut self, order: usize) -> anyhow::Result<()> {
        self.block = Some(Open {
            began: Instant::now(),
            settled: None,
            last_sectors: 0,
            windows: Vec::new(),
            samples_file: self.store.begin_samples(order)?,
            dirty_before: None,
        });
        Ok(())
    }

    /// Begins the block; `run` is the interval that settled, `edge` its end.
    pub fn begin(&mut self, run: &Run, edge: Edge) {
        let dirty = self.ledger(run).and_then(|ledger| ledger.still_dirty_bytes);
        if let Some(open) = &mut self.block {
            open.settled = Some(Instant::from_std(edge.at));
            open.dirty_before = dirty;
            open.last_sectors = edge.sectors_written;
        }
    }

    /// Ends a window.
    pub fn window(&mut self) -> anyhow::Result<()> {
        let sectors_written = self.disk.stat().context("stat")?.sectors_written;
        let at = std::time::Instant::now();
        if let Some(open) = &mut self.block {
            open.window(Edge {
                at,
                sectors_written,
            });
        }
        Ok(())
    }

    /// Samples the page cache and the paths.
    pub fn sample(&mut self, session: &Session, index: usize) -> anyhow::Result<()> {
        let Some(open) = &self.block else {
            return Ok(());
        };
        let cache = pagecache::sample().context("cannot read /proc/vmstat")?;
        self.store.sample(&Sample {
            t_s: open.began.elapsed().as_secs_f64(),
            settled: open.settled.is_some(),
            dirty_bytes: cache.dirty,
            writeback_bytes: cache.writeback,
            background_bytes: cache.background,
            threshold_bytes: cache.threshold,
            sectors: session.sectors_by_path(index),
        })
    }

    /// Ends the block and keeps it; `run` is its interval, `edge` its end.
    pub fn end(
        &mut self,
        run: &Run,
        edge: Edge,
        profile: &str,
        order: usize,
    ) -> anyhow::Result<()> {
        self.store.end_samples()?;
        let Some(mut open) = self.block.take() else {
            return Ok(());
        };
        open.close(edge);
        let device = run
            .devices
            .iter()
            .position(|device| device.name == self.disk.name);
        let index = device.context("the traced device is not in the ledger")?;
        let options = json::Options {
            top: Some(20),
            commits: true,
        };
        let ledger = &run.devices[index];
        let settled = open.settled.unwrap_or(open.began);
        self.result.blocks.push(Block {
            profile: profile.to_owned(),
            order,
            settle_s: (settled - open.began).as_secs_f64(),
            duration_s: run.duration_s,
            sectors: ledger.sectors_written,
            mib_per_min: stats::mib_per_min(ledger.sectors_written, run.duration_s),
            dirty_before_bytes: open.dirty_before,
            dirty_after_bytes: ledger.still_dirty_bytes,
            windows: open.windows,
            samples_file: open.samples_file,
            lost: Losses {
                ring: run.lost.ring,
                maps: run.lost.in_maps(),
            },
            trace: json::devices(run, options)?.swap_remove(index),
        });
        self.store.write(&self.result)
    }

    fn ledger<'a>(&self, run: &'a Run) -> Option<&'a crate::model::ledger::DeviceLedger> {
        run.devices
            .iter()
            .find(|device| device.name == self.disk.name)
    }

    /// Ends the workload, keeps its account, and writes the pictures.
    pub async fn finish(&mut self) -> anyhow::Result<()> {
        if let Some(mut child) = self.child.take() {
            child.signal(Signal::TERM);
            if timeout(MANNERS, child.wait()).await.is_err() {
                child.signal(Signal::KILL);
                // It has been killed; there is nothing else to be told.
                let _ = child.wait().await;
            }
            self.result.workload.account = read_account(&self.account());
        }
        if self.bed.is_none() && !self.files.as_os_str().is_empty() {
            self.remove_files();
        }
        if self.result.blocks.is_empty() {
            return Ok(());
        }
        let pictures = crate::output::pictures::draw(&self.result);
        for (name, svg) in &pictures {
            self.store.write_text(name, svg)?;
        }
        self.store.write(&self.result)
    }

    /// Takes away what the workload made in the user's directory.
    fn remove_files(&self) {
        let made = self.files.parent() == Some(&self.root);
        if made {
            for path in [self.account(), self.files.clone()] {
                let gone = if path.is_dir() {
                    std::fs::remove_dir_all(&path)
                } else {
                    std::fs::remove_file(&path)
                };
                if let Err(error) = gone
                    && error.kind() != std::io::ErrorKind::NotFound
                {
                    crate::cli::profile::say(&format!("cannot remove {}: {error}", path.display()));
                }
            }
        }
    }
}

/// The workload's account, from a file that its user could have replaced.
fn read_account(path: &Path) -> Option<serde_json::Value> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
        .ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(MOST_ACCOUNT).read_to_end(&mut bytes).ok()?;
    serde_json::from_slice(&bytes).ok()
}

/// Waits for a signal that ends the run.
pub async fn ended(signals: &mut Signals) {
    while !matches!(signals.next().await, Asked::End(_)) {}
}
