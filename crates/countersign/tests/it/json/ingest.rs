//! What is let in.

use countersign::json::{Bounds, IngestError};
use countersign::{Json, Limits};

use super::{arguments, json, read};

#[track_caller]
fn refused(text: &str) -> IngestError {
    match arguments(text) {
        Ok(json) => panic!("`{text}` was read as {json}"),
        Err(error) => error,
    }
}

/// B15: bad JSON never becomes a call.
#[test]
fn what_is_not_json_is_refused() {
    let texts = [
        "",
        " ",
        "{",
        "}",
        "{]",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{,}",
        "{\"a\":1 \"b\":2}",
        "{\"a\":1}}",
        "{\"a\":1} x",
        "{\"a\":1}{\"b\":2}",
        "{a:1}",
        "{'a':1}",
        "{\"a\":'1'}",
        "{\"a\":[1,]}",
        "{\"a\":[,1]}",
        "{\"a\":[1 2]}",
        "{\"a\":[1",
        "{\"a\":\"x",
        "{\"a\":tru}",
        "{\"a\":True}",
        "{\"a\":nul}",
        "{\"a\":truefalse}",
        "{\"a\":undefined}",
        "// c\n{}",
        "{}/* c */",
        "{\"a\":\"\n\"}",
        "{\"a\":\"\t\"}",
        "{\"a\":\"\u{0}\"}",
        "{\"a\":\"\\x41\"}",
        "{\"a\":\"\\u12\"}",
        "{\"a\":\"\\u12g4\"}",
        "{\"a\":\"\\u+123\"}",
        "{\"a\":\"\\",
        "{\"a\":\"\\u",
        "{\"a\":\"\\u123é\"}",
        "\u{b}{}",
        "\u{a0}{}",
        "{\u{2003}}",
        "{}\u{0}",
    ];
    for text in texts {
        assert!(matches!(refused(text), IngestError::Syntax { .. }), "{text:?} gave {:?}", refused(text));
    }
}

/// B15: a byte order mark is refused, since readers differ in whether they skip it.
#[test]
fn a_byte_order_mark_is_refused() {
    assert_eq!(refused("\u{feff}{}"), IngestError::Syntax { what: "a value", at: 0 });
    assert!(read("\"\u{feff}\"").is_ok(), "inside a string it is a character like any other");
}

/// B15: half a surrogate pair has no UTF-8 form, so readers replace it by different things.
#[test]
fn a_lone_surrogate_is_refused() {
    for half in [
        "\\ud800",
        "\\udfff",
        "\\ud83d x",
        "\\ud83d\\n",
        "\\ud83d\\u0041",
        "\\ud83d\\ud83d",
        "\\ude00\\ud83d",
        "\\ud83d\\u",
    ] {
        assert!(matches!(refused(&format!("{{\"a\":\"{half}\"}}")), IngestError::Syntax { .. }), "{half}");
    }
    assert_eq!(json("\"\\uD83D\\uDE00\"").as_str(), "\"😀\"");
}

/// B15: numbers in other than JSON's spelling, and those that become infinite, are refused.
#[test]
fn a_number_no_reader_agrees_on_is_refused() {
    let spellings = [
        "NaN",
        "Infinity",
        "-Infinity",
        "-NaN",
        "+1",
        ".5",
        "1.",
        "-",
        "-.5",
        "01",
        "-01",
        "00",
        "1e",
        "1e+",
        "1E-",
        "0x10",
        "1_000",
        "1.e5",
        "--1",
        "1e5.5",
        "0b1",
        "1 000",
        "٣",
        "1f",
    ];
    for spelling in spellings {
        assert!(matches!(refused(&format!("{{\"a\":{spelling}}}")), IngestError::Syntax { .. }), "{spelling}");
    }
    for spelling in ["1e400", "-1e400", "1e309", "1e301", "-1e301", &"9".repeat(302)] {
        assert!(
            matches!(refused(&format!("{{\"a\":{spelling}}}")), IngestError::NumberOutOfRange { at: 5 }),
            "{spelling}"
        );
    }
    for spelling in ["0", "-0", "0.0", "-0.0", "1e300", "1E+2", "1e-999", "0e0", "123456789012345678901234567890"] {
        assert_eq!(json(spelling).as_str(), spelling);
    }
}

