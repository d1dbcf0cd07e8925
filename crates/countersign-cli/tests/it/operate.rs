//! Holds, decisions, grants, doubts and halts, on a store that an agent writes to.

use countersign::place::{Place, Places};
use countersign::tool::tool;
use countersign::{CallState, Claimed, Definition, Json, Proposal};

use crate::bed::{Bed, gate, hold, submit};

const ASK: &str = "otherwise: ask\n";

#[tokio::test]
async fn holds_are_listed_with_what_a_script_needs() {
    let bed = Bed::new();
    let store = bed.store().await;
    let call = submit(&gate(&store, ASK), "pay", r#"{"amount": 12345678901234567890123, "to": "Bo"}"#).await;
    let ran = bed.run(["holds", "--json", "--store", &bed.url()]).expect(0);
    assert!(ran.stdout.contains("12345678901234567890123"), "numbers keep their spelling: {}", ran.stdout);
    let holds = ran.json();
    let open = hold(&call);
    assert_eq!(holds[0]["id"], open.id.to_string());
    assert_eq!(holds[0]["call"], call.id.to_string());
    assert_eq!(holds[0]["tool"], "pay");
    assert_eq!(holds[0]["server"], serde_json::Value::Null);
    assert_eq!(holds[0]["arguments"]["to"], "Bo");
    assert_eq!(holds[0]["digest"], open.digest.to_string());
    assert_eq!(holds[0]["session"], "s1");
    assert!(holds[0]["expires_at"].as_str().unwrap().ends_with('Z'));
    let text = bed.run(["holds", "--store", &bed.url()]).expect(0);
    assert!(text.stdout.contains(&open.id.to_string()), "{}", text.stdout);
    let none = bed.run(["holds", "--json", "--session", "other", "--store", &bed.url()]).expect(0);
    assert_eq!(none.stdout, "[]\n");
}

/// B100: a hold that never expires is not silent about it: it is listed with its age.
#[tokio::test]
async fn a_hold_that_never_expires_is_listed_with_its_age() {
    let bed = Bed::new();
    let store = bed.store().await;
    submit(&gate(&store, "expires_after: never"), "pay", "{}").await;
    let text = bed.run(["holds", "--store", &bed.url()]).expect(0).stdout;
    assert!(text.contains("never, ") && text.contains(" s old"), "{text}");
}

#[tokio::test]
async fn approve_needs_the_digest_that_was_seen() {
    let bed = Bed::new();
    let store = bed.store().await;
    let agent = gate(&store, ASK);
    let call = submit(&agent, "pay", "{}").await;
    let (id, url) = (hold(&call).id.to_string(), bed.url());
    let ran = bed.run(["approve", &id, "--store", &url]).expect(2);
    assert!(ran.stderr.contains("--digest is required"), "{}", ran.stderr);
    let other = format!("cs1c:{}", "0".repeat(64));
    bed.run(["approve", &id, "--digest", &other, "--store", &url]).expect(3);
    bed.run(["approve", &id, "--digest", "nonsense", "--store", &url]).expect(2);
    assert_eq!(agent.get(call.id).await.unwrap().state, CallState::Pending, "nothing was decided so far");

    let digest = hold(&call).digest.to_string();
    let ran = bed.run(["approve", &id, "--digest", &digest, "--store", &url, "--json"]).expect(0).json();
    assert_eq!(ran["state"], "approved");
    assert_eq!(ran["call"]["state"], "approved");
    assert!(ran["call"]["decided_by"].as_str().unwrap().starts_with("os:"));
    let again = bed.run(["approve", &id, "--digest", &digest, "--store", &url, "--json"]).expect(0).json();
    assert_eq!(again["replayed"], true, "the same again is no conflict");
    bed.run(["deny", &id, "--store", &url]).expect(3);
}

#[tokio::test]
async fn deny_tells_the_agent_why() {
    let bed = Bed::new();
    let store = bed.store().await;
    let agent = gate(&store, ASK);
    let call = submit(&agent, "pay", "{}").await;
    let ran = bed.run(["deny", &hold(&call).id.to_string(), "--reason", "too much", "--store", &bed.url()]).expect(0);
    assert!(ran.stdout.contains("denied"), "{}", ran.stdout);
    let denied = agent.get(call.id).await.unwrap();
    assert_eq!(denied.refusal.clone().unwrap().reason.as_deref(), Some("too much"));
    let unknown = bed.run(["deny", "hold_00000000000070008000000000000000", "--store", &bed.url()]).expect(1);
    assert!(unknown.stderr.contains("there is no hold") && unknown.stderr.contains("next:"), "{}", unknown.stderr);
}

/// B65, B69: remembering shows the rule and what it would have covered; the grant is listed, covers, and is revoked.
#[tokio::test]
async fn a_remembered_approval_covers_until_it_is_revoked() {
    let bed = Bed::new();
    let store = bed.store().await;
    let agent = gate(&store, ASK);
    submit(&agent, "pay", r#"{"to": "Bo"}"#).await;
    let call = submit(&agent, "pay", r#"{"to": "Bo"}"#).await;
    let (open, url) = (hold(&call), bed.url());
    let digest = open.digest.to_string();
    let args = ["approve", &open.id.to_string(), "--digest", &digest, "--remember", "session", "--store", &url];
    let ran = bed.run(args).expect(0);
    assert!(ran.stderr.contains("allow pay with exactly these arguments, in session s1"), "{}", ran.stderr);
    assert!(ran.stderr.contains("such as pay {\"to\":\"Bo\"}"), "{}", ran.stderr);
    assert!(ran.stderr.contains("covered 1 of the calls so far"), "{}", ran.stderr);
    assert!(ran.stdout.contains("1 other holds are released"), "{}", ran.stdout);
    let allowed = submit(&agent, "pay", r#"{"to": "Bo"}"#).await;
    assert_eq!(allowed.state, CallState::Allowed);

    let grants = bed.run(["grants", "--json", "--store", &url]).expect(0).json();
    let id = grants[0]["id"].as_str().unwrap().to_owned();
    assert_eq!((&grants[0]["live"], &grants[0]["scope"]), (&true.into(), &"session".into()));
    bed.run(["grants", "revoke", &id, "--store", &url]).expect(0);
    assert_eq!(bed.run(["grants", "list", "--json", "--store", &url]).expect(0).stdout, "[]\n");
    assert_eq!(bed.run(["grants", "--all", "--json", "--store", &url]).expect(0).json()[0]["live"], false);
    assert_eq!(submit(&agent, "pay", r#"{"to": "Bo"}"#).await.state, CallState::Pending);
}

/// B63, B66: a whole-tool grant is never made for a shell.
#[tokio::test]
async fn a_shell_is_never_remembered_whole() {
    let bed = Bed::new();
    let store = bed.store().await;
    let call = submit(&gate(&store, ASK), "bash", r#"{"command": "ls"}"#).await;
    let open = hold(&call);
    let (id, digest, url) = (open.id.to_string(), open.digest.to_string(), bed.url());
    let args = ["approve", &id, "--digest", &digest, "--remember", "global", "--covers", "tool", "--store", &url];
    let ran = bed.run(args).expect(3);
    assert!(ran.stderr.contains("runs other programs"), "{}", ran.stderr);
    bed.run(["approve", &id, "--digest", &digest, "--covers", "tool", "--store", &url]).expect(2);
    let args = ["approve", &id, "--digest", &digest, "--remember", "global", "--covers", "folder:", "--store", &url];
    bed.run(args).expect(2);
}

/// B67: a folder is remembered where the tool says that the argument leads there, and nowhere else.
#[tokio::test]
async fn a_folder_is_remembered_by_its_field() {
    let bed = Bed::new();
    let store = bed.store().await;
    let agent = gate(&store, ASK);
    let reader =
        tool(Definition::new("read", "Reads a file."), |_| async { Ok(Json::empty()) }).resolves(|arguments| {
            let path = arguments.field("path").ok_or("no path")?;
            Ok(Places::one("path", Place::File(path.read().map_err(|error| error.to_string())?)))
        });
    let propose = |path: &str| Proposal::new("read", serde_json::json!({ "path": path }).to_string()).session("s1");
    let call = agent.submit(&reader, propose("/a/b/one")).await.unwrap();
    let (open, url) = (hold(&call), bed.url());
    let (id, digest) = (open.id.to_string(), open.digest.to_string());
    let approve = |covers: &str| {
        bed.run(["approve", &id, "--digest", &digest, "--remember", "session", "--covers", covers, "--store", &url])
    };
    assert!(approve("folder:other").expect(3).stderr.contains("does not say in which folder `other` lies"));
    let ran = approve("folder:path").expect(0);
    assert!(ran.stderr.contains("allow read whenever path leads into /a/b, in session s1"), "{}", ran.stderr);
    assert_eq!(agent.submit(&reader, propose("/a/b/two")).await.unwrap().state, CallState::Allowed);
    assert_eq!(agent.submit(&reader, propose("/a/bc/two")).await.unwrap().state, CallState::Pending);
    let grants = bed.run(["grants", "--json", "--store", &url]).expect(0).json();
    assert_eq!(grants[0]["covers"]["folder"], serde_json::json!({ "field": "path", "folder": "/a/b" }));
}

/// What a grant compares, for how long and for how many calls are said on the command line, and hold.
#[tokio::test]
async fn a_grant_is_limited_by_fields_time_and_calls() {
    let bed = Bed::new();
    let store = bed.store().await;
    let agent = gate(&store, ASK);
    let call = submit(&agent, "pay", r#"{"to": "Bo", "amount": 1}"#).await;
    let (open, url) = (hold(&call), bed.url());
    let (id, digest) = (open.id.to_string(), open.digest.to_string());
    let approve = |more: &[&str]| {
        let args = ["approve", &id, "--digest", &digest, "--store", &url];
        bed.run(args.iter().chain(more).copied())
    };
    for wrong in [
        ["--remember", "session", "--covers", "fields:"].as_slice(),
        &["--remember", "session", "--covers", "fields:to,"],
        &["--remember", "session", "--uses", "0"],
        &["--remember", "session", "--expires-after", "soon"],
        &["--uses", "2"],
        &["--expires-after", "1h"],
    ] {
        approve(wrong).expect(2);
    }
    let terms = ["--remember", "session", "--covers", "fields:to", "--expires-after", "15m", "--uses", "2"];
    approve(&terms).expect(0);
    let grants = bed.run(["grants", "--json", "--store", &url]).expect(0).json();
    assert_eq!(grants[0]["uses_left"], 2);
    assert_eq!(submit(&agent, "pay", r#"{"to": "Bo", "amount": 2}"#).await.state, CallState::Allowed);
    assert_eq!(submit(&agent, "pay", r#"{"to": "Cy", "amount": 1}"#).await.state, CallState::Pending);
}

#[tokio::test]
async fn edited_arguments_are_what_is_approved() {
    let bed = Bed::new();
    let store = bed.store().await;
    let agent = gate(&store, ASK);
    let call = submit(&agent, "pay", r#"{"amount": 100}"#).await;
    let open = hold(&call);
    let (id, digest, url) = (open.id.to_string(), open.digest.to_string(), bed.url());
    bed.run(["approve", &id, "--digest", &digest, "--arguments", "[1]", "--store", &url]).expect(2);
    let edit = r#"{"amount": 5}"#;
    let args = ["approve", &id, "--digest", &digest, "--arguments", edit, "--payload", "7", "--store", &url];
    bed.run(args).expect(0);
    let edited = agent.get(call.id).await.unwrap();
    assert_eq!(edited.facts.arguments.as_str(), r#"{"amount":5}"#);
    assert_eq!(edited.state, CallState::Approved);
}

/// A call whose tool began and never answered is listed as a doubt, and settled with a reason.
#[tokio::test]
async fn a_doubt_is_listed_and_settled() {
    let bed = Bed::new();
    let store = bed.store().await;
    let agent = gate(&store, "otherwise: allow\n");
    let call = submit(&agent, "pay", "{}").await;
    let Claimed::Permit(permit) = agent.claim(call.id, None).await.unwrap() else { panic!("not claimed") };
    drop(permit.start());
    let (id, url) = (call.id.to_string(), bed.url());
    let doubts = bed.run(["doubts", "--json", "--store", &url]).expect(0).json();
    assert_eq!(doubts[0]["id"], id);
    assert_eq!(doubts[0]["state"], "in_doubt");
    bed.run(["doubts", "resolve", &id, "--as", "maybe", "--reason", "x", "--store", &url]).expect(2);
    bed.run(["doubts", "resolve", &id, "--as", "applied", "--reason", " ", "--store", &url]).expect(2);
    let args = ["doubts", "resolve", &id, "--as", "not_applied", "--reason", "the bank says no", "--store", &url];
    let settled = bed.run(args.into_iter().chain(["--json"])).expect(0).json();
    assert_eq!(settled["state"], "resolved");
    assert_eq!(settled["resolution"]["as"], "not_applied");
    assert_eq!(bed.run(["doubts", "list", "--json", "--store", &url]).expect(0).stdout, "[]\n");
}

#[tokio::test]
async fn nothing_is_claimed_while_halted() {
    let bed = Bed::new();
    let store = bed.store().await;
    let agent = gate(&store, "otherwise: allow\n");
    let url = bed.url();
    bed.run(["halt", "--reason", "look first", "--store", &url]).expect(0);
    let call = submit(&agent, "pay", "{}").await;
    assert!(agent.claim(call.id, None).await.is_err(), "halted");
    let resumed = bed.run(["resume", "--store", &url, "--json"]).expect(0).json();
    assert_eq!(resumed["halted"], false);
    assert!(matches!(agent.claim(call.id, None).await, Ok(Claimed::Permit(_))));
    let log = bed.run(["audit", "log", "--store", &url]).expect(0);
    assert!(log.stdout.contains("halt.set") && log.stdout.contains("reason=look first"), "{}", log.stdout);
    assert!(log.stdout.contains("checkpoint.signed"), "what a person did is signed: {}", log.stdout);
}

/// The store named by the configuration is used, and its relative path is relative to the file.
#[tokio::test]
async fn the_configuration_names_the_store() {
    let bed = Bed::new();
    let store = bed.store().await;
    let call = submit(&gate(&store, ASK), "pay", "{}").await;
    std::fs::create_dir(bed.work().join("sub")).unwrap();
    bed.write("sub/countersign.yml", "store: sqlite:../${DB_NAME}.db\n");
    let mut command = bed.command(["holds", "--json", "--config", "sub/countersign.yml"]);
    let ran: crate::bed::Ran = command.env("DB_NAME", "agent").output().unwrap().into();
    assert_eq!(ran.expect(0).json()[0]["id"], hold(&call).id.to_string());
    let unset = bed.run(["holds", "--config", "sub/countersign.yml"]).expect(1);
    assert!(unset.stderr.contains("countersign.yml:1:8") && unset.stderr.contains("DB_NAME"), "{}", unset.stderr);
}

/// Without any configuration the store is in the user's data folder, private.
#[cfg(unix)]
#[test]
fn the_default_store_is_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let bed = Bed::new();
    assert_eq!(bed.say("holds --json").expect(0).stdout, "[]\n");
    let mode = |path: &str| bed.data().join(path).metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(""), 0o700);
    assert_eq!(mode("countersign.db"), 0o600);
    assert_eq!(mode("signing.key"), 0o600);
}

/// A hold that opens and one that closes are both told, one a line.
#[tokio::test]
async fn watching_tells_what_opens_and_what_closes() {
    use std::io::{BufRead as _, BufReader};
    let bed = Bed::new();
    let store = bed.store().await;
    let agent = gate(&store, ASK);
    let first = submit(&agent, "pay", "{}").await;
    let mut child = bed
        .command(["holds", "--watch", "--json", "--store", &bed.url()])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<serde_json::Value>(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(next()["id"], hold(&first).id.to_string());
    let second = submit(&agent, "refund", "{}").await;
    assert_eq!(next()["tool"], "refund");
    agent.cancel(second.id).await.unwrap();
    let closed = next();
    assert_eq!((&closed["tool"], &closed["state"]), (&"refund".into(), &"cancelled".into()));
    child.kill().unwrap();
    child.wait().unwrap();
}
