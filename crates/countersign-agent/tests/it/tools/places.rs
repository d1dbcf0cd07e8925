//! B67: folder grants for the built-in file tools: they say where a path leads, and act there and nowhere else.

use std::os::unix::fs::symlink;
use std::sync::Arc;

use countersign::grant::{Remember, RememberCovers};
use countersign::place::Place;
use countersign::{Answer, Call, CallState, Gate, Hold, Policy, Proposal, Tool, Who};
use countersign_agent::tools::{EditFile, ListFiles, ReadFile, SearchFiles, WriteFile};
use serde_json::{Value, json};

use super::World;

/// A gate that asks about everything, and whose holds the test decides.
fn asking() -> Gate {
    Gate::builder().policy(Policy::ask_all()).decided_elsewhere().build().unwrap()
}

async fn submit(gate: &Gate, tool: &dyn Tool, arguments: Value) -> Arc<Call> {
    let name = Arc::clone(&tool.definition().tool.name);
    gate.submit(tool, Proposal::new(name, arguments.to_string()).session("s")).await.unwrap()
}

async fn approve(gate: &Gate, call: &Arc<Call>, remember: Option<Remember>) {
    let hold = Hold::of(call, call.open_hold().unwrap().id).unwrap();
    let answer = Answer::Approve { arguments: None, payload: None, remember };
    gate.decide(hold.id, hold.decision(Who::person("ann"), "test", answer)).await.unwrap();
}

async fn is_asked(gate: &Gate, tool: &dyn Tool, arguments: Value) -> bool {
    submit(gate, tool, arguments).await.state == CallState::Pending
}

fn this_folder() -> Option<Remember> {
    Some(Remember { covers: RememberCovers::Folder("path".into()), ..Remember::session() })
}

/// A grant for a folder reaches what is in it, by whatever path it is named, and nothing else; reading is not writing.
#[tokio::test]
async fn a_folder_grant_reaches_what_is_in_the_folder() {
    let world = World::new();
    world.write("docs/a.txt", "a");
    world.write("docs/deep/b.txt", "b");
    world.write("docs2/c.txt", "c");
    symlink(world.work("docs2/c.txt"), world.work("docs/out")).unwrap();
    symlink(world.work("docs"), world.work("alias")).unwrap();
    let (gate, read) = (asking(), ReadFile::new(&world.workspace()));
    let first = submit(&gate, &read, json!({ "path": "docs/a.txt" })).await;
    let expected = world.work("docs/a.txt").canonicalize().unwrap();
    assert_eq!(first.facts.places.get("path"), Some(&Place::File(expected.to_str().unwrap().to_owned())));
    approve(&gate, &first, this_folder()).await;
    for inside in ["docs/deep/b.txt", "docs/../docs/a.txt", "alias/a.txt", "./docs/a.txt", "docs/not-there-yet"] {
        assert!(!is_asked(&gate, &read, json!({ "path": inside })).await, "{inside}");
    }
    for outside in ["docs2/c.txt", "docs/out", "docs/../docs2/c.txt", "docs", "../outside/x"] {
        assert!(is_asked(&gate, &read, json!({ "path": outside })).await, "{outside}");
    }
    let write = WriteFile::new(&world.workspace());
    assert!(is_asked(&gate, &write, json!({ "path": "docs/a.txt", "content": "x" })).await);
}

