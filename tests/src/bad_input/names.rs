//! Names are bytes that somebody else chose.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;

use super::call::{Call, closes};
use crate::bed::{Bed, Spec};
use crate::harness::Test;
use crate::tracer;
use crate::writers::{BLOCK, Step, SyncCall, open, run};

pub fn tests() -> Vec<Test> {
    let test = |name: &str, body: fn() -> Result<()>| {
        Test::new(format!("bad_input::{name}"), body).needs(tracer::available)
    };
    vec![
        test("hostile_file_names", files),
        test("hostile_process_names", processes),
        test("hostile_arguments", arguments),
    ]
}

/// Line ends, escape codes, bytes that are no UTF-8, quotes, markup, a name
/// as long as a name can be.
fn hostile() -> Vec<Vec<u8>> {
    vec![
        b"two\nlines".to_vec(),
        b"\x1b[2J\x1b]0;title\x07red".to_vec(),
        b"not\xff\xfeutf8".to_vec(),
        b"quote\"back\\slash".to_vec(),
        b"<script>alert(1)<b>".to_vec(),
        "right\u{202e}to\u{2066}left".as_bytes().to_vec(),
        vec![b'l'; 255],
    ]
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Writes one block to each file, fsynced, by this process.
fn write_all(bed: &Bed) -> Result<()> {
    for name in hostile() {
        let path = bed.mnt().join(OsStr::from_bytes(&name));
        let mut file =
            fs::File::create(&path).with_context(|| format!("creating {}", path.display()))?;
        file.write_all(&[7; BLOCK as usize])?;
        file.sync_all()?;
    }
    Ok(())
}

fn files() -> Result<()> {
    let bed = Bed::new(Spec::ext4(64).mount("noatime"))?;
    let json = Call::trace(&bed.node(), &["--json"])?.start()?;
    let text = Call::trace(&bed.node(), &[])?.start()?;
    write_all(&bed)?;
    json.signal(Signal::INT)?;
    text.signal(Signal::INT)?;
    // Control characters in either output already fail here.
    let (json, text) = (json.wait()?, text.wait()?);
    text.status(&[0])?;
    json.status(&[0])?;
    let object = json.json()?;
    closes(&object, &json.told())?;
    let rows = object["devices"][0]["files"]
        .as_array()
        .context("no files")?;
    for name in hostile() {
        let lossy = String::from_utf8_lossy(&name);
        let row = rows.iter().find(|row| row["file"] == *lossy);
        let row = row.with_context(|| format!("no row for {lossy:?}: {}", json.told()))?;
        ensure!(row["sectors"] == BLOCK / 512, "{row}");
        let expected = (lossy.as_bytes() != name).then(|| hex(&name));
        ensure!(
            row["file_hex"].as_str() == expected.as_deref(),
            "file_hex of {lossy:?}: {row}"
        );
    }
    for part in ["two\nlines", "\u{202e}", "\u{2066}"] {
        ensure!(
            !text.stdout.contains(part),
            "{part:?} stands raw in the text: {}",
            text.told()
        );
    }
    Ok(())
}

fn processes() -> Result<()> {
    let bed = Bed::new(Spec::ext4(64).mount("noatime"))?;
    let json = Call::trace(&bed.node(), &["--json"])?.start()?;
    let text = Call::trace(&bed.node(), &[])?.start()?;
    let comm = "\u{1b}[31m\n\u{7}\"";
    let done = run(
        comm,
        &[
            open(bed.path("file"), "wo creat"),
            Step::Write { len: BLOCK },
            Step::Sync(SyncCall::Fsync),
        ],
    )?;
    json.signal(Signal::INT)?;
    text.signal(Signal::INT)?;
    let (json, text) = (json.wait()?, text.wait()?);
    text.status(&[0])?;
    json.status(&[0])?;
    let object = json.json()?;
    let rows = object["devices"][0]["dirtiers"]
        .as_array()
        .context("no dirtiers")?;
    let row = rows.iter().find(|row| row["pid"] == done.pid);
    ensure!(
        row.is_some_and(|row| row["comm"] == comm),
        "no row for {comm:?}: {}",
        json.told()
    );
    Ok(())
}

/// What was typed comes back in the error, harmless.
fn arguments() -> Result<()> {
    for name in hostile() {
        let path = Path::new("/dev").join(OsStr::from_bytes(&name));
        let ended = Call::trace(&path, &["--duration", "1s"])?.run()?;
        ended.status(&[1, 2])?.silent()?;
    }
    Ok(())
}
