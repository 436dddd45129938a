//! What each knob can act on, told from the numbers.

use super::made::*;
use crate::explain::{read, *};
use serde_json::{Value, json};

#[test]
fn forced_commits_are_out_of_reach() {
    let found = synced(60).explain(&["commit=600"]);
    assert_eq!(ceilings(&found), [0; 5]);
    assert_eq!(found.out_of_reach, 60 * 32);
    assert_eq!(found.not_known, 8, "of the commit that had not ended");
    says(
        &found,
        Lever::Commit,
        &[
            "commit=5 caused none of the 60 commits",
            "forced by the fsync of log by logger every 1 s",
            "commit=600 would save nothing",
        ],
    );
    let part = found.parts.iter().find(|part| part.trigger == "fsync");
    assert_eq!(part.unwrap().every_s.map(f64::round), Some(1.0));
}

#[test]
fn a_logger_without_fsync_is_all_the_timers() {
    let found = unsynced(5.0, 60).explain(&["commit=30", "commit=3"]);
    assert_eq!(ceilings(&found), [60 * 24, 0, 0, 0, 0]);
    let commit = of(&found, Lever::Commit);
    let (thirty, three) = (&commit.named[0], &commit.named[1]);
    assert!(thirty.asked && thirty.ceiling >= 60 * 24 * 4 / 5);
    assert!(thirty.ceiling < 60 * 24, "some commits stay");
    assert_eq!(three.ceiling, 0);
    says(
        &found,
        Lever::Commit,
        &[
            "The timer (commit=5) caused all 60 commits",
            "100.0 %",
            "commit=30 would save at most",
            "commit=3 would save nothing: below 5 it can only add writes",
        ],
    );
    assert_eq!(commit.saturates_at, None, "nothing forces a commit");
}

/// Case 4: the same logger at commit=1, 5, 30 and 300, and with fsync at 5 and
/// 300. Sectors as they were measured; each ceiling must allow the next.
#[test]
fn case_4_keep_commit_600_or_not() {
    let measured = [(1, 1464, 58), (5, 440, 11), (30, 136, 2), (300, 72, 1)];
    for (index, (commit_s, sectors, count)) in measured.iter().enumerate() {
        let each = sectors / u64::from(*count);
        let rest = sectors - each * u64::from(*count);
        let every = if *count == 1 {
            60.0
        } else {
            f64::from(*commit_s) + 0.03
        };
        let mut made = Made::new(60.5, vec![row("journal", "timer", *sectors, &json!([]))])
            .knob("commit", u64::from(*commit_s as u32));
        let mut list = commits("timer", *count, every, each, &json!({}));
        list[0]["sectors"] = json!(each + rest);
        made = made.commits(
            vec![group("timer", u64::from(*count), *sectors, &json!({}))],
            list,
        );
        for (longer, then, _) in &measured[index + 1..] {
            let found = made.explain(&[&format!("commit={longer}")]);
            let most = of(&found, Lever::Commit).named[0].ceiling;
            assert!(
                sectors - then <= most,
                "commit={commit_s} to {longer}: {sectors} became {then}, ceiling {most}"
            );
        }
    }
    // The one that syncs changed by 0.3 %, and may not have because of commit=.
    let found = synced(60).explain(&["commit=300"]);
    assert_eq!(of(&found, Lever::Commit).named[0].ceiling, 0);
}

/// Case 22: advice that cannot work. The same 3296 sectors with each mount.
#[test]
fn case_22_advice_that_cannot_work() {
    let who = json!({"by": "python3", "pid": 7, "call": "fsync", "file": "log"});
    for commit_s in [5, 600] {
        let made = Made::new(
            1.5,
            vec![
                row("journal", "fsync", 2480, &by("python3", "fsync")),
                row("fsync", "fsync", 816, &by("python3", "fsync")),
            ],
        )
        .knob("commit", commit_s)
        .commits(
            vec![group("fsync", 100, 2480, &who)],
            commits("fsync", 100, 0.0152, 24, &who),
        );
        let found = made.explain(&["commit=600"]);
        assert_eq!(ceilings(&found), [0; 5], "commit={commit_s}");
        says(
            &found,
            Lever::Commit,
            &[
                &format!("commit={commit_s} caused none of the 100 commits"),
                "75.2 %",
            ],
        );
        assert!("commit_timeout=1".parse::<Asked>().is_err(), "no such knob");
    }
}

#[test]
fn auto_da_alloc_is_out_of_reach_of_them_all() {
    let mut made = Made::new(
        60.0,
        vec![row("forced", "close", 6400, &by("zigbee", "close"))],
    );
    made.files = json!([{"file": "state.json", "sectors": 6400,
        "paths": [{"path": "forced", "sectors": 6400}]}]);
    let found = made.explain(&[]);
    assert_eq!(ceilings(&found), [0; 5]);
    assert_eq!(found.out_of_reach, 6400);
    for part in ["auto_da_alloc", "close", "zigbee", "state.json", "100.0 %"] {
        assert!(found.sentence.contains(part), "{part}: {}", found.sentence);
    }
    says(&found, Lever::Commit, &["No journal commit was seen"]);
    says(&found, Lever::Expire, &["never acted", "auto_da_alloc"]);
    made.rows[0]["trigger"] = json!("rename");
    let renamed = made.explain(&[]).sentence;
    assert!(
        renamed.contains("rename over a file by zigbee"),
        "{renamed}"
    );
}

