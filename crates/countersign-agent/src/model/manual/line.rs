//! One typed line as calls or as text.

use std::sync::Arc;

use serde_json::value::RawValue;

use crate::limits;
use crate::model::Offer;

/// What a line means.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Typed {
    /// The final answer.
    Text(String),
    /// Calls: tool and arguments.
    Calls(Vec<(Arc<str>, String)>),
}

/// Reads a line, or says what to type instead.
pub(super) fn read(line: &str, tools: &[Offer]) -> Result<Typed, String> {
    let line = line.trim();
    if line.len() > limits::MANUAL_LINE_BYTES {
        return Err(format!("that line is longer than {} bytes", limits::MANUAL_LINE_BYTES));
    }
    if line.is_empty() {
        return Err(format!("type a call or an answer; {}", offered(tools)));
    }
    if let Some(text) = line.strip_prefix("say ") {
        return Ok(Typed::Text(text.trim().to_owned()));
    }
    let (first, rest) = word(line);
    if !is_offered(first, tools) && !looks_like_arguments(rest) {
        return Ok(Typed::Text(line.to_owned()));
    }
    calls(line, tools).map(Typed::Calls)
}

fn calls(line: &str, tools: &[Offer]) -> Result<Vec<(Arc<str>, String)>, String> {
    let mut calls = Vec::new();
    let mut rest = line;
    while !rest.is_empty() {
        let (name, after) = word(rest);
        let Some(offer) = tools.iter().find(|offer| &*offer.name == name) else {
            return Err(format!("there is no tool `{name}`; {}; begin with `say` to answer in text", offered(tools)));
        };
        let (arguments, after) = arguments(name, after)?;
        calls.push((Arc::clone(&offer.name), arguments));
        if calls.len() > limits::MODEL_CALLS {
            return Err(format!("at most {} calls at once", limits::MODEL_CALLS));
        }
        rest = after;
    }
    Ok(calls)
}

/// The arguments of one call, and what stands after its `;`.
fn arguments<'a>(name: &str, text: &'a str) -> Result<(String, &'a str), String> {
    if text.starts_with('{') {
        let (raw, rest) = json(text).ok_or_else(|| format!("what stands after `{name}` is not a JSON object"))?;
        let rest =
            ended(rest).ok_or_else(|| format!("put ` ; ` between the arguments of `{name}` and the next call"))?;
        return Ok((raw.to_owned(), rest));
    }
    let mut pairs = Vec::new();
    let mut rest = text;
    loop {
        if let Some(after) = ended(rest) {
            return Ok((format!("{{{}}}", pairs.join(",")), after));
        }
        let (key, value, after) = pair(rest).ok_or_else(|| help(name, rest))?;
        pairs.push(format!("{}:{value}", serde_json::Value::from(key)));
        rest = after;
    }
}

/// What comes after the end of a call, if this is one.
fn ended(text: &str) -> Option<&str> {
    let text = text.trim_start();
    match text.strip_prefix(';') {
        _ if text.is_empty() => Some(text),
        Some(after) if after.is_empty() || after.starts_with(char::is_whitespace) => Some(after.trim_start()),
        Some(_) | None => None,
    }
}

/// `key=value`, the value as JSON text, and the rest of the line.
fn pair(text: &str) -> Option<(&str, String, &str)> {
    let (key, after) = text.trim_start().split_once('=')?;
    if key.is_empty() || key.contains(|char: char| char.is_whitespace() || matches!(char, '"' | '{' | '[')) {
        return None;
    }
    if after.starts_with(['"', '{', '[']) {
        let (value, rest) = json(after)?;
        let apart = rest.is_empty() || rest.starts_with(char::is_whitespace);
        return apart.then(|| (key, value.to_owned(), rest));
    }
    let (value, rest) = after.split_at(after.find(char::is_whitespace).unwrap_or(after.len()));
    let value = match serde_json::from_str::<&RawValue>(value) {
        Ok(_) => value.to_owned(),
        Err(_) => serde_json::Value::from(value).to_string(),
    };
    Some((key, value, rest))
}

/// The JSON value a text begins with, as it is written, and what stands after it.
fn json(text: &str) -> Option<(&str, &str)> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<&RawValue>();
    let value = values.next()?.ok()?;
    Some((value.get(), text.get(values.byte_offset()..)?))
}

