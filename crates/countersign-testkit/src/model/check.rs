//! What the providers check about a request before they answer it.

#![allow(clippy::indexing_slicing, reason = "a member that a JSON value does not have reads as null")]

use std::collections::BTreeSet;

use axum::http::Uri;
use serde_json::Value;

use super::Dialect;

type Checked = Result<(), String>;

/// Whether the provider of this dialect would take the request.
pub(super) fn request(dialect: Dialect, uri: &Uri, body: &Value) -> Checked {
    match dialect {
        Dialect::Anthropic => anthropic(body),
        Dialect::Chat => chat(body),
        Dialect::Responses => responses(body),
        Dialect::Gemini => gemini(uri, body),
    }
}

fn need(holds: bool, why: &str) -> Checked {
    if holds { Ok(()) } else { Err(why.to_owned()) }
}

fn only(object: &Value, known: &[&str], what: &str) -> Checked {
    let keys = object.as_object().ok_or_else(|| format!("{what} is not an object"))?.keys();
    keys.into_iter().try_for_each(|key| need(known.contains(&key.as_str()), &format!("{what} has an unknown `{key}`")))
}

fn list<'a>(object: &'a Value, key: &str) -> Result<&'a [Value], String> {
    let list = object[key].as_array().ok_or_else(|| format!("`{key}` is not a list"))?;
    need(!list.is_empty(), &format!("`{key}` is empty"))?;
    Ok(list)
}

fn text<'a>(object: &'a Value, key: &str) -> Result<&'a str, String> {
    object[key]
        .as_str()
        .filter(|text| !text.trim().is_empty())
        .ok_or_else(|| format!("`{key}` is not a text, or empty"))
}

/// An id that can be one, and is no other call's.
fn fresh<'a>(object: &'a Value, key: &str, all: &mut BTreeSet<&'a str>) -> Result<&'a str, String> {
    let id = text(object, key)?;
    let plain = id.len() <= 64 && id.chars().all(|char| char.is_ascii_alphanumeric() || matches!(char, '_' | '-'));
    need(plain, "an id has characters it may not have")?;
    need(all.insert(id), "two calls have one id")?;
    Ok(id)
}

fn tools(list: &Value, schema: &str) -> Checked {
    for tool in list.as_array().into_iter().flatten() {
        text(tool, "name")?;
        need(tool[schema].is_object(), "a tool has no schema")?;
    }
    Ok(())
}

fn object_text(value: &Value) -> Checked {
    let read = value.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
    need(read.is_some_and(|value| value.is_object()), "arguments are not a JSON object in a string")
}

fn anthropic(body: &Value) -> Checked {
    only(body, &["model", "max_tokens", "messages", "system", "tools", "stream"], "the request")?;
    need(body["max_tokens"].as_u64().is_some_and(|tokens| tokens > 0), "max_tokens: Field required")?;
    need(body["stream"] == true, "only streams are scripted")?;
    tools(&body["tools"], "input_schema")?;
    let (mut all, mut open) = (BTreeSet::new(), Vec::new());
    let mut role = "assistant";
    for message in list(body, "messages")? {
        let expected = if role == "assistant" { "user" } else { "assistant" };
        role = text(message, "role")?;
        need(role == expected, "messages: roles must alternate, beginning with the user")?;
        let blocks = list(message, "content")?;
        need(role == "user" || open.is_empty(), "`tool_use` ids were found without `tool_result` blocks")?;
        let results = blocks.iter().take_while(|block| block["type"] == "tool_result");
        let ids = results.map(|block| text(block, "tool_use_id")).collect::<Result<Vec<&str>, String>>()?;
        need(
            role == "assistant" || ids == open,
            "`tool_result` blocks must come first and match the `tool_use` before",
        )?;
        open = Vec::new();
        for (index, block) in blocks.iter().enumerate() {
            match (role, text(block, "type")?) {
                (_, "text") => text(block, "text").map(drop)?,
                ("user", "tool_result") => tool_result(block, index < ids.len())?,
                ("assistant", "tool_use") => {
                    open.push(fresh(block, "id", &mut all)?);
                    need(block["input"].is_object(), "tool_use.input: Input should be a valid dictionary")?;
                }
                ("assistant", "thinking") if open.is_empty() => text(block, "signature").map(drop)?,
                (_, kind) => return Err(format!("a block of the kind `{kind}` cannot be here")),
            }
        }
    }
    need(role == "user", "the conversation must end with a user message")
}

fn tool_result(block: &Value, is_first: bool) -> Checked {
    only(block, &["type", "tool_use_id", "content", "is_error"], "a tool_result")?;
    need(is_first, "a `tool_result` after other content")
}

