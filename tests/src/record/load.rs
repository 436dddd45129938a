//! A real workload: its own account of its writes is the recording's.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::kit::{file, read};
use crate::bad_input::call::Call;
use crate::bed::{Bed, Spec};
use crate::harness::Test;
use crate::tracer;

pub fn tests() -> Vec<Test> {
    vec![
        Test::new("record::iot_files", || iot_files("18s"))
            .needs(tracer::available)
            .full()
            .limit(120),
    ]
}

/// Measured is 1.3 MB an hour at this rate; a fault in the columns costs
/// several times as much.
const MB_PER_HOUR: f64 = 4.0;

/// iot-files with two writes an update, at some 350 writes a second.
fn iot_files(duration: &str) -> Result<()> {
    let bed = Bed::new(Spec::ext4(256).mount("noatime"))?;
    let node = bed.node();
    let file = file(&bed);
    let account = bed.scratch("account.json");
    let binary = tracer::binary()?;
    let text = |path: &std::path::Path| path.to_string_lossy().into_owned();
    let mut args = vec!["record".to_owned(), "-d".to_owned(), text(&node)];
    args.extend(["--writes", "-o"].map(str::to_owned));
    args.extend([text(&file), "--".to_owned(), text(&binary)]);
    let workload = "workload run iot-files --json --files 1000 --file-kib 64 --threads 20 \
                    --period 6s --place header+moving --duration";
    args.extend(workload.split_whitespace().map(str::to_owned));
    args.extend([duration, "--on"].map(str::to_owned));
    args.extend([text(&bed.mnt()), "--output".to_owned(), text(&account)]);
    let ended = Call::new(args)?.run()?;
    ended.status(&[0])?;
    let got = read(ended, &file)?;
    got.whole()?;
    let account: Value = serde_json::from_str(&std::fs::read_to_string(&account)?)?;
    // Preparation writes too, before the account's clock starts: take what
    // comes after the last file was prepared and synced.
    let started = account["started_at"].as_str().context("no start")?;
    let names: Vec<&Value> = got.of("name").collect();
    ensure!(names.len() >= 1000, "{} names", names.len());
    let writes = |data: bool| {
        let of = if data { "data" } else { "mgmt" };
        account[of]["writes"].as_u64().unwrap_or(0)
    };
    ensure!(writes(true) > 0 && writes(false) > 0, "{account}");
    let prepared = got.of("sync-fs").filter_map(|e| e["t_s"].as_f64());
    let ready = prepared.fold(0.0, f64::max);
    let mgmt: Vec<u64> = names
        .iter()
        .filter(|e| {
            e["file"]
                .as_str()
                .is_some_and(|name| name.ends_with("mgmt"))
        })
        .filter_map(|e| e["ino"].as_u64())
        .collect();
    let later = || got.of("write").filter(|e| e["t_s"].as_f64() > Some(ready));
    let data = later().filter(|e| !mgmt.contains(&e["ino"].as_u64().unwrap_or(0)));
    let data = data.count() as u64;
    ensure!(
        data == writes(true),
        "{data} writes of data files are recorded, {} made since {started}",
        writes(true)
    );
    let rate = got.report["bytes_per_hour"].as_f64().unwrap_or(f64::MAX) / 1e6;
    ensure!(rate < MB_PER_HOUR, "{rate} MB an hour");
    Ok(())
}
