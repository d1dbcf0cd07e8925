//! What good answers come to, the same in every dialect.

use countersign_agent::model::{Stop, Usage};
use countersign_testkit::model::{Dialect, ModelServer, Reply, Turn};
use tokio::sync::mpsc;

use super::{adapter, good, once, prompt, read, user};

const TEXT: &str = "Zażółć gęślą jaźń 🦀.";

#[tokio::test]
async fn a_text_arrives_whole_with_what_it_took() {
    for dialect in Dialect::ALL {
        let whole = good(dialect, Reply::Turn(Turn::new(TEXT))).await;
        assert_eq!((&whole.said.text[..], whole.stop), (TEXT, Some(Stop::Done)), "{dialect:?}");
        assert_eq!(whole.said.opaque, None);
        // 10 fresh tokens at 2, 4 cached ones at 1, 7 written ones at 10.
        assert_eq!(whole.usage, Usage { input: 14, cached: 4, output: 7, micro_dollars: 94 }, "{dialect:?}");
    }
}

#[tokio::test]
async fn pieces_that_end_within_a_character_change_nothing() {
    for dialect in Dialect::ALL {
        let turn = || Turn::new(TEXT).call("a", "pay", r#"{"to":"Łukasz 🦀"}"#);
        let expected = good(dialect, Reply::Turn(turn())).await;
        for size in [1, 7] {
            assert_eq!(good(dialect, Reply::Split(turn(), size)).await, expected, "{dialect:?} in pieces of {size}");
        }
    }
}

#[tokio::test]
async fn calls_arrive_in_order_with_their_exact_arguments() {
    for dialect in Dialect::ALL {
        let turn = Turn::new("Paying.").call("a", "pay", r#"{"amount": 1.50}"#).call("b", "pay", "");
        let whole = good(dialect, Reply::Turn(turn)).await;
        assert_eq!(whole.stop, Some(Stop::Calls), "{dialect:?}");
        assert_eq!(whole.labels(), ["a", "b"]);
        assert_eq!(whole.arguments(), [r#"{"amount": 1.50}"#, "{}"], "{dialect:?}");
        assert_eq!(whole.said.text, "Paying.");
    }
}

/// The gate refuses duplicate keys, so it must get to see them.
#[tokio::test]
async fn duplicate_keys_and_big_numbers_pass_as_they_are() {
    let arguments = r#"{"amount":1,"amount":123456789012345678901234567890,"x":1.0}"#;
    for dialect in Dialect::ALL {
        let whole = good(dialect, Reply::Turn(Turn::new("").call("a", "pay", arguments))).await;
        assert_eq!(whole.arguments(), [arguments], "{dialect:?}");
    }
}

#[tokio::test]
async fn malformed_arguments_are_the_gates_to_refuse() {
    for dialect in [Dialect::Anthropic, Dialect::Chat, Dialect::Responses] {
        let whole = good(dialect, Reply::Turn(Turn::new("").call("a", "pay", r#"{"amount":"#))).await;
        assert_eq!((whole.arguments(), whole.stop), (vec![r#"{"amount":"#], Some(Stop::Calls)), "{dialect:?}");
    }
    // Gemini's arguments are part of the frame: there is no frame left to read.
    let (whole, error) =
        super::one(Dialect::Gemini, Reply::Turn(Turn::new("").call("a", "pay", r#"{"amount":"#))).await;
    assert!(error.unwrap().to_string().contains("cannot be read"));
    assert_eq!(whole.stop, None);
}

/// A call that was cut before its first byte is no call without arguments.
#[tokio::test]
async fn a_call_cut_by_the_bound_is_not_completed() {
    for dialect in [Dialect::Anthropic, Dialect::Chat, Dialect::Responses] {
        let turn = Turn::new("x").call("a", "pay", r#"{"amount":1}"#).call("b", "pay", "").cut_by_length();
        let whole = good(dialect, Reply::Turn(turn)).await;
        assert_eq!((whole.arguments(), whole.stop), (vec![r#"{"amount":1}"#], Some(Stop::Length)), "{dialect:?}");
    }
}

#[tokio::test]
async fn text_arrives_as_it_is_written() {
    use countersign_agent::model::Piece;
    use futures::StreamExt as _;

    for dialect in Dialect::ALL {
        let (step, steps) = mpsc::channel(64);
        let server = ModelServer::start([Reply::Stepped(Turn::new("One, two."), steps)]).await.unwrap();
        let model = adapter(dialect, &server, once());
        // Enough for the first words, far from enough for the end.
        for _ in 0..4 {
            step.send(()).await.unwrap();
        }
        let mut answer = model.answer(prompt(vec![user("go")])).await.unwrap();
        let first = answer.next().await.unwrap().unwrap();
        let first = if matches!(first, Piece::Usage(_)) { answer.next().await.unwrap().unwrap() } else { first };
        assert_eq!(first, Piece::Text("One".into()), "{dialect:?}");
        for _ in 0..20 {
            // After its last frame the server listens no more.
            step.send(()).await.ok();
        }
        let rest: Vec<Piece> = answer.map(Result::unwrap).collect().await;
        assert_eq!(rest.last(), Some(&Piece::End(Stop::Done)));
    }
}

#[tokio::test]
async fn the_key_goes_into_its_header_and_nowhere_else() {
    for (dialect, header) in [
        (Dialect::Anthropic, "x-api-key"),
        (Dialect::Chat, "authorization"),
        (Dialect::Responses, "authorization"),
        (Dialect::Gemini, "x-goog-api-key"),
    ] {
        let server = ModelServer::start([]).await.unwrap();
        let (_, error) = read(&*adapter(dialect, &server, once()), prompt(vec![user("go")])).await;
        assert_eq!(error, None);
        let received = server.received().remove(0);
        let holding: Vec<&str> = received
            .headers
            .iter()
            .filter(|(_, value)| value.to_str().unwrap().contains(super::KEY))
            .map(|(name, _)| name.as_str())
            .collect();
        assert_eq!(holding, [header], "{dialect:?}");
        assert!(!received.target.contains(super::KEY) && !received.text.contains(super::KEY));
        assert!(received.text.contains("Be brief.") && received.text.contains("100"), "{dialect:?}");
    }
}
