//! OpenAI's Responses API, used without anything stored at OpenAI: the whole history goes along each time.

use std::borrow::Cow;
use std::collections::BTreeSet;
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

const DIALECT: &str = "responses";

/// A model that speaks OpenAI's Responses API.
///
/// ```
/// use countersign_agent::model::Responses;
///
/// let model = Responses::new("the key", "gpt-5.2");
/// ```
pub type Responses = Remote<ResponsesApi>;

/// The dialect of [`Responses`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ResponsesApi;

impl Responses {
    /// The model of this name at OpenAI. An empty key is not sent.
    pub fn new(key: impl Into<String>, model: impl Into<Arc<str>>) -> Responses {
        Remote::over(ResponsesApi, "https://api.openai.com/v1", key, model)
    }
}

impl Dialect for ResponsesApi {
    fn url(&self, base: Url, _: &str) -> Option<Url> {
        let version = (base.path() == "/").then_some("v1");
        under(base, version, &["responses"])
    }

    fn key_header(&self) -> (&'static str, &'static str) {
        ("authorization", "Bearer ")
    }

    fn body(&self, ask: &Ask<'_>) -> Result<Vec<u8>, ModelError> {
        let turns = turns(ask.prompt, DIALECT)?;
        let tools = ask.prompt.tools.iter().map(|offer| Tool::Function {
            name: &offer.name,
            description: &offer.description,
            parameters: &offer.input_schema,
            strict: false,
        });
        json(&Body {
            model: ask.model,
            input: turns.iter().flat_map(items).collect(),
            instructions: ask.prompt.instructions.as_deref().filter(|text| !text.trim().is_empty()),
            tools: tools.collect(),
            stream: true,
            store: false,
            include: if reasons(ask.model) { &["reasoning.encrypted_content"] } else { &[] },
            max_output_tokens: ask.max_tokens,
        })
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::<Answering>::default()
    }
}