fn chat(body: &Value) -> Checked {
    let known = ["model", "messages", "tools", "stream", "stream_options", "max_tokens", "max_completion_tokens"];
    only(body, &known, "the request")?;
    need(body["stream"] == true, "only streams are scripted")?;
    for tool in body["tools"].as_array().into_iter().flatten() {
        need(tool["type"] == "function" && tool["function"]["parameters"].is_object(), "a tool is no function")?;
    }
    let (mut all, mut open) = (BTreeSet::new(), Vec::new());
    for message in list(body, "messages")? {
        let role = text(message, "role")?;
        let why = "an assistant message with 'tool_calls' must be followed by tool messages";
        need(role == "tool" || open.is_empty(), why)?;
        match role {
            "system" | "user" => text(message, "content").map(drop)?,
            "assistant" => {
                for call in message["tool_calls"].as_array().into_iter().flatten() {
                    open.push(fresh(call, "id", &mut all)?);
                    object_text(&call["function"]["arguments"])?;
                }
                need(message["content"].is_string() || !open.is_empty(), "an assistant message says nothing")?;
            }
            "tool" => {
                let id = text(message, "tool_call_id")?;
                let at = open.iter().position(|other| *other == id).ok_or("a tool message answers no call")?;
                open.remove(at);
                need(message["content"].is_string(), "a tool message says nothing")?;
            }
            other => return Err(format!("there is no role `{other}`")),
        }
    }
    need(open.is_empty(), "a call has no result")
}

fn responses(body: &Value) -> Checked {
    let known = ["model", "input", "instructions", "tools", "stream", "store", "include", "max_output_tokens"];
    only(body, &known, "the request")?;
    need(body["stream"] == true && body["store"] == false, "only streams without a store are scripted")?;
    tools(&body["tools"], "parameters")?;
    let (mut all, mut open) = (BTreeSet::new(), BTreeSet::new());
    for item in list(body, "input")? {
        match text(item, "type")? {
            "message" => {
                need(open.is_empty(), "No tool output found for function call")?;
                let kind = if item["role"] == "assistant" { "output_text" } else { "input_text" };
                for content in list(item, "content")? {
                    need(content["type"] == kind, "a message has content of the other side")?;
                    text(content, "text")?;
                }
            }
            "function_call" => {
                open.insert(fresh(item, "call_id", &mut all)?);
                object_text(&item["arguments"])?;
            }
            "function_call_output" => {
                need(open.remove(text(item, "call_id")?), "No tool call found for function call output")?;
                need(item["output"].is_string(), "an output says nothing")?;
            }
            "reasoning" => text(item, "encrypted_content").map(drop)?,
            other => return Err(format!("there is no item `{other}`")),
        }
    }
    need(open.is_empty(), "No tool output found for function call")
}

fn gemini(uri: &Uri, body: &Value) -> Checked {
    need(uri.query() == Some("alt=sse"), "only `alt=sse` is scripted")?;
    only(body, &["contents", "systemInstruction", "tools", "generationConfig"], "the request")?;
    for tool in body["tools"].as_array().into_iter().flatten() {
        tools(&tool["functionDeclarations"], "parametersJsonSchema")?;
    }
    let mut open: Vec<&Value> = Vec::new();
    let mut role = "model";
    for content in list(body, "contents")? {
        let expected = if role == "model" { "user" } else { "model" };
        role = text(content, "role")?;
        need(role == expected, "Please ensure that multiturn requests alternate between user and model")?;
        let parts = list(content, "parts")?;
        let named = |part: &'_ Value, key: &str| (part[key]["id"].clone(), part[key]["name"].clone());
        let responses: Vec<_> = parts
            .iter()
            .filter(|part| !part["functionResponse"].is_null())
            .map(|part| named(part, "functionResponse"))
            .collect();
        let calls: Vec<_> = open.iter().map(|part| named(part, "functionCall")).collect();
        need(role == "model" || responses == calls, "function response parts must equal function call parts")?;
        open = parts.iter().filter(|part| !part["functionCall"].is_null()).collect();
        need(role == "model" || open.is_empty(), "a user cannot call functions")?;
        parts.iter().try_for_each(gemini_part)?;
    }
    need(role == "user" && open.is_empty(), "the conversation must end with the user")
}

fn gemini_part(part: &Value) -> Checked {
    only(part, &["text", "functionCall", "functionResponse", "thoughtSignature"], "a part")?;
    let things = ["text", "functionCall", "functionResponse"].iter().filter(|key| !part[**key].is_null());
    need(things.count() == 1, "a part must be exactly one thing")?;
    for (thing, member) in [("functionCall", "args"), ("functionResponse", "response")] {
        need(part[thing].is_null() || part[thing][member].is_object(), "not an object")?;
    }
    Ok(())
}
