//! Streams that are cut, on either side and at every step: nothing runs twice, nothing is lost, and doubt is doubt.

use serde_json::{Value, json};

use crate::gateway_peer::Stage;
use crate::gateway_web::{Coming, Door, Web, call, held};
use crate::serve::token;

const ASK_WRITES: &str = "{ preset: allow-all, rules: [{ id: writes, ask: plain/write }] }";

fn x() -> Value {
    json!({"text": "x"})
}

/// A session whose call of `write` is held, and where its stream can be taken up again. The stream is cut.
async fn cut_while_held(stage: &Stage, door: &Door) -> (Web, String) {
    let web = Web::greeted(&door.url, "").await;
    let mut coming = Coming::new(web.post(&call(1, "write", x())).await);
    coming.primed().await;
    assert_eq!(coming.next().await["method"], "notifications/progress");
    held(stage).await;
    (web, coming.last.unwrap())
}

/// Whoever comes back to a held call joins its hold: approved before or after, it runs once, and the answer comes.
#[tokio::test(flavor = "multi_thread")]
async fn a_held_call_goes_on_where_its_stream_was_cut() {
    for approved_first in [true, false] {
        let stage = Stage::new(ASK_WRITES);
        let door = Door::open(&stage, &["--no-token"]);
        let (web, last) = cut_while_held(&stage, &door).await;
        while stage.holds()[0]["no_caller"] != true {
            tokio::task::yield_now().await;
        }
        if approved_first {
            stage.approve(&[]);
            assert_eq!(stage.ran(), [""; 0], "nothing runs for a caller that is gone");
        }
        let mut coming = Coming::new(web.listen(Some(&last)).await);
        if !approved_first {
            assert_eq!(coming.next().await["method"], "notifications/progress");
            assert_eq!(stage.holds().len(), 1, "the same hold");
            stage.approve(&[]);
        }
        assert_eq!(coming.answer(1).await, (false, "done: write".into()));
        assert!(coming.is_over().await);
        assert_eq!(stage.ran().len(), 1);
        // Once more, from the beginning and from the end: it is told again, and nothing runs.
        let mut again = Coming::new(web.listen(Some(&last)).await);
        assert_eq!(again.answer(1).await, (false, "done: write".into()));
        let mut rest = Coming::new(web.listen(Some(&coming.last.unwrap())).await);
        assert!(rest.is_over().await);
        assert_eq!((stage.ran().len(), stage.holds().len()), (1, 0));
    }
}

/// A call that runs while its stream is cut runs on, once; whoever comes back, as often as they like, gets its answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_running_call_answers_whoever_comes_back() {
    let stage = Stage::new(ASK_WRITES);
    let door = Door::open(&stage, &["--no-token"]);
    let web = Web::greeted(&door.url, "").await;
    let mut coming = Coming::new(web.post(&call(1, "wait", json!({}))).await);
    let last = coming.primed().await;
    stage.until_ran(1);
    drop(coming);
    // At once, before anything can have been noticed; and several at a time.
    let (one, other) = tokio::join!(web.listen(Some(&last)), web.listen(Some(&last)));
    drop(other);
    let again = web.listen(Some(&last)).await;
    stage.bed.write("log.go", "");
    for response in [one, again] {
        assert_eq!(Coming::new(response).answer(1).await, (false, "done: wait".into()));
    }
    assert_eq!(stage.ran(), ["wait {}"]);
}

