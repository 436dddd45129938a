//! The ring of every write: read, its losses, and taken off again.

use super::probe::{Probe, ProbeError, map_error};
use aya::{
    maps::PerCpuArray,
    programs::{Program, ProgramError},
};
use tracer_common::kept;

/// Records lost, by the kinds of [`kept`].
pub type Lost = [u64; kept::COUNT as usize];

impl Probe {
    /// Hands every record of the ring of writes to `take`.
    pub fn drain_writes(&mut self, mut take: impl FnMut(&[u8])) {
        let Some(ring) = &mut self.writes else {
            return;
        };
        while let Some(record) = ring.next() {
            take(&record);
        }
    }

    /// Records that did not fit that ring.
    pub fn writes_lost(&self) -> Result<Lost, ProbeError> {
        let mut sums = [0; kept::COUNT as usize];
        if let Some(map) = self.ebpf.map("WRITES_LOST") {
            let lost: PerCpuArray<_, u64> =
                PerCpuArray::try_from(map).map_err(map_error("WRITES_LOST"))?;
            for (kind, sum) in sums.iter_mut().enumerate() {
                let values = lost.get(&(kind as u32), 0);
                *sum = values.map_err(map_error("WRITES_LOST"))?.iter().sum();
            }
        }
        Ok(sums)
    }

    /// Takes the hooks of writes off: they cost no more from here on.
    pub fn detach_writes(&mut self) -> Result<(), ProbeError> {
        for hook in crate::plan::WRITES {
            for candidate in hook.candidates {
                let Some(program) = self.ebpf.program_mut(candidate.program) else {
                    continue;
                };
                let unloaded = match program {
                    Program::RawTracePoint(program) => program.unload(),
                    Program::TracePoint(program) => program.unload(),
                    _ => Ok(()),
                };
                match unloaded {
                    // The other alternative of the hook was in use.
                    Ok(()) | Err(ProgramError::NotLoaded) => {}
                    Err(error) => {
                        return Err(ProbeError::Map {
                            map: "WRITES",
                            why: format!("{} stays attached: {error}", candidate.program),
                        });
                    }
                }
            }
        }
        Ok(())
    }
}
