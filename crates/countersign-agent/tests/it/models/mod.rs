//! The models: four adapters against a server as strict as the providers, the configured ones, and a person.

mod answers;
mod config;
mod failures;
mod history;
mod manual;

use std::sync::Arc;
use std::time::Duration;

use countersign::json::Json;
use countersign_agent::model::{
    Anthropic, Gemini, Message, Model, ModelError, Offer, OpenAi, Patience, Piece, Pricing, Prompt, Responses, Said,
    Stop, Usage,
};
use countersign_testkit::model::{Dialect, ModelServer, Reply};
use futures::StreamExt as _;

/// What must never be seen again.
const KEY: &str = "sk-test-0123456789abcdef";

/// What an answer came to.
#[derive(Debug, Default, PartialEq)]
struct Whole {
    said: Said,
    usage: Usage,
    stop: Option<Stop>,
}

impl Whole {
    fn arguments(&self) -> Vec<&str> {
        self.said.calls.iter().map(|call| &*call.arguments).collect()
    }

    fn labels(&self) -> Vec<&str> {
        self.said.calls.iter().map(|call| &*call.label).collect()
    }
}

/// The adapter of this dialect, aimed at the server.
fn adapter(dialect: Dialect, server: &ModelServer, patience: Patience) -> Box<dyn Model> {
    let pricing = Pricing { input: 2_000_000, cached: 1_000_000, output: 10_000_000 };
    match dialect {
        Dialect::Anthropic => {
            Box::new(Anthropic::new(KEY, "m").base_url(server.url()).pricing(pricing).patience(patience))
        }
        Dialect::Chat => Box::new(OpenAi::new(KEY, "m").base_url(server.url()).pricing(pricing).patience(patience)),
        Dialect::Responses => {
            Box::new(Responses::new(KEY, "m").base_url(server.url()).pricing(pricing).patience(patience))
        }
        Dialect::Gemini => Box::new(Gemini::new(KEY, "m").base_url(server.url()).pricing(pricing).patience(patience)),
    }
}

/// Asks again at once, so that no test waits.
fn at_once() -> Patience {
    Patience { pause: Duration::ZERO, attempts: 3, ..Patience::default() }
}

fn once() -> Patience {
    Patience { attempts: 1, ..Patience::default() }
}

fn user(text: &str) -> Message {
    Message::User { text: text.into() }
}

fn prompt(messages: Vec<Message>) -> Prompt {
    let schema = r#"{"type":"object","properties":{"amount":{"type":"integer"}}}"#;
    let offer = Offer {
        name: "pay".into(),
        description: "Pays.".into(),
        input_schema: Json::ingest(schema, countersign::json::Bounds::PAYLOAD).unwrap(),
    };
    Prompt {
        instructions: Some("Be brief.".into()),
        messages: Arc::new(messages),
        tools: Arc::from([offer]),
        max_tokens: Some(100),
    }
}

/// Reads an answer to its end or to its error, with what had come by then.
async fn read(model: &dyn Model, prompt: Prompt) -> (Whole, Option<ModelError>) {
    let mut whole = Whole::default();
    let mut answer = match model.answer(prompt).await {
        Ok(answer) => answer,
        Err(error) => return (whole, Some(error)),
    };
    while let Some(piece) = answer.next().await {
        assert_eq!(whole.stop, None, "nothing comes after the end");
        match piece {
            Ok(Piece::Text(text)) => whole.said.text.push_str(&text),
            Ok(Piece::Call(call)) => whole.said.calls.push(call),
            Ok(Piece::Opaque(opaque)) => whole.said.opaque = Some(opaque),
            Ok(Piece::Usage(usage)) => whole.usage = usage,
            Ok(Piece::End(stop)) => whole.stop = Some(stop),
            Ok(other) => panic!("{other:?}"),
            Err(error) => return (whole, Some(error)),
        }
    }
    (whole, None)
}

/// The answer of one dialect to one reply.
async fn one(dialect: Dialect, reply: Reply) -> (Whole, Option<ModelError>) {
    let server = ModelServer::start([reply]).await.unwrap();
    read(&*adapter(dialect, &server, once()), prompt(vec![user("go")])).await
}

/// The answer of one dialect to a reply that is good.
async fn good(dialect: Dialect, reply: Reply) -> Whole {
    let (whole, error) = one(dialect, reply).await;
    assert_eq!(error, None, "{dialect:?}");
    whole
}
