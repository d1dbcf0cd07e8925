//! What goes wrong: nothing is acted on, nothing is repeated that was heard, and no key is seen.

use std::time::Duration;

use countersign_agent::limits;
use countersign_agent::model::{Anthropic, Model, ModelError, Patience, Stop};
use countersign_testkit::model::{Dialect, ModelServer, Reply, Turn};

use super::{KEY, Whole, adapter, at_once, once, one, prompt, read, user};

/// Asks a server that gives these replies; says what came of it and how often it was asked.
async fn asked(dialect: Dialect, replies: Vec<Reply>, patience: Patience) -> (Whole, Option<ModelError>, usize) {
    let server = ModelServer::start(replies).await.unwrap();
    let (whole, error) = read(&*adapter(dialect, &server, patience), prompt(vec![user("go")])).await;
    (whole, error, server.received().len())
}

fn ok() -> Reply {
    Reply::Turn(Turn::new("ok"))
}

#[tokio::test]
async fn a_cut_answer_has_no_end_and_is_not_asked_for_again_once_heard() {
    for dialect in Dialect::ALL {
        let turn = Turn::new("A long text that is cut somewhere.").call("a", "pay", "{}");
        let (whole, error, times) = asked(dialect, vec![Reply::Cut(turn, 6), ok()], at_once()).await;
        assert!(matches!(error, Some(ModelError::Unreachable { .. })), "{dialect:?}: {error:?}");
        assert_eq!((whole.stop, times), (None, 1), "{dialect:?}");
        assert!(whole.said.text.starts_with("A l") && whole.said.calls.is_empty(), "{dialect:?}");
    }
}

