//! The guide cannot rot: every program runs, and every page shows what its program is and says.

// Helpers of tests are tests too: a panic in them is a failed test.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use countersign_examples::EXAMPLES;

/// Pages of the guide that have no program.
const WITHOUT_PROGRAM: [&str; 3] = ["README", "mcp", "run"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// What a program prints. It must end well: each checks its own outcome.
fn output(name: &str) -> String {
    let ran = Command::new(env!("CARGO_BIN_EXE_countersign-examples")).arg(name).output().unwrap();
    assert!(ran.status.success(), "{name}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap()
}

/// The lines of a text without their indentation, blank ones left out.
fn lines(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect()
}

/// The fenced blocks of a page, each with its language.
fn blocks(page: &str) -> Vec<(&str, &str)> {
    let fenced = page.split("```").skip(1).step_by(2);
    fenced.map(|block| block.split_once('\n').expect("a block has lines")).collect()
}

/// Whether the block stands in the text in one piece.
fn stands_in(block: &str, text: &str) -> bool {
    let (block, text) = (lines(block), lines(text));
    text.windows(block.len()).any(|window| window == block)
}

#[test]
fn every_program_ends_as_it_says_and_its_page_shows_it() {
    for (name, _) in EXAMPLES {
        let (page, source, said) =
            (read(&format!("docs/guide/{name}.md")), read(&format!("examples/src/{name}.rs")), output(name));
        assert!(page.contains(&format!("../../examples/src/{name}.rs")), "{name}: no link to the program");
        let mut languages = BTreeSet::new();
        for (language, block) in blocks(&page) {
            languages.insert(language);
            let found = match language {
                "rust" | "yaml" => stands_in(block, &source),
                "text" => lines(block).iter().all(|line| lines(&said).contains(line)),
                other => panic!("{name}: a block in `{other}` that nothing checks"),
            };
            assert!(found, "{name}: the page shows what the program does not have:\n{block}");
        }
        assert!(languages.contains("rust") && languages.contains("text"), "{name}: shows too little: {languages:?}");
    }
}

#[test]
fn the_index_leads_to_every_page_and_no_page_is_without_a_program() {
    let index = read("docs/guide/README.md");
    let named: BTreeSet<String> = EXAMPLES.iter().map(|(name, _)| name.to_string()).collect();
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(root().join("docs/guide")).unwrap() {
        let page = entry.unwrap().path();
        let name = page.file_stem().unwrap().to_string_lossy().into_owned();
        assert!(name == "README" || index.contains(&format!("({name}.md)")), "{name} is not in the index");
        if !WITHOUT_PROGRAM.contains(&name.as_str()) {
            found.insert(name);
        }
    }
    assert_eq!(found, named);
}
