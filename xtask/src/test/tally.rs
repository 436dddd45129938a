//! Reads the output of test runners (libtest and libtest-mimic print alike)
//! and keeps count over all of them. Pure: lines in, numbers and names out.

use std::collections::BTreeMap;

/// Numbers and names of one runner or of all.
#[derive(Default)]
pub struct Tally {
    /// Tests that passed.
    pub passed: u64,
    /// Tests that failed, or that were not to be skipped.
    pub failed: u64,
    /// Tests that cannot run here.
    pub skipped: u64,
    /// What failed.
    pub failures: Vec<String>,
    /// What was skipped, and why.
    pub skips: BTreeMap<String, String>,
}

impl Tally {
    /// Counts a check that passed.
    pub fn pass(&mut self) {
        self.passed += 1;
    }

    /// Counts a check that failed.
    pub fn fail(&mut self, what: impl Into<String>) {
        self.failed += 1;
        self.failures.push(what.into());
    }

    /// Counts a check that cannot run here.
    pub fn skip(&mut self, what: impl Into<String>, why: impl Into<String>) {
        self.skipped += 1;
        self.skips.insert(what.into(), why.into());
    }

    /// Adds another tally.
    pub fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.failures.extend(other.failures);
        self.skips.extend(other.skips);
    }

    /// The same with `runner` in front of each name.
    pub fn of(self, runner: &str) -> Self {
        let name = |name: String| format!("{runner}: {name}");
        let skips = self.skips.into_iter();
        Self {
            failures: self.failures.into_iter().map(name).collect(),
            skips: skips.map(|(test, why)| (name(test), why)).collect(),
            ..self
        }
    }

    /// Turns skips into failures, but for tests whose name contains one of
    /// `allowed`. A runner that counts skips without naming them has no excuse.
    pub fn forbid_skips(&mut self, allowed: &[&str]) {
        let may = |name: &str| allowed.iter().any(|allowed| name.contains(allowed));
        let unnamed = self.skipped.saturating_sub(self.skips.len() as u64);
        let skips = std::mem::take(&mut self.skips);
        let (kept, forbidden): (BTreeMap<_, _>, BTreeMap<_, _>) =
            skips.into_iter().partition(|(name, _)| may(name));
        self.skipped = kept.len() as u64;
        self.skips = kept;
        for (name, why) in forbidden {
            self.fail(format!(
                "{name}: skipped, which WRITEPATH_NO_SKIP forbids: {why}"
            ));
        }
        for _ in 0..unnamed {
            self.fail("a test that was skipped without its name, which WRITEPATH_NO_SKIP forbids");
        }
    }
}

/// Reads a runner's lines one by one.
#[derive(Default)]
pub struct Reader {
    tally: Tally,
    in_failures: bool,
    results: u64,
}

impl Reader {
    /// Takes the next line.
    pub fn line(&mut self, line: &str) {
        if self.in_failures {
            match line.strip_prefix("    ") {
                Some(name) => self.tally.failures.push(name.trim().to_owned()),
                None => self.in_failures = false,
            }
        }
        if line == "failures:" {
            self.in_failures = true;
        } else if let Some(result) = line.strip_prefix("test result: ") {
            self.results += 1;
            self.tally.passed += count(result, " passed");
            self.tally.failed += count(result, " failed");
            self.tally.skipped += count(result, " ignored");
        } else if let Some((name, why)) = skip(line) {
            self.tally.skips.insert(name.to_owned(), why.to_owned());
        }
    }

    /// The counts, once the runner has ended; `fault` says how it ended when
    /// that was not well.
    pub fn end(mut self, fault: Option<String>) -> Tally {
        match fault {
            // Its failed tests are the fault; else the runner itself failed.
            Some(fault) if self.tally.failed == 0 => self.tally.fail(fault),
            None if self.results == 0 => self.tally.fail("it ended without a result"),
            _ => {}
        }
        self.tally
    }
}

/// The number before ` passed` and the like in a result line.
fn count(result: &str, word: &str) -> u64 {
    result
        .split_once(word)
        .and_then(|(before, _)| before.rsplit(' ').next()?.parse().ok())
        .unwrap_or(0)
}

/// The test and the reason in a line about a skip: our harness prints
/// `SKIP NAME: REASON`, within a `test NAME ... ` line too; libtest prints
/// `test NAME ... ignored, REASON`.
fn skip(line: &str) -> Option<(&str, &str)> {
    if let Some((before, skipped)) = line.split_once("SKIP ")
        && (before.is_empty() || before.starts_with("test "))
    {
        return skipped.split_once(": ");
    }
    let (name, outcome) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let why = outcome.strip_prefix("ignored")?;
    let why = why.strip_prefix(", ").unwrap_or("no reason given");
    Some((name.trim_end(), why))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, fault: Option<&str>) -> Tally {
        let mut reader = Reader::default();
        text.lines().for_each(|line| reader.line(line));
        reader.end(fault.map(str::to_owned))
    }

    const MIXED: &str = "
running 4 tests
test bed::umount ... ok
SKIP bed::vfat: cannot run here: this kernel has no vfat
test bed::vfat   ... ignored, cannot run here: this kernel has no vfat
test bed::late   ... SKIP bed::late: no room: 3 MB
ignored, no room: 3 MB
test bed::bad    ... FAILED

failures:

---- bed::bad ----
    indented talk

failures:
    bed::bad

test result: FAILED. 1 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.10s
";

    #[test]
    fn counts_and_names() {
        let tally = read(MIXED, Some("ended with status 101"));
        assert_eq!((tally.passed, tally.failed, tally.skipped), (1, 1, 2));
        assert_eq!(tally.failures, ["bed::bad"]);
        assert_eq!(tally.skips.len(), 2);
        assert_eq!(
            tally.skips["bed::vfat"],
            "cannot run here: this kernel has no vfat"
        );
        assert_eq!(tally.skips["bed::late"], "no room: 3 MB");
    }

    #[test]
    fn several_results_add_up() {
        let line = "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out";
        let tally = read(&format!("{line}\n\n{line}\n"), None);
        assert_eq!((tally.passed, tally.failed, tally.skipped), (4, 0, 0));
    }

    #[test]
    fn a_runner_that_dies_has_failed() {
        let tally = read("running 3 tests\ntest a ... ok\n", Some("killed"));
        assert_eq!((tally.passed, tally.failed), (0, 1));
        assert_eq!(tally.failures, ["killed"]);
        assert_eq!(read("", None).failed, 1);
    }

    #[test]
    fn forbidden_skips_fail_unless_allowed() {
        let mut tally = read(MIXED, None);
        tally.forbid_skips(&["vfat"]);
        assert_eq!((tally.passed, tally.failed, tally.skipped), (1, 2, 1));
        let mut unnamed = Tally {
            skipped: 1,
            ..Tally::default()
        };
        unnamed.forbid_skips(&[]);
        assert_eq!((unnamed.failed, unnamed.skipped), (1, 0));
    }

    #[test]
    fn sums_keep_the_runner() {
        let mut all = Tally::default();
        all.pass();
        all.add(read(MIXED, None).of("kernel"));
        all.skip("guest", "no QEMU");
        assert_eq!((all.passed, all.failed, all.skipped), (2, 1, 3));
        assert_eq!(all.failures, ["kernel: bed::bad"]);
        assert!(all.skips.contains_key("kernel: bed::vfat"));
    }
}