/// An answer that nobody took is not lost: it is there for whoever comes back, and for whoever calls again.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_nobody_took_is_kept() {
    let stage = Stage::new(ASK_WRITES);
    let door = Door::open(&stage, &["--no-token"]);
    let web = Web::greeted(&door.url, "").await;
    let mut coming = Coming::new(web.post(&call(1, "wait", json!({}))).await);
    coming.primed().await;
    stage.until_ran(1);
    drop(coming);
    let other = Web::greeted(&door.url, "").await;
    // The gateway knows that its client is gone once it has written down what it owes.
    let store = stage.bed.store().await;
    while store.records("gateway", "plain/", None, 1).await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    stage.bed.write("log.go", "");
    let log = || stage.say("audit log --json").expect(0).stdout;
    while !log().contains("call.succeeded") {}
    assert_eq!(other.call(2, "wait", json!({})).await, (false, "done: wait".into()));
    assert_eq!(stage.ran(), ["wait {}"], "the outcome that nobody got");
    assert_eq!(other.call(3, "wait", json!({})).await, (false, "done: wait".into()));
    assert_eq!(stage.ran().len(), 2, "after that it is a new call");
}

/// A call goes on by itself when its client is cut before any word of the answer, and its outcome is kept.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_outlives_a_client_that_read_nothing_of_its_answer() {
    let stage = Stage::new(ASK_WRITES);
    let door = Door::open(&stage, &["--no-token"]);
    let web = Web::greeted(&door.url, "").await;
    let posted = tokio::spawn({
        let web = Web::greeted(&door.url, "").await;
        async move { web.post_for("application/json", &call(1, "wait", json!({}))).await.text().await }
    });
    stage.until_ran(1);
    posted.abort();
    let store = stage.bed.store().await;
    while store.records("gateway", "plain/", None, 1).await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    stage.bed.write("log.go", "");
    let log = || stage.say("audit log --json").expect(0).stdout;
    while !log().contains("call.succeeded") {}
    assert_eq!(web.call(2, "wait", json!({})).await, (false, "done: wait".into()));
    assert_eq!(stage.ran(), ["wait {}"], "the outcome that nobody got");
}

/// A request that its client cancelled is over: coming back does not begin it anew.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_call_is_not_taken_up_again() {
    let stage = Stage::new(ASK_WRITES);
    let door = Door::open(&stage, &["--no-token"]);
    let web = Web::greeted(&door.url, "").await;
    let mut coming = Coming::new(web.post(&call(1, "write", x())).await);
    let last = coming.primed().await;
    held(&stage).await;
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    assert_eq!(web.post(cancel).await.status(), 202);
    let told = loop {
        let told = coming.next().await;
        if told["id"] == 1 {
            break told;
        }
    };
    assert!(told["error"]["message"].as_str().unwrap().contains("cancelled"), "{told}");
    stage.approve(&[]);
    let mut again = Coming::new(web.listen(Some(&last)).await);
    while !again.is_over().await {
        again.next().await;
    }
    assert_eq!(stage.ran(), [""; 0]);
}

/// Only the session's own client takes up its streams, and only those that there were.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_its_own_sessions() {
    let stage = Stage::new(ASK_WRITES);
    let door = Door::open(&stage, &[]);
    let (ann, bob) = (token(&stage.bed, "agent", "ann"), token(&stage.bed, "agent", "bob"));
    let of_ann = Web::greeted(&door.url, &ann).await;
    let mut of_bob = Web::greeted(&door.url, &bob).await;
    let mut coming = Coming::new(of_ann.post(&call(1, "wait", json!({}))).await);
    let last = coming.primed().await;
    stage.bed.write("log.go", "");
    assert!(!coming.answer(1).await.0);
    for unknown in ["99-1", "x", "1-1-1"] {
        assert_eq!(of_ann.listen(Some(unknown)).await.status(), 400, "{unknown}");
    }
    assert_eq!(of_bob.listen(Some(&last)).await.status(), 400, "it has no such stream");
    of_bob.borrow_session(&of_ann);
    assert_eq!(of_bob.listen(Some(&last)).await.status(), 404);
    assert_eq!(Coming::new(of_ann.listen(Some(&last)).await).answer(1).await, (false, "done: wait".into()));
    assert_eq!(stage.ran().len(), 1);
}

