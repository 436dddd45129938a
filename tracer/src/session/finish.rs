//! The end of a run or of an interval: the books are closed.

use super::{Session, SessionError, names};
use crate::{
    attribute::{
        ages,
        summary::{self, Context, Filter},
    },
    kernel::{
        block::{DevNumber, DiskStat},
        debugfs::error_bytes,
        flights::Span,
        mapped::{EdgeReading, PATIENT},
        pagecache, processes,
    },
    model::{
        ledger::{AgeRow, DeviceLedger, KnobValue, Lost, Memory, Run},
        path::Path,
    },
};
use std::{
    collections::{BTreeMap, HashMap},
    time::{Duration, Instant},
};
use tracer_common::{loss, path};

/// How long bios of a busy disk may take to complete after the last edge.
const PATIENT_WITH_BIOS: Duration = Duration::from_secs(2);
/// Longer than a bio may wait in a task's plug before it is in flight.
const PLUGGED: Duration = Duration::from_millis(100);
/// Later completions that make it certain that an older one was not seen.
const OVERTAKEN: u64 = 64;

/// Sectors by age, for each disk and path.
pub(super) type Ages = HashMap<(u32, u8), Vec<u64>>;

/// Paths whose data had been dirty in memory.
const AGED: [u8; 4] = [path::WRITEBACK, path::FSYNC, path::ORDERED, path::FORCED];

impl Session {
    /// Closes the books of the interval that ends now, and begins the next.
    pub fn interval(&mut self, filter: &Filter) -> Result<Run, SessionError> {
        let run = self.close(filter, false)?;
        self.accounts.next_interval();
        self.swept = true;
        self.memory = Memory::default();
        self.knobs = pagecache::knobs();
        self.sample_memory();
        self.began = EdgeReading::same(&self.last);
        self.ages_before = std::mem::take(&mut self.ages_last);
        Ok(run)
    }

    /// Shows the run so far; it goes on.
    pub fn snapshot(&mut self, filter: &Filter) -> Result<Run, SessionError> {
        self.close(filter, false)
    }

    /// Closes the books.
    pub fn finish(&mut self, filter: &Filter) -> Result<Run, SessionError> {
        self.close(filter, true)
    }

    fn close(&mut self, filter: &Filter, last: bool) -> Result<Run, SessionError> {
        self.read_ring();
        let reading = self.probe.edges.turn(&self.disks, PATIENT);
        let blurred = reading.blurred_by.max(self.began.blurred_by);
        self.sample_memory();
        self.take(reading)?;
        let unseen = self.take_unseen(last)?;
        self.read_ring();
        self.accounts.settle(last);
        names::refresh(&self.probe, &mut self.names)?;
        names::ask_filesystems(&mut self.names, &self.devices);
        self.note_ended();
        let shares = by_first(self.probe.shares()?);
        let blocks = by_first(self.probe.blocks()?);
        let ages = self.ages()?;
        let duration_s = self.last.seconds_since(&self.began);
        let context = Context {
            names: &self.names,
            shares: &shares,
            blocks: &blocks,
            reasons: &self.facts.reasons,
            dev_name: &|dev| DevNumber::from_kernel(dev).to_string(),
            started_ns: self.started_ns,
            tick_ns: self.tick_ns,
            fs_devs: &|dev| self.devices.get(&dev).map(|device| device.disk),
        };
        let mut devices = Vec::new();
        for (index, disk) in self.disks.iter().enumerate() {
            let mut ledger = DeviceLedger {
                name: disk.name.clone(),
                dev: disk.dev.to_string(),
                vanished: self.vanished && !disk.exists(),
                edge_completions: blurred,
                sectors_unseen: unseen[index],
                ..DeviceLedger::default()
            };
            summary::fill(&mut ledger, index as u16, &self.accounts, &context, filter);
            let stat = |reading: &EdgeReading| match &reading.stats[index] {
                Ok(stat) => *stat,
                Err(_) => DiskStat::default(),
            };
            equate(&mut ledger, stat(&self.began), stat(&self.last));
            self.still_dirty(&mut ledger, disk.dev, duration_s);
            ledger.ages.clone_from(&ages[index]);
            ledger.notes = self.notes(index as u16);
            self.tuning(&mut ledger, index as u16);
            devices.push(ledger);
        }
        Ok(Run {
            kernel: processes::kernel_release(),
            started_at: self.started_at,
            duration_s,
            lost: self.lost()?,
            filters: Vec::new(),
            command: None,
            devices,
        })
    }