/// Each of the five says where it works; a new file below folders that are not there yet too.
#[tokio::test]
async fn every_file_tool_says_where_it_works() {
    let world = World::new();
    world.write("docs/a.txt", "a");
    let (workspace, gate) = (world.workspace(), asking());
    let root = workspace.root().to_str().unwrap().to_owned();
    let docs = format!("{root}/docs");
    let file = |path: &str| Some(Place::File(format!("{root}/{path}")));
    let write = WriteFile::new(&workspace);
    let new = json!({ "path": "docs/x/y/z.txt", "content": "z", "create_dirs": true });
    let edit = json!({ "path": "docs/a.txt", "old_text": "a", "new_text": "b" });
    let tools: [(&dyn Tool, Value, Option<Place>); 6] = [
        (&ReadFile::new(&workspace), json!({ "path": "docs/a.txt" }), file("docs/a.txt")),
        (&write, new, file("docs/x/y/z.txt")),
        (&EditFile::new(&workspace), edit, file("docs/a.txt")),
        (&ListFiles::new(&workspace), json!({ "path": "docs" }), Some(Place::Folder(docs.clone()))),
        (&SearchFiles::new(&workspace), json!({ "pattern": "x", "path": "docs" }), Some(Place::Folder(docs))),
        (&SearchFiles::new(&workspace), json!({ "pattern": "x" }), Some(Place::Folder(root.clone()))),
    ];
    for (tool, arguments, expected) in tools {
        let call = submit(&gate, tool, arguments.clone()).await;
        assert_eq!(call.facts.places.get("path").cloned(), expected, "{} {arguments}", call.facts.tool);
        approve(&gate, &call, None).await;
        let ended = gate.resume(tool, call.id).await.unwrap();
        assert_eq!(ended.state, CallState::Succeeded, "{} {:?}", call.facts.tool, ended.outcome);
    }
    assert_eq!((world.read("docs/x/y/z.txt"), world.read("docs/a.txt")), ("z".to_owned(), "b".to_owned()));
}

/// A link that is put in the way between approval and run leads nowhere: no tool acts elsewhere than was approved.
#[tokio::test]
async fn a_link_put_in_the_way_later_is_not_followed() {
    let new = json!({ "path": "docs/a.txt", "content": "changed" });
    let made = json!({ "path": "docs/new/b.txt", "content": "x", "create_dirs": true });
    let edit = json!({ "path": "docs/a.txt", "old_text": "mine", "new_text": "changed" });
    for (index, arguments) in
        [json!({ "path": "docs/a.txt" }), new, made, edit, json!({ "path": "docs" })].iter().enumerate()
    {
        let world = World::new();
        world.write("docs/a.txt", "mine");
        world.write("other/a.txt", "mine");
        let workspace = world.workspace();
        let tools: [Arc<dyn Tool>; 5] = [
            Arc::new(ReadFile::new(&workspace)),
            Arc::new(WriteFile::new(&workspace)),
            Arc::new(WriteFile::new(&workspace)),
            Arc::new(EditFile::new(&workspace)),
            Arc::new(ListFiles::new(&workspace)),
        ];
        let (gate, tool) = (asking(), &*tools[index]);
        let call = submit(&gate, tool, arguments.clone()).await;
        approve(&gate, &call, None).await;
        std::fs::rename(world.work("docs"), world.work("docs-before")).unwrap();
        symlink(world.work("other"), world.work("docs")).unwrap();
        let ended = gate.resume(tool, call.id).await.unwrap();
        assert_eq!(ended.state, CallState::Failed, "{} {:?}", call.facts.tool, ended.outcome);
        assert_eq!(world.read("other/a.txt"), "mine");
        assert!(!world.work("other/new").exists(), "not even a folder is made");
    }
}

/// A protected file has no place, there or not: no grant reaches it.
#[tokio::test]
async fn a_protected_file_has_no_place() {
    let world = World::new();
    world.write("docs/a.txt", "a");
    let workspace = world.workspace().protect("docs/keys.pem").protect("docs/secret");
    let (gate, write) = (asking(), WriteFile::new(&workspace));
    for path in ["docs/keys.pem", "docs/secret/x", "docs/KEYS.pem", "docs/secret"] {
        let call = submit(&gate, &write, json!({ "path": path, "content": "x", "create_dirs": true })).await;
        assert!(call.facts.places.is_empty(), "{path}: {:?}", call.facts.places);
    }
}
