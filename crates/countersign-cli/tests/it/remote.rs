//! The scriptable commands on a server: watched, shown and asked, checked and exported.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::sync::Arc;

use countersign::signer::Signer;
use countersign::store::Op;
use countersign_api::client::{Client, Told};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::bed::{Bed, gate, submit};
use crate::serve::{Serving, ask, propose, token};
use crate::terminal::{ENTER, Terminal};

fn setting() -> (Runtime, Bed, Serving) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let bed = Bed::new();
    let server = Serving::start(&bed);
    (Runtime::new().unwrap(), bed, server)
}

fn hold_of(call: &Value) -> String {
    call["holds"][0]["id"].as_str().unwrap().to_owned()
}

/// Each hold is told when it opens and once more when it closes, also across a restart of the server.
#[test]
fn holds_on_a_server_are_watched() {
    let (runtime, bed, mut server) = setting();
    let (agent, ann) = (token(&bed, "agent", "bot"), token(&bed, "approver", "ann"));
    let first = runtime.block_on(propose(&server.url, &agent, "write_file", 1));
    let mut command = bed.command(["holds", "--watch", "--json", "--url", &server.url]);
    command.env("COUNTERSIGN_TOKEN", &ann).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut watching = command.spawn().unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    let told = next();
    assert_eq!((told["id"].as_str(), &told["state"]), (Some(&*hold_of(&first)), &Value::from("pending")));
    let second = runtime.block_on(propose(&server.url, &agent, "write_file", 2));
    assert_eq!(next()["id"].as_str(), Some(&*hold_of(&second)));
    ask(&bed, &ann, &server.url, &["deny", &hold_of(&first), "--reason", "no"]).expect(0);
    let told = next();
    assert_eq!((&told["state"], &told["decisions"][0]["by"]), (&Value::from("denied"), &Value::from("ann")));

    server.stop();
    let server = Serving::at(&bed, &server.url);
    ask(&bed, &ann, &server.url, &["deny", &hold_of(&second)]).expect(0);
    assert_eq!(next()["state"], "denied");
    watching.kill().unwrap();
    watching.wait().unwrap();
    let wrong = ask(&bed, "cs_approver_wrong", &server.url, &["holds", "--watch"]);
    assert_eq!(wrong.code, 3, "{wrong:?}");
}

/// Without a digest the hold is shown first; the decision carries the digest of what was shown.
#[test]
fn approve_on_a_server_shows_the_hold_and_asks() {
    let (runtime, bed, server) = setting();
    let (agent, ann) = (token(&bed, "agent", "bot"), token(&bed, "approver", "ann"));
    let call = runtime.block_on(propose(&server.url, &agent, "write_file", 42));
    let approve = |more: &[&str]| {
        let mut command = bed.command(["approve", &hold_of(&call), "--url", &server.url]);
        command.args(more).env("COUNTERSIGN_TOKEN", &ann);
        Terminal::of(command, (120, 45))
    };
    let mut terminal = approve(&[]);
    terminal.sees("write_file").sees("42").sees("[l Leave it]").types(ENTER);
    let (shown, code) = terminal.ends();
    assert!(code == 0 && shown.contains("Nothing was decided"), "{shown}");

    // What the options ask for is shown, too.
    let mut terminal = approve(&["--remember", "session"]);
    terminal.sees("you allow").sees("a Approve").types("a");
    let (shown, code) = terminal.ends();
    assert!(code == 0 && shown.contains("made: allow"), "{shown}");
    let mut terminal = approve(&[]);
    terminal.sees("already approved");
    assert_eq!(terminal.ends().1, 3);

    // One that is decided elsewhere closes in front of the reader.
    let other = runtime.block_on(propose(&server.url, &agent, "write_note", 7));
    let mut command = bed.command(["approve", &hold_of(&other), "--url", &server.url]);
    command.env("COUNTERSIGN_TOKEN", &ann);
    let mut terminal = Terminal::of(command, (120, 45));
    terminal.sees("[l Leave it]");
    ask(&bed, &token(&bed, "approver", "bo"), &server.url, &["deny", &hold_of(&other)]).expect(0);
    let (shown, code) = terminal.ends();
    assert!(code == 3 && shown.contains("closed meanwhile"), "{shown}");
}