    /// Books bios that completed unseen before the last edge; sectors of each
    /// disk. On an idle disk whatever is left did. On a busy one it is what
    /// stays while many that came later complete.
    fn take_unseen(&mut self, last: bool) -> Result<Vec<u64>, SessionError> {
        // What was submitted before the run began may have completed before.
        // Of an interval it was in flight where the interval began, for those
        // that completed unseen were taken there.
        let span = Span {
            begin: if self.swept { 0 } else { self.began.epoch },
            end: self.last.epoch,
        };
        let patience = if last {
            PATIENT_WITH_BIOS
        } else {
            let interval = self.last.seconds_since(&self.began);
            PATIENT_WITH_BIOS.min(Duration::from_secs_f64(interval / 10.0))
        };
        let mut sectors = vec![0; self.disks.len()];
        for (index, sum) in sectors.iter_mut().enumerate() {
            let disk = index as u16;
            let idle =
                |stat: &std::io::Result<DiskStat>| matches!(stat, Ok(stat) if stat.in_flight == 0);
            let taken = if idle(&self.last.stats[index]) {
                // Young ones may be in a task's plug, not yet in flight.
                if self.probe.flights(disk, span)? > 0 {
                    std::thread::sleep(PLUGGED);
                }
                self.probe.take_unseen(disk, span)?
            } else if self.outlives_others(index, span, patience)? {
                self.probe.take_unseen(disk, span)?
            } else {
                continue;
            };
            *sum = taken.iter().map(|(_, value)| value.sectors).sum();
            self.accounts.take_rows(taken);
        }
        Ok(sectors)
    }

    /// Gives the bios of a busy disk time to complete; says whether those that
    /// are left then must have done so unseen.
    fn outlives_others(
        &mut self,
        index: usize,
        span: Span,
        patience: Duration,
    ) -> Result<bool, SessionError> {
        let before = self.probe.edges.completions();
        let until = Instant::now() + patience;
        while Instant::now() < until && self.probe.flights(index as u16, span)? > 0 {
            std::thread::sleep(Duration::from_millis(20));
            if matches!(self.disks[index].stat(), Ok(stat) if stat.in_flight == 0) {
                return Ok(true);
            }
        }
        Ok(self.probe.edges.completions() - before >= OVERTAKEN)
    }

    /// Page cache that the devices have not got yet, in bytes.
    pub fn dirty_bytes(&self) -> Result<u64, String> {
        let dirty = self.dirty.as_ref().map_err(Clone::clone)?;
        self.disks
            .iter()
            .map(|disk| {
                let bytes = dirty.read(disk.dev.major, disk.dev.minor);
                bytes.map(|bytes| bytes.dirty + bytes.writeback)
            })
            .sum::<std::io::Result<u64>>()
            .map_err(|error| error.to_string())
    }

    /// Where the traced filesystems are mounted in our namespace.
    pub fn mount_points(&self) -> Vec<std::path::PathBuf> {
        let mounts = self
            .devices
            .values()
            .filter_map(|device| device.mount.as_ref());
        mounts.filter_map(|mount| mount.point.clone()).collect()
    }

    fn note_ended(&mut self) {
        let pids: Vec<u32> = self.names.pids().collect();
        for pid in pids {
            self.names.program_mut(pid).exited = !processes::lives(pid);
        }
    }

    fn still_dirty(&self, ledger: &mut DeviceLedger, dev: DevNumber, duration_s: f64) {
        let found = match &self.dirty {
            Ok(dirty) => dirty
                .read(dev.major, dev.minor)
                .map_err(|why| why.to_string()),
            Err(why) => Err(why.clone()),
        };
        match found {
            Ok(bytes) => {
                let left = bytes.dirty + bytes.writeback;
                ledger.still_dirty_bytes = Some(left);
                ledger.still_dirty_error_bytes = Some(error_bytes(self.probe.cpus() as u64));
                let rate = ledger.sectors_written as f64 * 512.0 / duration_s.max(1e-9);
                if left > 0 && rate > 0.0 {
                    ledger.drain_eta_s = Some(left as f64 / rate);
                }
            }
            Err(why) => ledger.still_dirty_missing = Some(format!("debugfs: {why}")),
        }
    }

    /// Ages of each disk since the run or the interval began: the kernel's
    /// side counts on and on.
    fn ages(&mut self) -> Result<Vec<Vec<AgeRow>>, SessionError> {
        let mut of_disks = Vec::new();
        for disk in 0..self.disks.len() as u32 {
            let mut rows = Vec::new();
            for code in AGED {
                let now = self.probe.ages(disk, code)?;
                let buckets = match self.ages_before.get(&(disk, code)) {
                    Some(before) => ages::since(&now, before),
                    None => now.clone(),
                };
                self.ages_last.insert((disk, code), now);
                if let Some(found) = ages::summarize(&buckets) {
                    rows.push(AgeRow {
                        path: Path::from_code(code),
                        median_us: found.median_us,
                        p99_us: found.p99_us,
                        max_us: found.max_us,
                        sectors: found.sectors,
                        buckets: found.buckets,
                    });
                }
            }
            of_disks.push(rows);
        }
        Ok(of_disks)
    }

