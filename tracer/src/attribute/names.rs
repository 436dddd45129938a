//! Names of files and processes, kept after they are gone.

use crate::model::record::Name;
use std::collections::HashMap;

/// A file, by the tracer's number of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Device of the filesystem, in the kernel's form.
    pub dev: u32,
    /// Inode number; 0 is the device itself.
    pub ino: u64,
    /// Path from the root of the filesystem, where it is known.
    pub name: Option<Vec<u8>>,
    /// It was deleted during the run.
    pub deleted: bool,
}

/// A process, as it was seen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Program {
    /// Its name.
    pub comm: Vec<u8>,
    /// Its cgroup, where it could be read.
    pub cgroup: Option<Vec<u8>>,
    /// In the tree of the traced command.
    pub in_command: bool,
    /// It had ended at the end of the run.
    pub exited: bool,
}

/// All names of a run.
#[derive(Debug, Default)]
pub struct Names {
    files: HashMap<u32, File>,
    programs: HashMap<u32, Program>,
}

impl Names {
    /// Takes the name of a file.
    pub fn file_seen(&mut self, name: Name) {
        let known = self
            .files
            .get(&name.file)
            .and_then(|file| file.name.clone());
        self.files.insert(
            name.file,
            File {
                dev: name.dev,
                ino: name.ino,
                name: name.name.or(known),
                deleted: false,
            },
        );
    }

    /// A file was deleted; it keeps its name.
    pub fn file_deleted(&mut self, number: u32) {
        if let Some(file) = self.files.get_mut(&number) {
            file.deleted = true;
        }
    }

    /// Files without a name yet, to be asked for elsewhere.
    pub fn nameless(&self) -> impl Iterator<Item = (u32, &File)> {
        self.files
            .iter()
            .filter(|(_, file)| file.name.is_none() && file.ino != 0 && !file.deleted)
            .map(|(number, file)| (*number, file))
    }

    /// Gives a file its name.
    pub fn name_file(&mut self, number: u32, name: Vec<u8>) {
        if let Some(file) = self.files.get_mut(&number) {
            file.name = Some(name);
        }
    }

    /// Every file, by its number.
    pub fn files(&self) -> impl Iterator<Item = (u32, &File)> {
        self.files.iter().map(|(number, file)| (*number, file))
    }

    /// A file by its number.
    pub fn file(&self, number: u32) -> Option<&File> {
        self.files.get(&number)
    }

    /// Processes that were seen.
    pub fn pids(&self) -> impl Iterator<Item = u32> {
        self.programs.keys().copied()
    }

    /// The entry of a process.
    pub fn program_mut(&mut self, pid: u32) -> &mut Program {
        self.programs.entry(pid).or_default()
    }

    /// A process by its id.
    pub fn program(&self, pid: u32) -> Option<&Program> {
        self.programs.get(&pid)
    }
}
