//! The kernel's function names, for the few stacks that the tracer keeps.

use std::{
    fs::File,
    io::{BufRead, BufReader},
};

/// Functions of interest by address; all others are only boundaries.
#[derive(Default)]
pub struct Symbols {
    /// Sorted: start, and index of the name plus one (0 for any other).
    starts: Vec<(u64, u16)>,
    names: Vec<&'static str>,
}

/// Address of one function; none where addresses are hidden.
pub fn address(name: &str) -> Option<u64> {
    let file = BufReader::new(File::open("/proc/kallsyms").ok()?);
    let line = file.lines().map_while(Result::ok).find(|line| {
        let mut words = line.split_ascii_whitespace();
        words
            .nth(1)
            .is_some_and(|kind| kind.eq_ignore_ascii_case("t"))
            && words.next() == Some(name)
    })?;
    let address = u64::from_str_radix(line.split_ascii_whitespace().next()?, 16).ok()?;
    (address != 0).then_some(address)
}

impl Symbols {
    /// Reads /proc/kallsyms for these functions; empty where addresses are
    /// hidden (`kptr_restrict`).
    pub fn read(names: &[&'static str]) -> Self {
        match File::open("/proc/kallsyms") {
            Ok(file) => Self::parse(BufReader::new(file), names),
            Err(_) => Self::default(),
        }
    }

    /// Lines of `address type name [module]`.
    pub fn parse(text: impl BufRead, names: &[&'static str]) -> Self {
        let mut starts = Vec::new();
        let mut hidden = true;
        for line in text.lines().map_while(Result::ok) {
            let mut words = line.split_ascii_whitespace();
            let (Some(address), Some(kind), Some(name)) =
                (words.next(), words.next(), words.next())
            else {
                continue;
            };
            if !matches!(kind, "t" | "T" | "w" | "W") {
                continue;
            }
            let Ok(address) = u64::from_str_radix(address, 16) else {
                continue;
            };
            hidden &= address == 0;
            // The compiler splits functions: `name.part.0`, `name.isra.1`.
            let base = name.split('.').next().unwrap_or(name);
            let index = names.iter().position(|wanted| *wanted == base);
            starts.push((address, index.map_or(0, |index| index as u16 + 1)));
        }
        if hidden {
            return Self::default();
        }
        starts.sort_unstable();
        // Runs of other functions need only their first boundary.
        starts.dedup_by(|next, before| next.1 == 0 && before.1 == 0);
        starts.shrink_to_fit();
        Self {
            starts,
            names: names.to_vec(),
        }
    }

    /// Whether addresses could be read.
    pub fn available(&self) -> bool {
        !self.starts.is_empty()
    }

    /// The function of interest that an address is in.
    pub fn name(&self, address: u64) -> Option<&'static str> {
        let after = self.starts.partition_point(|(start, _)| *start <= address);
        let (_, index) = *self.starts.get(after.checked_sub(1)?)?;
        self.names.get(usize::from(index).checked_sub(1)?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_fall_into_functions() {
        let text = "ffff0000 T a\nffff0100 t wanted.isra.0\nffff0180 t b\nffff0200 t c\n";
        let symbols = Symbols::parse(text.as_bytes(), &["wanted"]);
        assert_eq!(symbols.name(0xffff_0100), Some("wanted"));
        assert_eq!(symbols.name(0xffff_017f), Some("wanted"));
        assert_eq!(symbols.name(0xffff_0180), None);
        assert_eq!(symbols.name(0xffff_0300), None);
        assert_eq!(symbols.name(1), None);
        let hidden = Symbols::parse("0 T wanted\n".as_bytes(), &["wanted"]);
        assert!(!hidden.available());
    }
}