    /// Knobs in force, and how near the page cache came to their thresholds.
    fn tuning(&self, ledger: &mut DeviceLedger, disk: u16) {
        let of_vm = pagecache::knobs();
        for ((knob, value), (_, before)) in of_vm.iter().zip(&self.knobs) {
            if value != before {
                let note = format!("{knob} was {before} at the start and {value} at the end");
                ledger.notes.push(note);
            }
        }
        ledger.knobs = of_vm
            .into_iter()
            .map(|(knob, value)| KnobValue {
                knob,
                value,
                fs_dev: None,
            })
            .collect();
        let mut mounts: Vec<KnobValue> = self
            .devices
            .iter()
            .filter(|(_, device)| device.disk == disk)
            .filter_map(|(dev, device)| {
                Some(KnobValue {
                    knob: "commit",
                    value: device.commit_s?.into(),
                    fs_dev: Some(DevNumber::from_kernel(*dev).to_string()),
                })
            })
            .collect();
        mounts.sort_by(|a, b| a.fs_dev.cmp(&b.fs_dev));
        ledger.knobs.extend(mounts);
        ledger.memory = (self.memory.samples > 0).then_some(self.memory);
    }

    /// What cannot be known of this disk's filesystems.
    fn notes(&self, disk: u16) -> Vec<String> {
        let mut notes: Vec<String> = self
            .devices
            .values()
            .filter(|device| device.disk == disk)
            .filter_map(|device| device.mount.as_ref())
            .filter(|mount| !mount.kind.starts_with("ext"))
            .map(|mount| {
                format!(
                    "{} is not followed: totals, processes, write-back and metadata \
                     only; no files, no syncs, no journal",
                    mount.kind
                )
            })
            .collect();
        notes.sort();
        notes.dedup();
        if self
            .disks
            .get(usize::from(disk))
            .is_some_and(|_| disk >= 16)
        {
            notes.push("ages of data are kept for the first 16 disks".to_owned());
        }
        notes
    }

    fn lost(&self) -> Result<Lost, SessionError> {
        const MAPS: [(&str, u32); 6] = [
            ("flights", loss::FLIGHT),
            ("rows", loss::ROW),
            ("tasks", loss::TASK),
            ("inodes", loss::INODE),
            ("processes", loss::PROCESS),
            ("shares", loss::SHARE),
        ];
        let counters = self.probe.losses()?;
        let ext4 = self
            .devices
            .values()
            .filter_map(|device| device.mount.as_ref())
            .any(|mount| mount.kind == "ext4");
        Ok(Lost {
            ring: counters[loss::RING as usize],
            ring_offered: counters[loss::RING_OFFERED as usize],
            maps: MAPS
                .iter()
                .map(|(name, index)| (*name, counters[*index as usize]))
                .collect(),
            undecoded: self.undecoded,
            hooks: self
                .probe
                .hooks
                .iter()
                .filter(|hook| hook.by.is_none() && (ext4 || !hook.step.hook.ext4))
                .map(|hook| {
                    (
                        hook.step.hook.name.to_owned(),
                        hook.step.hook.lost.to_owned(),
                    )
                })
                .collect(),
        })
    }
}

/// Shares of processes, by file or device.
fn by_first(shares: Vec<((u32, u32), u64)>) -> HashMap<u32, Vec<(u32, u64)>> {
    let mut sums: HashMap<u32, BTreeMap<u32, u64>> = HashMap::new();
    for ((first, pid), amount) in shares {
        *sums.entry(first).or_default().entry(pid).or_default() += amount;
    }
    sums.into_iter()
        .map(|(first, shares)| (first, shares.into_iter().collect()))
        .collect()
}

/// Change of stat = attributed + unattributed + residual.
fn equate(ledger: &mut DeviceLedger, before: DiskStat, after: DiskStat) {
    ledger.sectors_written = after.sectors_written.wrapping_sub(before.sectors_written);
    ledger.sectors_discarded = after
        .sectors_discarded
        .wrapping_sub(before.sectors_discarded);
    ledger.flushes_done = after.flushes.wrapping_sub(before.flushes);
    let counted = ledger.sectors_attributed + ledger.sectors_unattributed;
    ledger.residual = ledger.sectors_written as i64 - counted as i64;
}
