//! Arguments as text to edit: laid out in lines, and with nothing in it that is drawn as something else.

use std::fmt::Write as _;

use countersign::Json;
use countersign::show::escape;

/// Lays JSON out over lines. Numbers keep their spelling; characters that would not be drawn as themselves are
/// written as JSON escapes, so what is edited is what is seen.
pub(crate) fn pretty(json: &Json) -> String {
    let mut out = String::new();
    let (mut depth, mut in_text, mut escaped) = (0usize, false, false);
    let mut chars = json.as_str().chars().peekable();
    while let Some(char) = chars.next() {
        if in_text {
            write_in_text(&mut out, char);
            in_text = escaped || char != '"';
            escaped = char == '\\' && !escaped;
            continue;
        }
        match char {
            '{' | '[' if chars.peek().is_some_and(|next| matches!(next, '}' | ']')) => out.push(char),
            '{' | '[' => {
                depth += 1;
                out.push(char);
                new_line(&mut out, depth);
            }
            '}' | ']' if out.ends_with(['{', '[']) => out.push(char),
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                new_line(&mut out, depth);
                out.push(char);
            }
            ',' => {
                out.push(char);
                new_line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            char => {
                in_text = char == '"';
                out.push(char);
            }
        }
    }
    out
}

/// JSON on one line, safe to draw. What would not be drawn as itself is written as a JSON escape.
pub(crate) fn on_one_line(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    json.chars().for_each(|char| write_in_text(&mut out, char));
    out
}

fn new_line(out: &mut String, depth: usize) {
    out.push('\n');
    out.push_str(&"  ".repeat(depth));
}

fn write_in_text(out: &mut String, char: char) {
    let mut buffer = [0; 4];
    let text: &str = char.encode_utf8(&mut buffer);
    if matches!(char, '\\' | ' ') || escape(text) == *text {
        return out.push(char);
    }
    let mut units = [0; 2];
    for unit in char.encode_utf16(&mut units) {
        let _ = write!(out, "\\u{unit:04x}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use countersign::json::Bounds;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let json = Json::ingest(text, Bounds::STORED).unwrap();
        let pretty = pretty(&json);
        assert_eq!(pretty, expected);
        assert_eq!(Json::ingest(&pretty, Bounds::STORED).unwrap(), json, "laid out, it is still the same");
    }

    #[test]
    fn laid_out_json_reads_back_to_the_same_bytes() {
        check("{}", "{}");
        check(r#"{"a":[],"b":{}}"#, "{\n  \"a\": [],\n  \"b\": {}\n}");
        check(
            r#"{"b":[1,2.50,18446744073709551616],"a":"x:{,\"\\"}"#,
            "{\n  \"a\": \"x:{,\\\"\\\\\",\n  \"b\": [\n    1,\n    2.50,\n    18446744073709551616\n  ]\n}",
        );
        check("{\"a\":\"é\u{202e}\u{e0041} b\"}", "{\n  \"a\": \"é\\u202e\\udb40\\udc41 b\"\n}");
    }
}
