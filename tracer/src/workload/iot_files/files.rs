//! The files of `iot-files` on disk: made before the clock starts, found again
//! by `--reuse`, removed by name.
//!
//! The directory holds `data/d0` … , `mgmt` and `prepared.json`, which says
//! what was made. Nothing else in it is touched, ever.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use super::NAME;
use super::spec::{IotFiles, Shape};
use crate::workload::payload::{MGMT, PREPARED, Payload};
use crate::workload::tree::{Dir, Space};
use crate::workload::{Stop, WorkloadError};

/// The management file.
pub const MGMT_NAME: &str = "mgmt";
const DATA_NAME: &str = "data";
const MANIFEST_NAME: &str = "prepared.json";
const MANIFEST_SCHEMA: &str = "writepath.prepared/1";
const MANIFEST_LIMIT: u64 = 4096;

/// The name of data file number `file` in `data`.
pub fn data_name(file: u32) -> String {
    format!("d{file}")
}

/// The name under which `--place rename` writes it anew.
pub fn new_name(file: u32) -> String {
    format!("d{file}.new")
}

/// What `prepared.json` holds.
#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    schema: String,
    workload: String,
    #[serde(flatten)]
    shape: Shape,
}

/// The files, ready for a run.
#[derive(Debug)]
pub struct Files {
    top: Dir,
    data: Dir,
    shape: Shape,
}

/// Checks that `dir` has room for what `spec` writes, the files included
/// unless they are there already.
pub fn check_room(dir: &Dir, spec: &IotFiles, prepared: bool) -> Result<(), WorkloadError> {
    let plan = spec.plan();
    let (bytes, inodes) = if prepared {
        (plan.grows, u64::from(spec.threads))
    } else {
        let inodes = u64::from(spec.shape.files) + u64::from(spec.threads) + 4;
        (plan.grows + plan.prepare_bytes, inodes)
    };
    let space = Space::of(dir).map_err(|reason| WorkloadError::Directory {
        path: dir.path().to_owned(),
        reason,
    })?;
    space.check(dir.path(), bytes, inodes)
}

impl Files {
    /// Makes the files in a fresh directory below `parent` and syncs the
    /// filesystem. `progress` is told how many data files are made. On an
    /// error or a raised `stop` what had been made is removed again.
    pub fn prepare(
        parent: &Dir,
        spec: &IotFiles,
        stop: &Stop,
        progress: &mut dyn FnMut(u32),
    ) -> Result<Self, WorkloadError> {
        check_room(parent, spec, false)?;
        let top = parent.fresh(NAME)?;
        // The first error is the one to report; what cannot be removed then
        // stays where its message says.
        let data = match top.make_dir(DATA_NAME) {
            Ok(data) => data,
            Err(error) => {
                let _ = parent.remove_dir(&top.name());
                return Err(error);
            }
        };
        let files = Self {
            top,
            data,
            shape: spec.shape,
        };
        match files.fill(spec.seed, stop, progress) {
            Ok(()) => Ok(files),
            Err(error) => {
                let _ = files.remove(parent);
                Err(error)
            }
        }
    }

    fn fill(
        &self,
        seed: u64,
        stop: &Stop,
        progress: &mut dyn FnMut(u32),
    ) -> Result<(), WorkloadError> {
        let mut payload = Payload::new(seed);
        let largest = self.shape.file_bytes.max(self.shape.mgmt_bytes);
        let mut buffer = vec![0; largest as usize];
        let mut make = |dir: &Dir, name: &str, number, bytes: u64| {
            let buffer = &mut buffer[..bytes as usize];
            payload.fill(number, PREPARED, buffer);
            let file = File::from(dir.make_file(name)?);
            file.write_all_at(buffer, 0)
                .map_err(|error| dir.fail("write", name, error))
        };
        for number in 0..self.shape.files {
            if stop.is_raised() {
                return Err(WorkloadError::Interrupted);
            }
            make(
                &self.data,
                &data_name(number),
                number,
                self.shape.file_bytes,
            )?;
            progress(number + 1);
        }
        if self.shape.mgmt_bytes > 0 {
            make(&self.top, MGMT_NAME, MGMT, self.shape.mgmt_bytes)?;
        }
        let manifest = Manifest {
            schema: MANIFEST_SCHEMA.into(),
            workload: NAME.into(),
            shape: self.shape,
        };
        let fail = |error: std::io::Error| self.top.fail("write", MANIFEST_NAME, error);
        let mut text = serde_json::to_vec_pretty(&manifest).map_err(|e| fail(e.into()))?;
        text.push(b'\n');
        File::from(self.top.make_file(MANIFEST_NAME)?)
            .write_all(&text)
            .map_err(fail)?;
        self.top.sync_filesystem()
    }

    /// Opens what [`Files::prepare`] left in `path` and checks that each file
    /// still is what was made there. Reads nothing but names and sizes and
    /// writes nothing.
    pub fn reuse(path: &Path) -> Result<Self, WorkloadError> {
        let top = Dir::no_link(path)?;
        let not = |why: String| WorkloadError::NotPrepared {
            path: path.to_owned(),
            why,
        };
        top.own_directory().map_err(not)?;
        top.own_file(MANIFEST_NAME).map_err(not)?;
        let mut text = String::new();
        File::from(top.open_file(MANIFEST_NAME, OFlags::RDONLY | OFlags::NOATIME)?)
            .take(MANIFEST_LIMIT)
            .read_to_string(&mut text)
            .map_err(|error| top.fail("read", MANIFEST_NAME, error))?;
        let manifest: Manifest = serde_json::from_str(&text)
            .map_err(|error| not(format!("{MANIFEST_NAME}: {error}")))?;
        if manifest.schema != MANIFEST_SCHEMA || manifest.workload != NAME {
            return Err(not(format!(
                "{MANIFEST_NAME} is of {} {}, wanted is {MANIFEST_SCHEMA} {NAME}",
                manifest.schema, manifest.workload
            )));
        }
        let files = Self {
            data: top.sub(DATA_NAME)?,
            top,
            shape: manifest.shape,
        };
        files.data.own_directory().map_err(not)?;
        for number in 0..files.shape.files {
            let name = data_name(number);
            let size = files.data.own_file(&name).map_err(not)?;
            same_size(&name, size, files.shape.file_bytes).map_err(not)?;
        }
        if files.shape.mgmt_bytes > 0 {
            let size = files.top.own_file(MGMT_NAME).map_err(not)?;
            same_size(MGMT_NAME, size, files.shape.mgmt_bytes).map_err(not)?;
        }
        Ok(files)
    }

    /// Removes every file that preparation or a run can have made, then the
    /// directories if nothing else is in them.
    pub fn remove(self, parent: &Dir) -> Result<(), WorkloadError> {
        for number in 0..self.shape.files {
            self.data.remove_file(&data_name(number))?;
            self.data.remove_file(&new_name(number))?;
        }
        self.top.remove_dir(DATA_NAME)?;
        self.top.remove_file(MGMT_NAME)?;
        self.top.remove_file(MANIFEST_NAME)?;
        parent.remove_dir(&self.top.name())
    }

    /// The workload's directory.
    pub fn top(&self) -> &Dir {
        &self.top
    }

    /// The directory of the data files.
    pub fn data(&self) -> &Dir {
        &self.data
    }

    /// What is there.
    pub fn shape(&self) -> Shape {
        self.shape
    }
}

fn same_size(name: &str, size: u64, wanted: u64) -> Result<(), String> {
    if size == wanted {
        return Ok(());
    }
    Err(format!(
        "{name} has {size} bytes, not {wanted}: changed since, prepare anew"
    ))
}
