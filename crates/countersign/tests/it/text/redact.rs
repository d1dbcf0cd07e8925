//! Masking of secrets.

use countersign::Json;
use countersign::redact::{RedactError, Redactor};
use serde_json::Value;

use super::json;
use crate::seed::Seed;

fn redactor(keys: &[&str], values: &[&str]) -> Redactor {
    let own = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    Redactor::new(&own(keys), &own(values)).unwrap()
}

#[track_caller]
fn marks(schema: &str, arguments: &str, masked: &str) {
    let found = Redactor::none().arguments(&json(arguments), Some(&json(schema)));
    assert_eq!(found.as_ref().map_or("nothing", Json::as_str), masked);
}

/// What a schema calls `writeOnly` or `format: password` is masked whole, wherever the schema says so.
#[test]
fn what_the_schema_marks_is_masked() {
    let secret = "{\"writeOnly\":true}";
    let password = "{\"type\":\"string\",\"format\":\"password\"}";
    let arguments = "{\"a\":1,\"p\":\"hunter2\"}";
    let masked = "{\"a\":1,\"p\":\"[masked: 7 bytes]\"}";
    for mark in [secret, password] {
        let property = format!("{{\"properties\":{{\"p\":{mark}}}}}");
        marks(&property, arguments, masked);
        for keyword in ["allOf", "anyOf", "oneOf"] {
            marks(&format!("{{\"{keyword}\":[{{}},{property}]}}"), arguments, masked);
            marks(
                &format!("{{\"properties\":{{\"p\":{{\"{keyword}\":[{{\"type\":\"string\"}},{mark}]}}}}}}"),
                arguments,
                masked,
            );
        }
        marks(&format!("{{\"if\":{{}},\"then\":{property}}}"), arguments, masked);
        marks(&format!("{{\"$ref\":\"#/$defs/x\",\"$defs\":{{\"x\":{property}}}}}"), arguments, masked);
        marks(
            &format!(
                "{{\"properties\":{{\"p\":{{\"$ref\":\"#/definitions/a~1b\"}}}},\"definitions\":{{\"a/b\":{mark}}}}}"
            ),
            arguments,
            masked,
        );
        marks(&format!("{{\"patternProperties\":{{\"^p$\":{mark}}}}}"), arguments, masked);
        marks(&format!("{{\"properties\":{{\"a\":{{}}}},\"additionalProperties\":{mark}}}"), arguments, masked);
        marks(
            &format!("{{\"properties\":{{\"o\":{property}}}}}"),
            "{\"o\":{\"p\":[1,2]}}",
            "{\"o\":{\"p\":\"[masked: 5 bytes]\"}}",
        );
        marks(
            &format!("{{\"properties\":{{\"l\":{{\"items\":{property}}}}}}}"),
            "{\"l\":[{\"p\":\"é\"},{\"q\":1}]}",
            "{\"l\":[{\"p\":\"[masked: 2 bytes]\"},{\"q\":1}]}",
        );
        marks(
            &format!("{{\"properties\":{{\"l\":{{\"prefixItems\":[{{}},{mark}]}}}}}}"),
            "{\"l\":[\"a\",\"b\",\"c\"]}",
            "{\"l\":[\"a\",\"[masked: 1 bytes]\",\"c\"]}",
        );
        marks(
            &format!("{{\"properties\":{{\"l\":{{\"prefixItems\":[{{}}],\"items\":{mark}}}}}}}"),
            "{\"l\":[\"a\",\"b\",null]}",
            "{\"l\":[\"a\",\"[masked: 1 bytes]\",\"[masked: 4 bytes]\"]}",
        );
    }
    let tree = "{\"$defs\":{\"n\":{\"properties\":{\"k\":{\"writeOnly\":true},\"c\":{\"$ref\":\"#/$defs/n\"}}}},\"$ref\":\"#/$defs/n\"}";
    marks(tree, "{\"c\":{\"c\":{\"k\":\"abc\",\"v\":1.0}}}", "{\"c\":{\"c\":{\"k\":\"[masked: 3 bytes]\",\"v\":1.0}}}");
}

/// What the schema does not mark is not hidden.
#[test]
fn what_the_schema_does_not_mark_stays() {
    marks("{\"properties\":{\"p\":{\"writeOnly\":false}}}", "{\"p\":1}", "nothing");
    marks("{\"properties\":{\"p\":{\"writeOnly\":true}}}", "{\"q\":1}", "nothing");
    marks("{\"properties\":{\"writeOnly\":{\"type\":\"boolean\"}}}", "{\"writeOnly\":true}", "nothing");
    marks("{\"properties\":{\"p\":{}},\"additionalProperties\":{\"writeOnly\":true}}", "{\"p\":\"x\"}", "nothing");
    assert_eq!(Redactor::none().arguments(&json("{\"password\":\"x\"}"), None), None);
    assert_eq!(Redactor::standard().arguments(&json("{\"password\":\"x\"}"), None), None);
}

