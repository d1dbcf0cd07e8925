//! Calls that reach their server: what is listed, what runs, what is asked about and what is refused.

use std::time::Duration;

use countersign::call::{Declared, Outcome, Repeat};
use countersign::{CallState, Json, ToolId, Toolset as _};
use countersign_mcp::limits;
use countersign_testkit::mcp::Era;

use crate::bed::{ALLOW, Bed, Kind, find, tool};

/// Every page of the listing is read, over both transports and in both eras, and calls come back as what they are.
#[tokio::test]
async fn tools_are_listed_and_called_in_every_era() {
    for kind in Kind::ALL {
        let bed = Bed::new(ALLOW);
        let (toolset, _serving) = bed.connect(kind).await;
        assert_eq!(toolset.tools().len(), 11, "{kind:?}: {:?}", toolset.left_out());
        let echo = tool(&toolset, "echo").definition();
        assert_eq!(echo.tool, ToolId::on("files", "echo"));
        assert_eq!(&*echo.description, "Gives back the text.");
        assert_eq!(bed.output(&toolset, "echo", r#"{"text":"hé\nllo"}"#).await, r#""hé\nllo""#, "{kind:?}");
        assert_eq!(bed.output(&toolset, "add", r#"{"a":1,"b":2}"#).await, r#"{"sum":3}"#, "{kind:?}");
        let failed = bed.call(&toolset, "fails", "{}").await;
        let expected = Outcome::Failed { error: "no such thing".into(), refusal: None };
        assert_eq!((failed.state, failed.outcome.clone()), (CallState::Failed, Some(expected)), "{kind:?}");
    }
}

/// B45, B48: rules on the pair (server, tool) decide: one runs, one waits for a person, one is refused.
#[tokio::test]
async fn rules_on_server_and_tool_allow_ask_and_deny() {
    let bed = Bed::new(
        "policy:\n  otherwise: ask\n  rules:\n    - { id: echo, allow: files/echo }\n    - { id: bare, allow: writes }\n    \
         - { id: no-wipes, deny: wipes, reason: it is forever }",
    );
    let (toolset, _serving) = bed.connect(Kind::Pipes).await;
    bed.output(&toolset, "echo", r#"{"text":"x"}"#).await;

    let asked = bed.call(&toolset, "writes", r#"{"file":"asked"}"#).await;
    assert_eq!(asked.state, CallState::Pending, "a bare name in an allow rule means no tool of a server");
    assert!(!bed.file("asked").exists());
    bed.approve(&bed.holds().await[0]).await;
    let ran = bed.gate.resume(&*tool(&toolset, "writes"), asked.id).await.unwrap();
    assert_eq!(ran.state, CallState::Succeeded);
    assert!(bed.file("asked").exists());

    let denied = bed.call(&toolset, "wipes", "{}").await;
    assert_eq!(denied.state, CallState::Denied, "a bare name in a deny rule means every server's");
    assert!(find(&toolset, "wipes").is_some(), "a denied tool stays listed");
    assert!(!bed.file("wipes").exists());
}

/// B44: what `confirm` names is asked about, whatever else allows it.
#[tokio::test]
async fn named_confirmation_asks_for_what_it_names() {
    let bed = Bed::new("policy: { otherwise: allow }\nmcp_servers: { files: { command: x, confirm: [writes] } }");
    let (toolset, _serving) = bed.connect(Kind::Pipes).await;
    bed.output(&toolset, "echo", r#"{"text":"x"}"#).await;
    assert_eq!(bed.call(&toolset, "writes", r#"{"file":"a"}"#).await.state, CallState::Pending);
}

/// The builder says the same: none, all, named, always.
#[tokio::test]
async fn the_builder_declares_who_asks_first() {
    let bed = Bed::new("policy: { otherwise: declared }");
    let declared = async |server: countersign_mcp::McpServer, name: &str| {
        let toolset = server.connect(&bed.gate).await.unwrap();
        tool(&toolset, name).declares(&Json::empty()).unwrap()
    };
    let server = bed.program(Era::Every);
    assert_eq!(declared(server.clone(), "echo").await, Declared::Nothing);
    assert_eq!(declared(server.clone().asks_first(), "echo").await, Declared::Ask);
    assert_eq!(declared(server.clone().asks_first_for(["writes"]), "echo").await, Declared::Nothing);
    assert_eq!(declared(server.clone().asks_first_for(["writes"]), "writes").await, Declared::Ask);
    assert_eq!(declared(server.always_asks(), "echo").await, Declared::MustAsk);
}

/// A server's claims raise caution, and loosen only where the operator says they may.
#[tokio::test]
async fn hints_only_raise() {
    let bed = Bed::new("policy: { otherwise: declared }");
    let (toolset, _serving) = bed.connect(Kind::Pipes).await;
    assert_eq!(bed.call(&toolset, "wipes", "{}").await.state, CallState::Pending);
    assert_eq!(tool(&toolset, "peeks").definition().repeat, Repeat::AtMostOnce);
    let claims = tool(&toolset, "peeks").definition().annotations.clone().unwrap();
    assert_eq!(claims.as_str(), r#"{"readOnlyHint":true}"#);
    let trusting = bed.program(Era::Every).trust_hints().connect(&bed.gate).await.unwrap();
    assert_eq!(tool(&trusting, "peeks").definition().repeat, Repeat::ReadOnly);
    assert_eq!(tool(&trusting, "echo").definition().repeat, Repeat::AtMostOnce);
}

/// What cannot be judged is not offered: a schema that lies elsewhere, and two tools of one name.
#[tokio::test]
async fn what_cannot_be_judged_is_left_out_and_named() {
    let bed = Bed::new(ALLOW);
    let (toolset, _serving) = bed.connect(Kind::Pipes).await;
    let names: Vec<String> = toolset.left_out().iter().map(|left_out| left_out.tool.to_string()).collect();
    assert_eq!(names, ["odd", "twice", "reads", "re\u{430}ds"], "{:?}", toolset.left_out());
    assert!(find(&toolset, "odd").is_none() && find(&toolset, "twice").is_none());
}

/// A result is cut to what the operator allows; a message beyond every bound ends the connection, not us.
#[tokio::test]
async fn a_result_of_any_size_is_bounded() {
    let bed = Bed::new(ALLOW);
    let small = bed.program(Era::Every).result_bytes(4).connect(&bed.gate).await.unwrap();
    let cut = bed.output(&small, "echo", r#"{"text":"0123456789"}"#).await;
    assert_eq!(cut, r#""0123\n[6 bytes left out]""#);
    for kind in [Kind::Pipes, Kind::Http] {
        let bed = Bed::new(ALLOW);
        let (toolset, _serving) = bed.connect(kind).await;
        let huge = bed.call(&toolset, "huge", "{}").await;
        assert_eq!(huge.state, CallState::InDoubt, "{kind:?}: more than {} bytes", limits::MESSAGE_BYTES);
        bed.output(&toolset, "echo", r#"{"text":"still there"}"#).await;
    }
}

/// Time runs from when a call is sent; silence is doubt.
#[tokio::test]
async fn a_call_that_is_not_answered_in_time_is_in_doubt() {
    for kind in [Kind::Pipes, Kind::Http] {
        let bed = Bed::new(ALLOW);
        let (server, _serving) = bed.server(kind);
        let server = server.call_within(Duration::from_secs(2));
        let toolset = server.connect(&bed.gate).await.unwrap();
        let call = bed.call(&toolset, "sleeps", r#"{"file":"began"}"#).await;
        assert_eq!(call.state, CallState::InDoubt, "{kind:?}");
        assert!(bed.file("began").exists());
        bed.output(&toolset, "echo", r#"{"text":"others are served"}"#).await;
    }
}
