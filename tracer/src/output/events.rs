//! Events of a recording as JSON of `writepath.events/1`, one object a line.

use super::escape;
use crate::{
    model::calls,
    recording::{CommitEvent, Dirtied, Event, Start, What},
};
use serde_json::{Map, Value, json};
use std::io::{self, Write};

/// The schema of the first line.
pub const SCHEMA: &str = "writepath.events/1";

/// Writes the first line, which names the schema.
pub fn write_head(out: &mut dyn Write) -> io::Result<()> {
    line(out, &json!({ "schema": SCHEMA }))
}

/// Writes an event.
pub fn write(out: &mut dyn Write, event: &Event, start: &Start) -> io::Result<()> {
    let mut object = Map::new();
    object.insert("t_s".to_owned(), json!(event.t_ns as f64 / 1e9));
    let kind = event.what.kind().name();
    object.insert("event".to_owned(), json!(kind));
    if let Value::Object(fields) = fields(&event.what, start) {
        object.extend(fields);
    }
    line(out, &Value::Object(object))
}

fn line(out: &mut dyn Write, value: &Value) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value).map_err(io::Error::from)?;
    out.write_all(b"\n")
}

/// A device number of the kernel's form as `major:minor`.
fn device(dev: u32) -> String {
    format!("{}:{}", dev >> 20, dev & 0xf_ffff)
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn fields(what: &What, start: &Start) -> Value {
    let inode = |fs: u32, ino: u64| json!({ "fs_dev": device(fs), "ino": ino });
    match what {
        What::Name {
            fs,
            ino,
            name,
            whole,
        } => {
            let (file, file_hex) = escape::json(name);
            let mut fields = inode(*fs, *ino);
            fields["file"] = json!(file);
            if let Some(hex) = file_hex {
                fields["file_hex"] = json!(hex);
            }
            fields["whole"] = json!(whole);
            fields
        }
        What::Process { pid, comm } => json!({ "pid": pid, "comm": escape::json(comm).0 }),
        What::Freed { fs, ino } | What::Touch { fs, ino } | What::Evict { fs, ino } => {
            inode(*fs, *ino)
        }
        What::Commit(commit) => fields_of_commit(commit, start),
        What::Memory(memory) => json!({
            "dirty_bytes": memory.dirty,
            "writeback_bytes": memory.writeback,
            "threshold_bytes": memory.threshold,
            "background_bytes": memory.background,
        }),
        What::Sectors {
            disk,
            path,
            sectors,
        } => json!({ "dev": device(*disk), "path": path.name(), "sectors": sectors }),
        What::Write(dirtied) | What::Store(dirtied) => fields_of_dirtied(dirtied),
        What::Sync {
            fs,
            ino,
            pid,
            data_only,
        } => {
            let mut fields = inode(*fs, *ino);
            fields["pid"] = json!(pid);
            fields["data_only"] = json!(data_only);
            fields
        }
        What::SyncFs { fs, pid } => json!({ "fs_dev": device(*fs), "pid": pid }),
        What::Flush {
            fs,
            ino,
            path,
            code,
            pages,
        } => {
            let reason = path.name() == "writeback";
            let trigger = if reason {
                start.reasons.get(&u64::from(*code))
            } else {
                start.calls.get(code)
            };
            let mut fields = inode(*fs, *ino);
            fields["path"] = json!(path.name());
            fields["trigger"] = json!(trigger);
            fields["pages"] = json!(pages);
            fields
        }
        What::Truncate { fs, ino, size } => {
            let mut fields = inode(*fs, *ino);
            fields["size"] = json!(size);
            fields
        }
        What::Wake { disk, reason } => json!({
            "dev": device(*disk),
            "trigger": start.reasons.get(&u64::from(*reason)),
        }),
        What::Lost { kind, count } => json!({ "of": kind.name(), "count": count }),
        What::Full => Value::Null,
    }
}

fn fields_of_dirtied(dirtied: &Dirtied) -> Value {
    json!({
        "fs_dev": device(dirtied.fs),
        "ino": dirtied.ino,
        "first": dirtied.first,
        "last": dirtied.last,
        "pid": dirtied.pid,
    })
}

fn fields_of_commit(commit: &CommitEvent, start: &Start) -> Value {
    let call = start.calls.get(&commit.call).map(String::as_str);
    json!({
        "fs_dev": device(commit.fs),
        "tid": commit.tid,
        "opened_s": seconds(commit.opened_ns),
        "start_s": seconds(commit.start_ns),
        "locking_s": commit.locking_ns.map(seconds),
        "flushing_s": commit.flushing_ns.map(seconds),
        "logging_s": commit.logging_ns.map(seconds),
        "end_s": seconds(commit.end_ns),
        "handles": commit.handles,
        "blocks": commit.blocks,
        "blocks_logged": commit.blocks_logged,
        "trigger": commit.trigger.name(),
        "pid": (commit.pid != 0).then_some(commit.pid),
        "call": call.or_else(|| calls::name(commit.call)),
        "ino": (commit.ino != 0).then_some(commit.ino),
    })
}
