//! Hostile text: what approvers see, what is masked, what a schema refuses.

mod escape;
mod redact;
#[cfg(feature = "schema")]
mod schema;
mod view;

use countersign::Json;
use countersign::json::Bounds;

use crate::seed::Seed;

pub(crate) fn json(text: &str) -> Json {
    Json::ingest(text, Bounds::STORED).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// A random text out of ordinary, hostile and random characters.
pub(crate) fn random_text(seed: &mut Seed, length: usize) -> String {
    let pieces = [
        "a",
        "b",
        " ",
        "  ",
        "\n",
        "\\",
        "\\n",
        "\\u{20}",
        "\\[",
        "{",
        "}",
        "]",
        "\"",
        ": ",
        "é",
        "\u{301}",
        "\u{1b}[2K",
        "\u{202e}",
        "\u{200b}",
        "\u{e0041}",
        "\u{feff}",
        "\u{2028}",
        "\u{85}",
        "\r",
        "\t",
        "\u{0}",
        "😀",
        "\u{fe0f}",
        "漢",
        "а",
        "57 blanks]",
    ];
    let mut out = String::new();
    for _ in 0..seed.below(length + 1) {
        match seed.below(12) {
            0 => out.push_str(&" ".repeat(seed.below(60))),
            1 => out.push_str(&"\n".repeat(seed.below(20))),
            2 | 3 => out.extend(char::from_u32(seed.below(0x11_0000) as u32)),
            4 => out.extend(char::from_u32(seed.below(0x3000) as u32)),
            _ => out.push_str(seed.pick(&pieces)),
        }
    }
    out
}

/// Reads an escaped text back. Written against the documentation, not the code.
pub(crate) fn unescape(shown: &str) -> String {
    let mut out = String::new();
    let mut rest = shown;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let (first, after) = rest.split_at(1);
        rest = after;
        match first {
            "\\" => out.push('\\'),
            "n" => out.push('\n'),
            "r" => out.push('\r'),
            "t" => out.push('\t'),
            "\"" => out.push('"'),
            "u" => {
                let (hex, after) = rest.strip_prefix('{').unwrap().split_once('}').unwrap();
                out.push(char::from_u32(u32::from_str_radix(hex, 16).unwrap()).unwrap());
                rest = after;
            }
            "[" => {
                let (run, after) = rest.split_once(']').unwrap();
                let (length, what) = run.split_once(' ').unwrap();
                let one = match what {
                    "blanks" => " ",
                    "tabs" => "\t",
                    "line breaks" => "\n",
                    other => panic!("unknown run `{other}`"),
                };
                out.push_str(&one.repeat(length.parse().unwrap()));
                rest = after;
            }
            other => panic!("unknown escape `\\{other}` in {shown:?}"),
        }
    }
    out + rest
}

/// Whether a character may reach a terminal or page as it is. By the Unicode tables, not by the code under test.
pub(crate) fn is_safe(text: &str) -> bool {
    use std::sync::LazyLock;
    static UNSAFE: LazyLock<regex::Regex> = LazyLock::new(|| {
        regex::Regex::new(
            r"[\p{Cc}\p{Cf}\p{Co}\p{Cn}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\p{Bidi_Control}]|[\p{Zs}&&[^ ]]",
        )
        .unwrap()
    });
    !UNSAFE.is_match(text)
}

/// Without the checker a schema is not ignored: a tool that has one cannot be used.
#[cfg(not(feature = "schema"))]
#[test]
fn without_the_feature_a_schema_is_refused() {
    use countersign::schema::{Schema, SchemaError};
    for schema in [
        "{\"required\":[\"a\"]}",
        "{\"properties\":{\"a\":{}}}",
        "{\"type\":\"string\"}",
        "false",
        "{\"$ref\":\"#/x\",\"x\":{}}",
    ] {
        assert_eq!(Schema::compile(&json(schema)).map(|_| ()), Err(SchemaError::Unsupported), "{schema}");
    }
    for schema in ["true", "{}", "{\"type\":\"object\",\"properties\":{},\"title\":\"t\"}"] {
        let schema = Schema::compile(&json(schema)).unwrap();
        assert_eq!(schema.check(&json("{\"a\":1}")), Ok(()));
        assert!(schema.check(&json("[]")).is_err());
    }
}
