//! B67: folder grants, with a tool that really follows links.

#![cfg(unix)]

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use countersign::grant::{GrantError, Remember, RememberCovers};
use countersign::place::{Place, Places};
use countersign::redact::Redactor;
use countersign::show::View;
use countersign::tool::FnTool;
use countersign::transition::Rejection;
use countersign::{Answer, Call, CallState, GateError, Policy, Proposal};

use super::desk::{Desk, edit, recorder, remember};

fn folder() -> Remember {
    Remember { covers: RememberCovers::Folder("path".into()), ..Remember::session() }
}

/// A tool that resolves `path` as file tools do: links by the file system, and what is not there by its folder.
fn filer(name: &str, desk: &Desk) -> FnTool {
    recorder(name, &desk.ran).resolves(|arguments| {
        let text: String = arguments.field("path").ok_or("no path")?.read().map_err(|error| error.to_string())?;
        let path = Path::new(&text);
        let real = path.canonicalize().or_else(|_| {
            let (folder, file) = (path.parent().unwrap_or(path), path.file_name().unwrap_or_default());
            folder.canonicalize().map(|folder| folder.join(file))
        });
        let real = real.map_err(|error| error.to_string())?.to_string_lossy().into_owned();
        Ok(Places::one("path", Place::File(real)))
    })
}

async fn propose(desk: &Desk, tool: &FnTool, path: &Path) -> Arc<Call> {
    let arguments = serde_json::json!({ "path": path }).to_string();
    let name = countersign::Tool::definition(tool).tool.name.clone();
    desk.gate.submit(tool, Proposal::new(name, arguments).session("s1")).await.unwrap()
}

#[track_caller]
fn check(call: &Arc<Call>, expected: CallState) {
    assert_eq!(call.state, expected, "{:?} {:?}", call.facts.arguments, call.facts.places);
}

/// B67: child yes; sibling, look-alike, link out and another tool no; a link in and a file to be, by where they lead.
#[tokio::test]
async fn a_folder_grant_follows_links_before_it_compares() {
    let home = tempfile::tempdir().unwrap();
    let at = |path: &str| home.path().join(path);
    for folder in ["b", "bc", "c"] {
        std::fs::create_dir(at(folder)).unwrap();
        std::fs::write(at(folder).join("one"), "1").unwrap();
    }
    symlink(at("c/one"), at("b/out")).unwrap();
    symlink(at("b"), at("in")).unwrap();
    let desk = Desk::new();
    let (read, write) = (filer("read_file", &desk), filer("write_file", &desk));
    let first = propose(&desk, &read, &at("b/one")).await;
    let grant = desk.ann(&first, remember(folder())).await.unwrap().grant.unwrap();
    let real = at("b").canonicalize().unwrap();
    assert!(grant.as_rule().contains(&format!("whenever path leads into {}", real.display())), "{}", grant.as_rule());
    for inside in ["b/one", "b/not-yet", "in/one", "in/not-yet"] {
        check(&propose(&desk, &read, &at(inside)).await, CallState::Allowed);
    }
    for outside in ["c/one", "bc/one", "b/out", "b/../c/one", "b/no/such/folder", "b"] {
        check(&propose(&desk, &read, &at(outside)).await, CallState::Pending);
    }
    check(&propose(&desk, &read, Path::new("")).await, CallState::Pending);
    check(&propose(&desk, &write, &at("b/one")).await, CallState::Pending);
}

/// B67: where an argument leads is frozen with the call: shown, recorded, bound by the digest, handed to the tool.
#[tokio::test]
async fn a_place_is_shown_and_bound() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("real"), "1").unwrap();
    symlink(home.path().join("real"), home.path().join("link")).unwrap();
    let desk = Desk::new();
    let tool = filer("read_file", &desk);
    let call = propose(&desk, &tool, &home.path().join("link")).await;
    let real = home.path().canonicalize().unwrap().join("real").to_string_lossy().into_owned();
    let view = View::of(&call, call.open_hold().unwrap(), call.created_at);
    let shown = view.lines.iter().find(|line| line.label == "path leads to").unwrap();
    assert_eq!(shown.text, real);
    assert_eq!(desk.log().await[0].value()["places"]["path"]["file"], real);
    let mut moved = Call::clone(&call);
    Arc::make_mut(&mut moved.facts).places = Places::default();
    assert_ne!(moved.compute_digest(), call.digest);
}

/// B67: no place, no folder grant: a tool that says nothing, fails, panics or points nowhere; and an edited call.
#[tokio::test]
async fn without_a_place_there_is_no_folder_grant() {
    let desk = Desk::new();
    let tools = [
        recorder("read_file", &desk.ran),
        recorder("read_file", &desk.ran).resolves(|_| Err("cannot tell".into())),
        recorder("read_file", &desk.ran).resolves(|_| panic!("cannot tell")),
        recorder("read_file", &desk.ran).resolves(|_| Ok(Places::one("path", Place::File("b/one".into())))),
        recorder("read_file", &desk.ran).resolves(|_| Ok(Places::one("path", Place::File("/one".into())))),
        recorder("read_file", &desk.ran).resolves(|_| Ok(Places::one("path", Place::Folder("/".into())))),
    ];
    let refused = |result| match result {
        Err(GateError::Rejected(Rejection::Grant(error))) => assert_eq!(error, GrantError::NoFolder("path".into())),
        other => panic!("{other:?}"),
    };
    for tool in &tools {
        let call = propose(&desk, tool, Path::new("/a/b/one")).await;
        refused(desk.ann(&call, remember(folder())).await);
        check(&desk.now(&call).await, CallState::Pending);
    }
    let resolved = recorder("read_file", &desk.ran).resolves(|_| Ok(Places::one("path", Place::File("/a/b/c".into()))));
    let call = propose(&desk, &resolved, Path::new("/a/b/c")).await;
    let Answer::Approve { arguments, .. } = edit(r#"{"path":"/a/b/d"}"#) else { unreachable!() };
    refused(desk.ann(&call, Answer::Approve { arguments, payload: None, remember: Some(folder()) }).await);
}

/// B67: a place never shows what is masked in its argument.
#[tokio::test]
async fn a_masked_argument_has_no_place() {
    let redactor = Redactor::new(&["token".into()], &[]).unwrap().and_standard();
    let desk = Desk::build(|builder| builder.policy(Policy::ask_all()).decided_elsewhere().redactor(redactor));
    let secret = "/keys/AKIAIOSFODNN7EXAMPLE/one";
    let tool = recorder("read_file", &desk.ran).resolves(|_| {
        let places = Places::one("path", Place::File(secret.into()));
        Ok(places.and("token", Place::File("/a/b/c".into())).and("open", Place::File("/a/b/c".into())))
    });
    let arguments = serde_json::json!({ "path": "x", "token": "/a/b/c", "open": "/a/b/c" }).to_string();
    let call = desk.gate.submit(&tool, Proposal::new("read_file", arguments).session("s1")).await.unwrap();
    assert_eq!(call.facts.places, Places::one("open", Place::File("/a/b/c".into())));
}
