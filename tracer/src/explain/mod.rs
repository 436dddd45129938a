//! Which knob can act on which sectors, and why the rest is out of its reach.
//!
//! Pure: bytes of a trace, of an experiment's result or of a recording become
//! [`Evidence`], and that becomes an [`Explanation`], in which every statement
//! follows from the numbers. It prints nothing and opens nothing.
//!
//! A *ceiling* is what a knob can act on at all: no value of it saves more.
//! Entry: [`read::any`], [`explain`].

mod ceiling;
mod evidence;
mod findings;
mod journal;
mod lever;
mod measured;
mod reach;
pub mod read;
mod rewrites;
mod say;
mod scene;
mod table;
mod value;
mod why;

#[cfg(test)]
mod tests;

pub use ceiling::explain;
pub use evidence::{Evidence, Source};
pub use findings::{DeviceFindings, Explanation, Finding, Measured, Named, Part};
pub use lever::{Asked, AskedError, Lever, short, spelled};
