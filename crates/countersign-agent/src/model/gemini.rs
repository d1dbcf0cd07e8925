//! Google's Gemini API.

use std::sync::Arc;

use countersign::json::Json;
use reqwest::Url;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::dialect::{Ask, Assembly, Dialect, Reader, json, object, under};
use super::fault::Fault;
use super::history::{Heard, Told, Turn, turns};
use super::http::Remote;
use super::{Given, ModelError, Piece, Prompt, Stop, Wanted};

const DIALECT: &str = "gemini";

/// A model that speaks Google's Gemini API.
///
/// ```
/// use countersign_agent::model::Gemini;
///
/// let model = Gemini::new("the key", "gemini-2.5-pro");
/// ```
pub type Gemini = Remote<GenerateContent>;

/// The dialect of [`Gemini`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct GenerateContent;

impl Gemini {
    /// The model of this name at Google. An empty key is not sent.
    pub fn new(key: impl Into<String>, model: impl Into<Arc<str>>) -> Gemini {
        Remote::over(GenerateContent, "https://generativelanguage.googleapis.com", key, model)
    }
}

impl Dialect for GenerateContent {
    fn url(&self, base: Url, model: &str) -> Option<Url> {
        let model = model.strip_prefix("models/").unwrap_or(model);
        let mut url = under(base, Some("v1beta"), &["models", &format!("{model}:streamGenerateContent")])?;
        url.set_query(Some("alt=sse"));
        Some(url)
    }

    /// Not in the address, where Google allows it too: addresses end up in logs.
    fn key_header(&self) -> (&'static str, &'static str) {
        ("x-goog-api-key", "")
    }

