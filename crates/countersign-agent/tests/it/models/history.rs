//! What goes back to the model is a history its provider takes.

use countersign_agent::model::{Given, Message, Said, Wanted};
use countersign_testkit::model::{Dialect, ModelServer, Received, Reply, Turn};

use super::{adapter, once, prompt, read, user};

fn given(text: &str, is_error: bool) -> Given {
    Given { label: "".into(), name: "pay".into(), text: text.into(), is_error }
}

fn call(label: &str, arguments: &str) -> Wanted {
    Wanted { label: label.into(), name: "pay".into(), arguments: arguments.into() }
}

/// Sends a history; the server refuses it unless the provider would take it.
async fn sent(dialect: Dialect, messages: Vec<Message>) -> Received {
    let server = ModelServer::start([]).await.unwrap();
    let (whole, error) = read(&*adapter(dialect, &server, once()), prompt(messages)).await;
    assert_eq!((&whole.said.text[..], error), ("over", None), "{dialect:?}");
    server.received().remove(0)
}

/// B111, B78: results and refusals go back in the order of their calls, whatever the labels are.
#[tokio::test]
async fn results_go_back_with_their_calls() {
    for dialect in Dialect::ALL {
        for labels in [["a", "b"], ["", ""], ["same", "same"], ["not an id!", "call_1"]] {
            let calls = vec![call(labels[0], r#"{"amount":1}"#), call(labels[1], r#"{"amount":2}"#)];
            let said = Said { text: "Paying.".to_owned(), calls, opaque: None };
            let results = vec![given("paid", false), given("denied by ann", true)];
            let messages = vec![user("go"), Message::Model(said), Message::Results { results }, user("and?")];
            let received = sent(dialect, messages).await;
            for word in ["Paying.", "paid", "denied by ann", "and?"] {
                assert!(received.text.contains(word), "{dialect:?}: {word} in {}", received.text);
            }
        }
    }
}

/// B2: a refusal is marked as an error where the dialect can, and says so in words where it cannot.
#[tokio::test]
async fn a_refusal_is_told_from_a_result() {
    for (dialect, mark) in [
        (Dialect::Anthropic, r#""content":"denied by ann","is_error":true"#),
        (Dialect::Chat, r#""content":"Error: denied by ann""#),
        (Dialect::Responses, r#""output":"Error: denied by ann""#),
        (Dialect::Gemini, r#""response":{"error":"denied by ann"}"#),
    ] {
        let said = Said { calls: vec![call("a", "{}")], ..Said::default() };
        let results = vec![given("denied by ann", true)];
        let received = sent(dialect, vec![user("go"), Message::Model(said), Message::Results { results }]).await;
        assert!(received.text.contains(mark), "{dialect:?}: {}", received.text);
    }
}

/// A call that another provider's model made has no signature; the newer Gemini models are told so, or they refuse it.
#[tokio::test]
async fn gemini_is_told_which_calls_it_did_not_make() {
    for (model, told) in [("gemini-3-pro-preview", true), ("models/gemini-3.1-flash", true), ("gemini-2.5-pro", false)]
    {
        let server = ModelServer::start([]).await.unwrap();
        let gemini = countersign_agent::model::Gemini::new("key", model).base_url(server.url()).patience(once());
        let said = Said { calls: vec![call("a", "{}"), call("b", "{}")], ..Said::default() };
        let results = vec![given("one", false), given("two", false)];
        let (_, error) =
            read(&gemini, prompt(vec![user("go"), Message::Model(said), Message::Results { results }])).await;
        assert_eq!(error, None, "{model}");
        let parts = server.received()[0].body["contents"][1]["parts"].clone();
        let signed = |index: usize| parts[index]["thoughtSignature"] == "skip_thought_signature_validator";
        assert_eq!((signed(0), signed(1)), (told, false), "{model}: the first call of a turn alone");
    }
}

#[tokio::test]
async fn arguments_that_are_no_object_still_make_a_history() {
    for dialect in Dialect::ALL {
        for arguments in [r#"{"amount":"#, "[1]", "", "\u{0}", r#"{"a":1,"a":2}"#] {
            let said = Said { calls: vec![call("a", arguments)], ..Said::default() };
            let results = vec![given("refused", true)];
            sent(dialect, vec![user("go"), Message::Model(said), Message::Results { results }]).await;
        }
    }
}

#[tokio::test]
async fn odd_conversations_are_made_even() {
    let said = |text: &str| Message::Model(Said { text: text.to_owned(), ..Said::default() });
    for dialect in Dialect::ALL {
        sent(dialect, vec![]).await;
        sent(dialect, vec![said("hello")]).await;
        sent(dialect, vec![user(" "), user("go"), said(""), said("one"), said("two"), said(" ")]).await;
    }
}

/// Signed thoughts come back where they stood, and only to the dialect they came from.
#[tokio::test]
async fn what_the_provider_wants_back_comes_back() {
    for dialect in [Dialect::Anthropic, Dialect::Responses, Dialect::Gemini] {
        let turn = Turn::new("Paying.").thought("SIGNED").call("a", "pay", "{}").call("b", "pay", "{}");
        let server = ModelServer::start([Reply::Turn(turn)]).await.unwrap();
        let model = adapter(dialect, &server, once());
        let (whole, error) = read(&*model, prompt(vec![user("go")])).await;
        assert_eq!(error, None, "{dialect:?}");
        // Stored and read again, as a transcript is.
        let said: Said = serde_json::from_str(&serde_json::to_string(&whole.said).unwrap()).unwrap();
        let results = Message::Results { results: vec![given("ok", false), given("ok", false)] };
        let messages = vec![user("go"), Message::Model(said), results];
        let (_, error) = read(&*model, prompt(messages.clone())).await;
        assert_eq!(error, None, "{dialect:?}");
        let text = server.received().remove(1).text;
        assert_eq!(text.matches("SIGNED").count(), 1, "{dialect:?}: {text}");
        assert!(sent(Dialect::Chat, messages.clone()).await.text.matches("SIGNED").next().is_none());
        for other in Dialect::ALL.into_iter().filter(|other| *other != dialect) {
            assert!(!sent(other, messages.clone()).await.text.contains("SIGNED"), "{dialect:?} to {other:?}");
        }
    }
}

/// What was said does not fit its own parts any more: then the parts are not believed.
#[tokio::test]
async fn parts_that_do_not_fit_are_dropped() {
    for part in [r#"{"text":[99,null]}"#, r#"{"text":[2,null]}"#, r#"{"text":[5,null]},{"call":null}"#] {
        let thought = r#"{"kept":{"type":"thinking","thinking":"","signature":"SIGNED"}}"#;
        let parts = format!(r#"{{"dialect":"anthropic","parts":[{thought},{part}]}}"#);
        let opaque = countersign::Json::ingest(&parts, countersign::json::Bounds::PAYLOAD).unwrap();
        let said = Said { text: "short".to_owned(), calls: vec![], opaque: Some(opaque) };
        let received = sent(Dialect::Anthropic, vec![user("go"), Message::Model(said)]).await;
        assert!(received.text.contains("short") && !received.text.contains("SIGNED"), "{part}");
    }
}

/// B111: nothing is sent at all.
#[tokio::test]
async fn a_call_without_a_result_is_never_sent() {
    for dialect in Dialect::ALL {
        let server = ModelServer::start([]).await.unwrap();
        let said = Said { calls: vec![call("a", "{}")], ..Said::default() };
        let (_, error) =
            read(&*adapter(dialect, &server, once()), prompt(vec![user("go"), Message::Model(said)])).await;
        assert!(error.unwrap().to_string().contains("a call without its result"));
        assert!(server.received().is_empty());
    }
}
