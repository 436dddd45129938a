//! A user's profile: a TOML file whose keys are the names of the knobs.
//!
//! ```toml
//! name = "mine"
//! about = "what it is for"
//! commit = 30
//! vm.dirty_expire_centisecs = 6000
//! ```
//!
//! The text is hostile: its length is bounded, and every error has a line.

use std::ops::Range;

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{Knob, Profile, ProfileError, Value, Values};

/// Longest text that is looked at, in bytes.
pub const MOST_BYTES: usize = 64 << 10;
/// Longest name and longest line about a profile, in bytes.
const MOST_NAME: usize = 64;
const MOST_ABOUT: usize = 200;

/// Reads a profile. Values are not judged here; [`super::lint`] does that.
pub fn parse_toml(text: &str) -> Result<Profile, ProfileError> {
    if text.len() > MOST_BYTES {
        return Err(ProfileError::File {
            line: 1,
            what: format!("longer than {} KiB: not a profile", MOST_BYTES >> 10),
        });
    }
    let table = DeTable::parse(text).map_err(|error| {
        let start = error.span().map_or(0, |span| span.start);
        fail(text, start, error.message().replace('\n', ", "))
    })?;
    let mut reader = Reader {
        text,
        name: None,
        about: None,
        values: Values::new(),
    };
    reader.table(table.get_ref(), "")?;
    Ok(Profile {
        name: reader
            .name
            .ok_or_else(|| fail(text, 0, "no `name`: add name = \"…\"".to_owned()))?,
        about: reader.about.unwrap_or_default(),
        values: reader.values,
    })
    .and_then(|profile| {
        if profile.values.is_empty() {
            return Err(fail(text, 0, format!("sets nothing; {}", known())));
        }
        Ok(profile)
    })
}

struct Reader<'a> {
    text: &'a str,
    name: Option<String>,
    about: Option<String>,
    values: Values,
}

impl Reader<'_> {
    /// Takes a table whose keys have this prefix (`vm.`, or none).
    fn table(&mut self, table: &DeTable<'_>, prefix: &str) -> Result<(), ProfileError> {
        for (key, value) in table {
            let name = format!("{prefix}{}", key.get_ref());
            let at = key.span();
            if let Some(knob) = Knob::of_profiles().find(|knob| knob.name() == name) {
                let number = self.number(knob, value)?;
                self.values.insert(knob, number);
                continue;
            }
            match (name.as_str(), value.get_ref()) {
                ("name", DeValue::String(text)) => {
                    self.name = Some(self.label(&at, &name, text, MOST_NAME)?);
                }
                ("about", DeValue::String(text)) => {
                    self.about = Some(self.label(&at, &name, text, MOST_ABOUT)?);
                }
                ("name" | "about", _) => {
                    return Err(self.fail(&at, format!("{name} must be a text in quotes")));
                }
                ("vm", DeValue::Table(inner)) => self.table(inner, "vm.")?,
                _ => return Err(self.fail(&at, unknown(&name))),
            }
        }
        Ok(())
    }

    fn number(&self, knob: Knob, value: &Spanned<DeValue<'_>>) -> Result<Value, ProfileError> {
        let unit = knob.unit().name();
        let whole = || format!("{knob} must be a whole number of {unit}, without quotes or unit");
        let DeValue::Integer(integer) = value.get_ref() else {
            return Err(self.fail(&value.span(), whole()));
        };
        let parsed = i128::from_str_radix(integer.as_str(), integer.radix());
        let number = parsed.map_err(|_| self.fail(&value.span(), whole()))?;
        Value::try_from(number).map_err(|_| {
            let (least, most) = knob.range();
            self.fail(
                &value.span(),
                format!("{knob}={number} is out of range: {least} to {most} {unit}"),
            )
        })
    }

    /// A text for people: short, and without characters that a terminal acts on.
    fn label(
        &self,
        at: &Range<usize>,
        key: &str,
        text: &str,
        most: usize,
    ) -> Result<String, ProfileError> {
        if text.is_empty() || text.len() > most || text.chars().any(acts) {
            let what = format!("{key} must be 1 to {most} bytes in one line");
            return Err(self.fail(at, what));
        }
        Ok(text.to_owned())
    }

    fn fail(&self, at: &Range<usize>, what: String) -> ProfileError {
        fail(self.text, at.start, what)
    }
}

