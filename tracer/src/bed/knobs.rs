//! What outlives a loop device: settings of its queue and its writeback that
//! meet the next user of its number. Puts them back to the kernel's defaults.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::BedError;

/// Written in this order: a scheduler changes others, and a minimum may not
/// exceed the maximum. What a kernel does not have is passed over.
const QUEUE: &[(&str, &str)] = &[
    ("scheduler", "none"),
    ("nomerges", "0"),
    ("rq_affinity", "1"),
    ("iostats", "1"),
    ("add_random", "0"),
    ("read_ahead_kb", "128"),
    ("stable_writes", "0"),
    ("write_cache", "write back"),
    // The kernel takes -1 for its own default.
    ("wbt_lat_usec", "-1"),
];

const BDI: &[(&str, &str)] = &[
    ("strict_limit", "0"),
    ("min_ratio", "0"),
    ("max_ratio", "100"),
];

/// The most that the block layer merges by default before Linux 6.16, in KiB.
const MAX_SECTORS_KB: u64 = 1280;
/// Requests that the loop driver asks for.
const NR_REQUESTS: u64 = 128;

/// Resets the settings of loop device `name` (such as `loop7`).
pub fn reset(name: &str) -> Result<(), BedError> {
    let block = PathBuf::from("/sys/block").join(name);
    let queue = block.join("queue");
    for (file, value) in QUEUE {
        set(&queue.join(file), value)?;
    }
    let requests = queue.join("nr_requests");
    if number(&requests).is_some_and(|now| now != NR_REQUESTS) {
        set(&requests, &NR_REQUESTS.to_string())?;
    }
    max_sectors(&queue)?;
    max_discard(&queue)?;
    // The device's own directory has a link to it.
    let bdi = block.join("bdi");
    for (file, value) in BDI {
        set(&bdi.join(file), value)?;
    }
    Ok(())
}

/// 0 means the default since Linux 6.9 and is refused before.
fn max_sectors(queue: &Path) -> Result<(), BedError> {
    let file = queue.join("max_sectors_kb");
    if fs::write(&file, "0").is_ok() {
        return Ok(());
    }
    let hardware = number(&queue.join("max_hw_sectors_kb")).unwrap_or(MAX_SECTORS_KB);
    set(&file, &hardware.min(MAX_SECTORS_KB).to_string())
}

/// What may be written is a multiple of the granularity, which the default of
/// all that the device can need not be: the largest multiple then.
fn max_discard(queue: &Path) -> Result<(), BedError> {
    let read = |file| number(&queue.join(file));
    let (Some(now), Some(most), Some(granularity)) = (
        read("discard_max_bytes"),
        read("discard_max_hw_bytes"),
        read("discard_granularity"),
    ) else {
        return Ok(());
    };
    let most = most.checked_div(granularity).map_or(0, |n| n * granularity);
    if now >= most {
        return Ok(());
    }
    set(&queue.join("discard_max_bytes"), &most.to_string())
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn set(path: &Path, value: &str) -> Result<(), BedError> {
    // Never create: a missing attribute is one that this kernel lacks.
    let opened = fs::OpenOptions::new().write(true).open(path);
    let wrote = opened.and_then(|mut file| io::Write::write_all(&mut file, value.as_bytes()));
    match wrote {
        Ok(()) => Ok(()),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied
            ) =>
        {
            Ok(())
        }
        Err(reason) => Err(BedError::Knob {
            path: path.to_owned(),
            value: value.to_owned(),
            reason,
        }),
    }
}
