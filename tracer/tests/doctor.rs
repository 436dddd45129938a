//! What `doctor` prints, over plain values: golden texts within 80 columns,
//! and JSON that docs/json.md describes.

use serde_json::Value;
use writepath::{
    output::doctor::{self, Check, Diagnosis, HookLine, State},
    plan::{self, Answer, Kind},
};

const DOCUMENT: &str = include_str!("../../docs/json.md");

fn hook(name: &'static str, answer: Answer, by: Option<(Kind, &'static str)>) -> HookLine {
    HookLine {
        name,
        answer,
        required: false,
        by,
        lost: "what it would have told",
        why: Vec::new(),
    }
}

/// A board without BTF, whose ext4 lacks an event.
fn board() -> Diagnosis {
    let mut writes = hook(
        "writes",
        Answer::Dirtiers,
        Some((Kind::Plain, "ext4/ext4_da_write_end")),
    );
    writes.why = vec!["BTF does not tell the arguments of ext4/ext4_da_write_end".to_owned()];
    let mut direct = hook("direct I/O", Answer::Files, None);
    direct.lost = "direct I/O counts as raw, without a file";
    direct.why = vec![
        "no tracepoint iomap/iomap_dio_rw_begin".to_owned(),
        "tp_es_lookup_extent_exit: the kernel refused it: invalid argument / a line of the \
         verifier that is long enough to be wrapped at the end of the terminal"
            .to_owned(),
    ];
    let mut bios = hook(
        "bios submitted",
        Answer::Sectors,
        Some((Kind::Raw, "block/block_bio_queue")),
    );
    bios.required = true;
    Diagnosis {
        kernel: "6.1.0-50-armmp".to_owned(),
        machine: "armv7l".to_owned(),
        checks: vec![
            Check::ok("privileges", "root"),
            Check::lost(
                "BTF",
                "/sys/kernel/btf/vmlinux: No such file or directory (os error 2)",
                "raw tracepoints, and the pages that a bio carries: files of throttled writes",
                "use a kernel with CONFIG_DEBUG_INFO_BTF=y",
                &[Answer::Files],
            ),
            Check::ok("lockdown", "none"),
        ],
        hooks: vec![
            hook(
                "writes without delayed allocation",
                Answer::Dirtiers,
                Some((Kind::Plain, "writeback/writeback_dirty_folio")),
            ),
            writes,
            direct,
            bios,
        ],
        tried: true,
    }
}

/// Somebody who is not root.
fn user() -> Diagnosis {
    Diagnosis {
        kernel: "6.1.0-50-amd64".to_owned(),
        machine: "x86_64".to_owned(),
        checks: vec![
            Check::unable("privileges", "user 1000", "run it with sudo"),
            Check::unable(
                "tracefs",
                "Operation not permitted (os error 1)",
                "run as root",
            ),
        ],
        hooks: Vec::new(),
        tried: false,
    }
}

fn text(found: &Diagnosis) -> String {
    let mut out = Vec::new();
    doctor::text(&mut out, found).unwrap();
    String::from_utf8(out).unwrap()
}

fn json(found: &Diagnosis) -> Value {
    let mut out = Vec::new();
    doctor::json(&mut out, found).unwrap();
    serde_json::from_slice(&out).unwrap()
}

#[test]
fn a_board_is_told_what_it_loses() {
    let found = text(&board());
    for line in found.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    assert!(
        found == include_str!("fixtures/doctor/board.golden"),
        "{found}"
    );
}

#[test]
fn a_user_is_told_to_be_root() {
    let found = text(&user());
    assert!(
        found == include_str!("fixtures/doctor/user.golden"),
        "{found}"
    );
    let json = json(&user());
    assert_eq!(json["able"], false);
    assert_eq!(json["answers"][0]["complete"], Value::Null);
}

#[test]
fn answers_lose_by_hooks_and_by_checks() {
    let json = json(&board());
    assert_eq!(json["schema"], doctor::SCHEMA);
    assert_eq!(json["able"], true);
    let answers = json["answers"].as_array().unwrap();
    let complete = |name: &str| {
        let answer = answers.iter().find(|answer| answer["answer"] == name);
        answer.unwrap()["complete"].as_bool().unwrap()
    };
    assert!(complete("sectors") && complete("dirtiers"));
    assert!(!complete("files"));
    assert_eq!(answers[3]["lost"].as_array().unwrap().len(), 2);
}

#[test]
fn without_a_required_hook_there_is_nothing() {
    let mut found = board();
    found.hooks[3].by = None;
    assert!(!found.able());
    assert!(
        found
            .answers()
            .iter()
            .all(|line| line.complete == Some(false))
    );
    found = board();
    found.hooks[2].by = None;
    assert!(found.able());
    found.checks[0].state = State::Unable;
    assert!(!found.able());
}

/// Fails with every word that is not in the schema's section of the document.
fn expect<'a>(words: impl IntoIterator<Item = &'a str>) {
    let heading = format!("\n## `{}`\n", doctor::SCHEMA);
    let (_, rest) = DOCUMENT.split_once(&heading).unwrap();
    let section = rest.split_once("\n## ").map_or(rest, |(own, _)| own);
    for word in words {
        assert!(section.contains(&format!("`{word}`")), "{word}");
    }
}

#[test]
fn keys_and_words_are_documented() {
    let json = json(&board());
    let object = json.as_object().unwrap();
    expect(object.keys().map(String::as_str));
    for rows in ["checks", "hooks", "answers"] {
        for row in json[rows].as_array().unwrap() {
            expect(row.as_object().unwrap().keys().map(String::as_str));
        }
    }
    expect([State::Ok, State::Lost, State::Unable].map(State::name));
    expect(
        json["hooks"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|hook| hook["by"].as_str()),
    );
    let hooks = plan::HOOKS.iter().chain(plan::WRITES);
    expect(hooks.map(|hook| hook.answer.name()));
}
