//! BTF, the kernel's description of its own types.
//!
//! Only what offsets need: members of structures, values of enumerations,
//! arguments of tracepoints. The bytes stay where they are; one `u32` is kept
//! for each type. Source: Documentation/bpf/btf.rst.

use tracer_common::Field;

/// Why bytes are not BTF.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BtfError {
    /// The header is short or has another magic number.
    #[error("not BTF: bad header")]
    Header,
    /// A section or a type reaches beyond the bytes.
    #[error("damaged BTF: {0} reaches beyond the end")]
    Bounds(&'static str),
    /// A kind that this parser does not know.
    #[error("unknown kind {0} of BTF type")]
    Kind(u32),
}

const INT: u32 = 1;
const PTR: u32 = 2;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const TYPEDEF: u32 = 8;
const VOLATILE: u32 = 9;
const CONST: u32 = 10;
const RESTRICT: u32 = 11;
const FUNC_PROTO: u32 = 13;
const FLOAT: u32 = 16;
const TYPE_TAG: u32 = 18;
const ENUM64: u32 = 19;

/// Links followed before a type is given up as circular.
const DEPTH: u32 = 32;

/// Types of the kernel, or of a module on top of it.
pub struct Btf<'a> {
    base: Option<&'a Btf<'a>>,
    types: &'a [u8],
    strings: &'a [u8],
    /// Where each type begins in `types`; the first has id `first_id`.
    starts: Vec<u32>,
    first_id: u32,
    first_string: u32,
}

#[derive(Clone, Copy)]
struct Type<'a> {
    name: u32,
    kind: u32,
    len: u32,
    size: u32,
    flag: bool,
    extra: &'a [u8],
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

impl<'a> Btf<'a> {
    /// Parses `/sys/kernel/btf/vmlinux`, or a module's with its base.
    pub fn parse(bytes: &'a [u8], base: Option<&'a Self>) -> Result<Self, BtfError> {
        let header = |at| word(bytes, at).ok_or(BtfError::Header);
        if header(0)? & 0xffff != 0xeb9f {
            return Err(BtfError::Header);
        }
        let start = header(4)? as usize;
        let section = |offset: u32, len: u32, what| {
            let from = start.checked_add(offset as usize);
            from.and_then(|from| bytes.get(from..from.checked_add(len as usize)?))
                .ok_or(BtfError::Bounds(what))
        };
        let types = section(header(8)?, header(12)?, "the types")?;
        let strings = section(header(16)?, header(20)?, "the strings")?;
        let mut btf = Self {
            base,
            types,
            strings,
            starts: Vec::new(),
            first_id: base.map_or(1, |base| base.first_id + base.starts.len() as u32),
            first_string: base.map_or(0, |base| base.first_string + base.strings.len() as u32),
        };
        let mut at = 0;
        while at < types.len() {
            btf.starts.push(at as u32);
            at += 12 + extra_len(types, at)?;
        }
        if at > types.len() {
            return Err(BtfError::Bounds("a type"));
        }
        Ok(btf)
    }

