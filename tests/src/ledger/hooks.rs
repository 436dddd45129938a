//! What the books rest on: the kernel takes the programs that the plan wants.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::harness::Test;
use crate::tracer;

pub fn tests() -> Vec<Test> {
    vec![Test::new("ledger::hooks", hooks).guest()]
}

/// Why a plan passes over an alternative: this kernel lacks something. Any
/// other reason is the kernel's, which refused a program of ours.
fn of_plan(reason: &str) -> bool {
    let begins = ["no tracepoint ", "BTF does not tell ", "argument "];
    begins.iter().any(|begin| reason.starts_with(begin)) || reason.ends_with(" lacks a field")
}

/// No program is refused. One that is loses precision, not sectors, and would
/// not be noticed: verifiers of older kernels allow less than new ones.
fn hooks() -> Result<()> {
    let output = Command::new(tracer::binary()?)
        .args(["doctor", "--json"])
        .output()
        .context("running doctor")?;
    let found: Value = serde_json::from_slice(&output.stdout).context("what doctor prints")?;
    let hooks = found["hooks"].as_array().context("no hooks")?;
    ensure!(found["tried"] == true, "nothing was tried: {found}");
    ensure!(!hooks.is_empty(), "no hooks at all");
    let mut refused = Vec::new();
    for hook in hooks {
        let reasons = hook["why"].as_array().into_iter().flatten();
        for reason in reasons.filter_map(Value::as_str) {
            if !of_plan(reason) {
                refused.push(format!("{}: {reason}", hook["hook"]));
            }
        }
    }
    ensure!(refused.is_empty(), "refused:\n{}", refused.join("\n"));
    Ok(())
}
