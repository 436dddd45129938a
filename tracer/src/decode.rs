//! Bytes of the ring buffer become records of the domain.
//!
//! Total: an unknown or short record is an error to be counted, never a panic.

use crate::model::record::{Commit, FastCommit, Name, Record, Waker, WakerKind};
use bytes::Buf;
use tracer_common::{
    NAME_BYTES, REC_COMMIT, REC_FAST_COMMIT, REC_FREED, REC_NAME, STACK_FRAMES, waker,
};

/// Why a record cannot be read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum DecodeError {
    /// Shorter than its kind.
    #[error("record cut short")]
    Short,
    /// A kind of another version.
    #[error("unknown record kind {0}")]
    Kind(u32),
}

impl From<bytes::TryGetError> for DecodeError {
    fn from(_: bytes::TryGetError) -> Self {
        Self::Short
    }
}

/// Decodes one record.
pub fn decode(mut bytes: &[u8]) -> Result<Record, DecodeError> {
    let kind = bytes.try_get_u32_ne()?;
    let _size = bytes.try_get_u32_ne()?;
    match kind {
        REC_NAME => name(bytes).map(Record::Name),
        REC_COMMIT => commit(bytes).map(|commit| Record::Commit(Box::new(commit))),
        REC_FREED => Ok(Record::Freed(bytes.try_get_u32_ne()?)),
        REC_FAST_COMMIT => fast_commit(bytes).map(Record::FastCommit),
        kind => Err(DecodeError::Kind(kind)),
    }
}

fn name(mut bytes: &[u8]) -> Result<Name, DecodeError> {
    let ino = bytes.try_get_u64_ne()?;
    let dev = bytes.try_get_u32_ne()?;
    let file = bytes.try_get_u32_ne()?;
    let len = (bytes.try_get_u32_ne()? as usize).min(NAME_BYTES);
    let whole = bytes.try_get_u32_ne()? != 0;
    let mut parts: Vec<&[u8]> = bytes
        .get(..len)
        .ok_or(DecodeError::Short)?
        .split(|byte| *byte == 0)
        .filter(|part| !part.is_empty())
        .collect();
    parts.reverse();
    Ok(Name {
        dev,
        ino,
        file,
        name: (!parts.is_empty()).then(|| parts.join(&b'/')),
        whole,
    })
}

fn text(bytes: &[u8]) -> Vec<u8> {
    let end = bytes.iter().position(|byte| *byte == 0);
    bytes[..end.unwrap_or(bytes.len())].to_vec()
}

fn comm(bytes: &mut &[u8]) -> Result<Vec<u8>, DecodeError> {
    let mut comm = [0; 16];
    bytes.try_copy_to_slice(&mut comm)?;
    Ok(text(&comm))
}

fn waker(bytes: &mut &[u8]) -> Result<Option<Waker>, DecodeError> {
    let kind = bytes.try_get_u32_ne()?;
    let tgid = bytes.try_get_u32_ne()?;
    let tid = bytes.try_get_u32_ne()?;
    let file = bytes.try_get_u32_ne()?;
    let call = bytes.try_get_u32_ne()? as u16;
    let frames = (bytes.try_get_u32_ne()? as usize).min(STACK_FRAMES);
    let comm = comm(bytes)?;
    let ns = bytes.try_get_u64_ne()?;
    let mut stack = Vec::with_capacity(frames);
    for frame in 0..STACK_FRAMES {
        let address = bytes.try_get_u64_ne()?;
        if frame < frames {
            stack.push(address);
        }
    }
    let kind = match kind {
        waker::NONE => return Ok(None),
        waker::FSYNC => WakerKind::Fsync,
        waker::SYNC_FS => WakerKind::SyncFs,
        waker::SYNC_HANDLE => WakerKind::SyncHandle,
        _ => WakerKind::Other,
    };
    Ok(Some(Waker {
        kind,
        tgid,
        tid,
        file,
        call,
        comm,
        ns,
        stack,
    }))
}

fn commit(mut bytes: &[u8]) -> Result<Commit, DecodeError> {
    let bytes = &mut bytes;
    Ok(Commit {
        dev: bytes.try_get_u32_ne()?,
        tid: bytes.try_get_u32_ne()?,
        start_ns: bytes.try_get_u64_ne()?,
        locking_ns: bytes.try_get_u64_ne()?,
        flushing_ns: bytes.try_get_u64_ne()?,
        logging_ns: bytes.try_get_u64_ne()?,
        end_ns: bytes.try_get_u64_ne()?,
        running_ticks: bytes.try_get_u64_ne()?,
        handles: bytes.try_get_u32_ne()?,
        blocks: bytes.try_get_u32_ne()?,
        blocks_logged: bytes.try_get_u32_ne()?,
        syncing: bytes.try_get_u32_ne()?,
        waker: waker(bytes)?,
        waiting: waker(bytes)?,
        sync_fs: waker(bytes)?,
    })
}

fn fast_commit(mut bytes: &[u8]) -> Result<FastCommit, DecodeError> {
    let bytes = &mut bytes;
    Ok(FastCommit {
        dev: bytes.try_get_u32_ne()?,
        tgid: bytes.try_get_u32_ne()?,
        file: bytes.try_get_u32_ne()?,
        blocks: bytes.try_get_u32_ne()?,
        status: bytes.try_get_i32_ne()?,
        call: bytes.try_get_u32_ne()? as u16,
        start_ns: bytes.try_get_u64_ne()?,
        end_ns: bytes.try_get_u64_ne()?,
        comm: comm(bytes)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name_record(components: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(REC_NAME.to_ne_bytes());
        bytes.extend(0_u32.to_ne_bytes());
        bytes.extend(12_u64.to_ne_bytes());
        bytes.extend(7_u32.to_ne_bytes());
        bytes.extend(3_u32.to_ne_bytes());
        bytes.extend((components.len() as u32).to_ne_bytes());
        bytes.extend(1_u32.to_ne_bytes());
        bytes.extend(components);
        bytes
    }

    #[test]
    fn names_are_turned_around() {
        let Ok(Record::Name(name)) = decode(&name_record(b"log\0var\0")) else {
            panic!("not a name");
        };
        assert_eq!(name.name.as_deref(), Some(b"var/log".as_slice()));
        assert_eq!((name.dev, name.ino, name.file), (7, 12, 3));
    }

    #[test]
    fn what_is_short_or_unknown_is_an_error() {
        assert_eq!(decode(&[]).unwrap_err(), DecodeError::Short);
        assert_eq!(
            decode(&[99, 0, 0, 0, 8, 0, 0, 0]).unwrap_err(),
            DecodeError::Kind(99)
        );
        let commit = [REC_COMMIT.to_ne_bytes(), [0; 4]].concat();
        assert_eq!(decode(&commit).unwrap_err(), DecodeError::Short);
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken(kind in 0u32..5, bytes in proptest::collection::vec(any::<u8>(), 0..900)) {
            let _ = decode(&[&kind.to_ne_bytes(), bytes.as_slice()].concat());
        }
    }
}
