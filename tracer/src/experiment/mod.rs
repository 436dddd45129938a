//! Experiments: a workload under several profiles, in blocks.
//!
//! Pure: what is done in which order ([`plan`]) and what is left of it
//! ([`result`]). The command line runs it.

pub mod plan;
pub mod result;

/// The name of the built-in experiment.
pub const EMMC_DIRTY_TUNING: &str = "emmc-dirty-tuning";

/// The profiles of the published table, and what it says of each: name, MiB a
/// minute, and the nominal loss window in seconds. Of both together it says
/// only that they saved no more than `coalescing`.
pub const PUBLISHED: [(&str, f64, u32); 4] = [
    ("default", 62.98, 30),
    ("balanced", 52.22, 60),
    ("coalescing", 45.19, 100),
    ("commit-60", 60.63, 60),
];
