//! Models: what an agent thinks with. One trait, streaming first.

mod anthropic;
mod config;
mod dialect;
mod fault;
mod gemini;
mod history;
mod http;
mod manual;
mod openai;
mod price;
mod responses;
mod retry;
mod scripted;
mod sse;

use std::sync::Arc;

use async_trait::async_trait;
use countersign::json::Json;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};

pub use anthropic::{Anthropic, Messages};
pub use config::{Sources, from_config};
pub use gemini::{Gemini, GenerateContent};
pub use http::Remote;
pub use manual::{Lines, Manual};
pub use openai::{ChatCompletions, OpenAi};
pub use price::Pricing;
pub use responses::{Responses, ResponsesApi};
pub use retry::Patience;
pub use scripted::{Scripted, Turn};

/// A tool as a model is told about it.
#[derive(Clone, Debug)]
pub struct Offer {
    /// The name the model calls it by: letters, digits, `_` and `-`, at most 64 of them.
    pub name: Arc<str>,
    /// What it does.
    pub description: Arc<str>,
    /// What its arguments must be, as JSON Schema.
    pub input_schema: Json,
}

/// What a model is asked: everything said so far, and the tools it may call.
#[derive(Clone, Debug, Default)]
pub struct Prompt {
    /// What the agent is told about itself.
    pub instructions: Option<Arc<str>>,
    /// What was said, oldest first. Never ends with a call that has no result. Shared with the run: take no copy to keep.
    pub messages: Arc<Vec<Message>>,
    /// The tools.
    pub tools: Arc<[Offer]>,
    /// How many tokens the answer may have.
    pub max_tokens: Option<u32>,
}

/// One thing that was said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "role")]
pub enum Message {
    /// By the user, or by the runtime on their behalf.
    User {
        /// The text.
        text: Arc<str>,
    },
    /// By the model.
    Model(Said),
    /// By the tools: one result for each call of the message before, in the order of the calls.
    Results {
        /// The results.
        results: Vec<Given>,
    },
}

/// What a model said in one turn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Said {
    /// Its text.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// The calls it wants.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<Wanted>,
    /// What the provider wants back unchanged with the history (signed thoughts and the like).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opaque: Option<Json>,
}

/// A call a model wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// The model's id for it. A label only, and possibly empty or reused.
    pub label: Arc<str>,
    /// The name of the tool, as offered.
    pub name: Arc<str>,
    /// The arguments, exactly as the model wrote them. Not checked: strict ingest is the gate's.
    pub arguments: Arc<str>,
}

/// What came of a call, for the model to read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Given {
    /// The label of the call.
    pub label: Arc<str>,
    /// The name of the tool.
    pub name: Arc<str>,
    /// The result, or why there is none.
    pub text: Arc<str>,
    /// Whether it is an error or a refusal.
    #[serde(default)]
    pub is_error: bool,
}

impl Given {
    /// The text, saying itself whether it is an error: for models that have no other way to be told.
    fn in_words(&self) -> String {
        if self.is_error { format!("Error: {}", self.text) } else { self.text.to_string() }
    }
}

/// A piece of an answer, as it arrives.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Piece {
    /// More text.
    Text(String),
    /// A whole call: its arguments have all arrived.
    Call(Wanted),
    /// What to send back unchanged with the history.
    Opaque(Json),
    /// What the answer took, so far in all.
    Usage(Usage),
    /// The answer is complete. Always the last piece of a whole answer.
    End(Stop),
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Stop {
    /// The model was done.
    #[default]
    Done,
    /// It wants calls.
    Calls,
    /// It reached the bound on tokens.
    Length,
    /// The provider or the model refused to go on.
    Refused,
}

impl Stop {
    /// What is to be known about an answer that is not all that the model would have said.
    pub fn warning(self) -> Option<&'static str> {
        match self {
            Stop::Done | Stop::Calls => None,
            Stop::Length => Some("the answer was cut: it reached the bound on tokens"),
            Stop::Refused => Some("the answer was cut: the model or its provider refused to go on"),
        }
    }
}

/// Tokens, and what they cost where prices are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens read, those from a cache included.
    pub input: u64,
    /// Tokens of the input that came from a cache.
    #[serde(default)]
    pub cached: u64,
    /// Tokens written.
    pub output: u64,
    /// Cost in millionths of a dollar; 0 where no price is known.
    #[serde(default)]
    pub micro_dollars: u64,
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, more: Usage) {
        self.input = self.input.saturating_add(more.input);
        self.cached = self.cached.saturating_add(more.cached);
        self.output = self.output.saturating_add(more.output);
        self.micro_dollars = self.micro_dollars.saturating_add(more.micro_dollars);
    }
}

/// Why a model gave no answer. Never holds a key, a prompt or a header.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// It could not be reached, or the answer was cut, also after trying again.
    #[error("the model `{model}` could not be reached: {why}")]
    Unreachable {
        /// Which model.
        model: Arc<str>,
        /// What happened.
        why: String,
    },
    /// It refused the request, and asking again would not help.
    #[error("the model `{model}` refused the request ({status}): {why}")]
    Rejected {
        /// Which model.
        model: Arc<str>,
        /// The HTTP status.
        status: u16,
        /// What the provider said, cut to a bound, with keys masked.
        why: String,
    },
    /// It answered something that is not its protocol.
    #[error("the model `{model}` gave an answer that cannot be read: {why}")]
    Unreadable {
        /// Which model.
        model: Arc<str>,
        /// What is wrong with it.
        why: String,
    },
    /// Its settings cannot work.
    #[error("{0}")]
    Settings(String),
}

/// An answer as it arrives.
pub type Answer = BoxStream<'static, Result<Piece, ModelError>>;

/// Something that answers prompts.
#[async_trait]
pub trait Model: Send + Sync {
    /// Its name, for people and records.
    fn name(&self) -> Arc<str>;

    /// Begins an answer. Pieces arrive in order; an answer that does not finish with [`Piece::End`] was cut and counts for
    /// nothing. Dropping the stream gives the answer up.
    async fn answer(&self, prompt: Prompt) -> Result<Answer, ModelError>;
}

#[async_trait]
impl<M: Model + ?Sized> Model for Arc<M> {
    fn name(&self) -> Arc<str> {
        M::name(self)
    }

    async fn answer(&self, prompt: Prompt) -> Result<Answer, ModelError> {
        M::answer(self, prompt).await
    }
}
