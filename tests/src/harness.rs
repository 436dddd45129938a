//! Runs the tests one after another, each in a process of its own that can be
//! killed, and leaves nothing behind. Entry: [`run_all`], and [`Test`] for
//! those who add tests.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use libtest_mimic::{Arguments, Completion, Failed, Trial};

use crate::clean;

/// One run at a time on a machine: tests call sync(1) and turn global knobs.
const LOCK: &str = "/run/lock/writepath-kernel-tests.lock";
/// Where a run keeps its images, unless `WRITEPATH_TEST_DIR` says otherwise.
const BASE: &str = "/var/tmp";
/// Directories of runs: BASE/PREFIX-PID.
pub const PREFIX: &str = "writepath-test-";
/// Set for the processes of one test: its private directory.
pub const RUN_DIR: &str = "WRITEPATH_TEST_RUN";
/// Exit status of a test process that found that it cannot run here.
const SKIPPED: u8 = 77;

/// Which selection of tests runs, by `WRITEPATH_TIER`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    Quick,
    Full,
    Guest,
    /// The gate's share of the guest's tests: a guest is slow.
    GuestQuick,
}

/// Tests of [`Tier::GuestQuick`].
const GUEST_QUICK: &[&str] = &[
    "harness::bed_is_quiet",
    "ledger::hooks",
    "ledger::direct",
    "ledger::direct_without_symbols",
    "ledger::buffered",
    "ledger::appended",
    "ledger::overwritten",
    "ledger::deleted_before_writeback",
    "ledger::sparse",
];

impl Tier {
    /// The tier of this run; `quick` unless the environment says otherwise.
    pub fn current() -> Tier {
        match std::env::var("WRITEPATH_TIER").as_deref() {
            Ok("full") => Tier::Full,
            Ok("guest") => Tier::Guest,
            Ok("guest-quick") => Tier::GuestQuick,
            Ok("quick" | "") | Err(_) => Tier::Quick,
            Ok(other) => {
                eprintln!("WRITEPATH_TIER={other}: expected quick, full, guest or guest-quick");
                std::process::exit(2)
            }
        }
    }
}

/// `full`, or `guest` in a guest, where each byte costs twenty times as much.
pub fn scaled<T>(full: T, guest: T) -> T {
    if matches!(Tier::current(), Tier::Guest | Tier::GuestQuick) {
        guest
    } else {
        full
    }
}

type Body = Box<dyn Fn() -> Result<()> + Send + Sync>;

/// A test: what it is called, where it runs and for how long at most.
pub struct Test {
    name: String,
    quick: bool,
    guest: bool,
    hidden: bool,
    limit: Duration,
    needs: Vec<fn() -> Result<(), String>>,
    body: Body,
}

impl Test {
    /// A test of the tiers quick and full with a minute to run.
    pub fn new(
        name: impl Into<String>,
        body: impl Fn() -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        Test {
            name: name.into(),
            quick: true,
            guest: false,
            hidden: false,
            limit: Duration::from_mins(1),
            needs: Vec::new(),
            body: Box::new(body),
        }
    }

    /// Also runs in a guest.
    pub fn guest(mut self) -> Self {
        self.guest = true;
        self
    }

    /// Too slow for the quick tier.
    pub fn full(mut self) -> Self {
        self.quick = false;
        self
    }

    /// In no tier: another test runs it.
    pub fn hidden(mut self) -> Self {
        self.hidden = true;
        self
    }

    /// Killed after so many seconds (five times as many in a guest).
    pub fn limit(mut self, seconds: u64) -> Self {
        self.limit = Duration::from_secs(seconds);
        self
    }

    /// A condition; its error is the reason why the test cannot run here.
    pub fn needs(mut self, condition: fn() -> Result<(), String>) -> Self {
        self.needs.push(condition);
        self
    }

    fn selected(&self, tier: Tier) -> bool {
        let chosen = match tier {
            Tier::Quick => self.quick,
            Tier::Full => true,
            Tier::Guest => self.guest,
            Tier::GuestQuick => self.guest && GUEST_QUICK.contains(&self.name.as_str()),
        };
        chosen && !self.hidden
    }

