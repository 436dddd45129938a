//! The loaded programs: attach, read, drain. The only user of aya.

use super::{
    block::DevNumber, facts::KernelFacts, flights::Seats, journal::JournalThread, mapped::Edges,
};
use crate::plan::{Candidate, Kind, Step};
use aya::{
    Ebpf, EbpfLoader,
    maps::{Array, HashMap, MapData, PerCpuArray, RingBuf},
    programs::{ProgramError, RawTracePoint, TracePoint},
};
use std::io;
use tracer_common::{AGE_BUCKETS, DeviceInfo, Dirtied, Process, RowKey, RowValue, loss, path};

/// The object that `cargo xtask build` made.
static OBJECT: &[u8] = aya::include_bytes_aligned!(env!("WRITEPATH_BPF_OBJECT"));

/// Why the probes could not be set.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The kernel refused the object.
    #[error("the kernel refused the eBPF object: {0}; run as root, and see `writepath doctor`")]
    Load(String),
    /// A hook without which nothing works.
    #[error("cannot attach to {hook}: {why}; see `writepath doctor`")]
    Required {
        /// What was to be attached.
        hook: String,
        /// Why it failed.
        why: String,
    },
    /// A map could not be used.
    #[error("cannot use eBPF map {map}: {why}")]
    Map {
        /// Its name.
        map: &'static str,
        /// Why it failed.
        why: String,
    },
}

/// How a hook ended up.
#[derive(Debug, Clone)]
pub struct Attached {
    /// The step of the plan.
    pub step: Step,
    /// The alternative in use; none when the hook is lost.
    pub by: Option<&'static Candidate>,
    /// Why each alternative before it failed.
    pub failures: Vec<String>,
}

/// The programs, loaded and attached. Dropped, they are gone.
pub struct Probe {
    pub(super) ebpf: Ebpf,
    /// The edges of the ledger.
    pub edges: Edges,
    /// Every hook.
    pub hooks: Vec<Attached>,
    /// Bios in flight.
    pub(super) seats: Seats,
    ring: RingBuf<MapData>,
    /// Records of every write, where they are asked for.
    pub(super) writes: Option<RingBuf<MapData>>,
    cpus: usize,
}

/// Sums by two numbers, such as file and process.
pub type Sums = Vec<((u32, u32), u64)>;

pub(super) fn map_error(map: &'static str) -> impl Fn(aya::maps::MapError) -> ProbeError {
    move |why| ProbeError::Map {
        map,
        why: why.to_string(),
    }
}

/// The end of an error with a verifier log in it is what tells.
fn short(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        // Some errors repeat their source in their own text.
        if !text.contains(&inner.to_string()) {
            text = format!("{text}: {inner}");
        }
        source = inner.source();
    }
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    match lines.len() {
        0 => "unknown error".to_owned(),
        1..=6 => lines.join(" / "),
        n => format!("{} … {}", lines[0], lines[n - 5..].join(" / ")),
    }
}

impl Probe {
    /// Loads the object; attaches nothing yet.
    pub fn load(facts: &KernelFacts) -> Result<Self, ProbeError> {
        Self::load_for(facts, false)
    }