/// SECURITY: where the marks cannot be found, everything might be one.
#[test]
fn a_schema_that_cannot_be_followed_masks() {
    marks(
        "{\"$ref\":\"http://x.invalid/writeOnly\",\"title\":\"writeOnly\",\"writeOnly\":false}",
        "{\"p\":1}",
        "\"[masked: 7 bytes]\"",
    );
    marks("{\"patternProperties\":{\"(?=p)\":{\"writeOnly\":true}}}", "{\"p\":1}", "{\"p\":\"[masked: 1 bytes]\"}");
}

/// An operator's key patterns hold in any letter case and mask the whole value.
#[test]
fn matching_keys_are_masked_in_any_case() {
    let redactor = redactor(&["*token*", "pass?", "K"], &[]);
    let arguments = json(
        "{\"API_Token\":{\"x\":[1]},\"TOKENS\":1e5,\"path\":\"/a\",\"Pass1\":\"\",\"deep\":[{\"token\":null}],\"\u{212a}\":\"abc\"}",
    );
    assert_eq!(
        redactor.arguments(&arguments, None).unwrap().as_str(),
        "{\"API_Token\":\"[masked: 9 bytes]\",\"Pass1\":\"[masked: 0 bytes]\",\"TOKENS\":\"[masked: 3 bytes]\",\"deep\":[{\"token\":\"[masked: 4 bytes]\"}],\"path\":\"/a\",\"\u{212a}\":\"[masked: 3 bytes]\"}"
    );
}

/// An operator's value patterns mask only what matches, in texts, numbers and names.
#[test]
fn matching_values_are_masked_by_span() {
    let redactor = redactor(&[], &["[0-9]{4,}", "(?i)secret-[a-z]+"]);
    let arguments = json(
        "{\"a\":\"pin 1234, not 567\",\"b\":12345,\"c\":12,\"secret-x\":1,\"secret-y\":2,\"d\":[\"SECRET-abc1234\"]}",
    );
    assert_eq!(
        redactor.arguments(&arguments, None).unwrap().as_str(),
        "{\"[masked: 8 bytes]\":1,\"[masked: 8 bytes] 2\":2,\"a\":\"pin [masked: 4 bytes], not 567\",\"b\":\"[masked: 5 bytes]\",\"c\":12,\"d\":[\"[masked: 14 bytes]\"]}"
    );
    assert_eq!(redactor.text("pin 1234"), "pin [masked: 4 bytes]");
    assert!(matches!(redactor.text("pin 123"), std::borrow::Cow::Borrowed("pin 123")));
}

/// Patterns that cannot work are refused when they are set, not skipped when they are needed.
#[test]
fn broken_patterns_are_refused() {
    let new = |keys: &[&str], values: &[&str]| {
        let own = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        Redactor::new(&own(keys), &own(values)).unwrap_err()
    };
    assert_eq!(new(&["a[b"], &[]), RedactError::Key("a[b".into()));
    assert_eq!(new(&[""], &[]), RedactError::Key(String::new()));
    assert_eq!(new(&[], &["(a"]), RedactError::Value("(a".into()));
    assert_eq!(new(&[], &["(?=a)"]), RedactError::Value("(?=a)".into()));
    assert_eq!(new(&[], &["(a{1000}){1000}"]), RedactError::Value("(a{1000}){1000}".into()));
    assert_eq!(new(&[], &["a*"]), RedactError::Empty("a*".into()));
    assert!(matches!(new(&[], &vec!["a"; 1_001]), RedactError::TooMany { .. }));
}

