//! writepath: an eBPF write-path tracer for Linux.
//!
//! Three kinds of code are kept apart: pure (`model`, `decode`, `attribute`,
//! `layout`, `plan`, `profile`, `recording`, `output`), the kernel's edge
//! (`kernel`, `bed`, `tune`, `workload`), and the command line (`cli`). Only `session`
//! joins the first two; a test checks it.

pub mod attribute;
pub mod bed;
pub mod cli;
pub mod decode;
pub mod experiment;
pub mod explain;
pub mod kernel;
pub mod layout;
pub mod model;
pub mod output;
pub mod plan;
pub mod profile;
pub mod recording;
pub mod session;
pub mod stats;
pub mod tune;
pub mod workload;
