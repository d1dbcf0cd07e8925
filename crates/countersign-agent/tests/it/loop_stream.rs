//! What a run tells whoever watches.

use countersign::hold::HoldState;
use countersign::{Answer, Definition, Json};
use countersign_agent::{RunError, RunEvent, RunStream};

use crate::bed::{ALLOW, ASK, Bed, EVERY, MIXED, Script, calls, says};
use crate::loop_restart::restart_under;

fn name(event: &RunEvent) -> String {
    let value = serde_json::to_value(event).unwrap();
    let what = ["text", "tool", "state"].iter().find_map(|key| {
        let found = value.get(*key).or_else(|| value["call"].get(*key)).or_else(|| value["hold"].get(*key))?;
        found.as_str().map(str::to_owned)
    });
    [value["event"].as_str().unwrap().to_owned()].into_iter().chain(what).collect::<Vec<_>>().join(" ")
}

async fn rest(mut stream: RunStream) -> Vec<String> {
    let mut names = Vec::new();
    while let Some(event) = stream.next().await {
        names.push(name(&event));
    }
    names
}

/// B105, B106: each hold opens once and closes once on the stream, it is decidable at once, and the reply comes last.
#[tokio::test]
async fn a_stream_tells_everything_in_order_and_the_reply_last() {
    let bed = Bed::new(MIXED);
    let script = Script::new([calls([("send", "{}")]), says("sent")]);
    let mut stream = bed.agent(&script).stream("go");
    let mut names = Vec::new();
    while let Some(event) = stream.next().await {
        if let RunEvent::Held { hold } = &event {
            bed.approve(hold).await;
        }
        names.push(name(&event));
    }
    let expected =
        ["turn", "called send", "held send", "hold_closed approved", "ended send", "text sent", "turn", "done sent"];
    let mut sorted = (names.clone(), expected.map(str::to_owned).to_vec());
    sorted.0.sort();
    sorted.1.sort();
    assert_eq!(sorted.0, sorted.1, "{names:?}");
    let at = |what: &str| names.iter().position(|name| name == what).unwrap();
    assert!(at("called send") < at("held send") && at("held send") < at("hold_closed approved"), "{names:?}");
    assert!(at("hold_closed approved") < at("ended send") && at("done sent") == names.len() - 1, "{names:?}");
    assert!(at("ended send") < at("text sent"), "an answer comes after the calls it is about: {names:?}");
}

