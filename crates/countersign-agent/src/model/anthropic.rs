//! Anthropic's Messages API.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use countersign::json::Json;
use reqwest::Url;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::dialect::{Ask, Assembly, Dialect, Reader, json, object, under};
use super::fault::Fault;
use super::history::{Heard, Told, Turn, turns};
use super::http::Remote;
use super::{ModelError, Piece, Stop, Wanted};
use crate::limits;

const DIALECT: &str = "anthropic";

/// A model that speaks Anthropic's Messages API.
///
/// ```
/// use countersign_agent::model::{Anthropic, Model};
///
/// let model = Anthropic::new("the key", "claude-sonnet-4-6").max_tokens(4_096);
/// assert_eq!(&*model.name(), "claude-sonnet-4-6");
/// ```
pub type Anthropic = Remote<Messages>;

/// The dialect of [`Anthropic`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Messages;

impl Anthropic {
    /// The model of this name at Anthropic. An empty key is not sent, as some proxies want it.
    pub fn new(key: impl Into<String>, model: impl Into<Arc<str>>) -> Anthropic {
        Remote::over(Messages, "https://api.anthropic.com", key, model)
    }
}

impl Dialect for Messages {
    fn url(&self, base: Url, _: &str) -> Option<Url> {
        under(base, Some("v1"), &["messages"])
    }

    fn key_header(&self) -> (&'static str, &'static str) {
        ("x-api-key", "")
    }

    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        &[("anthropic-version", "2023-06-01")]
    }

    fn body(&self, ask: &Ask<'_>) -> Result<Vec<u8>, ModelError> {
        let turns = turns(ask.prompt, DIALECT)?;
        json(&Body {
            model: ask.model,
            max_tokens: ask.max_tokens.unwrap_or(limits::MODEL_MAX_TOKENS),
            stream: true,
            system: ask.prompt.instructions.as_deref().filter(|text| !text.trim().is_empty()),
            messages: turns.iter().map(message).collect(),
            tools: ask
                .prompt
                .tools
                .iter()
                .map(|offer| Tool {
                    name: &offer.name,
                    description: &offer.description,
                    input_schema: &offer.input_schema,
                })
                .collect(),
        })
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::<Answering>::default()
    }
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    max_tokens: u32,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<&'a str>,
    messages: Vec<Sent<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
}

#[derive(Serialize)]
struct Tool<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: &'a Json,
}

#[derive(Serialize)]
struct Sent<'a> {
    role: &'static str,
    content: Vec<Block<'a>>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block<'a> {
    Text {
        text: &'a str,
    },
    ToolUse {
        id: &'a str,
        name: &'a str,
        input: Box<RawValue>,
    },
    ToolResult {
        tool_use_id: &'a str,
        content: &'a str,
        is_error: bool,
    },
    #[serde(untagged)]
    Kept(&'a Json),
}

fn message<'a>(turn: &'a Turn<'a>) -> Sent<'a> {
    match turn {
        Turn::User(heard) => Sent { role: "user", content: heard.iter().map(heard_block).collect() },
        Turn::Model(told) => Sent { role: "assistant", content: told.iter().map(told_block).collect() },
    }
}

fn heard_block<'a>(heard: &'a Heard<'a>) -> Block<'a> {
    match heard {
        Heard::Text(text) => Block::Text { text },
        Heard::Result(id, given) => {
            Block::ToolResult { tool_use_id: id, content: &given.text, is_error: given.is_error }
        }
    }
}

fn told_block<'a>(told: &'a Told<'a>) -> Block<'a> {
    match told {
        Told::Text(text, _) => Block::Text { text },
        Told::Call(id, call, _) => Block::ToolUse { id, name: &call.name, input: object(&call.arguments) },
        Told::Kept(thing) => Block::Kept(thing),
    }
}

/// One answer, block by block.
#[derive(Default)]
struct Answering {
    assembly: Assembly,
    open: BTreeMap<u64, Open>,
    stop: Option<Stop>,
}

/// A block that is not whole yet.
enum Open {
    Text,
    Call { id: String, name: String, input: String, began_with: String },
    Thinking { thinking: String, signature: String },
    Redacted { data: String },
    Other,
}

#[derive(Deserialize)]
struct Frame<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(default)]
    index: u64,
    message: Option<Begun>,
    #[serde(borrow)]
    content_block: Option<Begin<'a>>,
    delta: Option<Delta>,
    usage: Option<Tokens>,
    error: Option<Problem>,
}

#[derive(Deserialize)]
struct Begun {
    usage: Option<Tokens>,
}

#[derive(Deserialize)]
struct Begin<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(default)]
    id: String,
    #[serde(default)]
    name: String,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    #[serde(default)]
    text: String,
    #[serde(default)]
    thinking: String,
    #[serde(default)]
    signature: String,
    #[serde(default)]
    data: String,
}

#[derive(Deserialize)]
struct Delta {
    #[serde(default)]
    text: String,
    #[serde(default)]
    partial_json: String,
    #[serde(default)]
    thinking: String,
    #[serde(default)]
    signature: String,
    stop_reason: Option<String>,
}

