//! `writepath doctor`: looks at everything that a trace needs, tries it on no
//! device, and says what is lost and why.

use super::status;
use crate::{
    attribute::commits,
    kernel::{
        debugfs::Dirty,
        facts::KernelFacts,
        machine,
        probe::{Attached, Probe, ProbeError, privileges},
        processes,
        symbols::Symbols,
        tracefs::Tracefs,
    },
    output::doctor::{self, Check, Diagnosis, HookLine},
    plan::{self, Answer, Candidate, Step},
};
use clap::Args;
use std::{io::Write, process::ExitCode};

/// Options of `doctor`.
#[derive(Debug, Clone, Copy, Args)]
pub struct DoctorArgs {
    /// Print one JSON object, schema writepath.doctor/1.
    #[arg(short, long)]
    json: bool,
}

/// Runs `doctor`.
pub fn run(args: DoctorArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let found = diagnose();
    if args.json {
        doctor::json(out, &found)?;
    } else {
        doctor::text(out, &found)?;
    }
    out.flush()?;
    Ok(if found.able() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(status::UNABLE)
    })
}

fn diagnose() -> Diagnosis {
    let mut checks = vec![user()];
    let tracefs = Tracefs::open();
    checks.push(match &tracefs {
        Ok(tracefs) if tracefs.root().starts_with("/sys") => {
            Check::ok("tracefs", tracefs.root().display().to_string())
        }
        Ok(_) => Check::lost(
            "tracefs",
            "not mounted at /sys/kernel/tracing",
            "plain tracepoints, which cannot be attached",
            "mount -t tracefs tracefs /sys/kernel/tracing",
            &[],
        ),
        Err(error) => Check::unable(
            "tracefs",
            error.to_string(),
            "run as root; the kernel needs CONFIG_FTRACE and CONFIG_TRACEPOINTS",
        ),
    });
    let facts = tracefs.as_ref().ok().map(KernelFacts::gather);
    match &facts {
        Some(facts) => checks.extend(of_facts(facts)),
        None => checks.push(btf(machine::btf().err().map(|error| error.to_string()))),
    }
    checks.extend([
        lockdown(),
        memory_lock(),
        cgroups(),
        ext4(),
        symbols(),
        still_dirty(),
        iostats(),
    ]);
    let mut hooks = Vec::new();
    let mut tried = false;
    if let Some(facts) = &facts {
        let mut steps = plan::make(facts);
        steps.extend(plan::writes(facts));
        // Without privileges tracefs hides its events: nothing can be told.
        let visible = steps.iter().any(|step| !step.candidates.is_empty());
        if privileges().is_ok() {
            (hooks, tried) = attach(facts, steps, &mut checks);
        } else if visible {
            hooks = planned(&steps);
        }
    }
    Diagnosis {
        kernel: processes::kernel_release(),
        machine: machine::architecture(),
        checks,
        hooks,
        tried,
    }
}

/// Loads the programs and attaches them, with no device to count for. Says
/// how each hook is attached and that this was tried; else what was planned.
fn attach(facts: &KernelFacts, steps: Vec<Step>, checks: &mut Vec<Check>) -> (Vec<HookLine>, bool) {
    let planned = planned(&steps);
    let result = Probe::load(facts).and_then(|mut probe| {
        let attached = probe.attach(steps);
        let lines: Vec<HookLine> = probe.hooks.iter().map(line).collect();
        attached.map(|()| lines)
    });
    match result {
        Ok(lines) => {
            checks.push(Check::ok("programs", "loaded and attached"));
            (lines, true)
        }
        Err(error) => {
            let advice = match &error {
                ProbeError::Required { .. } => "see why this hook is passed over, below",
                _ => "run as root, where neither lockdown nor a security module forbids eBPF",
            };
            let why = match error {
                ProbeError::Load(why) => why,
                error => error.to_string(),
            };
            checks.push(Check::unable("programs", why, advice));
            (planned, false)
        }
    }
}

fn hook(step: &Step, by: Option<&'static Candidate>, why: &[String]) -> HookLine {
    // Two alternatives may lack the same event.
    let mut why = why.to_vec();
    why.dedup();
    HookLine {
        name: step.hook.name,
        answer: step.hook.answer,
        required: step.hook.required,
        by: by.map(|candidate| (candidate.kind, candidate.events[0])),
        lost: step.hook.lost,
        why,
    }
}

fn line(attached: &Attached) -> HookLine {
    hook(&attached.step, attached.by, &attached.failures)
}

/// What would be attached if the kernel took every program.
fn planned(steps: &[Step]) -> Vec<HookLine> {
    steps
        .iter()
        .filter(|step| step.unless.is_none())
        .map(|step| hook(step, step.candidates.first().copied(), &step.passed_over))
        .collect()
}