    /// Loads the object, with room for every write where `writes` asks for it.
    pub fn load_for(facts: &KernelFacts, writes: bool) -> Result<Self, ProbeError> {
        let load = |error: &(dyn std::error::Error + 'static)| ProbeError::Load(short(error));
        let mut loader = EbpfLoader::new();
        if !writes {
            loader.map_max_entries("WRITES", rustix::param::page_size() as u32);
        }
        let mut ebpf = loader
            .btf(None)
            .override_global("CONFIG", facts.config(), true)
            .load(OBJECT)
            .map_err(|error| load(&error))?;
        let take = |ebpf: &mut Ebpf, map: &'static str| {
            ebpf.take_map(map).ok_or(ProbeError::Map {
                map,
                why: "not in the object".to_owned(),
            })
        };
        let ring = RingBuf::try_from(take(&mut ebpf, "RING")?).map_err(map_error("RING"))?;
        let writes = writes
            .then(|| RingBuf::try_from(take(&mut ebpf, "WRITES")?).map_err(map_error("WRITES")))
            .transpose()?;
        let cpus = aya::util::nr_cpus().map_err(|(_, error)| load(&error))?;
        let (edges, seats) = {
            let data = |map: &'static str| match ebpf.map(map) {
                Some(aya::maps::Map::Array(data)) => Ok(data),
                _ => Err(ProbeError::Map {
                    map,
                    why: "not an array".to_owned(),
                }),
            };
            let mapped = |map: &'static str| {
                move |error: io::Error| ProbeError::Map {
                    map,
                    why: error.to_string(),
                }
            };
            (
                Edges::new(data("CONTROL")?, data("EDGES")?, cpus).map_err(mapped("EDGES"))?,
                Seats::new(data("SEATS")?).map_err(mapped("SEATS"))?,
            )
        };
        Ok(Self {
            ebpf,
            edges,
            seats,
            hooks: Vec::new(),
            ring,
            writes,
            cpus,
        })
    }

    /// CPUs that may run programs.
    pub fn cpus(&self) -> usize {
        self.cpus
    }

    /// Attaches what the plan says, best alternative first.
    pub fn attach(&mut self, plan: Vec<Step>) -> Result<(), ProbeError> {
        for step in plan {
            if step.unless.is_some_and(|name| loads(&mut self.ebpf, name)) {
                continue;
            }
            let mut failures = step.passed_over.clone();
            let mut by = None;
            for candidate in &step.candidates {
                match attach(&mut self.ebpf, candidate) {
                    Ok(()) => {
                        by = Some(*candidate);
                        break;
                    }
                    Err(error) => {
                        failures.push(format!("{}: {}", candidate.program, short(&error)));
                    }
                }
            }
            if by.is_none() && step.hook.required {
                return Err(ProbeError::Required {
                    hook: step.hook.name.to_owned(),
                    why: failures.join("; "),
                });
            }
            self.hooks.push(Attached { step, by, failures });
        }
        self.edges.set_started(monotonic_ns());
        Ok(())
    }

    pub(super) fn map_mut(&mut self, map: &'static str) -> Result<&mut aya::maps::Map, ProbeError> {
        self.ebpf.map_mut(map).ok_or(ProbeError::Map {
            map,
            why: "not in the object".to_owned(),
        })
    }

    /// Tells the programs which devices are traced.
    pub fn set_device(&mut self, dev: DevNumber, info: DeviceInfo) -> Result<(), ProbeError> {
        let map = self.map_mut("DEVICES")?;
        let mut devices: HashMap<_, u32, DeviceInfo> =
            HashMap::try_from(map).map_err(map_error("DEVICES"))?;
        devices
            .insert(dev.kernel(), info, 0)
            .map_err(map_error("DEVICES"))?;
        self.edges.devices_changed();
        Ok(())
    }

    /// Tells the programs of a journal's thread.
    pub fn set_journal_thread(&mut self, thread: JournalThread) -> Result<(), ProbeError> {
        let map = self.map_mut("JOURNAL_THREADS")?;
        let mut threads: HashMap<_, u32, u32> =
            HashMap::try_from(map).map_err(map_error("JOURNAL_THREADS"))?;
        threads
            .insert(thread.tid, thread.dev.kernel(), 0)
            .map_err(map_error("JOURNAL_THREADS"))?;
        let map = self.map_mut("JOURNAL_BITS")?;
        let mut bits: Array<_, u64> = Array::try_from(map).map_err(map_error("JOURNAL_BITS"))?;
        let index = (thread.tid >> 6) & 511;
        let word = bits.get(&index, 0).unwrap_or(0) | 1 << (thread.tid & 63);
        bits.set(index, word, 0).map_err(map_error("JOURNAL_BITS"))
    }

    /// Marks this process, so that children started now inherit the mark, or
    /// takes the mark away.
    pub fn mark_own(&mut self, on: bool) -> Result<(), ProbeError> {
        let pid = std::process::id();
        let map = self.map_mut("MARKED")?;
        let mut marked: HashMap<_, u32, u32> =
            HashMap::try_from(map).map_err(map_error("MARKED"))?;
        if on {
            marked.insert(pid, 1, 0).map_err(map_error("MARKED"))
        } else {
            marked.remove(&pid).map_err(map_error("MARKED"))
        }
    }

    /// Takes the rows of all epochs before `epoch`, which no program adds to
    /// any more.
    pub fn drain_rows(&mut self, epoch: u32) -> Result<Vec<(RowKey, RowValue)>, ProbeError> {
        wait_for_programs();
        let map = self.map_mut("ROWS")?;
        let mut rows: HashMap<_, RowKey, RowValue> =
            HashMap::try_from(map).map_err(map_error("ROWS"))?;
        let taken: Vec<(RowKey, RowValue)> = rows
            .iter()
            .filter_map(Result::ok)
            .filter(|(key, _)| key.epoch < epoch)
            .collect();
        for (key, _) in &taken {
            // It is ours alone now; an error would say that it is gone.
            let _ = rows.remove(key);
        }
        Ok(taken)
    }

    /// Hands every record of the ring to `take`.
    pub fn drain_ring(&mut self, mut take: impl FnMut(&[u8])) {
        while let Some(record) = self.ring.next() {
            take(&record);
        }
    }

    /// Loss counters, by the indices of [`loss`].
    pub fn losses(&self) -> Result<[u64; loss::COUNT as usize], ProbeError> {
        let mut sums = [0; loss::COUNT as usize];
        if let Some(map) = self.ebpf.map("LOSSES") {
            let losses: PerCpuArray<_, u64> =
                PerCpuArray::try_from(map).map_err(map_error("LOSSES"))?;
            for (index, sum) in sums.iter_mut().enumerate() {
                let values = losses
                    .get(&(index as u32), 0)
                    .map_err(map_error("LOSSES"))?;
                *sum = values.iter().sum();
            }
        }
        Ok(sums)
    }

    /// Sums by the two halves of their key.
    fn pairs(&self, name: &'static str) -> Result<Sums, ProbeError> {
        let Some(map) = self.ebpf.map(name) else {
            return Ok(Vec::new());
        };
        let sums: HashMap<_, u64, u64> = HashMap::try_from(map).map_err(map_error(name))?;
        Ok(sums
            .iter()
            .filter_map(Result::ok)
            .map(|(key, sum)| (((key >> 32) as u32, key as u32), sum))
            .collect())
    }

    /// Metadata blocks dirtied, by (device, process).
    pub fn blocks(&self) -> Result<Sums, ProbeError> {
        self.pairs("BLOCKS")
    }

    /// Bytes dirtied, by (file, process).
    pub fn shares(&self) -> Result<Sums, ProbeError> {
        let mut found = self.pairs("SHARES")?;
        // What CPUs have gathered and not yet booked.
        if let Some(map) = self.ebpf.map("DIRTIED") {
            let gathered: PerCpuArray<_, Dirtied> =
                PerCpuArray::try_from(map).map_err(map_error("DIRTIED"))?;
            let gathered = gathered.get(&0, 0).map_err(map_error("DIRTIED"))?;
            let of_file = gathered.iter().filter(|dirtied| dirtied.file != 0);
            found.extend(of_file.map(|dirtied| ((dirtied.file, dirtied.tgid), dirtied.bytes)));
        }
        Ok(found)
    }

    /// Processes as the programs first saw them.
    pub fn processes(&self) -> Result<Vec<(u32, Process)>, ProbeError> {
        let Some(map) = self.ebpf.map("PROCESSES") else {
            return Ok(Vec::new());
        };
        let processes: HashMap<_, u32, Process> =
            HashMap::try_from(map).map_err(map_error("PROCESSES"))?;
        Ok(processes.iter().filter_map(Result::ok).collect())
    }

    /// Sectors by age of the data, for a disk and a path.
    pub fn ages(&self, disk: u32, path: u8) -> Result<Vec<u64>, ProbeError> {
        let mut sums = vec![0; AGE_BUCKETS as usize];
        let Some(map) = self.ebpf.map("AGES") else {
            return Ok(sums);
        };
        if disk >= 16 {
            return Ok(sums);
        }
        let ages: PerCpuArray<_, u64> = PerCpuArray::try_from(map).map_err(map_error("AGES"))?;
        let base = (disk * path::COUNT as u32 + u32::from(path)) * AGE_BUCKETS;
        for (bucket, sum) in sums.iter_mut().enumerate() {
            let values = ages
                .get(&(base + bucket as u32), 0)
                .map_err(map_error("AGES"))?;
            *sum = values.iter().sum();
        }
        Ok(sums)
    }
}

