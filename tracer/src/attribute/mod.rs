//! Joins what belongs to one write, one commit, one ledger. Pure: time comes
//! from events only, and nothing here opens a file.
//!
//! Entry type: [`ledger::Accounts`].

pub mod ages;
pub mod commits;
pub mod ledger;
pub mod names;
pub mod summary;
