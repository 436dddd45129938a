//! The `format` file of a tracepoint.

use tracer_common::Field;

/// A tracepoint's record, as its `format` file describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Format {
    fields: Vec<(String, Field)>,
    print: String,
}

impl Format {
    /// Parses the text of a `format` file; lines that are not fields are
    /// passed over.
    pub fn parse(text: &str) -> Self {
        let fields = text.lines().filter_map(parse_field).collect();
        let print = text
            .split_once("print fmt:")
            .map(|(_, print)| print.trim().to_owned())
            .unwrap_or_default();
        Self { fields, print }
    }

    /// Place of a field, if this kernel's record has it.
    pub fn field(&self, name: &str) -> Option<Field> {
        self.fields
            .iter()
            .find(|(field, _)| field == name)
            .map(|(_, place)| *place)
    }

    /// Names of the values that `__print_symbolic(REC->field, …)` knows, as
    /// (value, name). Values shift between kernels; names are stable.
    pub fn symbols(&self, field: &str) -> Vec<(u64, String)> {
        let Some((_, rest)) = self
            .print
            .split_once(&format!("__print_symbolic(REC->{field},"))
        else {
            return Vec::new();
        };
        let mut symbols = Vec::new();
        let mut rest = rest.trim_start();
        while let Some(body) = rest.strip_prefix('{') {
            let Some((pair, after)) = body.split_once('}') else {
                break;
            };
            if let Some((value, name)) = pair.split_once(',')
                && let Ok(value) = parse_number(value.trim())
            {
                symbols.push((value, name.trim().trim_matches('"').to_owned()));
            }
            rest = after.trim_start_matches([',', ' ']);
        }
        symbols
    }
}

fn parse_number(text: &str) -> Result<u64, std::num::ParseIntError> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    }
}

/// `field:TYPE NAME[N]; offset:8; size:4; signed:0;`
fn parse_field(line: &str) -> Option<(String, Field)> {
    let mut declaration = None;
    let (mut offset, mut size) = (None, None);
    for part in line.trim().split(';') {
        let (key, value) = part.trim().split_once(':').unwrap_or_default();
        match key {
            "field" => declaration = Some(value),
            "offset" => offset = value.parse().ok(),
            "size" => size = value.parse().ok(),
            _ => {}
        }
    }
    let name = declaration?.rsplit([' ', '*']).next()?;
    let name = name.split('[').next()?;
    (!name.is_empty()).then_some(())?;
    Some((
        name.to_owned(),
        Field {
            offset: offset?,
            size: size?,
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const REASON: &str = r#"name: writeback_start
ID: 995
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;

	field:char name[32];	offset:8;	size:32;	signed:0;
	field:int reason;	offset:68;	size:4;	signed:1;
	field:__data_loc char[] cmd;	offset:44;	size:4;	signed:0;

print fmt: "bdi %s: reason=%s", REC->name, __print_symbolic(REC->reason, { 0, "background" }, { 1, "vmscan" }, { 0x7, "foreign_flush" }), 1
"#;

    #[test]
    fn fields_have_their_places() {
        let format = Format::parse(REASON);
        let at = |offset, size| Some(Field { offset, size });
        assert_eq!(format.field("reason"), at(68, 4));
        assert_eq!(format.field("name"), at(8, 32));
        assert_eq!(format.field("cmd"), at(44, 4));
        assert_eq!(format.field("absent"), None);
    }

    #[test]
    fn reasons_have_their_names() {
        let names = Format::parse(REASON).symbols("reason");
        assert_eq!(names[2], (7, "foreign_flush".to_owned()));
        assert_eq!(names.len(), 3);
        assert!(Format::parse(REASON).symbols("name").is_empty());
    }

    proptest! {
        #[test]
        fn any_text_is_taken(text in "\\PC{0,300}") {
            let format = Format::parse(&text);
            let _ = format.symbols("reason");
        }

        #[test]
        fn any_field_line_is_read_back(name in "[a-z_]{1,12}", offset in 0u16..4096, size in 1u16..64) {
            let line = format!("\tfield:unsigned long {name}[4];\toffset:{offset};\tsize:{size};\tsigned:0;");
            prop_assert_eq!(Format::parse(&line).field(&name), Some(Field { offset, size }));
        }
    }
}