fn user() -> Check {
    let missing = machine::missing_capabilities();
    let lacks = if missing.is_empty() {
        String::new()
    } else {
        format!(", without {}", missing.join(", "))
    };
    if machine::user() != 0 {
        let found = format!("user {}{lacks}", machine::user());
        Check::unable("privileges", found, "run it with sudo")
    } else if missing.is_empty() {
        Check::ok("privileges", "root")
    } else {
        Check::lost(
            "privileges",
            format!("root{lacks}"),
            "perhaps everything: the programs may be refused",
            "run it outside of the container, or with these capabilities",
            &[],
        )
    }
}

fn btf(missing: Option<String>) -> Check {
    match missing {
        None => Check::ok("BTF", "/sys/kernel/btf/vmlinux"),
        Some(why) => Check::lost(
            "BTF",
            why,
            "raw tracepoints, and the pages that a bio carries: files of throttled \
             writes and of data=journal",
            "use a kernel with CONFIG_DEBUG_INFO_BTF=y",
            &[Answer::Files],
        ),
    }
}

/// What follows from BTF.
fn of_facts(facts: &KernelFacts) -> Vec<Check> {
    let btf = btf(facts.no_btf.clone());
    let call = if facts.call_readable {
        Check::ok("system call", "read from the task's registers")
    } else {
        Check::lost(
            "system call",
            "cannot be read without a hook on each call",
            "the call that triggered a write; `kernel` stands for it",
            "use a kernel with BTF and the helper bpf_task_pt_regs",
            &[Answer::Triggers, Answer::Commits],
        )
    };
    let long = if facts.config().loop_callable != 0 {
        Check::ok("long requests", "walked with bpf_loop")
    } else {
        Check::lost(
            "long requests",
            "the kernel does not tell of bpf_loop",
            "requests of more than 24 bios are unattributed from there on",
            "use a kernel with BTF and the helper bpf_loop",
            &[Answer::Sectors],
        )
    };
    vec![btf, call, long]
}

fn lockdown() -> Check {
    match machine::lockdown() {
        Ok(mode) if mode == "confidentiality" => Check::lost(
            "lockdown",
            mode,
            "everything, where programs may not read kernel memory",
            "boot with lockdown=integrity or none",
            &[],
        ),
        Ok(mode) => Check::ok("lockdown", mode),
        Err(error) => Check::ok(
            "lockdown",
            format!("not known (/sys/kernel/security/lockdown: {error})"),
        ),
    }
}

fn memory_lock() -> Check {
    let found = match machine::memory_lock() {
        None => "no limit".to_owned(),
        Some(bytes) => format!(
            "{} KiB; kernels that count maps by cgroup do not care",
            bytes >> 10
        ),
    };
    Check::ok("memory lock", found)
}

fn cgroups() -> Check {
    let found = machine::cgroups();
    if found.is_empty() {
        return Check::lost(
            "cgroups",
            "none mounted",
            "the cgroup of a dirtier",
            "mount cgroup2 on /sys/fs/cgroup",
            &[Answer::Dirtiers],
        );
    }
    Check::ok("cgroups", found.join(" and "))
}

fn ext4() -> Check {
    if machine::has_ext4() {
        return Check::ok("ext4", "in the kernel");
    }
    Check::lost(
        "ext4",
        "not in the kernel, or its module is not loaded",
        "its hooks",
        "modprobe ext4, or mount one, and ask again",
        &[],
    )
}

fn symbols() -> Check {
    if Symbols::read(commits::FUNCTIONS).available() {
        return Check::ok("symbols", "/proc/kallsyms");
    }
    Check::lost(
        "symbols",
        "/proc/kallsyms hides addresses",
        "causes of commits are told by what the waker was inside of alone",
        "run as root; sysctl kernel.kptr_restrict=0",
        &[Answer::Commits],
    )
}

fn still_dirty() -> Check {
    let lost = |found: String, advice: &str| {
        let what = "data that the device has not got yet, and --drain";
        Check::lost("still dirty", found, what, advice, &[])
    };
    match Dirty::open() {
        Ok(dirty) => match dirty.blind() {
            None => Check::ok("still dirty", "debugfs"),
            Some(why) => lost(
                format!("debugfs: {why}"),
                "use a kernel with bdi/*/wb_stats in debugfs, or one of the cgroup \
                 controllers io and memory without the other",
            ),
        },
        Err(error) => lost(
            format!("no debugfs: {error}"),
            "run as root; the kernel needs CONFIG_DEBUG_FS",
        ),
    }
}

fn iostats() -> Check {
    let disks = machine::not_counting();
    if disks.is_empty() {
        return Check::ok("iostats", "every disk counts");
    }
    Check::lost(
        "iostats",
        format!("{} does not count", disks.join(" ")),
        "the ledger of these disks",
        "write 1 to /sys/block/DISK/queue/iostats",
        &[Answer::Sectors],
    )
}
