//! The state of a run as text: what has to be put back, by whom, since which
//! boot. Pure. Reading is total: the text may be cut short or hostile, and
//! only knobs of the table, on what they belong to, come out of it.

use std::{ffi::OsString, os::unix::ffi::OsStringExt as _, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::target::{Entry, On, Setting, group};
use crate::{
    kernel::block::DevNumber,
    profile::{Knob, Value},
};

/// Version of the form.
const VERSION: u32 = 1;
/// Longest text that is read, in bytes.
pub const MOST_BYTES: u64 = 256 << 10;

/// What has to be put back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// The boot that it is of.
    pub boot: String,
    /// The process that tunes.
    pub pid: u32,
    /// In the order in which it was set first.
    pub entries: Vec<Entry>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    version: u32,
    boot: String,
    pid: u32,
    entries: Vec<TextEntry>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TextEntry {
    on: TextOn,
    original: TextSetting,
    ours: Vec<TextSetting>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
enum TextOn {
    Machine,
    // A path is bytes.
    Filesystem { dev: (u32, u32), point: Vec<u8> },
    Device { dev: (u32, u32) },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TextSetting {
    knob: String,
    value: Value,
}

impl State {
    /// As text.
    pub fn text(&self) -> String {
        let setting = |setting: &Setting| TextSetting {
            knob: setting.knob.name().to_owned(),
            value: setting.value,
        };
        let number = |dev: &DevNumber| (dev.major, dev.minor);
        let entries = self.entries.iter().map(|entry| TextEntry {
            on: match &entry.on {
                On::Machine => TextOn::Machine,
                On::Filesystem { dev, point } => TextOn::Filesystem {
                    dev: number(dev),
                    point: OsString::from(point.clone()).into_vec(),
                },
                On::Device { dev } => TextOn::Device { dev: number(dev) },
            },
            original: setting(&entry.original),
            ours: entry.ours.iter().map(setting).collect(),
        });
        let text = Text {
            version: VERSION,
            boot: self.boot.clone(),
            pid: self.pid,
            entries: entries.collect(),
        };
        // Numbers, texts and lists of them always have a form.
        serde_json::to_string(&text).unwrap_or_default()
    }

    /// From text; the error says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text: Text = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if text.version != VERSION {
            return Err(format!("version {} is not {VERSION}", text.version));
        }
        let entries: Result<Vec<Entry>, String> = text.entries.into_iter().map(entry).collect();
        Ok(Self {
            boot: text.boot,
            pid: text.pid,
            entries: entries?,
        })
    }
}

fn entry(text: TextEntry) -> Result<Entry, String> {
    let number = |(major, minor)| DevNumber { major, minor };
    let on = match text.on {
        TextOn::Machine => On::Machine,
        TextOn::Filesystem { dev, point } => On::Filesystem {
            dev: number(dev),
            point: PathBuf::from(OsString::from_vec(point)),
        },
        TextOn::Device { dev } => On::Device { dev: number(dev) },
    };
    let original = setting(&text.original)?;
    let ours: Result<Vec<Setting>, String> = text.ours.iter().map(setting).collect();
    let ours = ours?;
    for one in ours.iter().chain([&original]) {
        if !on.suits(one.knob) || group(one.knob) != group(original.knob) {
            return Err(format!("{} does not belong there", one.knob));
        }
    }
    if ours.is_empty() || ours.len() > 2 {
        return Err(format!("{} has {} values", original.knob, ours.len()));
    }
    Ok(Entry { on, original, ours })
}

fn setting(text: &TextSetting) -> Result<Setting, String> {
    let knob = Knob::from_name(&text.knob)
        .ok_or_else(|| format!("`{}` is no knob", text.knob.escape_debug()))?;
    let (least, most) = knob.range();
    if !(least..=most).contains(&text.value) {
        return Err(format!("{knob}={} is out of range", text.value));
    }
    Ok(Setting::new(knob, text.value))
}
