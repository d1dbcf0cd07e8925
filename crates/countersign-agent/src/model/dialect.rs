//! What the adapters have in common: how one asks, how one reads, and how an answer is put together.

use std::borrow::Cow;

use countersign::json::Json;
use reqwest::Url;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::fault::Fault;
use super::{ModelError, Piece, Prompt, Said, Stop, Usage, Wanted};
use crate::limits;

/// One provider's way of being asked.
pub(crate) trait Dialect: Send + Sync + 'static {
    /// Where the model is asked. Nothing if the base cannot be one.
    fn url(&self, base: Url, model: &str) -> Option<Url>;
    /// The header the key goes into, and what stands before it there.
    fn key_header(&self) -> (&'static str, &'static str);
    /// Other headers.
    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }
    /// The request's body.
    fn body(&self, ask: &Ask<'_>) -> Result<Vec<u8>, ModelError>;
    /// What reads one answer.
    fn reader(&self) -> Box<dyn Reader>;
}

/// What a model is asked, with the settings of its adapter.
#[derive(Clone, Copy)]
pub(crate) struct Ask<'a> {
    pub(crate) model: &'a str,
    pub(crate) prompt: &'a Prompt,
    pub(crate) max_tokens: Option<u32>,
    /// Whether the provider itself is asked, not another place that speaks its dialect.
    pub(crate) usual: bool,
}

/// Reads the frames of one answer.
pub(crate) trait Reader: Send {
    /// Reads one frame.
    fn frame(&mut self, data: &str) -> Result<Vec<Piece>, Fault>;
    /// The stream is over. Only a dialect that has no last frame may still end the answer here.
    fn closed(&mut self) -> Result<Vec<Piece>, Fault> {
        Err(Fault::cut())
    }
}

/// `base` with more of a path. `version` goes between them unless the base has one already.
pub(crate) fn under(mut base: Url, version: Option<&str>, path: &[&str]) -> Option<Url> {
    let is_version =
        |part: &str| part.strip_prefix('v').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let has_version = base.path_segments()?.any(is_version);
    let mut parts = base.path_segments_mut().ok()?;
    parts.pop_if_empty().extend(version.filter(|_| !has_version)).extend(path);
    drop(parts);
    Some(base)
}

/// Puts one answer together: what goes out as it comes, what is kept for the end, and in which order it all stood.
#[derive(Debug, Default)]
pub(crate) struct Assembly {
    parts: Vec<Part>,
    calls: Vec<Wanted>,
    pub(crate) usage: Usage,
}

/// One part of an answer. The order of all of them is what some providers want back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Part {
    /// So many bytes of the text, with what belongs to them.
    Text(usize, Option<Json>),
    /// The next call, with what belongs to it.
    Call(Option<Json>),
    /// Something only the provider understands.
    Kept(Json),
}

/// The parts of an answer and whose they are: another provider could not read them.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept<'a> {
    dialect: Cow<'a, str>,
    parts: Cow<'a, [Part]>,
}

impl Assembly {
    /// More text. `with` belongs to it.
    pub(crate) fn text(&mut self, text: &str, with: Option<Json>) -> Result<Option<Piece>, Fault> {
        match self.parts.last_mut() {
            Some(Part::Text(bytes, None)) if with.is_none() => *bytes += text.len(),
            _ if text.is_empty() && with.is_none() => return Ok(None),
            _ => self.part(Part::Text(text.len(), with))?,
        }
        Ok((!text.is_empty()).then(|| Piece::Text(text.to_owned())))
    }

    /// A whole call. `with` belongs to it.
    pub(crate) fn call(&mut self, call: Wanted, with: Option<Json>) -> Result<(), Fault> {
        if self.calls.len() >= limits::MODEL_CALLS {
            return Err(Fault::Unreadable(format!("it wants more than {} calls at once", limits::MODEL_CALLS)));
        }
        self.calls.push(call);
        self.part(Part::Call(with))
    }

    /// Something to be given back as it is.
    pub(crate) fn keep(&mut self, thing: &impl Serialize) -> Result<(), Fault> {
        self.part(Part::Kept(opaque(thing)?))
    }

    fn part(&mut self, part: Part) -> Result<(), Fault> {
        if self.parts.len() >= limits::MODEL_PARTS {
            return Err(Fault::Unreadable(format!("it has more than {} parts", limits::MODEL_PARTS)));
        }
        self.parts.push(part);
        Ok(())
    }