/// Secrets of well-known shape are found anywhere in a text; what only resembles them is left.
#[test]
fn well_known_secrets_are_masked() {
    let redactor = Redactor::standard();
    // Put together here so that no scanner takes this file for a leak.
    let secrets = [
        format!("sk-{}", "a1B2".repeat(8)),
        format!("sk-ant-{}", "a1-_".repeat(8)),
        format!("sk_live_{}", "a1B2".repeat(6)),
        format!("ghp_{}", "a1B2".repeat(9)),
        format!("github_pat_{}", "a1B2_".repeat(9)),
        format!("glpat-{}", "a1B2".repeat(5)),
        format!("xoxb-{}", "123456-".repeat(3)),
        format!("AKIA{}", "ABCD1234EFGH5678"),
        format!("AIza{}", "a".repeat(35)),
        format!("eyJ{0}.eyJ{0}.{0}", "abcdefgh12"),
        format!("-----BEGIN {0}-----\nMIIabc\n\n-----END {0}-----", "RSA PRIVATE KEY"),
        format!("-----BEGIN {}-----\nMIIabc cut", "PRIVATE KEY"),
    ];
    for secret in &secrets {
        let text = format!("use {secret}");
        assert_eq!(redactor.text(&text), format!("use [masked: {} bytes]", secret.len()), "{secret}");
        let arguments = Json::of(&serde_json::json!({ "cmd": text, "n": [text] })).unwrap();
        let masked = redactor.arguments(&arguments, None).unwrap();
        assert!(!masked.as_str().contains(secret.as_str()) && masked.field("n").is_some());
    }
    assert_eq!(redactor.text("Authorization: Bearer abcdefghijklmnop1234"), "Authorization: [masked: 27 bytes]");
    assert_eq!(redactor.text("psql postgres://ann:pw@db/x"), "psql postgres[masked: 10 bytes]db/x");
    for harmless in [
        "task-list",
        "sk-short",
        "desk_lamp",
        "AKIA",
        "http://host:80/a@b",
        "bearer of news",
        "-----BEGIN CERTIFICATE-----",
        "risk-assessment-for-the-year",
    ] {
        assert_eq!(redactor.text(harmless), harmless);
    }
}

/// Masking changes masked leaves only: keys, order, other values and their spelling stay.
#[test]
fn masking_keeps_structure() {
    let redactor = redactor(&["*token*"], &["[0-9]{6,}"]);
    let schema = json("{\"properties\":{\"x\":{\"writeOnly\":true}}}");
    let mut masked = 0;
    for number in 0..5_000 {
        let mut seed = Seed::new(number);
        let arguments = json(&random_object(&mut seed, 3));
        if let Some(shown) = redactor.arguments(&arguments, Some(&schema)) {
            assert_ne!(shown, arguments, "seed {number}");
            assert_eq!(json(shown.as_str()), shown, "seed {number}: the mask is canonical");
            alike(&arguments.value(), &shown.value(), &format!("seed {number}: {arguments}"));
            assert!(!shown.as_str().contains("123456"), "seed {number}: {shown}");
            masked += 1;
        } else {
            assert!(!arguments.as_str().contains("123456"), "seed {number}: {arguments}");
        }
    }
    assert!(masked > 1_000, "{masked}");
}

fn alike(real: &Value, shown: &Value, at: &str) {
    match (real, shown) {
        (_, Value::String(text)) if text.contains("[masked: ") => {}
        (Value::Object(real), Value::Object(shown)) => {
            assert_eq!(real.len(), shown.len(), "{at}");
            for (key, value) in real {
                alike(value, shown.get(key).unwrap_or_else(|| panic!("{at}: {key} is gone")), at);
            }
        }
        (Value::Array(real), Value::Array(shown)) => {
            assert_eq!(real.len(), shown.len(), "{at}");
            real.iter().zip(shown).for_each(|(real, shown)| alike(real, shown, at));
        }
        _ => assert_eq!(real, shown, "{at}"),
    }
}

fn random_object(seed: &mut Seed, depth: usize) -> String {
    let keys = ["a", "token", "my_Token_2", "x", "list", "z"];
    let mut members = Vec::new();
    for key in keys {
        let value = match seed.below(if depth == 0 { 5 } else { 8 }) {
            0 => "\"text 123456 and more\"".to_owned(),
            1 => "1234567.50".to_owned(),
            2 => "\"plain\"".to_owned(),
            3 => "1.0".to_owned(),
            4 => continue,
            5 => format!("[{},1E2]", random_object(seed, depth - 1)),
            _ => random_object(seed, depth - 1),
        };
        members.push(format!("\"{key}\":{value}"));
    }
    format!("{{{}}}", members.join(","))
}

/// A hostile schema costs bounded time, and what could not be searched is masked.
#[test]
fn a_search_that_takes_too_long_masks_everything() {
    let branch = (0..3_000).map(|_| "{\"items\":{\"$ref\":\"#\"}}").collect::<Vec<_>>().join(",");
    let schema = json(&format!("{{\"title\":\"writeOnly\",\"anyOf\":[{branch}],\"writeOnly\":false}}"));
    let arguments = json(&format!("[{}\"end\"]", "[[0]],".repeat(20_000)));
    let masked = Redactor::none().arguments(&arguments, Some(&schema)).unwrap();
    assert!(masked.as_str().ends_with("[\"[masked: 3 bytes]\"],\"end\"]"), "what was searched in time is not");
}
