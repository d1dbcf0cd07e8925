//! What a server answers, as the result of a tool.

use countersign::{Json, ToolError};
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents, ServerResult};

use super::error::clipped;

/// The result of a call, or how the tool failed. At most `most` bytes of it.
pub(super) fn of(answer: ServerResult, most: usize) -> Result<Json, ToolError> {
    match answer {
        ServerResult::CallToolResult(result) => complete(&result, most),
        // It did not finish, and nothing more happens until its question is answered, which we do not.
        ServerResult::InputRequiredResult(_) => {
            Err(ToolError::Failed("the server asked for more input, which is not supported".to_owned()))
        }
        ServerResult::CreateTaskResult(_) => {
            Err(ToolError::NoAnswer("the server went on with it in the background".to_owned()))
        }
        _ => Err(ToolError::NoAnswer("the server answered with something that is no result".to_owned())),
    }
}

fn complete(result: &CallToolResult, most: usize) -> Result<Json, ToolError> {
    if result.is_error == Some(true) {
        let text = text(&result.content);
        return Err(ToolError::Failed(match text.is_empty() {
            true => "the tool failed and did not say why".to_owned(),
            false => clipped(&text),
        }));
    }
    match &result.structured_content {
        // What does not fit, or is no JSON by our rules, goes on as text that says what is left out.
        Some(value) => match Json::of(value) {
            Ok(json) if json.as_str().len() <= most => Ok(json),
            _ => Ok(cut(&value.to_string(), most)),
        },
        None => Ok(cut(&text(&result.content), most)),
    }
}

fn text(content: &[ContentBlock]) -> String {
    content.iter().map(part).collect::<Vec<_>>().join("\n")
}

/// One part as text. Models get no pictures from tools: they are named, not pasted as letters.
fn part(part: &ContentBlock) -> String {
    match part {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Image(image) => format!("[an image, {}]", image.mime_type),
        ContentBlock::Audio(audio) => format!("[a sound, {}]", audio.mime_type),
        ContentBlock::Resource(embedded) => match &embedded.resource {
            ResourceContents::TextResourceContents { text, .. } => text.clone(),
            ResourceContents::BlobResourceContents { uri, .. } => format!("[binary data, {uri}]"),
            _ => "[something that cannot be shown]".to_owned(),
        },
        ContentBlock::ResourceLink(link) => format!("[a link, {}]", link.uri),
        _ => "[something that cannot be shown]".to_owned(),
    }
}

fn cut(text: &str, most: usize) -> Json {
    if text.len() <= most {
        return Json::string(text);
    }
    let kept = text.get(..text.floor_char_boundary(most)).unwrap_or_default();
    Json::string(&format!("{kept}\n[{} bytes left out]", text.len() - kept.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[track_caller]
    fn check(answer: &Value, most: usize, expected: Result<&str, ToolError>) {
        let answer = ServerResult::CallToolResult(serde_json::from_value(answer.clone()).unwrap());
        let found = of(answer, most);
        assert_eq!(found.as_ref().map(|json| json.as_str()).map_err(Clone::clone), expected);
    }

    #[test]
    fn text_is_joined_and_structure_is_kept() {
        let two = json!({ "content": [{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }] });
        check(&two, 100, Ok(r#""a\nb""#));
        let structured = json!({ "content": [{ "type": "text", "text": "a" }], "structuredContent": { "b": 1 } });
        check(&structured, 100, Ok(r#"{"b":1}"#));
        let image = json!({ "content": [{ "type": "image", "data": "AAAA", "mimeType": "image/png" }] });
        check(&image, 100, Ok(r#""[an image, image/png]""#));
    }

    #[test]
    fn an_error_is_the_tools_own_word() {
        let failed = json!({ "content": [{ "type": "text", "text": "no such file" }], "isError": true });
        check(&failed, 100, Err(ToolError::Failed("no such file".to_owned())));
        let mute = json!({ "content": [], "isError": true });
        check(&mute, 100, Err(ToolError::Failed("the tool failed and did not say why".to_owned())));
    }

    #[test]
    fn what_is_too_long_says_what_is_left_out() {
        let long = json!({ "content": [{ "type": "text", "text": "aé".repeat(10) }] });
        check(&long, 5, Ok(r#""aéa\n[26 bytes left out]""#));
        let structured = json!({ "content": [], "structuredContent": { "long": "0123456789" } });
        check(&structured, 10, Ok(r#""{\"long\":\"0\n[11 bytes left out]""#));
    }
}