    fn obstacle(&self) -> Option<String> {
        self.needs.iter().find_map(|need| need().err())
    }
}

/// Why a test found, while it ran, that it cannot run here.
#[derive(Debug)]
struct Skip(String);

impl std::fmt::Display for Skip {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cannot run here: {}", self.0)
    }
}

impl std::error::Error for Skip {}

/// The error that makes the running test count as skipped.
pub fn skip(reason: impl Into<String>) -> anyhow::Error {
    Skip(reason.into()).into()
}

/// Condition: an external program is installed.
pub fn has_program(name: &str) -> Result<(), String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|dir| dir.join(name).is_file());
    found
        .then_some(())
        .ok_or_else(|| format!("no program {name} in PATH"))
}

/// Condition: the kernel lets root use `io_uring`.
pub fn has_uring() -> Result<(), String> {
    let disabled = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
    let disabled = disabled.is_ok_and(|value| value.trim() == "2");
    // SAFETY: without parameters the call only says whether it exists.
    let result = unsafe { libc::syscall(libc::SYS_io_uring_setup, 0, 0) };
    let error = std::io::Error::last_os_error().raw_os_error();
    if disabled || (result < 0 && error == Some(libc::ENOSYS)) {
        Err("this kernel has no io_uring, or it is switched off".to_owned())
    } else {
        Ok(())
    }
}

/// The private directory of the running test.
pub fn run_dir() -> PathBuf {
    PathBuf::from(std::env::var_os(RUN_DIR).expect("only called inside a test process"))
}

/// Directory below which every run has its own.
pub fn base_dir() -> PathBuf {
    std::env::var_os("WRITEPATH_TEST_DIR").map_or_else(|| BASE.into(), PathBuf::from)
}

fn no_skip() -> bool {
    std::env::var("WRITEPATH_NO_SKIP").is_ok_and(|value| value == "1")
}

/// The command line: lists, filters and runs the tests of this tier.
pub fn run_all(tests: Vec<Test>) -> ExitCode {
    let mut args = Arguments::from_args();
    args.test_threads = Some(1);
    let tier = Tier::current();
    let run = base_dir().join(format!("{PREFIX}{}", std::process::id()));
    let _lock = if args.list {
        None
    } else {
        match prepare(&run) {
            Ok(lock) => Some(lock),
            Err(error) => {
                eprintln!("kernel-tests: {error:#}");
                return ExitCode::from(3);
            }
        }
    };
    let trials = tests
        .into_iter()
        .filter(|test| test.selected(tier))
        .map(|test| trial(test, &run, &args))
        .collect();
    let conclusion = libtest_mimic::run(&args, trials);
    if !args.list {
        for fault in clean::everything(&base_dir()) {
            eprintln!("kernel-tests: cleaning up: {fault:#}");
        }
    }
    conclusion.exit_code()
}

/// Takes the lock, clears what a killed run left, and makes this run's place.
fn prepare(run: &Path) -> Result<File> {
    if !rustix::process::geteuid().is_root() {
        anyhow::bail!("kernel tests need root: run them with sudo");
    }
    let parent = Path::new(LOCK).parent().expect("the lock has a directory");
    std::fs::create_dir_all(parent).with_context(|| format!("creating {}", parent.display()))?;
    let lock = File::create(LOCK).with_context(|| format!("creating {LOCK}"))?;
    if rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err() {
        eprintln!("kernel-tests: waiting for {LOCK}");
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive)
            .with_context(|| format!("locking {LOCK}"))?;
    }
    // Orphans of a test come to this process, which ends them.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .context("becoming a subreaper")?;
    for fault in clean::everything(&base_dir()) {
        eprintln!("kernel-tests: clearing an earlier run: {fault:#}");
    }
    std::fs::create_dir_all(run).with_context(|| format!("creating {}", run.display()))?;
    Ok(lock)
}

