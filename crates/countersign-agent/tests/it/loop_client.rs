//! Tools that the session's client runs.

use countersign::{Definition, Json};
use countersign_agent::{ClientError, RunError};

use crate::bed::{ASK, Bed, Script, calls, says};

/// B130: the client takes an approved call with its exact bytes and gives one result; anything else is refused.
#[tokio::test]
async fn a_client_runs_its_tool_once() {
    let bed = Bed::new(ASK);
    let script = Script::new([calls([("locate", r#"{ "fine": true }"#)]), says("there")]);
    let agent = bed.agent_with(&script, |builder| builder.client_tool(Definition::new("locate", "Where the user is.")));
    let session = agent.session("s");
    let run = session.spawn("where am I?");
    let hold = bed.hold().await;
    let id = hold.call.id;
    assert!(matches!(session.take(id).await, Err(ClientError::WrongState(_))), "nobody approved it yet");
    bed.approve(&hold).await;
    let waiting = session.client_calls().await.unwrap();
    assert_eq!(waiting.iter().map(|call| call.id).collect::<Vec<_>>(), [id]);
    let unasked = session.give(id, 0, Ok(Json::string("forged"))).await;
    assert!(matches!(unasked, Err(ClientError::WrongState(_))), "{unasked:?}");

    let taken = session.take(id).await.unwrap();
    assert_eq!((taken.arguments.as_str(), &*taken.tool.name), (r#"{"fine":true}"#, "locate"));
    assert!(session.take(id).await.is_err(), "once");
    session.keep(id, taken.fence).await.unwrap();
    assert!(session.give(id, taken.fence + 1, Ok(Json::string("stale"))).await.is_err());
    let foreign = agent.session("s").principal("mallory");
    assert!(matches!(foreign.give(id, taken.fence, Ok(Json::string("x"))).await, Err(ClientError::NotFound)));
    session.give(id, taken.fence, Ok(Json::string("at home"))).await.unwrap();
    assert!(matches!(
        session.give(id, taken.fence, Ok(Json::string("at home"))).await,
        Err(ClientError::WrongState(_))
    ));
    assert_eq!(&*run.await.unwrap().text, "there");
    assert_eq!(&*script.result().text, "at home");
}

/// B130: where no client is there, a call of its tool is refused at once and on the record; nobody is asked or waited for.
#[tokio::test]
async fn without_a_client_its_tools_are_refused_at_once() {
    let bed = Bed::new(ASK);
    let script = Script::new([calls([("locate", "{}")]), says("never mind")]);
    let locate = Definition::new("locate", "Where the user is.");
    let agent = bed.agent_with(&script, |builder| builder.client_tool(locate).without_client());
    assert_eq!(&*agent.run("where am I?").await.unwrap().text, "never mind");
    assert!(script.result().is_error && script.result().text.contains("none is connected"), "{:?}", script.result());
    assert_eq!(bed.log().await.iter().filter(|name| **name == "call.refused").count(), 1);
    assert!(!bed.log().await.contains(&"hold.opened"));
}

/// B129: a client leaves alone what is not its own; nobody answers it as unknown.
#[tokio::test]
async fn a_client_cannot_take_a_tool_it_does_not_own() {
    let bed = Bed::new(ASK);
    let script = Script::new([calls([("send", "{}")]), says("ok")]);
    let agent = bed.agent_with(&script, |builder| builder.client_tool(Definition::new("locate", "Where the user is.")));
    let session = agent.session("s");
    let run = session.spawn("go");
    let hold = bed.hold().await;
    assert!(matches!(session.take(hold.call.id).await, Err(ClientError::NotFound)));
    assert!(session.client_calls().await.unwrap().is_empty());
    bed.approve(&hold).await;
    run.await.unwrap();
    assert_eq!(bed.ran(), ["send {}"]);
}

/// B130, B104: a client that never comes leaves a refusal; one that fails gives its error to the model.
#[tokio::test(start_paused = true)]
async fn a_client_may_fail_or_never_come() {
    let bed = Bed::new("otherwise: allow");
    let script = Script::new([calls([("locate", "{}")]), calls([("locate", "{}")]), says("well")]);
    let agent = bed.agent_with(&script, |builder| builder.client_tool(Definition::new("locate", "Where the user is.")));
    let session = agent.session("s");
    let run = session.spawn("go");
    while script.asked() < 2 {
        tokio::time::advance(std::time::Duration::from_secs(60)).await;
        tokio::task::yield_now().await;
    }
    assert!(script.result().text.contains("permission for this call ended"), "{}", script.result().text);
    let call = loop {
        if let Some(call) = session.client_calls().await.unwrap().pop() {
            break call;
        }
        tokio::task::yield_now().await;
    };
    let taken = session.take(call.id).await.unwrap();
    session.give(call.id, taken.fence, Err("no signal".into())).await.unwrap();
    let ended: Result<_, RunError> = run.await;
    ended.unwrap();
    assert_eq!((&*script.result().text, script.result().is_error), ("no signal", true));
}
