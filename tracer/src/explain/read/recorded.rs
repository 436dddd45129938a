//! A recording: its ledger is a trace, and its writes allow estimates.

use super::{ReadError, trace};
use crate::{
    explain::{
        evidence::{Evidence, Source},
        rewrites::Writes,
    },
    recording::Reader,
};

/// Reads a recording.
pub fn recording(bytes: &[u8]) -> Result<Evidence, ReadError> {
    let mut reader = Reader::open(bytes)?;
    let start = reader.start();
    let kept = start.writes;
    let periodic = start
        .reasons
        .iter()
        .find(|(_, name)| *name == "periodic")
        .and_then(|(code, _)| u16::try_from(*code).ok());
    let mut writes = Writes::new(periodic);
    for event in reader.by_ref() {
        writes.take(&event?);
    }
    let cut = reader.totals().cut.clone();
    let damaged = reader.totals().damaged;
    let Some(ledger) = reader.ledger() else {
        let why = cut.unwrap_or_else(|| "it holds none".to_owned());
        return Err(ReadError::NoLedger(why));
    };
    let mut evidence = trace(ledger.as_bytes())?;
    evidence.source = Source::Recording;
    // With several disks it is not known here which writes were whose.
    let whole = kept && damaged == 0 && periodic.is_some() && evidence.devices.len() == 1;
    evidence.writes = whole.then_some(writes);
    Ok(evidence)
}