    fn get(&self, id: u32) -> Option<Type<'a>> {
        if id < self.first_id {
            return self.base?.get(id);
        }
        let at = *self.starts.get((id - self.first_id) as usize)? as usize;
        let info = word(self.types, at + 4)?;
        let extra = extra_len(self.types, at).ok()?;
        Some(Type {
            name: word(self.types, at)?,
            kind: (info >> 24) & 31,
            len: info & 0xffff,
            size: word(self.types, at + 8)?,
            flag: info >> 31 != 0,
            extra: self.types.get(at + 12..at + 12 + extra)?,
        })
    }

    fn name(&self, at: u32) -> &'a str {
        if at < self.first_string {
            return self.base.map_or("", |base| base.name(at));
        }
        let bytes = self
            .strings
            .get((at - self.first_string) as usize..)
            .unwrap_or_default();
        let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
        std::str::from_utf8(&bytes[..end]).unwrap_or_default()
    }

    /// The first own type of this kind and name; a module's, then its base's.
    fn find(&self, kinds: &[u32], name: &str) -> Option<Type<'a>> {
        let last = self.first_id + self.starts.len() as u32;
        (self.first_id..last)
            .filter_map(|id| self.get(id))
            .find(|ty| kinds.contains(&ty.kind) && self.name(ty.name) == name)
            .or_else(|| self.base?.find(kinds, name))
    }

    /// Skips names and qualifiers.
    fn resolve(&self, mut id: u32) -> Option<Type<'a>> {
        for _ in 0..DEPTH {
            let ty = self.get(id)?;
            match ty.kind {
                TYPEDEF | VOLATILE | CONST | RESTRICT | TYPE_TAG => id = ty.size,
                _ => return Some(ty),
            }
        }
        None
    }

    fn size_of(&self, id: u32, depth: u32) -> Option<u32> {
        let ty = self.resolve(id)?;
        match ty.kind {
            INT | STRUCT | UNION | ENUM | ENUM64 | FLOAT => Some(ty.size),
            PTR => Some(self.pointer_size()),
            ARRAY if depth > 0 => self
                .size_of(word(ty.extra, 0)?, depth - 1)?
                .checked_mul(word(ty.extra, 8)?),
            _ => None,
        }
    }

    /// Bytes of a pointer: those of `unsigned long`.
    fn pointer_size(&self) -> u32 {
        let long = ["unsigned long", "long unsigned int"];
        long.iter()
            .find_map(|name| self.find(&[INT], name))
            .map_or(8, |ty| ty.size)
    }

    /// Bit offset and type of a member, also inside anonymous members.
    fn find_member(&self, ty: Type<'a>, name: &str, depth: u32) -> Option<(u32, u32)> {
        if depth == 0 || !matches!(ty.kind, STRUCT | UNION) {
            return None;
        }
        for index in 0..ty.len as usize {
            let at = index * 12;
            let member_name = self.name(word(ty.extra, at)?);
            let member_type = word(ty.extra, at + 4)?;
            let mut bits = word(ty.extra, at + 8)?;
            if ty.flag {
                bits &= 0x00ff_ffff;
            }
            if member_name == name {
                return Some((bits, member_type));
            }
            if member_name.is_empty()
                && let Some((inner, found)) =
                    self.find_member(self.resolve(member_type)?, name, depth - 1)
            {
                return Some((bits + inner, found));
            }
        }
        None
    }

    /// Place of a member, as in `("bio", "bi_iter.bi_sector")`. A part of the
    /// way that this kernel does not have is taken as anonymous.
    pub fn member(&self, structure: &str, way: &str) -> Option<Field> {
        let mut ty = self.find(&[STRUCT, UNION], structure)?;
        let mut bits = 0;
        let mut parts = way.split('.').peekable();
        while let Some(part) = parts.next() {
            match self.find_member(ty, part, DEPTH) {
                Some((offset, id)) => {
                    bits += offset;
                    if parts.peek().is_none() {
                        return Some(Field {
                            offset: u16::try_from(bits / 8).ok()?,
                            size: u16::try_from(self.size_of(id, DEPTH)?).ok()?,
                        });
                    }
                    ty = self.resolve(id)?;
                }
                None if parts.peek().is_some() => {}
                None => return None,
            }
        }
        None
    }

    /// Value of an enumerator.
    pub fn enumerator(&self, name: &str) -> Option<u64> {
        let last = self.first_id + self.starts.len() as u32;
        (self.first_id..last)
            .filter_map(|id| self.get(id))
            .filter(|ty| matches!(ty.kind, ENUM | ENUM64))
            .find_map(|ty| {
                let step = if ty.kind == ENUM { 8 } else { 12 };
                ty.extra
                    .chunks_exact(step)
                    .find(|entry| word(entry, 0).is_some_and(|at| self.name(at) == name))
                    .and_then(|entry| {
                        let low = u64::from(word(entry, 4)?);
                        let high = if step == 12 {
                            u64::from(word(entry, 8)?)
                        } else {
                            0
                        };
                        Some(high << 32 | low)
                    })
            })
    }

    /// Arguments of a tracepoint (`btf_trace_NAME`) after its private data:
    /// the name of the structure for a pointer to one, else nothing.
    pub fn tracepoint(&self, name: &str) -> Option<Vec<Option<&'a str>>> {
        let typedef = self.find(&[TYPEDEF], &format!("btf_trace_{name}"))?;
        let pointer = self.resolve(typedef.size)?;
        let proto = self.resolve(pointer.size)?;
        if pointer.kind != PTR || proto.kind != FUNC_PROTO {
            return None;
        }
        let arguments = proto.extra.chunks_exact(8).skip(1);
        Some(
            arguments
                .map(|argument| {
                    let ty = self.resolve(word(argument, 4)?)?;
                    let target = if ty.kind == PTR {
                        self.resolve(ty.size)?
                    } else {
                        return None;
                    };
                    matches!(target.kind, STRUCT | UNION).then(|| self.name(target.name))
                })
                .collect(),
        )
    }
}