/// B105: a hold is in the store before anybody hears of it: whoever sees it first can decide it at once, from another
/// process, and the run goes on.
#[tokio::test]
async fn a_hold_can_be_decided_the_moment_it_is_seen() {
    for kind in EVERY {
        let (stores, bed) = restart_under(kind, ASK).await;
        let wanted = [("send", r#"{"n":1}"#), ("send", r#"{"n":2}"#)];
        let script = Script::new([calls(wanted), calls([("read", "{}")]), says("ok")]);
        let mut stream = bed.agent(&script).stream("go");
        let other = Bed::on(stores.reopen().await, ASK);
        let (mut held, mut closed) = (Vec::new(), Vec::new());
        while let Some(event) = stream.next().await {
            match event {
                RunEvent::Held { hold } => {
                    let stored = other.gate.get(hold.call.id).await.unwrap();
                    assert!(stored.holds.iter().any(|row| row.id == hold.id && row.is_pending()), "{kind:?}");
                    other.approve(&hold).await;
                    held.push(hold.id);
                }
                RunEvent::HoldClosed { hold, .. } => closed.push(hold),
                RunEvent::Failed { error } => panic!("{kind:?} {error}"),
                _ => {}
            }
        }
        closed.sort();
        let mut opened = held.clone();
        opened.sort();
        assert_eq!((held.len(), opened), (3, closed), "{kind:?}");
        assert_eq!(bed.ran().len(), 3, "{kind:?}");
    }
}

/// B27, B33: holds from inside a tool and the hold that an edit opens show on the stream like any other.
#[tokio::test]
async fn in_run_holds_and_edits_show_on_the_stream() {
    let bed = Bed::new("otherwise: ask\nrules: [{ allow: asker }]");
    let script = Script::new([calls([("asker", "{}"), ("send", r#"{"n":1}"#)]), says("ok")]);
    let asker = countersign::tool::tool(Definition::new("asker", "Asks."), |running| async move {
        running.confirm("Really?", &7).await?;
        Ok(Json::string("yes"))
    });
    let mut stream = bed.agent_with(&script, |builder| builder.tool(asker)).stream("go");
    let (mut hints, mut closed) = (Vec::new(), Vec::new());
    while let Some(event) = stream.next().await {
        match event {
            RunEvent::Held { hold } => {
                hints.push(hold.hint.as_deref().unwrap_or_default().to_owned());
                let edit = hold.call.facts.arguments.as_str() == r#"{"n":1}"#;
                let arguments = edit.then(|| Json::of(&serde_json::json!({"n": 2})).unwrap());
                bed.answer(&hold, Answer::Approve { arguments, payload: None, remember: None }).await;
            }
            RunEvent::HoldClosed { state, .. } => closed.push(state),
            _ => {}
        }
    }
    assert!(hints.contains(&"Really?".to_owned()), "{hints:?}");
    assert_eq!(closed.len(), hints.len());
    assert!(closed.iter().all(|state| matches!(state, HoldState::Approved | HoldState::Superseded)), "{closed:?}");
    assert_eq!(bed.ran(), [r#"send {"n":2}"#]);
}

/// B106: a reader that never reads holds nobody up; it learns how much it missed, and still gets the end.
#[tokio::test]
async fn a_slow_reader_holds_nobody_up() {
    let bed = Bed::new(ALLOW);
    let turns: [_; 80] = std::array::from_fn(|_| {
        let many: [(&str, &str); 20] = [("read", "{}"); 20];
        calls(many)
    });
    let script = Script::new(turns);
    let mut stream = bed.agent(&script).stream("go");
    loop {
        let moved = bed.gate.store().bell().listen_any();
        if bed.ran().len() == 1_600 {
            break;
        }
        moved.await;
    }
    let first = stream.next().await.unwrap();
    assert!(matches!(first, RunEvent::Missed { events } if events > 1_000), "{first:?}");
    let names = rest(stream).await;
    assert!(names.last().unwrap().starts_with("failed"), "{:?}", names.last());
}

/// B106: a reader that is gone holds nobody up either, and the run goes on.
#[tokio::test]
async fn dropping_the_stream_does_not_end_the_run() {
    for kind in EVERY {
        let (_stores, bed) = restart_under(kind, ASK).await;
        let script = Script::new([calls([("send", "{}")]), says("ok")]);
        let agent = bed.agent(&script);
        drop(agent.session("s").stream("go"));
        bed.approve(&bed.hold().await).await;
        while script.asked() < 2 {
            tokio::task::yield_now().await;
        }
        assert_eq!(&*agent.resume("s").await.unwrap().text, "ok");
        assert_eq!(bed.ran(), ["send {}"]);
    }
}

/// B107, B88: a stream that begins late shows what is pending once, nothing that closed before, and one end.
#[tokio::test]
async fn a_late_stream_shows_what_is_pending_once() {
    let bed = Bed::new(ASK);
    let script = Script::new([calls([("send", r#"{"n":1}"#), ("send", r#"{"n":2}"#)]), says("ok")]);
    let agent = bed.agent(&script);
    let first = agent.session("s").spawn("go");
    let holds = bed.holds_open(2).await;
    bed.approve(&holds[0]).await;
    while bed.ran().is_empty() {
        tokio::task::yield_now().await;
    }
    first.park();
    let mut stream = agent.resume_stream("s");
    let shown = stream.next().await.unwrap();
    assert!(matches!(&shown, RunEvent::Held { hold } if hold.id == holds[1].id), "{shown:?}");
    bed.approve(&holds[1]).await;
    let names = rest(stream).await;
    assert_eq!(names, ["hold_closed approved", "ended send", "text ok", "turn", "done ok"]);
}

/// The last event of a cancelled run says so.
#[tokio::test]
async fn a_cancelled_stream_says_so() {
    let bed = Bed::new(ASK);
    let stream = bed.agent(&Script::new([calls([("send", "{}")])])).stream("go");
    bed.hold().await;
    stream.cancel();
    let names = rest(stream).await;
    let position = |what: &str| names.iter().position(|name| name == what);
    assert!(position("hold_closed cancelled") < position("failed"), "{names:?}");
    assert_eq!(names.last().unwrap(), "failed");
    let again = bed.agent(&Script::new([calls([("send", "{}")])])).stream("go");
    bed.hold().await;
    again.cancel();
    assert!(matches!(again.reply().await, Err(RunError::Cancelled)));
}