fn trial(test: Test, run: &Path, args: &Arguments) -> Trial {
    let name = test.name.clone();
    let obstacle = if args.list || no_skip() {
        None
    } else {
        test.obstacle()
    };
    if let Some(reason) = obstacle {
        let line = format!("SKIP {name}: cannot run here: {reason}");
        let completion = move || {
            Ok(Completion::ignored_with(format!(
                "cannot run here: {reason}"
            )))
        };
        let trial = Trial::ignorable_test(name, completion);
        if !args.is_filtered_out(&trial) {
            println!("{line}");
        }
        return trial;
    }
    let run = run.to_path_buf();
    Trial::ignorable_test(name, move || {
        if let Some(reason) = test.obstacle() {
            return Err(format!("cannot run here: {reason} (WRITEPATH_NO_SKIP=1)").into());
        }
        supervise(&test, &run)
    })
}

/// Runs one test in a process of its own and cleans up after it.
fn supervise(test: &Test, run: &Path) -> Result<Completion, Failed> {
    let dir = run.join(test.name.replace("::", "-").replace('/', "_"));
    std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let log = dir.join("log");
    let ended = spawn_and_wait(test, &dir, &log).map_err(|e| format!("{e:#}"));
    let killed = clean::end_orphans();
    let left = clean::run(run);
    let mut output = String::new();
    if let Ok(mut file) = File::open(&log) {
        let _ = file.read_to_string(&mut output);
    }
    let _ = std::fs::remove_dir_all(&dir);
    let Some(status) = ended? else {
        return Err(format!("no end after {:?}, killed\n{output}", allowed(test)).into());
    };
    if status.code() == Some(i32::from(SKIPPED)) {
        let reason = output
            .lines()
            .last()
            .unwrap_or("no reason given")
            .to_owned();
        if no_skip() {
            return Err(format!("{reason} (WRITEPATH_NO_SKIP=1)").into());
        }
        println!("SKIP {}: {reason}", test.name);
        return Ok(Completion::ignored_with(reason));
    }
    if !status.success() {
        return Err(format!("{}{output}", describe(status)).into());
    }
    if !killed.is_empty() || !left.is_empty() {
        return Err(format!("the test left processes {killed:?} and {left:?}").into());
    }
    Ok(Completion::Completed)
}

fn describe(status: ExitStatus) -> String {
    if status.code() == Some(1) {
        String::new()
    } else {
        format!("{status}\n")
    }
}

fn allowed(test: &Test) -> Duration {
    test.limit * scaled(1, 5)
}

/// The status of the test's process, or none when it had to be killed.
fn spawn_and_wait(test: &Test, dir: &Path, log: &Path) -> Result<Option<ExitStatus>> {
    let out = File::create(log).with_context(|| format!("creating {}", log.display()))?;
    let mut command = Command::new("/proc/self/exe");
    command
        .args(["run-one", &test.name])
        .env(RUN_DIR, dir)
        .stdin(std::process::Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(out);
    // SAFETY: only async-signal-safe system calls between fork and exec.
    unsafe {
        command.pre_exec(|| {
            rustix::process::setsid()?;
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
            Ok(())
        });
    }
    let mut child = command.spawn().context("starting the test's process")?;
    let end = Instant::now() + allowed(test);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() > end {
            if let Some(group) = rustix::process::Pid::from_raw(child.id() as i32) {
                let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            }
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The test's process: a private mount namespace, the body, an exit status.
pub fn run_one(tests: &[Test], name: &str) -> ExitCode {
    let Some(test) = tests.iter().find(|test| test.name == name) else {
        eprintln!("no test {name}");
        return ExitCode::from(2);
    };
    // Started as /proc/self/exe; reports should name something better.
    let _ = rustix::thread::set_name(c"kernel-tests");
    let result = clean::private_mounts().and_then(|()| (test.body)());
    let _ = std::io::stdout().flush();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<Skip>() => {
            eprintln!("{error}");
            ExitCode::from(SKIPPED)
        }
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