/// What a server keeps is checked there, and exported so that it can be checked without it.
#[test]
fn the_record_of_a_server_is_checked_and_exported() {
    let (runtime, bed, server) = setting();
    let (agent, ann, eve) =
        (token(&bed, "agent", "bot"), token(&bed, "approver", "ann"), token(&bed, "auditor", "eve"));
    for n in 1..=30 {
        let call = runtime.block_on(propose(&server.url, &agent, "write_file", n));
        ask(&bed, &ann, &server.url, &["deny", &hold_of(&call)]).expect(0);
    }
    let report = ask(&bed, &eve, &server.url, &["audit", "verify", "--json"]).expect(0).json();
    assert!(report["verified"] == true && report["events"].as_u64().unwrap() >= 90, "{report}");
    let export = ask(&bed, &eve, &server.url, &["audit", "export"]).expect(0);
    let one = ask(&bed, &eve, &server.url, &["audit", "export", "--session", "s"]).expect(0);
    ask(&bed, &ann, &server.url, &["audit", "export"]).expect(3);
    ask(&bed, &ann, &server.url, &["audit", "verify"]).expect(3);

    // The key of the server's checkpoints is told by the server, and the export counts for it alone.
    let client = Client::new(&server.url, &eve).unwrap();
    let key = runtime.block_on(client.keys()).unwrap().keys[0].key.clone();
    assert_eq!(server.end(), 0);
    bed.write("log.jsonl", &export.stdout);
    bed.write("one.jsonl", &one.stdout);
    let offline = bed.say("audit verify log.jsonl --json").expect(0).json();
    assert!(offline["events"].as_u64() >= report["events"].as_u64(), "{offline}");
    bed.say("audit verify one.jsonl").expect(0);
    let pinned = bed.run(["audit", "verify", "log.jsonl", "--key", &key]);
    assert_eq!(pinned.code == 0, offline["checkpoints"].as_u64() > Some(0), "{pinned:?}");
    bed.run(["audit", "verify", "log.jsonl", "--key", "c29tZWJvZHkgZWxzZQ=="]).expect(1);
    bed.write("bad.jsonl", &export.stdout.replacen("write_file", "wrote_file", 1));
    bed.say("audit verify bad.jsonl").expect(1);
    ask(&bed, &eve, "http://127.0.0.1:1", &["audit", "verify"]).expect(4);
    ask(&bed, &eve, "http://127.0.0.1:1", &["audit", "export"]).expect(4);
}

/// The typed client follows what happens, and goes on from where it was.
#[test]
fn a_client_follows_events_and_goes_on_from_a_cursor() {
    let (runtime, bed, server) = setting();
    let (agent, ann) = (token(&bed, "agent", "bot"), token(&bed, "approver", "ann"));
    runtime.block_on(async {
        propose(&server.url, &agent, "write_file", 1).await;
        let client = Client::new(&server.url, &ann).unwrap();
        let mut events = client.events(None).await.unwrap();
        let Some(Told::Event(waits)) = events.next().await.unwrap() else { panic!("the hold that waits comes first") };
        assert_eq!(waits.event, "hold.opened");
        let Some(Told::Ready(cursor)) = events.next().await.unwrap() else { panic!("then it is ready") };
        propose(&server.url, &agent, "write_file", 2).await;
        let Some(Told::Event(first)) = events.next().await.unwrap() else { panic!("what happens is told") };
        drop(events);
        let mut again = client.events(Some(&cursor)).await.unwrap();
        let Some(Told::Event(same)) = again.next().await.unwrap() else { panic!("what was missed is told") };
        assert_eq!(same.cursor, first.cursor);
        assert!(Client::new(&server.url, "cs_approver_no").unwrap().events(None).await.is_err());
    });
}

/// Tokens and insights through the typed client, as an operator.
#[test]
fn a_client_makes_and_revokes_tokens() {
    let (runtime, bed, server) = setting();
    let client = Client::new(&server.url, &token(&bed, "operator", "op")).unwrap();
    runtime.block_on(async {
        let new = serde_json::from_value(serde_json::json!({ "role": "approver", "name": "bo" })).unwrap();
        let made = client.create_token(&new).await.unwrap();
        assert!(Client::new(&server.url, &made.token).unwrap().me().await.is_ok());
        assert!(client.tokens().await.unwrap().iter().any(|token| token.id == made.id && token.live));
        assert!(!client.revoke_token(&made.id).await.unwrap().live);
        assert!(Client::new(&server.url, &made.token).unwrap().me().await.is_err());
        assert_eq!(client.insights(24).await.unwrap().holds.opened, 0);
        assert_eq!(client.health().await.unwrap(), client.ready().await.unwrap());
    });
}

/// What another process signed on the same store, with its own key, is known to the server; what a stranger signed is
/// verified and told.
#[test]
fn keys_of_other_processes_are_known_to_the_server() {
    let (_runtime, bed, server) = setting();
    let auditor = token(&bed, "auditor", "eve");
    // Another home, and so another key.
    let neighbour = Bed::new();
    neighbour.run(["halt", "--store", &bed.url()]).expect(0);
    neighbour.run(["resume", "--store", &bed.url()]).expect(0);
    let verify = |bed: &Bed| ask(bed, &auditor, &server.url, &["audit", "verify", "--json"]).expect(0);
    let ran = verify(&bed);
    let own = std::fs::read_to_string(neighbour.data().join("signing.key")).unwrap();
    let own = Signer::from_secret(&own).unwrap().public_key();
    assert!(ran.json()["keys"].as_array().unwrap().contains(&own.into()), "{ran:?}");
    assert!(!ran.stderr.contains("does not list"), "{ran:?}");
    let stranger = Arc::new(Signer::generate().unwrap());
    Runtime::new().unwrap().block_on(async {
        let store = bed.store().await;
        submit(&gate(&store, "otherwise: ask\n"), "pay", "{}").await;
        store.run(Op::Checkpoint { signer: Arc::clone(&stranger) }).await.unwrap();
    });
    let ran = verify(&bed);
    assert!(ran.stderr.contains(&format!("does not list: {}", stranger.public_key())), "{ran:?}");
    assert_eq!(ran.stderr.matches("does not list").count(), 1, "{ran:?}");
}
