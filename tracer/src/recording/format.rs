//! Header, sections and their bounds.

use std::io::{self, Read, Write};

/// First bytes of every recording.
pub const MAGIC: [u8; 8] = *b"WPATHREC";
/// Changes when an older reader could not read it any more.
pub const VERSION: u16 = 1;
/// Size of the file's header.
pub const HEADER_BYTES: usize = 64;
/// Size of a section's header.
pub const SECTION_BYTES: usize = 24;

/// Bytes of a section as stored, at most.
pub const MAX_STORED: u32 = 16 << 20;
/// Bytes of a section as inflated, at most.
pub const MAX_RAW: u32 = 16 << 20;
/// Events of a section, at most.
pub const MAX_EVENTS: usize = 1 << 16;
/// Bytes of a name, at most.
pub const MAX_NAME: usize = 4096;
/// Bytes of the ledger over all its sections, at most.
pub const MAX_LEDGER: usize = 64 << 20;

/// Kind of a section: four letters.
pub type Tag = [u8; 4];
/// JSON text of `writepath.start/1`; the first section.
pub const START: Tag = *b"STRT";
/// Events.
pub const EVENTS: Tag = *b"EVNT";
/// A part of the JSON text of `writepath.trace/1`.
pub const LEDGER: Tag = *b"LEDG";
/// The recording ended as it should; the last section.
pub const END: Tag = *b"END ";

/// Bit of a section's flags: the payload is compressed (zlib, RFC 1950).
pub const COMPRESSED: u32 = 1;
/// How hard the compressor tries, 0 to 10.
const LEVEL: u8 = 7;

/// Why a recording cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// It could not be read at all.
    #[error("cannot read it: {0}")]
    Read(#[from] io::Error),
    /// Other bytes than a recording begins with.
    #[error("not a recording of writepath: it begins with other bytes")]
    NotOurs,
    /// Of a version that this program does not know.
    #[error("a recording of version {0}; this writepath reads version {VERSION}")]
    Version(u16),
    /// The header does not hold together.
    #[error("its header is damaged: {0}")]
    Header(&'static str),
    /// It ends before it says anything.
    #[error("it has no readable start: {0}")]
    Start(String),
}

/// The file's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Nanoseconds since the Unix epoch when the recording began.
    pub started_at_ns: u64,
    /// `CLOCK_MONOTONIC` of the same moment: the zero of all times.
    pub started_ns: u64,
    /// Step of the times of events, in nanoseconds.
    pub tick_ns: u32,
}

impl Header {
    /// As the file has it.
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[10..12].copy_from_slice(&(HEADER_BYTES as u16).to_le_bytes());
        bytes[16..24].copy_from_slice(&self.started_at_ns.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.started_ns.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.tick_ns.to_le_bytes());
        let sum = crc32fast::hash(&bytes[..60]);
        bytes[60..64].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// From the file.
    pub fn from_bytes(bytes: &[u8; HEADER_BYTES]) -> Result<Self, FormatError> {
        if bytes[0..8] != MAGIC {
            return Err(FormatError::NotOurs);
        }
        let version = u16::from(bytes[8]) | u16::from(bytes[9]) << 8;
        if version != VERSION {
            return Err(FormatError::Version(version));
        }
        if crc32fast::hash(&bytes[..60]) != u32_at(bytes, 60) {
            return Err(FormatError::Header("its checksum differs"));
        }
        let header = Self {
            started_at_ns: u64_at(bytes, 16),
            started_ns: u64_at(bytes, 24),
            tick_ns: u32_at(bytes, 32),
        };
        if header.tick_ns == 0 {
            return Err(FormatError::Header("its step of time is 0"));
        }
        Ok(header)
    }
}

/// A little-endian number at a place inside a slice that is long enough.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(number)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// How the recording ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct End {
    /// Length of the recording, in nanoseconds.
    pub duration_ns: u64,
    /// Events in it.
    pub events: u64,
    /// Events that were lost, over all kinds.
    pub lost: u64,
    /// When writes stopped being kept, in nanoseconds from the start; 0 for
    /// never.
    pub full_ns: u64,
}

impl End {
    /// Size in the file.
    pub const BYTES: usize = 32;

    /// As the file has it.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let numbers = [self.duration_ns, self.events, self.lost, self.full_ns];
        for (place, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// From the file.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        (bytes.len() == Self::BYTES).then(|| Self {
            duration_ns: u64_at(bytes, 0),
            events: u64_at(bytes, 8),
            lost: u64_at(bytes, 16),
            full_ns: u64_at(bytes, 24),
        })
    }
}

