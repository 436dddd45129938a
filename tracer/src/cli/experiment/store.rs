//! The directory of a result: made for its user alone, written as it goes.

use crate::{
    cli::{command::User, typed::create},
    experiment::result::{Experiment, Sample},
};
use anyhow::Context;
use std::{
    fs::{self, DirBuilder, File},
    io::{BufWriter, Write},
    os::unix::fs::{DirBuilderExt, lchown},
    path::{Path, PathBuf},
};

/// A result that is being made.
pub struct Store {
    dir: PathBuf,
    owner: Option<User>,
    samples: Option<BufWriter<File>>,
}

impl Store {
    /// Makes the directory, which must not be there yet.
    pub fn new(dir: &Path, owner: Option<User>) -> anyhow::Result<Self> {
        let made = DirBuilder::new().mode(0o700).create(dir);
        made.with_context(|| format!("cannot make the directory {}", dir.display()))?;
        if let Some(owner) = owner {
            lchown(dir, Some(owner.uid), Some(owner.gid))
                .with_context(|| format!("cannot give {} to its user", dir.display()))?;
        }
        Ok(Self {
            dir: dir.to_owned(),
            owner,
            samples: None,
        })
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Writes the result so far; what was there is replaced as a whole.
    pub fn write(&self, experiment: &Experiment) -> anyhow::Result<()> {
        let new = self.dir.join("result.json.new");
        let cannot = || format!("cannot write {}", new.display());
        let file = create(&new, self.owner)?;
        let mut out = BufWriter::new(file);
        serde_json::to_writer(&mut out, experiment).with_context(cannot)?;
        out.write_all(b"\n").with_context(cannot)?;
        let file = out
            .into_inner()
            .map_err(std::io::IntoInnerError::into_error);
        file.and_then(|file| file.sync_all()).with_context(cannot)?;
        fs::rename(&new, self.dir.join("result.json")).with_context(cannot)
    }

    /// Writes a text beside the result.
    pub fn write_text(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let path = self.dir.join(name);
        create(&path, self.owner)?
            .write_all(text.as_bytes())
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// Begins the samples of a block; gives the name of their file.
    pub fn begin_samples(&mut self, order: usize) -> anyhow::Result<String> {
        let name = format!("samples-{order}.jsonl");
        let file = create(&self.dir.join(&name), self.owner)?;
        self.samples = Some(BufWriter::new(file));
        Ok(name)
    }

    /// Keeps a sample.
    pub fn sample(&mut self, sample: &Sample) -> anyhow::Result<()> {
        let Some(out) = &mut self.samples else {
            return Ok(());
        };
        let cannot = || format!("cannot write samples to {}", self.dir.display());
        serde_json::to_writer(&mut *out, sample).with_context(cannot)?;
        out.write_all(b"\n").with_context(cannot)
    }

    /// Ends the samples of a block.
    pub fn end_samples(&mut self) -> anyhow::Result<()> {
        if let Some(mut out) = self.samples.take() {
            out.flush().context("cannot write samples")?;
        }
        Ok(())
    }
}
