//! The page of failures that others have keeps its word: every test it names is there.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The behaviours that some other system gets wrong.
const GAPS: [&str; 31] = [
    "B3", "B18", "B20", "B21", "B25", "B48", "B63", "B66", "B72", "B74", "B78", "B80", "B81", "B82", "B87", "B89",
    "B91", "B92", "B96", "B97", "B105", "B106", "B109", "B110", "B111", "B112", "B114", "B116", "B117", "B118", "B120",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every function below a folder that is marked as a test.
fn tests_below(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            tests_below(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            tests_in(&std::fs::read_to_string(&path).unwrap(), found);
        }
    }
}

fn tests_in(source: &str, found: &mut BTreeSet<String>) {
    let mut marked = false;
    for line in source.lines().map(str::trim) {
        match line.split_once("fn ") {
            _ if line.starts_with("#[") => marked |= line.contains("test]") || line.contains("test("),
            Some((_, rest)) if marked => {
                found.extend(rest.split('(').next().map(str::to_owned));
                marked = false;
            }
            _ => {}
        }
    }
}

/// Every test of the workspace.
fn tests() -> BTreeSet<String> {
    let mut tests = BTreeSet::new();
    let crates = std::fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path());
    for folder in crates.chain([root().join("examples")]) {
        for part in ["src", "tests"].map(|part| folder.join(part)) {
            if part.is_dir() {
                tests_below(&part, &mut tests);
            }
        }
    }
    tests
}

/// The rows of a table, cell by cell.
fn rows(text: &str) -> Vec<Vec<&str>> {
    let rows = text.lines().filter(|line| line.starts_with("| ")).skip(1);
    rows.map(|line| line.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// The names in backquotes.
fn named(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

fn page() -> (String, String) {
    let page = std::fs::read_to_string(root().join("docs/compared.md")).unwrap();
    let (failures, offers) = page.split_once("\n## ").unwrap();
    (failures.to_owned(), offers.to_owned())
}

#[test]
fn every_test_that_the_comparison_names_is_there() {
    let (failures, _) = page();
    let (tests, rows) = (tests(), rows(&failures));
    for row in &rows {
        let [_, _, _, test] = row[..] else { panic!("{row:?} has not four cells") };
        assert!(tests.contains(test.trim_matches('`')), "there is no test {test}");
    }
    let named: BTreeSet<&str> = rows.iter().map(|row| row[0]).collect();
    assert_eq!(named, BTreeSet::from(GAPS));
}

/// How many things others offer are gone through, so that none is lost unseen.
const OFFERS: usize = 47;

#[test]
fn everything_that_others_offer_has_a_test_here() {
    let (_, offers) = page();
    let (tests, rows) = (tests(), rows(&offers));
    for row in &rows {
        let [what, _, shown] = row[..] else { panic!("{row:?} has not three cells") };
        assert!(named(shown).count() > 0, "nothing shows: {what}");
        for test in named(shown) {
            assert!(tests.contains(test), "there is no test `{test}`: {what}");
        }
    }
    assert_eq!(rows.len(), OFFERS);
}