/// Whether a model may have thoughts to give back. The older ones refuse to be asked for them.
fn reasons(model: &str) -> bool {
    !["gpt-3", "gpt-4", "chatgpt"].iter().any(|older| model.starts_with(older))
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    input: Vec<Item<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    stream: bool,
    store: bool,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    include: &'static [&'static str],
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u32>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Tool<'a> {
    Function { name: &'a str, description: &'a str, parameters: &'a Json, strict: bool },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Item<'a> {
    Message {
        role: &'static str,
        content: [Content<'a>; 1],
    },
    FunctionCall {
        call_id: &'a str,
        name: &'a str,
        arguments: String,
    },
    FunctionCallOutput {
        call_id: &'a str,
        output: String,
    },
    #[serde(untagged)]
    Kept(&'a Json),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Content<'a> {
    InputText { text: &'a str },
    OutputText { text: &'a str },
}

fn items<'a>(turn: &'a Turn<'a>) -> Vec<Item<'a>> {
    match turn {
        Turn::User(heard) => heard.iter().map(heard_item).collect(),
        Turn::Model(told) => told.iter().map(told_item).collect(),
    }
}

fn heard_item<'a>(heard: &'a Heard<'a>) -> Item<'a> {
    match heard {
        Heard::Text(text) => Item::Message { role: "user", content: [Content::InputText { text }] },
        Heard::Result(id, given) => Item::FunctionCallOutput { call_id: id, output: given.in_words() },
    }
}

fn told_item<'a>(told: &'a Told<'a>) -> Item<'a> {
    match told {
        Told::Text(text, _) => Item::Message { role: "assistant", content: [Content::OutputText { text }] },
        Told::Call(id, call, _) => {
            let arguments = object(&call.arguments).get().to_owned();
            Item::FunctionCall { call_id: id, name: &call.name, arguments }
        }
        Told::Kept(thing) => Item::Kept(thing),
    }
}

/// One answer, item by item.
#[derive(Default)]
struct Answering {
    assembly: Assembly,
    /// Items whose text has come piece by piece already.
    streamed: BTreeSet<u64>,
    refused: bool,
}

#[derive(Deserialize)]
struct Frame<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(default)]
    output_index: u64,
    delta: Option<String>,
    #[serde(borrow)]
    item: Option<&'a RawValue>,
    response: Option<Response>,
    // An `error` frame has its words at the top, or in a place of their own.
    error: Option<Problem>,
    code: Option<String>,
    message: Option<String>,
}

#[derive(Deserialize)]
struct Done {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    call_id: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    arguments: String,
    #[serde(default)]
    content: Vec<Said>,
    encrypted_content: Option<String>,
}

#[derive(Deserialize)]
struct Said {
    #[serde(default)]
    text: String,
    #[serde(default)]
    refusal: String,
}

#[derive(Deserialize)]
struct Response {
    usage: Option<Tokens>,
    incomplete_details: Option<Incomplete>,
    error: Option<Problem>,
}

#[derive(Deserialize)]
struct Incomplete {
    reason: Option<String>,
}

#[derive(Deserialize)]
struct Tokens {
    #[serde(default)]
    input_tokens: u64,
    #[serde(default)]
    output_tokens: u64,
    input_tokens_details: Option<Details>,
}

#[derive(Deserialize)]
struct Details {
    cached_tokens: Option<u64>,
}

#[derive(Default, Deserialize)]
struct Problem {
    code: Option<String>,
    message: Option<String>,
}

impl Reader for Answering {
    fn frame(&mut self, data: &str) -> Result<Vec<Piece>, Fault> {
        let frame: Frame<'_> = serde_json::from_str(data).map_err(|error| Fault::frame(&error))?;
        match &*frame.kind {
            "response.output_text.delta" => self.more(frame.output_index, &frame.delta.unwrap_or_default()),
            "response.refusal.delta" => {
                self.refused = true;
                self.more(frame.output_index, &frame.delta.unwrap_or_default())
            }
            "response.output_item.done" => match frame.item {
                Some(item) => self.item(frame.output_index, item),
                None => Err(Fault::Unreadable("an item without its content".to_owned())),
            },
            "response.completed" => self.end(frame.response, Stop::Done),
            "response.incomplete" => {
                let reason = frame.response.as_ref().and_then(|response| response.incomplete_details.as_ref());
                let length = reason.and_then(|details| details.reason.as_deref()) == Some("max_output_tokens");
                self.end(frame.response, if length { Stop::Length } else { Stop::Refused })
            }
            "response.failed" => Err(problem(frame.response.and_then(|response| response.error).unwrap_or_default())),
            "error" => Err(problem(frame.error.unwrap_or(Problem { code: frame.code, message: frame.message }))),
            _ => Ok(Vec::new()),
        }
    }
}

impl Answering {
    fn more(&mut self, index: u64, text: &str) -> Result<Vec<Piece>, Fault> {
        self.streamed.insert(index);
        Ok(self.assembly.text(text, None)?.into_iter().collect())
    }

    fn item(&mut self, index: u64, item: &RawValue) -> Result<Vec<Piece>, Fault> {
        let done: Done = serde_json::from_str(item.get()).map_err(|error| Fault::frame(&error))?;
        match &*done.kind {
            "function_call" => {
                let call =
                    Wanted { label: done.call_id.into(), name: done.name.into(), arguments: done.arguments.into() };
                self.assembly.call(call, None)?;
            }
            // Without its encrypted content a thought is only a name for something that was not stored.
            "reasoning" if done.encrypted_content.is_some() => self.assembly.keep(&item)?,
            "message" if !self.streamed.contains(&index) => {
                let mut pieces = Vec::new();
                for said in done.content {
                    self.refused |= !said.refusal.is_empty();
                    pieces.extend(self.assembly.text(&said.text, None)?);
                    pieces.extend(self.assembly.text(&said.refusal, None)?);
                }
                return Ok(pieces);
            }
            _ => {}
        }
        Ok(Vec::new())
    }

    fn end(&mut self, response: Option<Response>, stop: Stop) -> Result<Vec<Piece>, Fault> {
        if let Some(tokens) = response.and_then(|response| response.usage) {
            let usage = &mut self.assembly.usage;
            (usage.input, usage.output) = (tokens.input_tokens, tokens.output_tokens);
            usage.cached = tokens.input_tokens_details.and_then(|details| details.cached_tokens).unwrap_or_default();
        }
        self.assembly.finish(DIALECT, if self.refused { Stop::Refused } else { stop })
    }
}

fn problem(problem: Problem) -> Fault {
    let message = problem.message.unwrap_or_else(|| "the provider failed".to_owned());
    match problem.code.as_deref() {
        None | Some("server_error" | "rate_limit_exceeded") => Fault::Failed(message),
        Some(_) => Fault::Rejected(message),
    }
}
