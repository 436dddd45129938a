//! The hidden command that the guard of a tuning run is.

use super::{profile::say, status};
use crate::tune::{self, Watched};
use std::process::ExitCode;

/// Watches, and puts back if the run dies. What it did then is said on
/// standard error, for nobody else can.
pub fn run() -> ExitCode {
    match tune::watch() {
        Ok(Watched::Goodbye) => ExitCode::SUCCESS,
        Ok(Watched::Died(report)) => {
            if !report.is_empty() {
                say("the run died; its guard did what was left:");
                report.lines().iter().for_each(|line| say(line));
            }
            if report.is_clean() {
                ExitCode::SUCCESS
            } else {
                ExitCode::from(status::NOT_APPLIED)
            }
        }
        Err(error) => {
            say(&format!("the guard of a tuning run: {error}"));
            ExitCode::from(status::NOT_APPLIED)
        }
    }
}
