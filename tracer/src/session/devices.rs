//! Which device numbers are traced, and what is mounted from them.

use crate::kernel::{
    block::Disk,
    mounts::{self, Mount},
    probe::{Probe, ProbeError},
};
use std::collections::HashMap;
use tracer_common::{DeviceInfo, device_flag};

/// A disk or partition that is traced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracedDevice {
    /// Index of its disk.
    pub disk: u16,
    /// What is mounted from it.
    pub mount: Option<Mount>,
    /// Seconds of ext4's `commit=`.
    pub commit_s: Option<u32>,
    /// log2 of sectors per filesystem block.
    pub block_shift: u32,
}

/// Tells the programs of new partitions and mounts.
pub fn refresh(
    probe: &mut Probe,
    disks: &[Disk],
    known: &mut HashMap<u32, TracedDevice>,
) -> Result<(), ProbeError> {
    let mut mounts = mounts::by_device();
    for (index, disk) in disks.iter().enumerate() {
        let mut disk_flags = 0;
        if disk.has_cache() {
            disk_flags |= device_flag::CACHE;
        }
        if disk.has_fua() {
            disk_flags |= device_flag::FUA;
        }
        for part in disk.parts() {
            let mount = mounts.remove(&part.dev);
            let device = TracedDevice {
                disk: index as u16,
                commit_s: mount.as_ref().and_then(|mount| mount.commit_s),
                block_shift: mount.as_ref().map_or(3, |mount| mount.block_shift),
                mount,
            };
            let dev = part.dev.kernel();
            if known.get(&dev) == Some(&device) {
                continue;
            }
            // What was mounted stays known: umount writes to its end.
            let device = match known.get(&dev) {
                Some(before) if device.mount.is_none() && before.mount.is_some() => {
                    continue_as(before)
                }
                _ => device,
            };
            let info = DeviceInfo {
                disk: index as u32,
                flags: disk_flags | flags(&device),
                start: part.start,
            };
            probe.set_device(part.dev, info)?;
            known.insert(dev, device);
        }
    }
    Ok(())
}

fn continue_as(before: &TracedDevice) -> TracedDevice {
    before.clone()
}

fn flags(device: &TracedDevice) -> u32 {
    let mut flags = device.block_shift << device_flag::BLOCK_SHIFT;
    if let Some(mount) = &device.mount {
        if mount.kind == "ext4" || mount.kind == "ext3" || mount.kind == "ext2" {
            flags |= device_flag::EXT4;
            if mount.data_journal {
                flags |= device_flag::DATA_JOURNAL;
            }
        } else {
            flags |= device_flag::OTHER_FS;
        }
    }
    flags
}
