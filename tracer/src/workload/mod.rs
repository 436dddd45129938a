//! What writes: programs of ours that write in a defined way and keep their
//! own account of what they wrote.
//!
//! A workload works in a fresh directory of its own ([`tree`]), separates
//! preparation from the measured part, is paced on absolute deadlines
//! ([`pacing`]) and counts every call and byte itself ([`account`]), so that
//! amplification (device bytes over logical bytes) has a denominator that the
//! tracer did not make. Nothing here prints: [`report`] renders to a string or
//! a serialisable value, and the command line decides where that goes.
//!
//! Entry: [`CATALOGUE`] for what there is, [`iot_files::IotFiles`] for the one.

pub mod account;
pub mod error;
pub mod iot_files;
pub mod pacing;
pub mod payload;
pub mod report;
pub mod stop;
pub mod tree;

pub use error::WorkloadError;
pub use stop::Stop;

/// A workload's entry in `writepath workload list` and `show`.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// The name typed on the command line.
    pub name: &'static str,
    /// One line.
    pub summary: &'static str,
    /// What it does, for `show`.
    pub description: &'static str,
}

/// Every workload there is.
pub const CATALOGUE: &[Entry] = &[Entry {
    name: iot_files::NAME,
    summary: "many small files updated once a period, one fsynced file",
    description: iot_files::DESCRIPTION,
}];

/// Looks a workload up by its name.
pub fn find(name: &str) -> Result<&'static Entry, WorkloadError> {
    CATALOGUE
        .iter()
        .find(|entry| entry.name == name)
        .ok_or_else(|| WorkloadError::UnknownWorkload {
            name: name.to_owned(),
            known: CATALOGUE
                .iter()
                .map(|entry| entry.name)
                .collect::<Vec<_>>()
                .join(", "),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_is_there_and_names_it_otherwise() {
        assert_eq!(find("iot-files").unwrap().name, "iot-files");
        let error = find("iot").unwrap_err().to_string();
        assert!(error.contains("iot-files"), "{error}");
    }
}