/// B15: the same key twice, also by escape or letter case, also deep inside, is refused whatever the order.
#[test]
fn duplicate_keys_are_refused_up_to_letter_case() {
    let twins = [
        ("a", "a"),
        ("a", "A"),
        ("path", "Path"),
        ("a", "\\u0061"),
        ("a", "\\u0041"),
        ("", ""),
        ("é", "É"),
        ("é", "\\u00c9"),
        ("ß", "ẞ"),
        ("ss", "ß"),
        ("k", "\u{212a}"),
        ("s", "ſ"),
        ("σ", "ς"),
        ("Σ", "ς"),
        ("ﬁ", "fi"),
        ("i", "ı"),
        ("Ǆ", "ǅ"),
        ("a/b", "A\\/b"),
        ("ά", "Ά"),
        ("ᾳ", "ᾼ"),
    ];
    for (one, other) in twins {
        for (first, second) in [(one, other), (other, one)] {
            for text in [
                format!("{{\"{first}\":1,\"{second}\":2}}"),
                format!("{{\"{first}\":1,\"x\":[],\"{second}\":1}}"),
                format!("{{\"x\":[{{\"y\":{{\"{first}\":1,\"z\":0,\"{second}\":2}}}}]}}"),
            ] {
                assert!(matches!(refused(&text), IngestError::DuplicateKey { .. }), "{text}");
            }
        }
    }
    for text in ["{\"a\":{\"a\":{\"A\":1}}}", "[{\"a\":1},{\"A\":1}]", "{\"a\":1,\"b\":1,\"aa\":1}", "{\"a\":\"a\"}"] {
        assert!(read(text).is_ok(), "{text}");
    }
}

/// The refusal is read by models and written to logs.
#[test]
fn a_refused_key_is_safe_to_print_and_short() {
    let key = format!("\\u001b[31m\\u202e{}", "x".repeat(10_000));
    let text = refused(&format!("{{\"{key}\":1,\"{key}\":2}}")).to_string();
    assert!(text.contains("\\u{1b}[31m\\u{202e}xxx") && text.len() < 300, "{text}");
}

/// B15: arguments are an object.
#[test]
fn arguments_that_are_not_an_object_are_refused() {
    let kinds = [
        ("[]", "an array"),
        ("\"{}\"", "a string"),
        ("1", "a number"),
        ("-1", "a number"),
        ("true", "a boolean"),
        ("false", "a boolean"),
        ("null", "null"),
    ];
    for (text, found) in kinds {
        assert_eq!(refused(text), IngestError::NotAnObject { found });
    }
    assert_eq!(arguments(" {\r\n} ").unwrap(), Json::empty());
}

/// B15: size, depth and number of keys are bounded, exactly.
#[test]
fn bounds_hold_to_the_last_unit() {
    let bounds = Bounds { bytes: 20, depth: 3, keys: 2 };
    let read = |text: &str| Json::ingest(text, bounds);
    assert!(read(&format!("\"{}\"", "x".repeat(18))).is_ok());
    assert_eq!(read(&format!("\"{}\"", "x".repeat(19))), Err(IngestError::TooLong { found: 21, limit: 20 }));
    assert!(read("[[[]]]").is_ok() && read("[{\"a\":[]}]").is_ok());
    assert_eq!(read("[[[[]]]]"), Err(IngestError::TooDeep { limit: 3, at: 3 }));
    assert_eq!(read("[[[{}]]]"), Err(IngestError::TooDeep { limit: 3, at: 3 }));
    assert!(read("[{\"a\":1},{\"a\":1}]").is_ok());
    assert_eq!(read("[{\"a\":0,\"b\":{\"c\":0"), Err(IngestError::TooManyKeys { limit: 2 }));
    let limits = Limits { argument_bytes: 2, ..Limits::default() };
    assert!(Json::arguments("{}", &limits).is_ok() && Json::arguments("{ }", &limits).is_err());
}

/// A depth that an operator sets too high would be read here and by no other reader.
#[test]
fn no_bound_allows_more_depth_than_our_other_readers_have() {
    let bounds = Bounds { bytes: 1_000_000, depth: usize::MAX, keys: 10 };
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let deepest = Json::ingest(&nested(96), bounds).unwrap();
    assert!(deepest.value().is_array(), "serde_json still reads it");
    assert_eq!(Json::ingest(&nested(97), bounds), Err(IngestError::TooDeep { limit: 96, at: 96 }));
}
