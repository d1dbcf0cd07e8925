//! What whoever is asked sees of a change, and that it is what happens.

use std::os::unix::fs::symlink;
use std::sync::{Arc, Mutex};

use countersign::show::View;
use countersign::{Answer, Call, CallState, Gate, Policy, Proposal, Tool};
use countersign_agent::tools::{EditFile, WriteFile};
use serde_json::{Value, json};

use super::World;

/// Runs a call with an approver who looks, lets `meanwhile` happen, and approves.
async fn approved(
    tool: &dyn Tool,
    arguments: Value,
    meanwhile: impl Fn() + Send + Sync + 'static,
) -> (String, Arc<Call>) {
    let seen = Arc::new(Mutex::new(String::new()));
    let (kept, meanwhile) = (Arc::clone(&seen), Arc::new(meanwhile));
    let approver = move |hold: countersign::Hold| {
        let (kept, meanwhile) = (Arc::clone(&kept), Arc::clone(&meanwhile));
        async move {
            let view = View::of(&hold.call, &hold.call.holds[0], hold.call.created_at);
            let lines: Vec<String> = view.lines.iter().map(ToString::to_string).collect();
            *kept.lock().unwrap() = lines.join("\n");
            meanwhile();
            Ok(Answer::approve())
        }
    };
    let gate = Gate::builder().policy(Policy::ask_all()).approver(approver).build().unwrap();
    let name = Arc::clone(&tool.definition().tool.name);
    let call = gate.call(tool, Proposal::new(name, arguments.to_string())).await.unwrap();
    let seen = seen.lock().unwrap().clone();
    (seen, call)
}

#[track_caller]
fn shows(view: &str, lines: &[&str]) {
    for line in lines {
        assert!(view.lines().any(|found| found.trim().starts_with(line)), "`{line}` is not in:\n{view}");
    }
}

#[tokio::test]
async fn a_write_is_shown_as_the_difference_it_makes() {
    let world = World::new();
    world.write("a.txt", "one\ntwo\n");
    symlink("a.txt", world.work("link")).unwrap();
    let tool = WriteFile::new(&world.workspace());
    let (view, call) = approved(&tool, json!({ "path": "link", "content": "one\n2\n" }), || {}).await;
    assert_eq!(call.state, CallState::Succeeded);
    let file = format!("file: \"{}\"", world.work("a.txt").canonicalize().unwrap().display());
    let file = file.trim_start_matches("file: ").to_owned();
    assert!(view.contains(&file), "{view}");
    shows(&view, &["-> two", "+> 2"]);
    assert_eq!(world.read("a.txt"), "one\n2\n");
}

#[tokio::test]
async fn an_edit_is_shown_as_a_difference_with_its_place() {
    let world = World::new();
    world.write("a.txt", "zero\none\n");
    let tool = EditFile::new(&world.workspace());
    let edit = json!({ "path": "a.txt", "old_text": "one", "new_text": "1" });
    let (view, call) = approved(&tool, edit, || {}).await;
    assert_eq!(call.state, CallState::Succeeded);
    shows(&view, &["- one", "+ 1", "first_line> 2", "matches> 1"]);
}

/// What was shown is what happens: a file that changes between the approval and the run is left alone.
#[tokio::test]
async fn a_file_that_changed_after_it_was_shown_is_left_alone() {
    let world = World::new();
    for (before, after) in [(Some("old"), "theirs"), (None, "theirs")] {
        let _ = std::fs::remove_file(world.work("a.txt"));
        if let Some(before) = before {
            world.write("a.txt", before);
        }
        let path = world.work("a.txt");
        let change = move || std::fs::write(&path, after).unwrap();
        let tool = WriteFile::new(&world.workspace());
        let (_, call) = approved(&tool, json!({ "path": "a.txt", "content": "ours" }), change).await;
        assert_eq!(call.state, CallState::Failed);
        assert_eq!(world.read("a.txt"), "theirs");
    }
}

#[tokio::test]
async fn a_link_that_moved_after_it_was_shown_is_not_followed() {
    let world = World::new();
    world.write("a.txt", "same x");
    world.write("b.txt", "same x");
    symlink("a.txt", world.work("link")).unwrap();
    let link = world.work("link");
    let change = move || {
        std::fs::remove_file(&link).unwrap();
        symlink("b.txt", &link).unwrap();
    };
    let tool = EditFile::new(&world.workspace());
    let edit = json!({ "path": "link", "old_text": "x", "new_text": "y" });
    let (_, call) = approved(&tool, edit, change).await;
    // What was shown and approved is changed, wherever the link leads by now.
    assert_eq!(call.state, CallState::Succeeded);
    assert_eq!((world.read("a.txt").as_str(), world.read("b.txt").as_str()), ("same y", "same x"));
}

#[tokio::test]
async fn an_edit_that_would_apply_more_often_than_shown_does_not() {
    let world = World::new();
    world.write("a.txt", "x");
    let path = world.work("a.txt");
    let tool = EditFile::new(&world.workspace());
    let edit = json!({ "path": "a.txt", "old_text": "x", "new_text": "y", "all": true });
    let (_, call) = approved(&tool, edit, move || std::fs::write(&path, "x x").unwrap()).await;
    assert_eq!((call.state, world.read("a.txt").as_str()), (CallState::Failed, "x x"));
}

#[tokio::test]
async fn a_preview_tells_nothing_about_protected_files() {
    let world = World::new();
    world.write("countersign.yml", "api_key: canary-5151");
    let tool = WriteFile::new(&world.workspace().protect("countersign.yml"));
    let (view, call) = approved(&tool, json!({ "path": "countersign.yml", "content": "" }), || {}).await;
    assert!(view.contains("is protected") && !view.contains("canary"), "{view}");
    assert_eq!(call.state, CallState::Failed);
}
