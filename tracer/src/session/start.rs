//! The machine when a recording began.

use super::Session;
use crate::{
    kernel::{block::DevNumber, ext4, machine, pagecache, processes},
    model::calls,
    plan::Answer,
    recording::start::{self, Device, Filesystem, LostHook, Start},
};
use std::{collections::BTreeMap, fs};

/// Knobs of write-back beside those that the ledger has.
const MORE_KNOBS: [&str; 2] = ["vm.dirtytime_expire_seconds", "vm.laptop_mode"];

impl Session {
    /// Asks for all that a reader may need and cannot make up afterwards.
    pub(super) fn start(&self, writes: bool, max_size_bytes: u64) -> Start {
        let cache = pagecache::sample().unwrap_or_default();
        let mut missing = Vec::new();
        if writes {
            missing.push(
                "which inodes and blocks were dirty when it began: the kernel has no list of them"
                    .to_owned(),
            );
            missing.push(
                "stores into pages of file mappings that are dirty already, and direct I/O"
                    .to_owned(),
            );
        }
        if let Err(why) = &self.dirty {
            missing.push(format!("what each disk had dirty: debugfs: {why}"));
        }
        Start {
            schema: start::SCHEMA.to_owned(),
            kernel: processes::kernel_release(),
            machine: machine::architecture(),
            recorder: env!("CARGO_PKG_VERSION").to_owned(),
            hz: processes::tick_hz(),
            memory_bytes: machine::memory_bytes().unwrap_or_default(),
            page_bytes: rustix::param::page_size() as u64,
            knobs: knobs(),
            dirty_bytes: cache.dirty,
            writeback_bytes: cache.writeback,
            threshold_bytes: cache.threshold,
            background_bytes: cache.background,
            reasons: self.facts.reasons.iter().cloned().collect(),
            calls: (0..=u16::MAX)
                .filter_map(|call| Some((call, calls::name(call)?.to_owned())))
                .collect(),
            devices: (0..self.disks.len()).map(|disk| self.disk(disk)).collect(),
            writes,
            max_size_bytes,
            lost_hooks: self.lost_hooks(),
            missing,
        }
    }

    fn lost_hooks(&self) -> Vec<LostHook> {
        self.probe
            .hooks
            .iter()
            .filter(|hook| hook.by.is_none() && hook.step.hook.answer == Answer::Writes)
            .map(|hook| LostHook {
                hook: hook.step.hook.name.to_owned(),
                lost: hook.step.hook.lost.to_owned(),
            })
            .collect()
    }

    fn disk(&self, index: usize) -> Device {
        let disk = &self.disks[index];
        let (major, minor) = (disk.dev.major, disk.dev.minor);
        let debugfs = self.dirty.as_ref().ok();
        let bytes = debugfs.and_then(|dirty| dirty.read(major, minor).ok());
        let mut filesystems: Vec<Filesystem> = self
            .devices
            .iter()
            .filter(|(_, device)| usize::from(device.disk) == index)
            .filter_map(|(dev, device)| {
                let mount = device.mount.as_ref()?;
                let dev = DevNumber::from_kernel(*dev);
                let geometry = ext4::geometry(dev).filter(|_| mount.kind.starts_with("ext"));
                let point = mount.point.as_ref();
                Some(Filesystem {
                    dev: dev.to_string(),
                    kind: mount.kind.clone(),
                    mounted_on: point.map(|point| point.to_string_lossy().into_owned()),
                    options: lines(ext4::options(dev)),
                    commit_s: mount.commit_s,
                    data_journal: mount.data_journal,
                    block_bytes: 512 << device.block_shift,
                    inode_bytes: geometry.map(|geometry| geometry.inode_bytes),
                    inodes_per_group: geometry.map(|geometry| geometry.inodes_per_group),
                    blocks_per_group: geometry.map(|geometry| geometry.blocks_per_group),
                    journal_bytes: geometry.and_then(|geometry| geometry.journal_bytes),
                })
            })
            .collect();
        filesystems.sort_by(|one, other| one.dev.cmp(&other.dev));
        Device {
            name: disk.name.clone(),
            dev: disk.dev.to_string(),
            dirty_bytes: bytes.map(|bytes| bytes.dirty),
            writeback_bytes: bytes.map(|bytes| bytes.writeback),
            dirty_inodes: debugfs.and_then(|dirty| dirty.inodes(major, minor)),
            filesystems,
        }
    }
}

fn lines(text: Option<String>) -> Vec<String> {
    let text = text.unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn knobs() -> BTreeMap<String, String> {
    let of_ledger = pagecache::knobs().into_iter();
    let mut knobs: BTreeMap<String, String> = of_ledger
        .map(|(name, value)| (name.to_owned(), value.to_string()))
        .collect();
    for name in MORE_KNOBS {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        if let Ok(text) = fs::read_to_string(path) {
            knobs.insert(name.to_owned(), text.trim().to_owned());
        }
    }
    knobs
}