/// A section's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Section {
    /// What it is.
    pub tag: Tag,
    /// Bytes of the payload in the file.
    pub stored: u32,
    /// Bytes of the payload when inflated.
    pub raw: u32,
    /// [`COMPRESSED`].
    pub flags: u32,
    /// CRC-32 of the stored payload.
    pub sum: u32,
}

impl Section {
    fn to_bytes(self) -> [u8; SECTION_BYTES] {
        let mut bytes = [0; SECTION_BYTES];
        bytes[0..4].copy_from_slice(&self.tag);
        let numbers = [self.stored, self.raw, self.flags, self.sum];
        for (place, number) in bytes[4..20].chunks_exact_mut(4).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        let sum = crc32fast::hash(&bytes[..20]);
        bytes[20..24].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8; SECTION_BYTES]) -> Result<Self, &'static str> {
        if crc32fast::hash(&bytes[..20]) != u32_at(bytes, 20) {
            return Err("the checksum of a section's header differs");
        }
        let section = Self {
            tag: [bytes[0], bytes[1], bytes[2], bytes[3]],
            stored: u32_at(bytes, 4),
            raw: u32_at(bytes, 8),
            flags: u32_at(bytes, 12),
            sum: u32_at(bytes, 16),
        };
        if section.stored > MAX_STORED || section.raw > MAX_RAW {
            return Err("a section is larger than any can be");
        }
        Ok(section)
    }
}

/// Writes a section; gives its size in the file.
pub fn write_section(out: &mut impl Write, tag: Tag, raw: &[u8]) -> io::Result<u64> {
    let small = miniz_oxide::deflate::compress_to_vec_zlib(raw, LEVEL);
    let compressed = small.len() < raw.len();
    let payload = if compressed { small.as_slice() } else { raw };
    let size = |len: usize| {
        u32::try_from(len)
            .ok()
            .filter(|len| *len <= MAX_RAW)
            .ok_or_else(|| io::Error::other("a section of the recording is too large"))
    };
    let section = Section {
        tag,
        stored: size(payload.len())?,
        raw: size(raw.len())?,
        flags: if compressed { COMPRESSED } else { 0 },
        sum: crc32fast::hash(payload),
    };
    // In one call, so that a killed writer leaves whole sections.
    let mut bytes = section.to_bytes().to_vec();
    bytes.extend(payload);
    out.write_all(&bytes)?;
    Ok(bytes.len() as u64)
}

/// What is next in a file.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// A whole section: its kind, its payload, its size in the file.
    Whole(Tag, Vec<u8>, u64),
    /// A section whose payload is damaged; what follows can be read.
    Damaged(&'static str, u64),
    /// The file ends here, between two sections.
    Nothing,
    /// The file ends inside a section, or its header is damaged.
    Cut(&'static str),
}

/// Reads a section.
pub fn read_section(from: &mut impl Read) -> io::Result<Next> {
    let mut bytes = [0; SECTION_BYTES];
    match fill(from, &mut bytes)? {
        0 => return Ok(Next::Nothing),
        SECTION_BYTES => {}
        _ => return Ok(Next::Cut("it ends inside the header of a section")),
    }
    let section = match Section::from_bytes(&bytes) {
        Ok(section) => section,
        Err(why) => return Ok(Next::Cut(why)),
    };
    let mut stored = Vec::new();
    from.take(section.stored.into()).read_to_end(&mut stored)?;
    if stored.len() < section.stored as usize {
        return Ok(Next::Cut("it ends inside a section"));
    }
    let size = (SECTION_BYTES + stored.len()) as u64;
    if crc32fast::hash(&stored) != section.sum {
        return Ok(Next::Damaged("the checksum of a section differs", size));
    }
    let raw = section.raw as usize;
    let payload = if section.flags & COMPRESSED == 0 {
        stored
    } else {
        match miniz_oxide::inflate::decompress_to_vec_zlib_with_limit(&stored, raw) {
            Ok(payload) => payload,
            Err(_) => return Ok(Next::Damaged("a section does not inflate", size)),
        }
    };
    if payload.len() != raw {
        return Ok(Next::Damaged(
            "a section has another size than it says",
            size,
        ));
    }
    Ok(Next::Whole(section.tag, payload, size))
}

/// Reads until the buffer is full or the file ends; gives the bytes read.
pub fn fill(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut at = 0;
    while at < buffer.len() {
        match from.read(&mut buffer[at..]) {
            Ok(0) => break,
            Ok(count) => at += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(at)
}