#[derive(Deserialize)]
struct Tokens {
    input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    output_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct Problem {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    message: String,
}

impl Reader for Answering {
    fn frame(&mut self, data: &str) -> Result<Vec<Piece>, Fault> {
        let frame: Frame<'_> = serde_json::from_str(data).map_err(|error| Fault::frame(&error))?;
        if let Some(tokens) = frame.usage.as_ref().or(frame.message.as_ref().and_then(|begun| begun.usage.as_ref())) {
            self.count(tokens);
        }
        match (&*frame.kind, frame.content_block, frame.delta) {
            ("message_start", ..) => Ok(vec![Piece::Usage(self.assembly.usage)]),
            ("content_block_start", Some(begin), _) => self.begin(frame.index, begin),
            ("content_block_delta", _, Some(delta)) => self.go_on(frame.index, delta),
            ("content_block_stop", ..) => self.end(frame.index),
            ("message_delta", _, Some(delta)) => {
                self.stop = delta.stop_reason.as_deref().map(stop).or(self.stop);
                Ok(Vec::new())
            }
            ("message_stop", ..) => {
                let stop = self.stop.ok_or_else(|| Fault::Unreadable("it ends without saying why".to_owned()))?;
                self.assembly.finish(DIALECT, stop)
            }
            ("error", ..) => Err(problem(frame.error)),
            // Pings, and whatever the API will learn: it promises that the unknown may be passed over.
            _ => Ok(Vec::new()),
        }
    }
}

impl Answering {
    fn begin(&mut self, index: u64, begin: Begin<'_>) -> Result<Vec<Piece>, Fault> {
        let mut pieces = Vec::new();
        let open = match &*begin.kind {
            "text" => {
                pieces.extend(self.assembly.text(&begin.text, None)?);
                Open::Text
            }
            "tool_use" => {
                let began_with = begin.input.map(RawValue::get).filter(|input| *input != "{}").unwrap_or_default();
                Open::Call { id: begin.id, name: begin.name, input: String::new(), began_with: began_with.to_owned() }
            }
            "thinking" => Open::Thinking { thinking: begin.thinking, signature: begin.signature },
            "redacted_thinking" => Open::Redacted { data: begin.data },
            _ => Open::Other,
        };
        if self.open.len() >= limits::MODEL_PARTS {
            return Err(Fault::Unreadable(format!("it has more than {} open blocks", limits::MODEL_PARTS)));
        }
        self.open.insert(index, open);
        Ok(pieces)
    }

    fn go_on(&mut self, index: u64, delta: Delta) -> Result<Vec<Piece>, Fault> {
        match self.open.get_mut(&index) {
            Some(Open::Text) => return Ok(self.assembly.text(&delta.text, None)?.into_iter().collect()),
            Some(Open::Call { input, .. }) => input.push_str(&delta.partial_json),
            Some(Open::Thinking { thinking, signature }) => {
                thinking.push_str(&delta.thinking);
                signature.push_str(&delta.signature);
            }
            Some(Open::Redacted { .. } | Open::Other) => {}
            None => return Err(Fault::Unreadable("more of a block that never began".to_owned())),
        }
        Ok(Vec::new())
    }

    fn end(&mut self, index: u64) -> Result<Vec<Piece>, Fault> {
        match self.open.remove(&index) {
            Some(Open::Call { id, name, input, began_with }) => {
                let arguments = if input.is_empty() { began_with } else { input };
                let call = Wanted { label: id.into(), name: name.into(), arguments: arguments.into() };
                self.assembly.call(call, None)?;
            }
            Some(Open::Thinking { thinking, signature }) => self
                .assembly
                .keep(&serde_json::json!({ "type": "thinking", "thinking": thinking, "signature": signature }))?,
            Some(Open::Redacted { data }) => {
                self.assembly.keep(&serde_json::json!({ "type": "redacted_thinking", "data": data }))?;
            }
            Some(Open::Text | Open::Other) | None => {}
        }
        Ok(Vec::new())
    }

    /// Counts are totals, and a later frame may leave some out.
    fn count(&mut self, tokens: &Tokens) {
        let usage = &mut self.assembly.usage;
        if let Some(input) = tokens.input_tokens {
            let cached = tokens.cache_read_input_tokens.unwrap_or_default();
            let written = tokens.cache_creation_input_tokens.unwrap_or_default();
            usage.input = input.saturating_add(cached).saturating_add(written);
            usage.cached = cached;
        }
        usage.output = tokens.output_tokens.unwrap_or(usage.output);
    }
}

fn stop(reason: &str) -> Stop {
    match reason {
        "end_turn" | "stop_sequence" => Stop::Done,
        "tool_use" => Stop::Calls,
        "max_tokens" | "model_context_window_exceeded" => Stop::Length,
        // `refusal`, and reasons we do not know: an answer that ended oddly is not acted on.
        _ => Stop::Refused,
    }
}

fn problem(problem: Option<Problem>) -> Fault {
    let Some(Problem { kind, message }) = problem else { return Fault::cut() };
    match &*kind {
        "overloaded_error" | "api_error" | "rate_limit_error" | "timeout_error" => Fault::Failed(message),
        _ => Fault::Rejected(message),
    }
}