/// Whether the kernel takes a raw tracepoint's program.
fn loads(ebpf: &mut Ebpf, name: &str) -> bool {
    let Some(program) = ebpf.program_mut(name) else {
        return false;
    };
    let Ok(program) = <&mut RawTracePoint>::try_from(program) else {
        return false;
    };
    program.fd().is_ok() || program.load().is_ok()
}

fn attach(ebpf: &mut Ebpf, candidate: &Candidate) -> Result<(), ProgramError> {
    let program = ebpf
        .program_mut(candidate.program)
        .ok_or(ProgramError::UnexpectedProgramType)?;
    for event in candidate.events {
        let (group, name) = event.split_once('/').unwrap_or_default();
        match candidate.kind {
            Kind::Raw => {
                let program: &mut RawTracePoint = program.try_into()?;
                if program.fd().is_err() {
                    program.load()?;
                }
                program.attach(name)?;
            }
            Kind::Plain => {
                let program: &mut TracePoint = program.try_into()?;
                if program.fd().is_err() {
                    program.load()?;
                }
                program.attach(group, name)?;
            }
        }
    }
    Ok(())
}

/// Waits until every program that may have read the old epoch has ended: a
/// grace period of RCU, which membarrier waits for.
fn wait_for_programs() {
    const MEMBARRIER_CMD_GLOBAL: i32 = 1;
    // SAFETY: a system call without pointers.
    let done = unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) };
    if done != 0 {
        // A kernel without it: programs run for microseconds.
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// Monotonic nanoseconds, as programs read them.
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Whether this process may load programs, and if not, why.
pub fn privileges() -> io::Result<()> {
    if rustix::process::geteuid().is_root() {
        Ok(())
    } else {
        Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "not root: eBPF programs need CAP_BPF, CAP_PERFMON and CAP_SYS_ADMIN",
        ))
    }
}
