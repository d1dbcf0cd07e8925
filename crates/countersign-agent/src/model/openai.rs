//! OpenAI's Chat Completions API, which most other providers and local servers speak too.

use std::sync::Arc;

use countersign::json::Json;
use reqwest::Url;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::dialect::{Ask, Assembly, Dialect, Reader, json, object, under};
use super::fault::Fault;
use super::history::{Heard, Told, Turn, turns};
use super::http::Remote;
use super::{ModelError, Piece, Prompt, Stop, Wanted};
use crate::limits;

const DIALECT: &str = "chat";

/// A model that speaks OpenAI's Chat Completions API, at OpenAI or anywhere else.
///
/// ```
/// use countersign_agent::model::OpenAi;
///
/// let local = OpenAi::new("", "llama3.3").base_url("http://127.0.0.1:11434/v1");
/// ```
pub type OpenAi = Remote<ChatCompletions>;

/// The dialect of [`OpenAi`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ChatCompletions;

impl OpenAi {
    /// The model of this name at OpenAI. An empty key is not sent, as local servers want it.
    pub fn new(key: impl Into<String>, model: impl Into<Arc<str>>) -> OpenAi {
        Remote::over(ChatCompletions, "https://api.openai.com/v1", key, model)
    }
}

impl Dialect for ChatCompletions {
    fn url(&self, base: Url, _: &str) -> Option<Url> {
        // A bare host gets `v1`; whoever names a path knows the place.
        let version = (base.path() == "/").then_some("v1");
        under(base, version, &["chat", "completions"])
    }

    fn key_header(&self) -> (&'static str, &'static str) {
        ("authorization", "Bearer ")
    }

    fn body(&self, ask: &Ask<'_>) -> Result<Vec<u8>, ModelError> {
        let turns = turns(ask.prompt, DIALECT)?;
        // OpenAI renamed the bound; others know only the old name.
        let (new, old) = if ask.usual { (ask.max_tokens, None) } else { (None, ask.max_tokens) };
        json(&Body {
            model: ask.model,
            messages: messages(ask.prompt, &turns),
            tools: tools(ask.prompt),
            stream: true,
            stream_options: StreamOptions { include_usage: true },
            max_completion_tokens: new,
            max_tokens: old,
        })
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::<Answering>::default()
    }
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    messages: Vec<Sent<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    stream: bool,
    stream_options: StreamOptions,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Tool<'a> {
    Function { function: Function<'a> },
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a Json,
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "snake_case")]
enum Sent<'a> {
    System {
        content: &'a str,
    },
    User {
        content: &'a str,
    },
    Assistant {
        content: Option<String>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<SentCall<'a>>,
    },
    Tool {
        tool_call_id: &'a str,
        content: String,
    },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum SentCall<'a> {
    Function { id: &'a str, function: Called<'a> },
}

#[derive(Serialize)]
struct Called<'a> {
    name: &'a str,
    arguments: String,
}

fn tools(prompt: &Prompt) -> Vec<Tool<'_>> {
    prompt
        .tools
        .iter()
        .map(|offer| Tool::Function {
            function: Function { name: &offer.name, description: &offer.description, parameters: &offer.input_schema },
        })
        .collect()
}

fn messages<'a>(prompt: &'a Prompt, turns: &'a [Turn<'a>]) -> Vec<Sent<'a>> {
    let system = prompt.instructions.as_deref().filter(|text| !text.trim().is_empty());
    let mut messages: Vec<Sent<'a>> = system.map(|content| Sent::System { content }).into_iter().collect();
    for turn in turns {
        match turn {
            Turn::User(heard) => messages.extend(heard.iter().map(heard_message)),
            Turn::Model(told) => messages.push(told_message(told)),
        }
    }
    messages
}

fn heard_message<'a>(heard: &'a Heard<'a>) -> Sent<'a> {
    match heard {
        Heard::Text(content) => Sent::User { content },
        Heard::Result(id, given) => Sent::Tool { tool_call_id: id, content: given.in_words() },
    }
}

fn told_message<'a>(told: &'a [Told<'a>]) -> Sent<'a> {
    let mut content = String::new();
    let mut tool_calls = Vec::new();
    for told in told {
        match told {
            Told::Text(text, _) => content.push_str(text),
            Told::Call(id, call, _) => {
                let arguments = object(&call.arguments).get().to_owned();
                tool_calls.push(SentCall::Function { id, function: Called { name: &call.name, arguments } });
            }
            Told::Kept(_) => {}
        }
    }
    Sent::Assistant { content: (!content.is_empty()).then_some(content), tool_calls }
}

/// One answer, chunk by chunk.
#[derive(Default)]
struct Answering {
    assembly: Assembly,
    calls: Vec<Open>,
    stop: Option<Stop>,
}

/// A call that is not whole yet.
struct Open {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
}

#[derive(Deserialize)]
struct Frame<'a> {
    #[serde(default, borrow)]
    choices: Vec<Choice<'a>>,
    usage: Option<Tokens>,
    error: Option<Problem>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow)]
    delta: Option<Delta<'a>>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    content: Option<String>,
    refusal: Option<String>,
    #[serde(borrow)]
    tool_calls: Option<Vec<CallDelta<'a>>>,
}

