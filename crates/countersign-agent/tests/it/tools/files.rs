//! Reading, writing, editing, listing and searching.

use std::os::unix::fs::{PermissionsExt, symlink};

use countersign::CallState;
use countersign_agent::limits;
use countersign_agent::tools::{EditFile, ListFiles, ReadFile, SearchFiles, WriteFile};
use serde_json::json;

use super::World;

#[tokio::test]
async fn lines_are_read_page_by_page() {
    let world = World::new();
    world.write("a.txt", "one\ntwo\nthree\nfour");
    let tool = ReadFile::new(&world.workspace());
    let page = world.answer(&tool, json!({ "path": "a.txt", "offset": 2, "limit": 2 })).await;
    let expected =
        json!({ "content": "two\nthree\n", "first_line": 2, "last_line": 3, "total_lines": 4, "more": true });
    assert_eq!(page, expected);
    let page = world.answer(&tool, json!({ "path": "./a.txt", "offset": 9 })).await;
    assert_eq!(page["content"], "");
}

#[tokio::test]
async fn a_large_file_never_floods_the_record() {
    let world = World::new();
    // The control character takes six bytes in JSON, the most there is.
    world.write("a.txt", &format!("{}\n{}", "\u{1}".repeat(100_000), "x\n".repeat(100_000)));
    let page = world.answer(&ReadFile::new(&world.workspace()), json!({ "path": "a.txt" })).await;
    let content = page["content"].as_str().unwrap();
    assert!(content.starts_with("\u{1}\u{1}") && content.contains("97952 bytes left out"), "{}", content.len());
    assert!(content.len() <= limits::RESULT_BYTES + 2 * limits::RESULT_LINE_BYTES);
    assert_eq!(page["more"], true);
    std::fs::File::create(world.work("huge")).unwrap().set_len(limits::FILE_BYTES + 1).unwrap();
    let error = world.failure(&ReadFile::new(&world.workspace()), json!({ "path": "huge" })).await;
    assert!(error.contains("larger than 8 MiB"), "{error}");
}

#[tokio::test]
async fn what_is_no_text_is_refused_with_a_reason() {
    let world = World::new();
    std::fs::write(world.work("binary"), b"a\0b").unwrap();
    std::fs::write(world.work("latin"), b"caf\xe9").unwrap();
    let tool = ReadFile::new(&world.workspace());
    assert!(world.failure(&tool, json!({ "path": "binary" })).await.contains("is a binary file of 3 bytes"));
    assert!(world.failure(&tool, json!({ "path": "latin" })).await.contains("is not UTF-8 text"));
    assert!(world.failure(&tool, json!({ "path": "none" })).await.contains("does not exist"));
    assert!(world.failure(&tool, json!({ "path": "." })).await.contains("is a folder"));
}

/// B15: arguments that do not fit the schema are refused before the tool is reached.
#[tokio::test]
async fn bad_arguments_never_reach_the_tool() {
    let world = World::new();
    let tool = ReadFile::new(&world.workspace());
    for arguments in [json!({}), json!({ "path": "" }), json!({ "path": "a", "offset": 0 }), json!({ "path": 3 })] {
        assert_eq!(world.call(&tool, arguments).await.state, CallState::Denied);
    }
}