/// Whether a terminal does something at a character: control characters, and
/// those that turn the direction of text.
fn acts(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// What is said of a key that no profile has.
fn unknown(name: &str) -> String {
    let close = Knob::of_profiles().find(|knob| {
        let short = knob.name().trim_start_matches("vm.");
        name.ends_with(short)
    });
    let hint = close.map_or_else(known, |knob| format!("did you mean {knob}?"));
    format!("unknown key `{}`; {hint}", name.escape_debug())
}

fn known() -> String {
    let names: Vec<&str> = Knob::of_profiles().map(Knob::name).collect();
    format!("a profile has name, about, {}", names.join(", "))
}

fn fail(text: &str, at: usize, what: String) -> ProfileError {
    let before = text.get(..at).unwrap_or_default();
    ProfileError::File {
        line: 1 + before.matches('\n').count(),
        what,
    }
}

/// The profile as such a file.
pub fn to_toml(profile: &Profile) -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    let quote = |value: &str| toml::Value::String(value.to_owned()).to_string();
    let _ = writeln!(text, "name = {}", quote(&profile.name));
    if !profile.about.is_empty() {
        let _ = writeln!(text, "about = {}", quote(&profile.about));
    }
    for (knob, value) in &profile.values {
        let _ = writeln!(text, "{knob} = {value}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::builtins;
    use proptest::prelude::*;

    fn error(text: &str) -> (usize, String) {
        match parse_toml(text).unwrap_err() {
            ProfileError::File { line, what } => (line, what),
            other @ ProfileError::Scale { .. } => panic!("{other}"),
        }
    }

    #[test]
    fn keys_are_the_names_of_knobs() {
        let dotted = "name = \"mine\"\ncommit = 30\nvm.dirty_ratio = 40\n";
        let profile = parse_toml(dotted).unwrap();
        assert_eq!(profile.name, "mine");
        assert_eq!(profile.values[&Knob::Commit], 30);
        assert_eq!(profile.values[&Knob::DirtyRatio], 40);
        let table = "name = \"mine\"\ncommit = 30\n[vm]\ndirty_ratio = 0x28\n";
        assert_eq!(parse_toml(table).unwrap(), profile);
    }

    #[test]
    fn errors_have_a_line() {
        let (line, what) = error("name = \"x\"\n\nvm.dirty_ration = 3\n");
        assert_eq!(line, 3);
        assert!(what.contains("vm.dirty_ration"), "{what}");
        let (line, what) = error("name = \"x\"\ndirty_ratio = 3\n");
        assert_eq!(
            (line, what.contains("vm.dirty_ratio?")),
            (2, true),
            "{what}"
        );
        let (line, what) = error("name = \"x\"\ncommit = \"30s\"\n");
        assert_eq!((line, what.contains("whole number of seconds")), (2, true));
        assert_eq!(error("name = \"x\"\ncommit = 30\ncommit = 40\n").0, 3);
        let (line, what) = error("name = \"x\"\nvm.dirty_ratio = -1\n");
        assert_eq!((line, what.contains("out of range")), (2, true), "{what}");
        assert!(error("commit = 30\n").1.contains("name"));
        assert!(error("name = \"x\"\n").1.contains("sets nothing"));
        assert!(
            error("name = \"a\\u202eb\"\ncommit = 1\n")
                .1
                .contains("one line")
        );
        assert!(
            error("name = \"a\\u001b[31mb\"\ncommit = 1\n")
                .1
                .contains("one line")
        );
        assert!(
            error("name = \"x\"\nblkio.throttle.write_bps_device = 1\n")
                .1
                .contains("unknown")
        );
        assert!(error("nonsense").0 == 1);
        assert!(error(&"#".repeat(MOST_BYTES + 1)).1.contains("longer"));
    }

    #[test]
    fn what_is_written_reads_back() {
        for profile in builtins() {
            assert_eq!(parse_toml(&to_toml(&profile)).unwrap(), profile);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_an_answer(text in "\\PC{0,200}|([a-z_.]{1,12} ?= ?[-0-9\"a-z\\[\\]{}]{0,9}\n){0,8}") {
            let _ = parse_toml(&text);
        }

        #[test]
        fn any_bytes_are_an_answer(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse_toml(&String::from_utf8_lossy(&bytes));
        }

        #[test]
        fn a_bent_profile_is_an_answer(
            at in 0_usize..120, with in any::<char>(), cut in 0_usize..4, which in 0_usize..5,
        ) {
            let text = to_toml(&builtins()[which]);
            let mut chars: Vec<char> = text.chars().collect();
            let at = at.min(chars.len());
            let end = (at + cut).min(chars.len());
            chars.splice(at..end, [with]);
            if let Ok(profile) = parse_toml(&chars.into_iter().collect::<String>()) {
                // Whatever is taken is made of known knobs and reads back.
                prop_assert_eq!(parse_toml(&to_toml(&profile)).unwrap(), profile);
            }
        }

        #[test]
        fn every_profile_reads_back(
            name in "[a-zA-Z0-9 \"'\\\\é-]{1,30}",
            values in proptest::collection::btree_map(0_usize..7, 0..i64::MAX as u64, 1..7),
        ) {
            let knobs: Vec<Knob> = Knob::of_profiles().collect();
            let values = values.into_iter().map(|(i, v)| (knobs[i], v)).collect();
            let profile = Profile { name, about: String::new(), values };
            prop_assert_eq!(parse_toml(&to_toml(&profile)).unwrap(), profile);
        }
    }
}
