//! Servers that are not there, go away, or come back.

use countersign::CallState;
use countersign::call::Outcome;
use countersign_mcp::{ConnectError, http, stdio};
use countersign_testkit::mcp::Era;

use crate::bed::{ALLOW, Bed, Kind, find};

/// A server that dies in the middle of a call leaves it in doubt, is started again, and serves the next one.
#[tokio::test]
async fn a_server_that_dies_in_mid_call_leaves_doubt_and_comes_back() {
    for era in [Era::Every, Era::Handshake] {
        let bed = Bed::new(ALLOW);
        let toolset = bed.program(era).connect(&bed.gate).await.unwrap();
        let call = bed.call(&toolset, "dies", r#"{"file":"died"}"#).await;
        assert_eq!(call.state, CallState::InDoubt, "{era:?}");
        assert!(bed.file("died").exists());
        assert_eq!(bed.output(&toolset, "echo", r#"{"text":"back"}"#).await, r#""back""#, "{era:?}");
    }
}

/// Over HTTP, a server that stops while it runs a call leaves doubt. One that is gone before was never reached: nothing
/// was done, and the next call finds it again.
#[tokio::test]
async fn a_call_over_http_is_in_doubt_only_if_it_was_sent() {
    let bed = Bed::new(ALLOW);
    let (server, serving) = bed.listening(Era::Every, "127.0.0.1:0");
    let address = serving.address.clone();
    let toolset = server.connect(&bed.gate).await.unwrap();
    let began = bed.file("began");
    let stop = async {
        while !began.exists() {
            tokio::task::yield_now().await;
        }
        serving.stop().await;
    };
    let (doubtful, ()) = tokio::join!(bed.call(&toolset, "sleeps", r#"{"file":"began"}"#), stop);
    assert_eq!(doubtful.state, CallState::InDoubt, "{doubtful:?}");

    // A connection may be left of which nobody has heard yet that it is gone: what is sent on it is in doubt, too.
    for attempt in ["a", "b", "c", "d"] {
        let failed = bed.call(&toolset, "writes", &format!(r#"{{"file":"{attempt}"}}"#)).await;
        assert!(!bed.file(attempt).exists());
        match &failed.outcome {
            Some(Outcome::MayHaveApplied { .. }) if attempt != "d" => {}
            Some(Outcome::Failed { error, .. }) => {
                assert!(error.contains("nothing was done"), "{error}");
                break;
            }
            other => panic!("{other:?}"),
        }
    }

    let (_, _serving) = bed.listening(Era::Every, &address);
    bed.output(&toolset, "writes", r#"{"file":"again"}"#).await;
    assert!(bed.file("again").exists());
}

/// A session that the server forgot was not used for the call: it is sent in a new one.
#[tokio::test]
async fn a_forgotten_session_is_begun_anew() {
    let bed = Bed::new(ALLOW);
    let (server, serving) = bed.listening(Era::Handshake, "127.0.0.1:0");
    let toolset = server.connect(&bed.gate).await.unwrap();
    serving.fixture.forget_sessions().await;
    bed.output(&toolset, "writes", r#"{"file":"once"}"#).await;
    assert!(bed.file("once").exists());
}

/// What a program starts ends with the toolset.
#[tokio::test]
async fn a_program_ends_with_its_toolset() {
    let bed = Bed::new(ALLOW);
    let (toolset, _) = bed.connect(Kind::Pipes).await;
    let tool = find(&toolset, "echo").unwrap();
    drop(toolset);
    let proposal = countersign::Proposal::new("echo", r#"{"text":"x"}"#);
    let call = bed.gate.call(&*tool, proposal).await.unwrap();
    assert_eq!(call.state, CallState::Failed, "{call:?}");
}

/// Each way not to come up has words of its own.
#[tokio::test]
async fn a_server_that_does_not_come_up_says_how() {
    let bed = Bed::new(ALLOW);
    let error = stdio("x", ["no-such-program-here"]).connect(&bed.gate).await.unwrap_err();
    assert!(matches!(error, ConnectError::Start { .. }), "{error}");
    let error = stdio("x", Vec::<String>::new()).connect(&bed.gate).await.unwrap_err();
    assert!(matches!(error, ConnectError::Nowhere(_)), "{error}");
    let error = stdio("x", ["sh", "-c", "echo no key given >&2; exit 7"]).connect(&bed.gate).await.unwrap_err();
    assert!(error.to_string().contains("exit status: 7") && error.to_string().contains("no key given"), "{error}");
    let error = stdio("x", ["sh", "-c", "yes"]).connect(&bed.gate).await.unwrap_err();
    assert!(error.to_string().contains("it writes what is no MCP to its output"), "{error}");
    let _ = rustls::crypto::ring::default_provider().install_default();
    let error = http("x", "http://127.0.0.1:1/mcp").connect(&bed.gate).await.unwrap_err();
    assert!(matches!(error, ConnectError::Spoke { .. }), "{error}");
    let error = http("x", "ftp://example.com").connect(&bed.gate).await.unwrap_err();
    assert!(matches!(error, ConnectError::Settings { .. }), "{error}");
}
