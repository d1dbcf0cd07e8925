//! Rules of absence: what must not be in the text of a file.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Files longer than [`LINES`], with the reason why they are.
const LONG: &[(&str, &str)] = &[];
const LINES: usize = 600;

/// The word for work put off, and its cousin. Split, so that this file does not use them.
const PUT_OFF: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME")];

/// Words that only some crates may use, in any of their Rust files but a build script.
const WORDS: &[Word] = &[
    Word { words: &["rusqlite::", "sqlx::"], only_in: &["store"], why: "only the store knows SQL" },
    Word { words: &["std::env", "env::"], only_in: &["cli", "testkit"], why: "only the CLI reads the environment" },
    Word {
        words: &["process::exit", "process::abort"],
        only_in: &["cli", "testkit"],
        why: "only the CLI ends the process",
    },
    // The gateway's transport is the two ends of a pipe.
    Word {
        words: &["io::stdin", "io::stdout", "io::stderr", "IsTerminal"],
        only_in: &["cli", "testkit", "mcp"],
        why: "only the CLI knows the terminal",
    },
    Word { words: &["#[ignore"], only_in: &[], why: "no test is ignored" },
];

struct Word {
    words: &'static [&'static str],
    only_in: &'static [&'static str],
    why: &'static str,
}

/// One file of ours, by its path from the root.
#[derive(Debug)]
pub(crate) struct File {
    path: String,
    text: String,
}

