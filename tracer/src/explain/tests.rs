//! Explanations of made traces whose right answer is known.

mod experiments;
mod files;
mod knobs;
mod made;