/// Bytes that follow the three words of the type at `at`.
fn extra_len(types: &[u8], at: usize) -> Result<usize, BtfError> {
    let info = word(types, at + 4).ok_or(BtfError::Bounds("a type"))?;
    let len = (info & 0xffff) as usize;
    Ok(match (info >> 24) & 31 {
        // Void, pointer, forward, typedef, volatile, const, restrict, func,
        // float, type tag.
        0 | 2 | 7..=12 | 16 | 18 => 0,
        // Int, variable, declaration tag.
        1 | 14 | 17 => 4,
        ARRAY => 12,
        STRUCT | UNION | ENUM64 | 15 => len * 12,
        ENUM | FUNC_PROTO => len * 8,
        kind => return Err(BtfError::Kind(kind)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `struct outer { int a; union { long b; }; }`, `enum { THREE = 3 }` and
    /// `typedef void (*btf_trace_t)(void *, struct outer *, int)`.
    fn sample() -> Vec<u8> {
        let strings = b"\0int\0outer\0a\0b\0THREE\0btf_trace_t\0unsigned long\0";
        let at = |name: &str| {
            let needle = [b"\0", name.as_bytes(), b"\0"].concat();
            strings
                .windows(needle.len())
                .position(|w| w == needle)
                .map_or(0, |p| p as u32 + 1)
        };
        let kind = |kind: u32, len: u32| kind << 24 | len;
        let types: Vec<u32> = [
            vec![at("int"), kind(INT, 0), 4, 32],
            vec![at("unsigned long"), kind(INT, 0), 8, 64],
            vec![0, kind(UNION, 1), 8, at("b"), 2, 0],
            vec![at("outer"), kind(STRUCT, 2), 16, at("a"), 1, 0, 0, 3, 64],
            vec![0, kind(ENUM, 1), 4, at("THREE"), 3],
            vec![0, kind(PTR, 0), 4],
            vec![0, kind(FUNC_PROTO, 3), 0, 0, 6, 0, 6, 0, 1],
            vec![0, kind(PTR, 0), 7],
            vec![at("btf_trace_t"), kind(TYPEDEF, 0), 8],
        ]
        .concat();
        let types: Vec<u8> = types.iter().flat_map(|w| w.to_le_bytes()).collect();
        let header = [
            0x1_eb9f,
            24,
            0,
            types.len() as u32,
            types.len() as u32,
            strings.len() as u32,
        ];
        let mut bytes: Vec<u8> = header.iter().flat_map(|w: &u32| w.to_le_bytes()).collect();
        bytes.extend(types);
        bytes.extend(strings);
        bytes
    }

    #[test]
    fn members_values_and_arguments() {
        let bytes = sample();
        let btf = Btf::parse(&bytes, None).unwrap();
        let at = |offset, size| Some(Field { offset, size });
        assert_eq!(btf.member("outer", "a"), at(0, 4));
        assert_eq!(btf.member("outer", "b"), at(8, 8));
        assert_eq!(btf.member("outer", "gone.b"), at(8, 8));
        assert_eq!(btf.member("outer", "c"), None);
        assert_eq!(btf.enumerator("THREE"), Some(3));
        assert_eq!(btf.tracepoint("t"), Some(vec![Some("outer"), None]));
        assert_eq!(btf.tracepoint("u"), None);
    }

    proptest! {
        #[test]
        fn damaged_bytes_are_refused_or_read(at in 0usize..300, value: u8, cut in 0usize..300) {
            let mut bytes = sample();
            let len = bytes.len();
            bytes[at % len] = value;
            bytes.truncate(len - cut % len);
            if let Ok(btf) = Btf::parse(&bytes, None) {
                let _ = btf.member("outer", "b");
                let _ = btf.enumerator("THREE");
                let _ = btf.tracepoint("t");
            }
        }
    }
}
