//! An answer as the event stream of each dialect.

#![allow(clippy::indexing_slicing, reason = "every value indexed here is an object made a few lines before")]

use serde_json::{Value, json};

use super::{Dialect, Turn};

/// How many characters of a text or of arguments one frame carries, so that everything comes in several.
const PIECE: usize = 3;

/// The frames of an answer, each with the empty line that ends it.
pub(super) fn of(dialect: Dialect, turn: &Turn) -> Vec<String> {
    match dialect {
        Dialect::Anthropic => anthropic(turn),
        Dialect::Chat => chat(turn),
        Dialect::Responses => responses(turn),
        Dialect::Gemini => gemini(turn),
    }
}

fn pieces(text: &str) -> impl Iterator<Item = String> {
    let chars: Vec<char> = text.chars().collect();
    chars.chunks(PIECE).map(|piece| piece.iter().collect()).collect::<Vec<String>>().into_iter()
}

/// A frame with the name of its event, as Anthropic and the Responses API have it.
fn named(data: &Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap_or_default())
}

fn anthropic(turn: &Turn) -> Vec<String> {
    let usage = json!({ "input_tokens": 10, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 0, "output_tokens": 1 });
    let message = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": null, "usage": usage,
    });
    let mut frames = vec![json!({ "type": "message_start", "message": message }), json!({ "type": "ping" })];
    let mut index = 0;
    let mut block = |begin: Value, deltas: Vec<Value>| {
        frames.push(json!({ "type": "content_block_start", "index": index, "content_block": begin }));
        frames.extend(
            deltas.into_iter().map(|delta| json!({ "type": "content_block_delta", "index": index, "delta": delta })),
        );
        frames.push(json!({ "type": "content_block_stop", "index": index }));
        index += 1;
    };
    if let Some(signature) = &turn.thought {
        let thinking = json!({ "type": "thinking_delta", "thinking": "hm" });
        let signed = json!({ "type": "signature_delta", "signature": signature });
        block(json!({ "type": "thinking", "thinking": "", "signature": "" }), vec![thinking, signed]);
    }
    if !turn.text.is_empty() {
        let deltas = pieces(&turn.text).map(|text| json!({ "type": "text_delta", "text": text })).collect();
        block(json!({ "type": "text", "text": "" }), deltas);
    }
    for call in &turn.calls {
        let deltas =
            pieces(&call.arguments).map(|json| json!({ "type": "input_json_delta", "partial_json": json })).collect();
        block(json!({ "type": "tool_use", "id": call.label, "name": call.name, "input": {} }), deltas);
    }
    let reason = stop(turn, ["max_tokens", "tool_use", "end_turn"]);
    frames
        .push(json!({ "type": "message_delta", "delta": { "stop_reason": reason }, "usage": { "output_tokens": 7 } }));
    frames.push(json!({ "type": "message_stop" }));
    frames.iter().map(named).collect()
}

