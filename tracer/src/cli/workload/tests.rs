//! The command line of workloads, parsed and run in this process.

use std::fs;

use clap::Parser;

use super::*;

#[derive(Debug, Parser)]
struct Cli {
    #[command(flatten)]
    args: WorkloadArgs,
}

/// Runs `writepath workload ARGS`: status and stdout.
fn workload(args: &[&str]) -> (anyhow::Result<ExitCode>, String) {
    let cli = Cli::try_parse_from(std::iter::once("workload").chain(args.iter().copied())).unwrap();
    let mut out = Vec::new();
    let status = run(cli.args, &mut out);
    (status, String::from_utf8(out).unwrap())
}

fn ok(args: &[&str]) -> String {
    let (status, out) = workload(args);
    let status = format!("{:?}", status.unwrap());
    assert_eq!(status, format!("{:?}", ExitCode::SUCCESS), "{out}");
    out
}

const SMALL: &[&str] = &[
    "--files",
    "5",
    "--file-kib",
    "16",
    "--threads",
    "2",
    "--mgmt-kib",
    "8",
];
const SHORT: &[&str] = &["--period", "40ms", "--periods", "2"];

fn iot<'a>(parts: &[&[&'a str]]) -> Vec<&'a str> {
    [&["run", "iot-files"][..], &parts.concat()].concat()
}

#[test]
fn lists_and_shows() {
    assert!(ok(&["list"]).starts_with("iot-files"));
    let text = ok(&["show", "iot-files"]);
    assert!(text.contains("header+moving"));
    for line in text.lines().chain(ok(&["list"]).lines()) {
        assert!(line.chars().count() <= 80, "{line}");
    }
    let (status, _) = workload(&["show", "nonsense"]);
    assert_eq!(
        format!("{:?}", status.unwrap()),
        format!("{:?}", ExitCode::from(USAGE))
    );
}

#[test]
fn a_dry_run_says_what_and_where_and_writes_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().to_str().unwrap();
    let text = ok(&iot(&[&["--on", dir, "--dry-run"], SMALL, SHORT]));
    for wanted in [
        dir,
        "80ms",
        "0.090 MB in 5 files",
        "0.041 MB in 10 updates of data files",
        "0.016 MB in 2 updates of the management file",
        "no knob",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 0);
}

#[test]
fn runs_and_leaves_nothing_unless_told_to() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().to_str().unwrap();
    let text = ok(&iot(&[&["--on", dir], SMALL, SHORT]));
    assert!(text.contains("logical bytes written"), "{text}");
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 0);
    ok(&iot(&[&["--on", dir, "--keep"], SMALL, SHORT]));
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 1);
}

#[test]
fn prepares_apart_and_reuses() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().to_str().unwrap();
    let printed = ok(&iot(&[&["--on", dir, "--prepare-only"], SMALL]));
    let made = printed.strip_suffix('\n').unwrap();
    assert!(Path::new(made).join("data/d4").exists());
    let text = ok(&iot(&[&["--reuse", made, "--json"], SHORT]));
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["data"]["updates"], 10);
    assert_eq!(json["prepared_bytes"], 0);
    assert_eq!(json["parameters"]["files"], 5);
    assert!(Path::new(made).join("data/d4").exists());
    let text = ok(&iot(&[&["--reuse", made, "--dry-run"], SHORT]));
    assert!(text.contains(made), "{text}");

    let (status, _) = workload(&iot(&[&["--reuse", made, "--files", "6"], SHORT]));
    assert_eq!(
        format!("{:?}", status.unwrap()),
        format!("{:?}", ExitCode::from(USAGE))
    );
}

#[test]
fn output_is_private_and_goes_through_no_link() {
    use std::os::unix::fs::PermissionsExt;
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().to_str().unwrap();
    let file = temp.path().join("account.json");
    let name = file.to_str().unwrap();
    let to = ["--on", dir, "--json", "--output", name];
    assert_eq!(ok(&iot(&[&to, SMALL, SHORT])), "");
    let text = fs::read_to_string(&file).unwrap();
    assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok());
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let link = temp.path().join("link");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let to = ["--on", dir, "--output", link.to_str().unwrap()];
    let (status, _) = workload(&iot(&[&to, SMALL, SHORT]));
    assert!(format!("{:#}", status.unwrap_err()).contains("--output"));
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
    let here = fs::read_dir(temp.path()).unwrap().count();
    assert_eq!(here, 2, "the files are gone after a failure too");
}

#[test]
fn a_place_that_cannot_be_used_is_named() {
    let (status, _) = workload(&iot(&[&["--on", "/no/such/place"], SMALL]));
    let error = format!("{:#}", status.unwrap_err());
    assert_eq!(error.matches("/no/such/place").count(), 1, "{error}");
    let (status, _) = workload(&iot(&[&["--on", "/tmp", "--threads", "9"], &SMALL[..4]]));
    assert_eq!(
        format!("{:?}", status.unwrap()),
        format!("{:?}", ExitCode::from(USAGE))
    );
}