    /// The end: the calls, what goes back unchanged, what it all took.
    pub(crate) fn finish(&mut self, dialect: &'static str, stop: Stop) -> Result<Vec<Piece>, Fault> {
        // SECURITY: a call that was cut before its first byte must not become a call without arguments.
        if stop == Stop::Length && self.calls.last().is_some_and(|call| call.arguments.is_empty()) {
            self.calls.pop();
            let last = self.parts.iter().rposition(|part| matches!(part, Part::Call(_)));
            last.map(|last| self.parts.remove(last));
        }
        let stop = match (stop, self.calls.is_empty()) {
            (Stop::Done, false) => Stop::Calls,
            (Stop::Calls, true) => Stop::Done,
            (stop, _) => stop,
        };
        let opaque = self
            .parts
            .iter()
            .any(Part::is_opaque)
            .then(|| opaque(&Kept { dialect: dialect.into(), parts: (&self.parts[..]).into() }));
        let mut pieces: Vec<Piece> = self.calls.drain(..).map(whole).map(Piece::Call).collect();
        pieces.extend(opaque.transpose()?.map(Piece::Opaque));
        pieces.push(Piece::Usage(self.usage));
        pieces.push(Piece::End(stop));
        Ok(pieces)
    }
}

impl Part {
    fn is_opaque(&self) -> bool {
        match self {
            Part::Text(_, with) | Part::Call(with) => with.is_some(),
            Part::Kept(_) => true,
        }
    }
}

fn whole(call: Wanted) -> Wanted {
    if call.arguments.is_empty() { Wanted { arguments: "{}".into(), ..call } } else { call }
}

fn opaque(thing: &impl Serialize) -> Result<Json, Fault> {
    Json::of(thing).map_err(|error| Fault::Unreadable(format!("what is to go back unchanged cannot: {error}")))
}

/// A part of an answer on its way back to the model.
#[derive(Debug, PartialEq)]
pub(crate) enum Slot<'a> {
    /// Text, with what belongs to it.
    Text(&'a str, Option<Json>),
    /// The call at this place among the message's, with what belongs to it.
    Call(usize, Option<Json>),
    /// Something only the provider understands.
    Kept(Json),
}

/// What was said, in the order it was said if this dialect said it, and else text first.
pub(crate) fn slots<'a>(said: &'a Said, dialect: &str) -> Vec<Slot<'a>> {
    in_order(said, dialect).unwrap_or_else(|| {
        let text = (!said.text.is_empty()).then_some(Slot::Text(&said.text, None));
        text.into_iter().chain((0..said.calls.len()).map(|index| Slot::Call(index, None))).collect()
    })
}

/// The parts as they stood. Nothing if they are another's, or do not fit the text and the calls.
fn in_order<'a>(said: &'a Said, dialect: &str) -> Option<Vec<Slot<'a>>> {
    let kept: Kept<'_> = said.opaque.as_ref()?.read().ok().filter(|kept: &Kept<'_>| kept.dialect == dialect)?;
    let mut rest = said.text.as_str();
    let mut calls = 0;
    let mut slots = Vec::new();
    for part in kept.parts.iter() {
        slots.push(match part {
            Part::Text(bytes, with) => {
                let (text, after) = rest.split_at_checked(*bytes)?;
                rest = after;
                Slot::Text(text, with.clone())
            }
            Part::Call(with) => {
                calls += 1;
                Slot::Call(calls - 1, with.clone())
            }
            Part::Kept(thing) => Slot::Kept(thing.clone()),
        });
    }
    (rest.is_empty() && calls == said.calls.len()).then_some(slots)
}

/// A call's arguments as an object, for history: as the model wrote them where they are one.
pub(crate) fn object(arguments: &str) -> Box<RawValue> {
    #[derive(Serialize)]
    struct Malformed<'a> {
        malformed_arguments: &'a str,
    }
    let text = arguments.trim();
    let raw = text.starts_with('{').then(|| RawValue::from_string(text.to_owned()).ok()).flatten();
    raw.or_else(|| serde_json::value::to_raw_value(&Malformed { malformed_arguments: arguments }).ok())
        .unwrap_or_else(|| RawValue::NULL.to_owned())
}

/// A request's body as JSON.
pub(crate) fn json(body: &impl Serialize) -> Result<Vec<u8>, ModelError> {
    serde_json::to_vec(body).map_err(|error| ModelError::Settings(format!("the request is not JSON: {error}")))
}
