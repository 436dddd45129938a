//! Explanations of made traces whose right answer is known.

mod experiments;
mod files;
mod golden;
mod knobs;
mod made;
