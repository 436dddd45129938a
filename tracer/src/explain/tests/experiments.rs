//! What was measured, beside the ceilings.

use super::made::*;
use crate::explain::{read, *};

#[test]
fn what_was_measured_stands_beside_the_ceiling() {
    let made = board();
    let text = made.experiment("commit-60", "commit", 60, &[0.96, 0.965, 0.955]);
    let evidence = read::any(&text, None).unwrap();
    let explanation = explain(&evidence, &[]);
    assert_eq!(explanation.profile.as_deref(), Some("default"));
    let found = &explanation.devices[0];
    holds(found);
    assert!(found.contradictions.is_empty());
    let commit = of(found, Lever::Commit);
    assert_eq!(commit.named[0].value, 60, "the value that was tried");
    let measured = &commit.measured[0];
    assert!(measured.alone && (measured.change + 0.04).abs() < 1e-3);
    assert_eq!(measured.blocks, (3, 3));
    says(
        found,
        Lever::Commit,
        &["Measured under profile commit-60: \u{2212}4.0 %"],
    );
    assert!(of(found, Lever::Expire).measured.is_empty());
}

#[test]
fn more_than_the_ceiling_is_a_contradiction() {
    // commit= reaches a fifth of these sectors; a half is too much.
    let text = board().experiment("commit-60", "commit", 60, &[0.5, 0.51, 0.49]);
    let evidence = read::any(&text, None).unwrap();
    let found = explain(&evidence, &[]).devices.remove(0);
    assert_eq!(found.contradictions.len(), 1);
    assert!(
        found.contradictions[0].contains("commit-60"),
        "{:?}",
        found.contradictions
    );
    // Within its interval it is none.
    let text = board().experiment("commit-60", "commit", 60, &[0.2, 1.4, 0.5]);
    let evidence = read::any(&text, None).unwrap();
    let found = explain(&evidence, &[]).devices.remove(0);
    assert!(found.contradictions.is_empty());
}