/// Every source file under the root, but nothing built, fetched or hidden.
pub(crate) fn files(root: &Path) -> Result<Vec<File>> {
    let mut folders = vec![root.to_path_buf()];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))? {
            let path = entry?.path();
            if path.is_dir() && is_ours(&path) {
                folders.push(path);
            } else if is_source(&path) {
                files.push(read(root, path)?);
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// What breaks a rule, as `path:line: why`.
pub(crate) fn complaints(files: &[File]) -> Vec<String> {
    files.iter().flat_map(of_file).collect()
}

fn is_ours(folder: &Path) -> bool {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    !name.starts_with('.') && !matches!(&*name, "target" | "node_modules" | "dist")
}

fn is_source(path: &Path) -> bool {
    let extension = path.extension().unwrap_or_default().to_string_lossy();
    matches!(&*extension, "rs" | "toml" | "sql" | "ts" | "svelte" | "js" | "css" | "sh")
}

fn read(root: &Path, path: PathBuf) -> Result<File> {
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let path = path.strip_prefix(root)?.to_string_lossy().into_owned();
    Ok(File { path, text })
}

fn of_file(file: &File) -> Vec<String> {
    let mut complaints: Vec<String> =
        file.text.lines().zip(1..).flat_map(|(text, line)| of_line(file, text, line)).collect();
    if file.path.ends_with(".rs") {
        complaints.extend(length(file));
        complaints.extend(module_doc(file));
    }
    complaints
}

fn of_line(file: &File, text: &str, line: usize) -> Vec<String> {
    let at = |why: &str| format!("{}:{line}: {why}", file.path);
    let mut complaints: Vec<String> = forbidden(file, text).map(at).collect();
    if puts_off(text) {
        complaints.push(at("work put off needs the number of its issue, as in `(#12)`"));
    }
    complaints
}

fn forbidden(file: &File, text: &str) -> impl Iterator<Item = &'static str> {
    let code = text.split("//").next().unwrap_or_default();
    let name = crate_of(file).filter(|_| !file.path.ends_with("build.rs"));
    WORDS
        .iter()
        .filter(move |rule| name.is_some_and(|name| !rule.only_in.contains(&name)))
        // Tests read seeds and start programs; no rule that some crate may break binds them.
        .filter(move |rule| rule.only_in.is_empty() || !is_test(file))
        .filter(move |rule| rule.words.iter().any(|word| has_word(code, word)))
        .map(|rule| rule.why)
}

fn is_test(file: &File) -> bool {
    file.path.split('/').any(|part| matches!(part, "tests" | "testing" | "tests.rs"))
}

/// `store` for a Rust file of `crates/countersign-store`, the empty name for one of the core.
fn crate_of(file: &File) -> Option<&str> {
    let rest = file.path.strip_prefix("crates/countersign").filter(|_| file.path.ends_with(".rs"))?;
    let name = rest.split('/').next()?;
    Some(name.strip_prefix('-').unwrap_or(name))
}

/// Whether `word` stands in `code` and is not the tail of a longer name.
fn has_word(code: &str, word: &str) -> bool {
    code.match_indices(word).any(|(at, _)| {
        let before = code.get(..at).and_then(|before| before.chars().next_back());
        !before.is_some_and(|before| before.is_alphanumeric() || before == '_')
    })
}

fn puts_off(text: &str) -> bool {
    PUT_OFF.iter().any(|word| {
        text.match_indices(word).any(|(at, _)| {
            let after = text.get(at + word.len()..).unwrap_or_default();
            !after.strip_prefix("(#").is_some_and(|number| number.starts_with(|digit: char| digit.is_ascii_digit()))
        })
    })
}

fn length(file: &File) -> Option<String> {
    let lines = file.text.lines().count();
    let listed = LONG.iter().any(|(path, _)| *path == file.path);
    (lines > LINES && !listed)
        .then(|| format!("{}: {lines} lines; split it at {LINES} or list it with a reason", file.path))
}

fn module_doc(file: &File) -> Option<String> {
    let first = file.text.lines().find(|line| !line.trim().is_empty() && !line.starts_with("#!"));
    let has_one = first.is_some_and(|line| line.starts_with("//!"));
    (!has_one).then(|| format!("{}: no module doc (`//!`) at the top", file.path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, text: &str, expected: &[&str]) {
        let file = File { path: path.to_owned(), text: format!("//! A module.\n{text}") };
        assert_eq!(complaints(&[file]), expected, "{text}");
    }

    #[test]
    fn only_the_store_knows_sql() {
        check("crates/countersign-store/src/lib.rs", "use rusqlite::Connection;", &[]);
        let core = "crates/countersign/src/lib.rs";
        check(core, "use rusqlite::Connection;", &["crates/countersign/src/lib.rs:2: only the store knows SQL"]);
        check(core, "// rusqlite:: is the store's.", &[]);
    }

    #[test]
    fn only_the_cli_knows_the_world() {
        let agent = "crates/countersign-agent/src/lib.rs";
        let reads = "crates/countersign-agent/src/lib.rs:2: only the CLI reads the environment";
        check(agent, "use std::env;", &[reads]);
        check(agent, "let name = env::var(\"NAME\");", &[reads]);
        check(agent, "let program = cel_env::compile(text);", &[]);
        check(agent, "let program = Env::compile(text);", &[]);
        check(agent, "process::exit(1);", &["crates/countersign-agent/src/lib.rs:2: only the CLI ends the process"]);
        let core = "crates/countersign/src/a.rs";
        check(core, "io::stdin().lock()", &["crates/countersign/src/a.rs:2: only the CLI knows the terminal"]);
        check("crates/countersign-cli/src/main.rs", "std::env::args(); process::exit(io::stdin().read())", &[]);
        check("crates/countersign-ui/build.rs", "std::env::var(\"OUT_DIR\")", &[]);
    }

    #[test]
    fn work_put_off_has_an_issue() {
        let [word, cousin] = PUT_OFF else { panic!("two words") };
        let why = "a.rs:2: work put off needs the number of its issue, as in `(#12)`";
        check("a.rs", &format!("// {word}: later"), &[why]);
        check("a.rs", &format!("// {cousin}(ann): later"), &[why]);
        check("a.rs", &format!("// {word}(#12): later"), &[]);
    }

    #[test]
    fn no_test_is_ignored() {
        let core = "crates/countersign/tests/it/main.rs";
        check(core, "#[ignore = \"slow\"]", &["crates/countersign/tests/it/main.rs:2: no test is ignored"]);
    }

    #[test]
    fn a_file_is_short_and_says_what_it_is() {
        check("a.rs", &"\n".repeat(LINES), &["a.rs: 601 lines; split it at 600 or list it with a reason"]);
        let bare = File { path: "a.rs".to_owned(), text: "#![allow(dead_code)]\nfn main() {}\n".to_owned() };
        assert_eq!(complaints(&[bare]), ["a.rs: no module doc (`//!`) at the top"]);
    }
}