#[tokio::test]
async fn a_file_is_replaced_at_once_and_keeps_its_permissions() {
    let world = World::new();
    world.write("run.sh", "old");
    std::fs::set_permissions(world.work("run.sh"), PermissionsExt::from_mode(0o750)).unwrap();
    let mut reader = std::fs::File::open(world.work("run.sh")).unwrap();
    let tool = WriteFile::new(&world.workspace());
    let written = world.answer(&tool, json!({ "path": "run.sh", "content": "new" })).await;
    assert_eq!(written, json!({ "path": "run.sh", "bytes": 3, "created": false }));
    assert_eq!(world.read("run.sh"), "new");
    let mode = std::fs::metadata(world.work("run.sh")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o750);
    // Whoever had the file open still reads the old text whole: nothing was written into it.
    assert_eq!(std::io::read_to_string(&mut reader).unwrap(), "old");
    let left: Vec<_> = std::fs::read_dir(world.work(".")).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[tokio::test]
async fn folders_are_made_only_when_asked_for() {
    let world = World::new();
    let tool = WriteFile::new(&world.workspace());
    let error = world.failure(&tool, json!({ "path": "a/b/c.txt", "content": "x" })).await;
    assert!(error.contains("does not exist"), "{error}");
    assert!(!world.work("a").exists());
    let written = world.answer(&tool, json!({ "path": "a/b/c.txt", "content": "x", "create_dirs": true })).await;
    assert_eq!((&written["created"], world.read("a/b/c.txt").as_str()), (&json!(true), "x"));
    let error = world.failure(&tool, json!({ "path": "n/../../outside/x", "content": "x", "create_dirs": true })).await;
    assert!(error.contains("does not exist"), "{error}");
}

#[tokio::test]
async fn an_edit_applies_to_exactly_what_it_names() {
    let world = World::new();
    world.write("a.rs", "let a = 1;\nlet b = 1;\nlet c = 2;\n");
    let tool = EditFile::new(&world.workspace());
    let edit = |old: &str, new: &str| json!({ "path": "a.rs", "old_text": old, "new_text": new });
    assert!(world.failure(&tool, edit(" = 1", " = 3")).await.contains("occurs 2 times"));
    assert!(world.failure(&tool, edit("let d", "let e")).await.contains("does not occur"));
    assert!(world.failure(&tool, edit("let a", "let a")).await.contains("are the same"));
    assert_eq!(world.read("a.rs"), "let a = 1;\nlet b = 1;\nlet c = 2;\n");
    let edited = world.answer(&tool, edit("c = 2", "c = 4")).await;
    assert_eq!(edited, json!({ "path": "a.rs", "replaced": 1, "first_line": 3 }));
    let all = json!({ "path": "a.rs", "old_text": " = 1", "new_text": " = 3", "all": true });
    assert_eq!(world.answer(&tool, all).await["replaced"], 2);
    assert_eq!(world.read("a.rs"), "let a = 3;\nlet b = 3;\nlet c = 4;\n");
}

#[tokio::test]
async fn files_are_listed_by_glob_and_depth() {
    let world = World::new();
    for path in ["a.rs", "src/b.rs", "src/deep/c.rs", "src/d.txt", ".git/config"] {
        world.write(path, "");
    }
    symlink(world.outside(""), world.work("link")).unwrap();
    let tool = ListFiles::new(&world.workspace());
    let list = async |arguments| world.answer(&tool, arguments).await["files"].clone();
    let all = json!([".git/", "a.rs", "link@", "src/", "src/b.rs", "src/d.txt", "src/deep/", "src/deep/c.rs"]);
    assert_eq!(list(json!({})).await, all);
    assert_eq!(list(json!({ "glob": "*.rs" })).await, json!(["a.rs", "src/b.rs", "src/deep/c.rs"]));
    assert_eq!(list(json!({ "glob": "src/*.rs" })).await, json!(["src/b.rs"]));
    assert_eq!(list(json!({ "path": "src", "depth": 1 })).await, json!(["b.rs", "d.txt", "deep/"]));
    assert!(world.failure(&tool, json!({ "glob": "a[" })).await.contains("cannot be used"));
    assert!(world.failure(&tool, json!({ "path": "a.rs" })).await.contains("is not a folder"));
}

#[tokio::test]
async fn a_listing_ends_at_its_bound_and_says_so() {
    let world = World::new();
    for number in 0..=limits::LIST_FILES {
        world.write(&format!("{number:05}"), "");
    }
    let listed = world.answer(&ListFiles::new(&world.workspace()), json!({})).await;
    assert_eq!(listed["files"].as_array().unwrap().len(), limits::LIST_FILES);
    assert_eq!(listed["more"], true);
}

#[tokio::test]
async fn lines_are_found_with_their_numbers() {
    let world = World::new();
    world.write("a.rs", "fn main() {}\nfn other() {}\n");
    world.write("b.txt", "FN upper\n");
    world.write(".git/x", "fn hidden");
    std::fs::write(world.work("c.bin"), b"fn \0").unwrap();
    std::fs::write(world.outside("d.rs"), "fn outside").unwrap();
    symlink(world.outside("d.rs"), world.work("d.rs")).unwrap();
    let tool = SearchFiles::new(&world.workspace());
    let found = world.answer(&tool, json!({ "pattern": r"^fn \w+" })).await;
    let lines = json!(["a.rs:1: fn main() {}", "a.rs:2: fn other() {}"]);
    assert_eq!(found, json!({ "lines": lines, "more": false, "files_passed_over": 1 }));
    let found = world.answer(&tool, json!({ "pattern": "fn", "ignore_case": true, "glob": "*.txt" })).await;
    assert_eq!(found["lines"], json!(["b.txt:1: FN upper"]));
}

#[tokio::test]
async fn a_pattern_that_grows_without_end_is_refused() {
    let world = World::new();
    let tool = SearchFiles::new(&world.workspace());
    let error = world.failure(&tool, json!({ "pattern": "(((a{200}){200}){200})" })).await;
    assert!(error.contains("the pattern cannot be used"), "{error}");
}