#[test]
fn background_write_back_is_not_of_an_age() {
    let mut made = Made::new(
        60.0,
        vec![
            row("writeback", "background", 90_000, &json!([])),
            row("metadata", "background", 10_000, &json!([])),
        ],
    );
    made.memory["dirty_bytes_max"] = json!(180 * MIB);
    let found = made.explain(&[]);
    assert_eq!(ceilings(&found), [0, 0, 0, 100_000, 100_000]);
    says(
        &found,
        Lever::Expire,
        &[
            "dirty_expire_centisecs=3000 (30 s) never acted",
            "90.0 %",
            "background",
        ],
    );
    says(
        &found,
        Lever::Background,
        &["100.0 %", "180 MiB", "100 MiB"],
    );
    // Not enough to slow writers: then the limit had no say.
    made.memory["dirty_bytes_max"] = json!(120 * MIB);
    let found = made.explain(&["dirty_background_ratio=20", "dirty_background_bytes=8192"]);
    assert_eq!(ceilings(&found), [0, 0, 0, 100_000, 0]);
    let named = &of(&found, Lever::Background).named;
    assert_eq!((named[0].ceiling, named[1].ceiling), (100_000, 0));
    says(
        &found,
        Lever::Limit,
        &["never acted", "slowed from 150 MiB", "120 MiB"],
    );
}

#[test]
fn a_ratio_that_never_acted_is_told_so_with_the_numbers() {
    let found = synced(3).explain(&[]);
    says(
        &found,
        Lever::Background,
        &[
            "dirty_background_ratio=10 never acted",
            "20 MiB",
            "100 MiB",
            "120 samples",
        ],
    );
    let mut made = synced(3);
    made.memory["dirty_bytes_max"] = json!(30 * MIB);
    says(&made.explain(&[]), Lever::Background, &["30 MiB"]);
    made.memory = Value::Null;
    says(
        &made.explain(&[]),
        Lever::Background,
        &["nothing was written in the background"],
    );
}

#[test]
fn fsync_is_the_end_of_what_commit_can_do() {
    let found = board().explain(&["commit=30", "commit=60"]);
    assert_eq!(ceilings(&found), [2400, 8400, 8400, 0, 0]);
    let commit = of(&found, Lever::Commit);
    assert_eq!(commit.saturates_at, Some(30));
    assert_eq!(commit.named[0].ceiling, commit.named[1].ceiling);
    says(
        &found,
        Lever::Commit,
        &[
            "caused 50 of 60 commits",
            "journal 17.2 %",
            "forced by the fsync of mgmt by iot-files every 30 s",
            "Above 30 s it cannot act any further",
        ],
    );
}

#[test]
fn the_two_times_of_periodic_write_back_are_apart() {
    let found = board().explain(&[]);
    let (expire, tick) = (of(&found, Lever::Expire), of(&found, Lever::Writeback));
    assert_eq!((expire.decided, tick.decided), (Some(8400), Some(0)));
    // Twice the time: less can be gained by the tick than by the age.
    assert!(expire.named[0].ceiling > tick.named[0].ceiling);
    assert_eq!((expire.named[0].value, tick.named[0].value), (6000, 1000));
    assert_eq!(expire.indirect, 2400, "the journal may follow");
    // With a tick longer than the age, the age of the pages tells.
    let mut made = board().knob("vm.dirty_expire_centisecs", 100);
    assert_eq!(of(&made.explain(&[]), Lever::Expire).decided, None);
    let mut device = made.device();
    device["age_us"] = json!([{"path": "writeback", "sectors": 8000,
        "buckets": [[1_000_000, 6000], [6_000_000, 2000]]}]);
    let text = json!({"schema": "writepath.trace/1", "duration_s": 300.0, "devices": [device]});
    let evidence = read::any(text.to_string().as_bytes(), None).unwrap();
    let found = explain(&evidence, &[]).devices.remove(0);
    assert_eq!(of(&found, Lever::Expire).decided, Some(2100));
    assert_eq!(of(&found, Lever::Writeback).decided, Some(6300));
    made.rows.remove(0);
    made.rows.remove(0);
    assert_eq!(of(&made.explain(&[]), Lever::Expire).decided, Some(0));
}

#[test]
fn without_a_list_of_commits_the_ceiling_is_that_of_all() {
    let mut made = board();
    made.list = None;
    let found = made.explain(&["commit=6"]);
    assert_eq!(of(&found, Lever::Commit).named[0].ceiling, 2400);
    assert!(found.notes.iter().any(|note| note.contains("--commits")));
}

#[test]
fn what_is_not_known_is_said() {
    let mut made = synced(3);
    made.rows
        .push(row("unattributed", "unknown", 100, &json!([])));
    made.knobs.clear();
    let found = made.explain(&[]);
    assert_eq!(found.not_known, 108);
    assert!(
        found
            .notes
            .iter()
            .any(|note| note.contains("not known: the value in force of"))
    );
    assert!(found.sentence.contains("is not known"));
    // Without a knob the commits of the timer tell.
    let mut made = unsynced(5.0, 9);
    made.knobs.clear();
    assert_eq!(of(&made.explain(&[]), Lever::Commit).value, Some(5));
}

#[test]
fn filters_leave_out_rows_but_no_sectors() {
    let made = synced(3);
    let mut object: Value = serde_json::from_slice(&made.json()).unwrap();
    object["filters"] = json!(["comm=logger"]);
    object["devices"][0]["sectors_written"] = json!(made.sectors() + 50);
    let evidence = read::any(object.to_string().as_bytes(), None).unwrap();
    let found = explain(&evidence, &[]).devices.remove(0);
    holds(&found);
    let part = found
        .parts
        .iter()
        .find(|part| part.path == "filtered")
        .unwrap();
    assert_eq!(part.sectors, 50);
    assert!(part.why.contains("comm=logger"));
}
