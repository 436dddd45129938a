//! The kernel's edge: the only code that talks to tracefs, sysfs, procfs and
//! eBPF. Entry type: [`probe::Probe`]; what it says is decoded in `decode`
//! and joined in `attribute`.

pub mod block;
pub mod debugfs;
pub mod exchange;
pub mod ext4;
pub mod facts;
pub mod flights;
pub mod handles;
pub mod journal;
pub mod machine;
pub mod mapped;
pub mod mounts;
pub mod pagecache;
pub mod probe;
pub mod processes;
pub mod symbols;
pub mod tracefs;
pub mod writes;
