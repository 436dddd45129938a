//! The domain: paths, triggers, commits, the ledger. Knows nothing of the
//! kernel's interfaces, of the command line or of any output.

pub mod calls;
pub mod ledger;
pub mod path;
pub mod record;
pub mod trigger;