#[derive(Deserialize)]
struct CallDelta<'a> {
    index: Option<u64>,
    id: Option<String>,
    #[serde(borrow)]
    function: Option<FunctionDelta<'a>>,
}

#[derive(Deserialize)]
struct FunctionDelta<'a> {
    name: Option<String>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Tokens {
    #[serde(default)]
    prompt_tokens: u64,
    #[serde(default)]
    completion_tokens: u64,
    prompt_tokens_details: Option<Details>,
}

#[derive(Deserialize)]
struct Details {
    cached_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct Problem {
    #[serde(default)]
    message: String,
}

impl Reader for Answering {
    fn frame(&mut self, data: &str) -> Result<Vec<Piece>, Fault> {
        if data.trim() == "[DONE]" {
            return self.closed();
        }
        let frame: Frame<'_> = serde_json::from_str(data).map_err(|error| Fault::frame(&error))?;
        if let Some(problem) = frame.error {
            return Err(Fault::Failed(problem.message));
        }
        if let Some(tokens) = frame.usage {
            let usage = &mut self.assembly.usage;
            (usage.input, usage.output) = (tokens.prompt_tokens, tokens.completion_tokens);
            usage.cached = tokens.prompt_tokens_details.and_then(|details| details.cached_tokens).unwrap_or_default();
        }
        // One answer was asked for; more of them would be somebody else's.
        match frame.choices.into_iter().next() {
            Some(choice) => self.choice(choice),
            None => Ok(Vec::new()),
        }
    }

    /// Not everybody sends `[DONE]`. What counts is that the answer said why it ends.
    fn closed(&mut self) -> Result<Vec<Piece>, Fault> {
        let stop = self.stop.ok_or_else(Fault::cut)?;
        for Open { id, name, arguments, .. } in self.calls.drain(..) {
            let call = Wanted { label: id.into(), name: name.into(), arguments: arguments.into() };
            self.assembly.call(call, None)?;
        }
        self.assembly.finish(DIALECT, stop)
    }
}

impl Answering {
    fn choice(&mut self, choice: Choice<'_>) -> Result<Vec<Piece>, Fault> {
        let mut pieces = Vec::new();
        if let Some(delta) = choice.delta {
            pieces.extend(self.assembly.text(&delta.content.unwrap_or_default(), None)?);
            for call in delta.tool_calls.into_iter().flatten() {
                self.call(call)?;
            }
            if let Some(refusal) = delta.refusal.filter(|refusal| !refusal.is_empty()) {
                pieces.extend(self.assembly.text(&refusal, None)?);
                self.stop = Some(Stop::Refused);
            }
        }
        if let Some(reason) = choice.finish_reason.filter(|_| self.stop.is_none()) {
            self.stop = Some(stop(&reason));
        }
        Ok(pieces)
    }

    /// Adds to the call it belongs to. Some servers number every call 0 and tell them apart by id, others do not
    /// number them at all.
    fn call(&mut self, delta: CallDelta<'_>) -> Result<(), Fault> {
        let id = delta.id.unwrap_or_default();
        let known = match delta.index {
            Some(_) => self.calls.iter().rposition(|open| open.index == delta.index),
            None => self.calls.len().checked_sub(1),
        };
        let known = known.filter(|&at| self.calls.get(at).is_some_and(|open| id.is_empty() || open.id == id));
        if known.is_none() {
            if self.calls.len() >= limits::MODEL_CALLS {
                return Err(Fault::Unreadable(format!("it wants more than {} calls at once", limits::MODEL_CALLS)));
            }
            self.calls.push(Open { index: delta.index, id, name: String::new(), arguments: String::new() });
        }
        let open = match known {
            Some(at) => self.calls.get_mut(at),
            None => self.calls.last_mut(),
        };
        if let (Some(open), Some(function)) = (open, delta.function) {
            open.name.push_str(&function.name.unwrap_or_default());
            open.arguments.push_str(&function.arguments.map(text_of).unwrap_or_default());
        }
        Ok(())
    }
}

/// Arguments are a string of JSON; some servers send the JSON itself.
fn text_of(raw: &RawValue) -> String {
    match raw.get() {
        "null" => String::new(),
        text => serde_json::from_str(text).unwrap_or_else(|_| text.to_owned()),
    }
}

fn stop(reason: &str) -> Stop {
    match reason {
        "stop" | "tool_calls" | "function_call" => Stop::Done,
        "length" => Stop::Length,
        // `content_filter`, and reasons we do not know: an answer that ended oddly is not acted on.
        _ => Stop::Refused,
    }
}
