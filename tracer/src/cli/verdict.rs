//! The exit status that a run deserves, and why, on stderr.

use super::{run::RunArgs, status};
use crate::model::ledger::Run;
use std::process::ExitCode;

/// Sectors that may be unattributed, in percent, unless something else is asked.
pub const MAX_UNATTRIBUTED: f64 = 1.0;
/// Ring records that may be lost, in percent, likewise.
pub const MAX_LOST: f64 = 0.1;

/// What keeps the books of a run open.
pub fn open_books(run: &Run, max_unattributed: f64, max_lost: f64) -> Vec<String> {
    let mut open = Vec::new();
    for device in &run.devices {
        if device.residual != 0 {
            open.push(format!("{}: residual {}", device.name, device.residual));
        }
        let unknown = device.sectors_unattributed - device.in_flight_before;
        let share = unknown as f64 * 100.0 / device.sectors_written.max(1) as f64;
        if share > max_unattributed {
            open.push(format!("{}: {share:.1} % unattributed", device.name));
        }
    }
    let in_maps = run.lost.in_maps();
    if in_maps > 0 {
        open.push(format!("{in_maps} map entries lost"));
    }
    let lost = run.lost.ring as f64 * 100.0 / run.lost.ring_offered.max(1) as f64;
    if lost > max_lost {
        open.push(format!("{lost:.2} % of ring records lost"));
    }
    open
}

/// The exit status of a run.
///
/// `writes` are records of writes that were lost, and how many there were.
pub fn verdict(args: &RunArgs, run: &Run, writes: (u64, u64)) -> ExitCode {
    let mut open = open_books(run, args.max_unattributed, args.max_lost);
    let lost = writes.0 as f64 * 100.0 / (writes.0 + writes.1).max(1) as f64;
    if lost > args.max_lost {
        open.push(format!("{lost:.2} % of the recording's events lost"));
    }
    if let Some(command) = &run.command {
        let how = match (command.code, command.signal) {
            (Some(0), _) => None,
            (Some(code), _) => Some(format!("exit status {code}")),
            (None, Some(signal)) => Some(format!("signal {signal}")),
            (None, None) => Some("unknown end".to_owned()),
        };
        if let Some(how) = how {
            eprintln!("writepath: {} failed: {how}", command.program);
            if !args.ignore_failure {
                return ExitCode::from(status::FAILURE);
            }
        }
    }
    if run.devices.iter().any(|device| device.vanished) {
        eprintln!("writepath: a device vanished: the ledger ends with its last reading");
        return ExitCode::from(status::FAILURE);
    }
    if open.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!("writepath: the books do not close: {}", open.join("; "));
    ExitCode::from(status::OPEN_BOOKS)
}
