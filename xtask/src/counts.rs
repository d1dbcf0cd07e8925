//! How many tests passed and failed, read from what the runner prints.

use std::fmt;
use std::ops::AddAssign;

/// Tests by how they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    /// Left out by the runner: ignored or filtered.
    pub(crate) left_out: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.left_out += other.left_out;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

/// The sum over all binaries that `cargo test` ran: a line `test result: …` each.
pub(crate) fn of_cargo_test(output: &str) -> Option<Counts> {
    let results = output.lines().filter_map(|line| line.strip_prefix("test result: "));
    // The verdict is one word and a period, `ok.` or `FAILED.`; the counts follow.
    let counts = results.filter_map(|result| result.split_once(". ")).map(|(_, counts)| sum(counts, ';'));
    counts.reduce(|mut total, counts| {
        total += counts;
        total
    })
}

/// What nextest's last line `Summary […] N tests run: …` says.
pub(crate) fn of_nextest(output: &str) -> Option<Counts> {
    let summary = output.lines().rfind(|line| line.trim_start().starts_with("Summary ["))?;
    let (_, counts) = summary.split_once("run: ")?;
    Some(sum(counts, ','))
}

/// What vitest's line `Tests  2 failed | 45 passed (47)` says, without its colours.
pub(crate) fn of_vitest(output: &str) -> Option<Counts> {
    let plain = without_colours(output);
    let tests = plain.lines().filter_map(|line| line.trim_start().strip_prefix("Tests ")).next_back()?;
    Some(sum(tests, '|'))
}

/// What Playwright's last lines say, one for each way to end: `2 failed`, `1 flaky`, `45 passed (1.2m)`.
pub(crate) fn of_playwright(output: &str) -> Option<Counts> {
    let plain = without_colours(output);
    let total = plain.lines().map(|line| sum(line, '|')).fold(Counts::default(), |mut total, counts| {
        total += counts;
        total
    });
    (total != Counts::default()).then_some(total)
}

fn without_colours(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        plain.push_str(before);
        rest = after.split_once('m').map_or("", |(_, after)| after);
    }
    plain + rest
}

/// Reads `8 passed (1 slow), 1 failed, 1 timed out, 0 skipped`.
fn sum(text: &str, separator: char) -> Counts {
    let mut counts = Counts::default();
    for part in outside_parentheses(text).split(separator) {
        let Some((number, ending)) = part.trim().split_once(' ') else { continue };
        let Ok(number) = number.parse::<u64>() else { continue };
        match ending.trim() {
            "passed" => counts.passed += number,
            "failed" | "timed out" | "exec failed" | "flaky" | "interrupted" => counts.failed += number,
            "skipped" | "ignored" | "filtered out" | "did not run" | "todo" => counts.left_out += number,
            _ => {}
        }
    }
    counts
}

fn outside_parentheses(text: &str) -> String {
    let mut depth = 0_usize;
    let outside = text.chars().filter(|character| {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => return depth == 0,
        }
        false
    });
    outside.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(passed: u64, failed: u64, left_out: u64) -> Option<Counts> {
        Some(Counts { passed, failed, left_out })
    }

    #[test]
    fn cargo_test_results_are_summed_over_binaries() {
        let output = "\
            running 2 tests\n\
            test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\
            test result: FAILED. 3 passed; 4 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.20s\n";
        assert_eq!(of_cargo_test(output), counts(5, 4, 1));
    }

    #[test]
    fn nextest_counts_every_way_to_fail() {
        let all_well = "     Summary [   4.334s] 8 tests run: 8 passed, 0 skipped";
        assert_eq!(of_nextest(all_well), counts(8, 0, 0));
        let mixed = "     Summary [  36.490s] 9/20 tests run: 4 passed (1 slow, 2 leaky), 3 failed, 1 timed out, 1 exec failed, 2 skipped";
        assert_eq!(of_nextest(mixed), counts(4, 5, 2));
    }

    #[test]
    fn the_web_apps_runners_are_counted() {
        assert_eq!(of_vitest(" Test Files  3 passed (3)\n      Tests  45 passed (45)\n"), counts(45, 0, 0));
        assert_eq!(
            of_vitest("\u{1b}[2m      Tests \u{1b}[22m \u{1b}[31m2 failed\u{1b}[39m | 4 passed (6)"),
            counts(4, 2, 0)
        );
        let output = "  ok 1 e2e/a.spec.ts:3:1 › approves (1.2s)\n\n  1 failed\n    e2e/a.spec.ts:9:1 › denies\n  \n  2 passed (3.1s)\n";
        assert_eq!(of_playwright(output), counts(2, 1, 0));
        assert_eq!(of_playwright("  ok 1 a › b\n\n  1 skipped\n  21 passed (1.2m)\n"), counts(21, 0, 1));
        assert_eq!(of_playwright("Error: no tests found\n"), None);
    }

    #[test]
    fn a_failing_tests_own_output_is_not_counted_by_nextest() {
        let output = "test result: FAILED. 0 passed; 1 failed; 0 ignored\n     Summary [ 1.0s] 2 tests run: 1 passed, 1 failed, 0 skipped\n";
        assert_eq!(of_nextest(output), counts(1, 1, 0));
    }

    #[test]
    fn a_build_that_fails_has_no_counts() {
        assert_eq!(of_cargo_test("error: could not compile\n"), None);
        assert_eq!(of_nextest("error: could not compile\n"), None);
    }
}
