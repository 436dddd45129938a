//! What people and programs read. Everything goes to a writer.

pub mod doctor;
pub mod escape;
pub mod events;
pub mod experiment;
pub mod explain;
pub mod json;
pub mod pictures;
pub mod profile;
pub mod report;
pub mod text;
pub mod wrap;
