//! What cannot be explained: clear errors, with the status that they deserve.

use anyhow::{Result, ensure};

use super::run::explain;
use crate::harness::{self, Test};
use crate::tracer;

pub fn tests() -> Vec<Test> {
    vec![Test::new("explain::bad_input", bad_input).needs(tracer::available)]
}

const ONE: &str = r#"{"schema": "writepath.trace/1", "duration_s": 1.0, "devices":
    [{"name": "sda", "dev": "8:0", "sectors_written": 0}]}"#;

fn bad_input() -> Result<()> {
    let file = harness::run_dir().join("input");
    let path = file.to_string_lossy().into_owned();
    let files: [(&[u8], &[&str], i32, &str); 7] = [
        (b"", &[], 1, "schema"),
        (b"\x7fELF\x02\x01", &[], 1, "not the output"),
        (&ONE.as_bytes()[..60], &[], 1, "not the output"),
        (
            br#"{"schema": "writepath.doctor/1"}"#,
            &[],
            1,
            "writepath.doctor/1",
        ),
        (ONE.as_bytes(), &["--device", "sdb"], 1, "there is sda"),
        (
            ONE.as_bytes(),
            &["--knob", "commit_timeout=5"],
            2,
            "no knob commit_timeout",
        ),
        (ONE.as_bytes(), &["--knob", "commit=0"], 2, "from 1"),
    ];
    for (bytes, args, status, part) in files {
        std::fs::write(&file, bytes)?;
        let mut all = args.to_vec();
        all.push(&path);
        expect(&all, status, part)?;
    }
    std::fs::write(&file, ONE)?;
    ensure!(
        explain(&[&path])?.status.success(),
        "an idle disk is no error"
    );
    expect(&["/nonexistent/x"], 1, "/nonexistent/x")?;
    let dir = harness::run_dir().to_string_lossy().into_owned();
    expect(&[&dir], 1, "result.json")?;
    expect(&[], 2, "required")
}

fn expect(args: &[&str], status: i32, part: &str) -> Result<()> {
    let output = explain(args)?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(
        output.status.code() == Some(status) && said.contains(part),
        "explain {args:?}: {} (expected {status}) without {part:?}: {said}",
        output.status
    );
    ensure!(output.stdout.is_empty(), "explain {args:?} prints data");
    ensure!(!said.contains("panicked"), "{said}");
    Ok(())
}
