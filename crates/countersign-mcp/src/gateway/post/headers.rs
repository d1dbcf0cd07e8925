//! The headers that repeat parts of a message, so that those on the way need not read it.
//!
//! SECURITY: they are made from the bytes that are sent, and compared with the bytes that came; a server that looks only
//! at them and one that looks only at the message see the same.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use countersign::Json;
use reqwest::header::{HeaderName, HeaderValue};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::gateway::message::pick;

/// Headers that repeat arguments of a call.
pub(crate) type Mirrored = Vec<(HeaderName, HeaderValue)>;

const WRAPPED: (&str, &str) = ("=?base64?", "?=");

/// What a request's `Mcp-Name` must say; none where it has none.
pub(crate) fn name_of(method: &str, params: Option<&RawValue>) -> Option<String> {
    let member = match method {
        "tools/call" | "prompts/get" => "name",
        "resources/read" | "resources/subscribe" | "resources/unsubscribe" => "uri",
        "tasks/get" | "tasks/update" | "tasks/cancel" => "taskId",
        _ => return None,
    };
    let [raw] = pick(params?.get(), [member]).ok()?;
    serde_json::from_str(raw?.get()).ok()
}

/// A text as the value of a header, wrapped where it cannot be one as it is.
pub(super) fn encoded(text: &str) -> Option<HeaderValue> {
    let plain = text.bytes().all(|byte| (0x20..=0x7e).contains(&byte))
        && text.trim() == text
        && !(text.starts_with(WRAPPED.0) && text.ends_with(WRAPPED.1));
    match plain {
        true => HeaderValue::from_str(text).ok(),
        false => HeaderValue::from_str(&[WRAPPED.0, &BASE64_STANDARD.encode(text), WRAPPED.1].concat()).ok(),
    }
}

/// Reads such a value; none where it is no text.
pub(crate) fn decoded(value: &HeaderValue) -> Option<String> {
    let text = value.to_str().ok()?;
    match text.strip_prefix(WRAPPED.0).and_then(|rest| rest.strip_suffix(WRAPPED.1)) {
        Some(wrapped) => String::from_utf8(BASE64_STANDARD.decode(wrapped).ok()?).ok(),
        None => Some(text.to_owned()),
    }
}

/// The arguments that a tool's schema wants repeated in headers, from the bytes that run.
pub(crate) fn mirrored(schema: &Json, arguments: &Json) -> Mirrored {
    let mut found = Vec::new();
    if schema.as_str().contains("x-mcp-header") {
        collect(&schema.value(), &arguments.value(), &mut found);
    }
    found
}

fn collect(schema: &Value, arguments: &Value, found: &mut Mirrored) {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
    for (name, property) in properties {
        let Some(argument) = arguments.get(name) else { continue };
        collect(property, argument, found);
        let header = property.get("x-mcp-header").and_then(Value::as_str);
        let header = header.and_then(|header| HeaderName::try_from(format!("mcp-param-{header}")).ok());
        let text = match argument {
            Value::String(text) => Some(text.clone()),
            Value::Bool(_) | Value::Number(_) => Some(argument.to_string()),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        };
        found.extend(header.zip(text.and_then(|text| encoded(&text))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use countersign::json::Bounds;

    #[test]
    fn a_text_survives_being_a_header() {
        for text in ["rm", "a b", " padded ", "größe", "=?base64?eA==?=", "line\nbreak", ""] {
            assert_eq!(decoded(&encoded(text).unwrap()).as_deref(), Some(text), "{text:?}");
        }
        assert_eq!(encoded("rm").unwrap(), "rm");
        assert_eq!(decoded(&HeaderValue::from_static("=?base64?!?=")), None);
    }

    /// What the headers say is what the approved arguments say, whatever the client sent.
    #[test]
    fn headers_follow_the_body() {
        let json = |text: &str| Json::ingest(text, Bounds::PAYLOAD).unwrap();
        let schema = json(
            r#"{"properties":{"region":{"type":"string","x-mcp-header":"Region"},"where":{"properties":{"zone":{"type":"integer","x-mcp-header":"Zone"}}},"list":{"x-mcp-header":"List"},"plain":{}}}"#,
        );
        let mut found = mirrored(&schema, &json(r#"{"region":"eu","where":{"zone":3},"list":[1],"plain":"x"}"#));
        found.sort_by(|left, right| left.0.as_str().cmp(right.0.as_str()));
        let found: Vec<_> = found.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        assert_eq!(found, [("mcp-param-region", "eu"), ("mcp-param-zone", "3")]);
    }
}
