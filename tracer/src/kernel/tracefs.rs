//! tracefs: where the kernel describes its tracepoints.

use super::debugfs::detached_mount;
use crate::layout::format::Format;
use std::{fs, os::fd::OwnedFd, path::PathBuf};

/// tracefs, mounted or attached for us alone.
pub struct Tracefs {
    root: PathBuf,
    /// Keeps a mount that only this process sees.
    _mount: Option<OwnedFd>,
}

impl Tracefs {
    /// Finds tracefs; where nobody mounted it, it is opened without a mount
    /// point, so that nothing is left behind.
    pub fn open() -> std::io::Result<Self> {
        for root in ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"] {
            let root = PathBuf::from(root);
            if fs::metadata(root.join("events/block")).is_ok_and(|found| found.is_dir()) {
                return Ok(Self { root, _mount: None });
            }
        }
        let (root, mount) = detached_mount(c"tracefs")?;
        Ok(Self {
            root,
            _mount: Some(mount),
        })
    }

    /// The `format` file of an event (`group/name`).
    pub fn format(&self, event: &str) -> Option<Format> {
        let path = self.root.join("events").join(event).join("format");
        Some(Format::parse(&fs::read_to_string(path).ok()?))
    }

    /// Where it was found.
    pub fn root(&self) -> &std::path::Path {
        &self.root
    }
}