    fn body(&self, ask: &Ask<'_>) -> Result<Vec<u8>, ModelError> {
        let turns = turns(ask.prompt, DIALECT)?;
        let unsigned = wants_signatures(ask.model).then(|| Json::string(UNSIGNED));
        let instructions = ask.prompt.instructions.as_deref().filter(|text| !text.trim().is_empty());
        json(&Body {
            contents: turns.iter().map(|turn| content(turn, unsigned.as_ref())).collect(),
            system_instruction: instructions.map(|text| Content { role: None, parts: vec![Sent::text(text, None)] }),
            tools: tools(ask.prompt),
            generation_config: ask.max_tokens.map(|max_output_tokens| GenerationConfig { max_output_tokens }),
        })
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::<Answering>::default()
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    contents: Vec<Content<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    system_instruction: Option<Content<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tools<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    generation_config: Option<GenerationConfig>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GenerationConfig {
    max_output_tokens: u32,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Tools<'a> {
    function_declarations: Vec<Declaration<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Declaration<'a> {
    name: &'a str,
    description: &'a str,
    parameters_json_schema: &'a Json,
}

#[derive(Serialize)]
struct Content<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    parts: Vec<Sent<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Sent<'a> {
    #[serde(flatten)]
    part: Part<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thought_signature: Option<&'a Json>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum Part<'a> {
    Text(&'a str),
    FunctionCall { id: &'a str, name: &'a str, args: Box<RawValue> },
    FunctionResponse { id: &'a str, name: &'a str, response: Outcome<'a> },
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum Outcome<'a> {
    Output(&'a str),
    Error(&'a str),
}

impl<'a> Sent<'a> {
    fn text(text: &'a str, signature: Option<&'a Json>) -> Sent<'a> {
        Sent { part: Part::Text(text), thought_signature: signature }
    }
}

fn tools(prompt: &Prompt) -> Vec<Tools<'_>> {
    let declarations = prompt.tools.iter().map(|offer| Declaration {
        name: &offer.name,
        description: &offer.description,
        parameters_json_schema: &offer.input_schema,
    });
    let function_declarations: Vec<Declaration<'_>> = declarations.collect();
    if function_declarations.is_empty() { Vec::new() } else { vec![Tools { function_declarations }] }
}

/// `unsigned` stands where the first call of a turn has no signature.
fn content<'a>(turn: &'a Turn<'a>, unsigned: Option<&'a Json>) -> Content<'a> {
    match turn {
        Turn::User(heard) => Content { role: Some("user"), parts: heard.iter().map(heard_part).collect() },
        Turn::Model(told) => {
            let mut parts: Vec<Sent<'a>> = told.iter().filter_map(told_part).collect();
            let first = parts.iter_mut().find(|sent| matches!(sent.part, Part::FunctionCall { .. }));
            if let Some(first) = first.filter(|first| first.thought_signature.is_none()) {
                first.thought_signature = unsigned;
            }
            Content { role: Some("model"), parts }
        }
    }
}

/// What a model of the third generation and later wants to see on calls that it did not make itself: those that came
/// into the conversation with a hand-over from another provider's model. Without it the provider refuses the history.
const UNSIGNED: &str = "skip_thought_signature_validator";

/// Whether the model refuses calls without a signature.
fn wants_signatures(model: &str) -> bool {
    let generation = model.rsplit('/').next().and_then(|name| name.strip_prefix("gemini-"));
    let number = generation.and_then(|name| name.split(['.', '-']).next()).and_then(|word| word.parse::<u32>().ok());
    number.is_some_and(|number| number >= 3)
}

fn heard_part<'a>(heard: &'a Heard<'a>) -> Sent<'a> {
    match heard {
        Heard::Text(text) => Sent::text(text, None),
        Heard::Result(id, given) => {
            let part = Part::FunctionResponse { id, name: &given.name, response: outcome(given) };
            Sent { part, thought_signature: None }
        }
    }
}

fn outcome(given: &Given) -> Outcome<'_> {
    if given.is_error { Outcome::Error(&given.text) } else { Outcome::Output(&given.text) }
}

fn told_part<'a>(told: &'a Told<'a>) -> Option<Sent<'a>> {
    match told {
        Told::Text(text, signature) => Some(Sent::text(text, signature.as_ref())),
        Told::Call(id, call, signature) => {
            let part = Part::FunctionCall { id, name: &call.name, args: object(&call.arguments) };
            Some(Sent { part, thought_signature: signature.as_ref() })
        }
        // What a Gemini model wants back always belongs to a part.
        Told::Kept(_) => None,
    }
}

/// One answer, frame by frame.
#[derive(Default)]
struct Answering {
    assembly: Assembly,
    stop: Option<Stop>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Frame<'a> {
    #[serde(default, borrow)]
    candidates: Vec<Candidate<'a>>,
    prompt_feedback: Option<Feedback>,
    usage_metadata: Option<Tokens>,
    error: Option<Problem>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate<'a> {
    #[serde(borrow)]
    content: Option<Parts<'a>>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Parts<'a> {
    #[serde(default, borrow)]
    parts: Vec<Got<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Got<'a> {
    text: Option<String>,
    #[serde(default)]
    thought: bool,
    #[serde(borrow)]
    function_call: Option<Called<'a>>,
    thought_signature: Option<String>,
}

#[derive(Deserialize)]
struct Called<'a> {
    #[serde(default)]
    id: String,
    name: String,
    #[serde(borrow)]
    args: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Feedback {
    block_reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct Tokens {
    prompt_token_count: u64,
    tool_use_prompt_token_count: u64,
    cached_content_token_count: u64,
    candidates_token_count: u64,
    thoughts_token_count: u64,
}

#[derive(Deserialize)]
struct Problem {
    #[serde(default)]
    code: u16,
    #[serde(default)]
    message: String,
}

impl Reader for Answering {
    fn frame(&mut self, data: &str) -> Result<Vec<Piece>, Fault> {
        let frame: Frame<'_> = serde_json::from_str(data).map_err(|error| Fault::frame(&error))?;
        if let Some(Problem { code, message }) = frame.error {
            return Err(if code == 429 || code >= 500 { Fault::Failed(message) } else { Fault::Rejected(message) });
        }
        if let Some(tokens) = frame.usage_metadata {
            self.count(&tokens);
        }
        if frame.prompt_feedback.is_some_and(|feedback| feedback.block_reason.is_some()) {
            self.stop = Some(Stop::Refused);
        }
        match frame.candidates.into_iter().next() {
            Some(candidate) => self.candidate(candidate),
            None => Ok(Vec::new()),
        }
    }

    /// No frame says that it is the last, so the answer ends with the stream, if it has said why.
    fn closed(&mut self) -> Result<Vec<Piece>, Fault> {
        let stop = self.stop.ok_or_else(Fault::cut)?;
        self.assembly.finish(DIALECT, stop)
    }
}

impl Answering {
    fn candidate(&mut self, candidate: Candidate<'_>) -> Result<Vec<Piece>, Fault> {
        let mut pieces = Vec::new();
        for got in candidate.content.into_iter().flat_map(|content| content.parts) {
            pieces.extend(self.part(got)?);
        }
        if let Some(reason) = candidate.finish_reason {
            self.stop = Some(stop(&reason)?);
        }
        Ok(pieces)
    }

    fn part(&mut self, got: Got<'_>) -> Result<Option<Piece>, Fault> {
        let signature = got.thought_signature.as_deref().map(Json::string);
        if let Some(call) = got.function_call {
            let arguments = call.args.map_or("", RawValue::get);
            let call = Wanted { label: call.id.into(), name: call.name.into(), arguments: arguments.into() };
            self.assembly.call(call, signature)?;
            return Ok(None);
        }
        match got.text {
            // A summary of a thought is for people; the thought itself is in the signatures.
            Some(_) if got.thought => Ok(None),
            Some(text) => self.assembly.text(&text, signature),
            None => Ok(None),
        }
    }

    fn count(&mut self, tokens: &Tokens) {
        let usage = &mut self.assembly.usage;
        usage.input = tokens.prompt_token_count.saturating_add(tokens.tool_use_prompt_token_count);
        usage.cached = tokens.cached_content_token_count;
        usage.output = tokens.candidates_token_count.saturating_add(tokens.thoughts_token_count);
    }
}

fn stop(reason: &str) -> Result<Stop, Fault> {
    match reason {
        "STOP" => Ok(Stop::Done),
        "MAX_TOKENS" => Ok(Stop::Length),
        "MALFORMED_FUNCTION_CALL" => {
            Err(Fault::Failed("the model wrote a call its provider could not read".to_owned()))
        }
        // `SAFETY` and its kin, and reasons we do not know: an answer that ended oddly is not acted on.
        _ => Ok(Stop::Refused),
    }
}