#[tokio::test]
async fn an_answer_cut_before_it_was_heard_is_asked_for_again() {
    for dialect in Dialect::ALL {
        let calls = Turn::new("").call("a", "pay", r#"{"amount":1}"#);
        let (whole, error, times) = asked(dialect, vec![Reply::Cut(calls, 1), ok()], at_once()).await;
        assert_eq!((&whole.said.text[..], error, times), ("ok", None, 2), "{dialect:?}");
    }
}

/// A stream that ends politely but without its last frame is cut all the same.
#[tokio::test]
async fn an_answer_that_only_stops_has_no_end() {
    for dialect in Dialect::ALL {
        let (whole, error) = one(dialect, Reply::Raw("text/event-stream", ": nothing\n\n".to_owned())).await;
        assert!(matches!(error, Some(ModelError::Unreachable { .. })), "{dialect:?}: {error:?}");
        assert_eq!(whole, Whole::default());
    }
}

#[tokio::test]
async fn what_passes_is_asked_again() {
    for dialect in Dialect::ALL {
        let replies = vec![Reply::Status(500, None), Reply::Status(529, None), ok()];
        let (whole, error, times) = asked(dialect, replies, at_once()).await;
        assert_eq!((whole.stop, error, times), (Some(Stop::Done), None, 3), "{dialect:?}");
        let replies = (0..9).map(|_| Reply::Status(503, None)).collect();
        let (_, error, times) = asked(dialect, replies, at_once()).await;
        assert!(matches!(error, Some(ModelError::Unreachable { .. })), "{dialect:?}: {error:?}");
        assert_eq!(times, 3);
    }
}

#[tokio::test]
async fn the_providers_pause_is_kept() {
    // Our own pause would be an hour: only the provider's lets this end.
    let patience = Patience { pause: Duration::from_secs(3_600), ..at_once() };
    for dialect in Dialect::ALL {
        let (whole, error, times) = asked(dialect, vec![Reply::Status(429, Some("0")), ok()], patience).await;
        assert_eq!((&whole.said.text[..], error, times), ("ok", None, 2), "{dialect:?}");
        let (_, error, times) = asked(dialect, vec![Reply::Status(429, Some("86400")), ok()], at_once()).await;
        assert!(matches!(error, Some(ModelError::Unreachable { .. })), "{dialect:?}: {error:?}");
        assert_eq!(times, 1, "a day is not waited for");
    }
}

#[tokio::test]
async fn what_does_not_pass_is_asked_once() {
    for dialect in Dialect::ALL {
        for status in [302, 400, 401, 403, 404] {
            let (_, error, times) = asked(dialect, vec![Reply::Status(status, None), ok()], at_once()).await;
            let Some(ModelError::Rejected { status: told, why, .. }) = error else { panic!("{dialect:?}: {error:?}") };
            assert_eq!((told, &why[..], times), (status, "not this time", 1), "{dialect:?}");
        }
    }
}

#[tokio::test]
async fn nobody_there_is_unreachable() {
    // A port that was just in use and is no more.
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let model = Anthropic::new(KEY, "m").base_url(format!("http://{gone}")).patience(at_once());
    let (_, error) = read(&model, prompt(vec![user("go")])).await;
    assert!(matches!(error, Some(ModelError::Unreachable { .. })), "{error:?}");
}

#[tokio::test]
async fn what_is_no_event_stream_is_unreadable() {
    for dialect in Dialect::ALL {
        for reply in [
            Reply::Raw("text/html", "<h1>Welcome to the hotel</h1>".to_owned()),
            Reply::Raw("application/json", "{}".to_owned()),
            Reply::Raw("text/event-stream", "data: {\"half\":\n\n".to_owned()),
            Reply::Raw("text/event-stream", "data: [1]\n\n".to_owned()),
        ] {
            let what = format!("{dialect:?} {reply:?}");
            let (_, error) = one(dialect, reply).await;
            assert!(matches!(error, Some(ModelError::Unreadable { .. })), "{what}: {error:?}");
        }
    }
}

#[tokio::test]
async fn giants_are_given_up() {
    let line = format!("data: {}\n\n", "x".repeat(limits::MODEL_FRAME_BYTES + 1));
    for dialect in Dialect::ALL {
        given_up(dialect, line.clone()).await;
    }
    given_up(Dialect::Anthropic, ": nothing to see\n".repeat(limits::MODEL_ANSWER_BYTES / 16)).await;
}

async fn given_up(dialect: Dialect, body: String) {
    let (_, error) = one(dialect, Reply::Raw("text/event-stream", body)).await;
    let error = error.unwrap();
    assert!(matches!(error, ModelError::Unreadable { .. }), "{dialect:?}: {error:?}");
    assert!(error.to_string().contains("longer than"), "{error}");
}

#[tokio::test]
async fn the_key_is_in_no_error_and_no_debug_output() {
    for dialect in Dialect::ALL {
        let said = format!(r#""error":{{"code":500,"message":"the key {KEY} is bad"}}"#);
        let echo = match dialect {
            Dialect::Anthropic => format!("data: {{\"type\":\"error\",{said}}}\n\n"),
            Dialect::Responses => format!("data: {{\"type\":\"error\",\"message\":\"the key {KEY} is bad\"}}\n\n"),
            Dialect::Chat | Dialect::Gemini => format!("data: {{{said}}}\n\n"),
        };
        let (_, error) = one(dialect, Reply::Raw("text/event-stream", echo)).await;
        let shown = format!("{error:?} {}", error.as_ref().unwrap());
        assert!(shown.contains("[secret]") && !shown.contains("0123456789"), "{dialect:?}: {shown}");
    }
    let model = Anthropic::new(KEY, "m");
    assert!(!format!("{model:?}").contains("0123456789"));
    let bad = Anthropic::new("a\nkey", "m").answer(prompt(vec![user("go")])).await.err().unwrap();
    assert!(matches!(&bad, ModelError::Settings(why) if !why.contains("a\nkey")), "{bad}");
}

#[tokio::test]
async fn a_place_that_is_none_is_a_setting_to_mend() {
    for base in ["", "not a url", "ftp://example.com", "http://example.com/?key=1"] {
        let model = Anthropic::new(KEY, "m").base_url(base).patience(once());
        let error = model.answer(prompt(vec![user("go")])).await.err().unwrap();
        assert!(matches!(&error, ModelError::Settings(why) if why.contains("base_url")), "{base}: {error}");
    }
}