fn chat(turn: &Turn) -> Vec<String> {
    let chunk = |delta: Value, reason: Value| {
        let choices = json!([{ "index": 0, "delta": delta, "finish_reason": reason }]);
        json!({ "id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices })
    };
    let mut frames = vec![chunk(json!({ "role": "assistant", "content": null }), Value::Null)];
    frames.extend(pieces(&turn.text).map(|text| chunk(json!({ "content": text }), Value::Null)));
    for (index, call) in turn.calls.iter().enumerate() {
        let function = json!({ "name": call.name, "arguments": "" });
        let begin = json!({ "index": index, "id": call.label, "type": "function", "function": function });
        frames.push(chunk(json!({ "tool_calls": [begin] }), Value::Null));
        frames.extend(pieces(&call.arguments).map(|arguments| {
            chunk(json!({ "tool_calls": [{ "index": index, "function": { "arguments": arguments } }] }), Value::Null)
        }));
    }
    frames.push(chunk(json!({}), stop(turn, ["length", "tool_calls", "stop"]).into()));
    let usage = json!({ "prompt_tokens": 14, "completion_tokens": 7, "prompt_tokens_details": { "cached_tokens": 4 } });
    frames.push(json!({ "id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [], "usage": usage }));
    let frames = frames.iter().map(|frame| format!("data: {frame}\n\n"));
    frames.chain(["data: [DONE]\n\n".to_owned()]).collect()
}

fn responses(turn: &Turn) -> Vec<String> {
    let mut frames = vec![json!({ "type": "response.created", "response": { "id": "r1", "status": "in_progress" } })];
    let mut items = Vec::new();
    if let Some(signature) = &turn.thought {
        items.push(json!({ "type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": signature }));
    }
    if !turn.text.is_empty() {
        let index = items.len();
        frames.extend(pieces(&turn.text).map(|delta| {
            json!({ "type": "response.output_text.delta", "output_index": index, "content_index": 0, "delta": delta })
        }));
        let content = json!([{ "type": "output_text", "text": turn.text, "annotations": [] }]);
        items.push(
            json!({ "type": "message", "id": "m_1", "role": "assistant", "status": "completed", "content": content }),
        );
    }
    for call in &turn.calls {
        items.push(json!({
            "type": "function_call", "id": "fc_1", "call_id": call.label, "name": call.name, "arguments": call.arguments,
            "status": "completed",
        }));
    }
    for (index, item) in items.iter().enumerate() {
        frames.push(
            json!({ "type": "response.output_item.added", "output_index": index, "item": { "type": item["type"] } }),
        );
        frames.push(json!({ "type": "response.output_item.done", "output_index": index, "item": item }));
    }
    let usage = json!({ "input_tokens": 14, "output_tokens": 7, "input_tokens_details": { "cached_tokens": 4 } });
    frames.push(match turn.cut_by_length {
        true => json!({ "type": "response.incomplete", "response": { "usage": usage, "incomplete_details": { "reason": "max_output_tokens" } } }),
        false => json!({ "type": "response.completed", "response": { "usage": usage } }),
    });
    for (number, frame) in frames.iter_mut().enumerate() {
        frame["sequence_number"] = number.into();
    }
    frames.iter().map(named).collect()
}

fn gemini(turn: &Turn) -> Vec<String> {
    let mut parts: Vec<String> = pieces(&turn.text).map(|text| json!({ "text": text }).to_string()).collect();
    for (index, call) in turn.calls.iter().enumerate() {
        // Put together as text: the arguments are to arrive exactly as they are written, also where they are not JSON.
        let (id, name) = (json!(call.label), json!(call.name));
        let signature = turn.thought.as_ref().filter(|_| index == 0);
        let signature = signature.map(|signature| format!(r#","thoughtSignature":{}"#, json!(signature)));
        let args = if call.arguments.is_empty() { "{}" } else { &call.arguments };
        parts.push(format!(
            r#"{{"functionCall":{{"id":{id},"name":{name},"args":{args}}}{}}}"#,
            signature.unwrap_or_default()
        ));
    }
    let mut frames: Vec<String> = parts
        .iter()
        .map(|part| format!(r#"{{"candidates":[{{"content":{{"role":"model","parts":[{part}]}},"index":0}}]}}"#))
        .collect();
    let usage = json!({ "promptTokenCount": 14, "cachedContentTokenCount": 4, "candidatesTokenCount": 5, "thoughtsTokenCount": 2 });
    let reason = stop(turn, ["MAX_TOKENS", "STOP", "STOP"]);
    frames.push(json!({ "candidates": [{ "finishReason": reason, "index": 0 }], "usageMetadata": usage }).to_string());
    frames.iter().map(|frame| format!("data: {frame}\r\n\r\n")).collect()
}

fn stop(turn: &Turn, [length, calls, done]: [&'static str; 3]) -> &'static str {
    match turn {
        turn if turn.cut_by_length => length,
        turn if !turn.calls.is_empty() => calls,
        _ => done,
    }
}