fn word(text: &str) -> (&str, &str) {
    let (word, rest) = text.split_at(text.find(char::is_whitespace).unwrap_or(text.len()));
    (word, rest.trim_start())
}

fn is_offered(name: &str, tools: &[Offer]) -> bool {
    tools.iter().any(|offer| &*offer.name == name)
}

fn looks_like_arguments(rest: &str) -> bool {
    rest.starts_with('{') || pair(rest).is_some()
}

fn offered(tools: &[Offer]) -> String {
    let names: Vec<&str> = tools.iter().map(|offer| &*offer.name).collect();
    if names.is_empty() { "no tools are offered".to_owned() } else { format!("the tools are {}", names.join(", ")) }
}

fn help(name: &str, at: &str) -> String {
    let (word, _) = word(at.trim_start());
    format!(
        "`{word}` is not an argument; write `{name} key=value …` or `{name} {{\"key\": value}}`, put ` ; ` between \
         calls, or begin with `say` to answer in text"
    )
}

#[cfg(test)]
mod tests {
    use countersign::json::Json;

    use super::*;

    fn offers() -> Vec<Offer> {
        let offer = |name: &str| Offer { name: name.into(), description: "".into(), input_schema: Json::empty() };
        vec![offer("transfer_money"), offer("read")]
    }

    #[track_caller]
    fn calls(line: &str, expected: &[(&str, &str)]) {
        let expected = expected.iter().map(|(name, arguments)| (Arc::from(*name), (*arguments).to_owned())).collect();
        assert_eq!(read(line, &offers()), Ok(Typed::Calls(expected)), "{line}");
    }

    #[track_caller]
    fn text(line: &str, expected: &str) {
        assert_eq!(read(line, &offers()), Ok(Typed::Text(expected.to_owned())), "{line}");
    }

    #[track_caller]
    fn note(line: &str, word: &str) {
        let note = read(line, &offers()).unwrap_err();
        assert!(note.contains(word), "{line}: {note}");
    }

    #[test]
    fn values_are_json_where_they_can_be_and_text_where_not() {
        calls(
            r#"transfer_money amount=100 to="Bo Li" urgent=true tags=[1, 2]"#,
            &[("transfer_money", r#"{"amount":100,"to":"Bo Li","urgent":true,"tags":[1, 2]}"#)],
        );
        calls("read path=/etc/a;b line=01 none=null", &[("read", r#"{"path":"/etc/a;b","line":"01","none":null}"#)]);
        calls("read big=123456789012345678901234567890", &[("read", r#"{"big":123456789012345678901234567890}"#)]);
        calls("read eq=a=b empty=", &[("read", r#"{"eq":"a=b","empty":""}"#)]);
        calls("  read  ", &[("read", "{}")]);
    }

    #[test]
    fn a_whole_object_stays_as_it_is_written() {
        calls(r#"read {"a": 1, "a": 2}"#, &[("read", r#"{"a": 1, "a": 2}"#)]);
    }

    #[test]
    fn several_calls_stand_between_semicolons() {
        calls(
            r#"read a=1 ; transfer_money {"x":" ; "} ; read b="; read" ;"#,
            &[("read", r#"{"a":1}"#), ("transfer_money", r#"{"x":" ; "}"#), ("read", r#"{"b":"; read"}"#)],
        );
    }

    #[test]
    fn everything_else_is_text() {
        text("It is done.", "It is done.");
        text("say read path=x", "read path=x");
        text("{\"not\": \"a call\"}", "{\"not\": \"a call\"}");
    }

    #[test]
    fn what_is_neither_is_explained() {
        note("", "transfer_money, read");
        note("transfer amount=1", "no tool `transfer`; the tools are transfer_money, read");
        note("read the file", "`the` is not an argument");
        note("read {\"a\": ", "not a JSON object");
        note("read {\"a\": 1} b=2", "put ` ; ` between");
        note("read a=\"open", "is not an argument");
        note("read a=1 ; unknown", "no tool `unknown`");
        note(&"x".repeat(limits::MANUAL_LINE_BYTES + 1), "longer than");
    }
}