/// What is there at once is one message where the client takes one and it is short, and else a stream of its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_short_answer_that_is_there_at_once_is_one_message() {
    let stage = Stage::new(ASK_WRITES);
    let door = Door::open(&stage, &["--no-token"]);
    let web = Web::greeted(&door.url, "").await;
    let both = "application/json, text/event-stream";
    let answered = async |accept, tool| {
        let response = web.post_for(accept, &call(1, tool, json!({}))).await;
        stage.bed.write("log.go", "");
        let kind = response.headers()["content-type"].to_str().unwrap().to_owned();
        assert!(response.text().await.unwrap().contains("done: "), "{accept}, {tool}");
        kind
    };
    for (accept, tool) in [(both, "wait"), (both, "long"), ("text/event-stream", "read")] {
        assert_eq!(answered(accept, tool).await, "text/event-stream", "{accept}, {tool}");
    }
    // On a machine that is busy an answer may not be there at once; one of so many is.
    let mut tries = 100;
    while answered(both, "read").await != "application/json" {
        tries -= 1;
        assert!(tries > 0, "a short answer is a stream");
    }
}

/// A server on pipes that is cut before or within its answer leaves a doubt; after it, the answer counts.
#[test]
fn a_server_on_pipes_that_is_cut_leaves_a_doubt_or_an_answer() {
    for (tool, doubt) in [("die", true), ("half", true), ("last", false)] {
        let stage = Stage::new(ASK_WRITES);
        let mut peer = stage.client(&[]);
        peer.call(1, tool, &json!({}));
        let (error, text) = peer.answer(1);
        assert_eq!((error, text.starts_with("Outcome unknown")), (doubt, doubt), "{tool}: {text}");
        assert_eq!(stage.ran().len(), 1, "{tool}");
        drop(peer);
        let doubts = stage.say("doubts --json").expect(0).json();
        assert_eq!(doubts.as_array().map_or(0, Vec::len), usize::from(doubt), "{tool}: {doubts}");
        if doubt {
            // It may have happened, so the same call is nobody's to make by itself.
            let mut peer = stage.client(&["--wait", "1s"]);
            peer.call(2, tool, &json!({}));
            assert!(peer.answer(2).0, "{tool}");
            assert_eq!(stage.ran().len(), 1, "{tool}");
        }
    }
}

/// A client on pipes that is cut, before its call is whole, while it waits, or while it runs.
#[test]
fn a_client_on_pipes_that_is_cut_loses_nothing() {
    let stage = Stage::new(ASK_WRITES);
    let mut peer = stage.client(&[]);
    peer.send_part(br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read","argu"#);
    assert_eq!(peer.leave(), 0);
    assert_eq!(stage.ran(), [""; 0], "half a call is none");

    let mut peer = stage.client(&[]);
    peer.call(1, "write", &x());
    peer.held();
    drop(peer);
    stage.approve(&[]);
    assert_eq!(stage.ran(), [""; 0]);
    let mut peer = stage.client(&[]);
    peer.call(2, "write", &x());
    assert_eq!(peer.answer(2), (false, "done: write".into()));

    peer.call(3, "wait", &json!({}));
    stage.until_ran(2);
    drop(peer);
    let mut peer = stage.client(&["--wait", "1s"]);
    peer.call(4, "wait", &json!({}));
    assert!(peer.answer(4).0, "it may have happened");
    assert_eq!(stage.ran().len(), 2);
    // The server of the one that was killed still waits for it.
    stage.bed.write("log.go", "");
}

/// A server that answers twice is heard once, and not at all where it answers a call that it was never sent, because
/// people are still asked about it.
#[test]
fn an_answer_to_what_nobody_asked_is_nobodys() {
    let stage = Stage::new(ASK_WRITES);
    let mut peer = stage.client(&[]);
    peer.call(1, "write", &x());
    peer.held();
    for id in 2..5 {
        // Along with its answer comes another one, and one for the call that waits.
        peer.call(id, "twice", &json!({}));
        assert_eq!(peer.answer(id), (false, "done: twice".into()));
    }
    stage.approve(&[]);
    assert_eq!(peer.answer(1), (false, "done: write".into()), "its own answer, and none before it");
    assert_eq!(stage.ran().len(), 4);
}
