//! Arguments against a tool's schema.

use countersign::schema::{Schema, SchemaError};

use super::json;

fn compile(schema: &str) -> Result<Schema, SchemaError> {
    Schema::compile(&json(schema))
}

#[track_caller]
fn faults(schema: &str, arguments: &str) -> Vec<String> {
    compile(schema).unwrap().check(&json(arguments)).err().unwrap_or_default()
}

const REFUND: &str = r#"{"type":"object","required":["id"],"additionalProperties":false,"properties":{
    "id":{"type":"string","pattern":"^c-[0-9]+$"},"amount":{"type":"number","maximum":100,"exclusiveMinimum":0},
    "currency":{"enum":["EUR","USD"]},"pin":{"type":"string","writeOnly":true,"minLength":10,"pattern":"^[0-9]+$"},
    "lines":{"type":"array","items":{"type":"object","properties":{"n":{"type":"integer"}}}}}}"#;

/// B15: what does not fit is refused with its place, before anybody is asked.
#[test]
fn faults_name_the_place_and_what_is_wrong() {
    assert_eq!(
        faults(REFUND, r#"{"id":"c-1","amount":99.5,"currency":"EUR","lines":[{"n":1},{}]}"#),
        Vec::<String>::new()
    );
    let table = [
        (r#"{}"#, "/: \"id\" is a required property"),
        (r#"{"id":7}"#, "/id: value is not of type \"string\""),
        (r#"{"id":"x"}"#, "/id: value does not match \"^c-[0-9]+$\""),
        (r#"{"id":"c-1","amount":101}"#, "/amount: value is greater than the maximum of 100"),
        (r#"{"id":"c-1","amount":0}"#, "/amount: value is less than or equal to the minimum of 0"),
        (r#"{"id":"c-1","currency":"GBP"}"#, "/currency: value is not one of \"EUR\" or \"USD\""),
        (r#"{"id":"c-1","extra":1}"#, "/: Additional properties are not allowed ('extra' was unexpected)"),
        (r#"{"id":"c-1","lines":[{"n":1},{"n":1.5}]}"#, "/lines/1/n: value is not of type \"integer\""),
    ];
    for (arguments, expected) in table {
        assert_eq!(faults(REFUND, arguments), [expected]);
    }
}

/// A message never repeats a value: it may be a secret.
#[test]
fn faults_never_repeat_a_value() {
    for (schema, arguments) in [
        (REFUND, r#"{"id":"c-1","pin":"hunter2"}"#),
        (r#"{"properties":{"p":{"const":"x"}}}"#, r#"{"p":"hunter2"}"#),
        (r#"{"properties":{"p":{"not":{"type":"string"}}}}"#, r#"{"p":"hunter2"}"#),
        (r#"{"properties":{"p":{"anyOf":[{"type":"null"},{"maxLength":1}]}}}"#, r#"{"p":"hunter2"}"#),
        (r#"{"properties":{"p":{"oneOf":[{},{}]}}}"#, r#"{"p":"hunter2"}"#),
        (r#"{"properties":{"p":{"uniqueItems":true}}}"#, r#"{"p":["hunter2","hunter2"]}"#),
        (r#"{"properties":{"p":{"contains":{"type":"null"}}}}"#, r#"{"p":["hunter2"]}"#),
        (r#"{"properties":{"p":{"multipleOf":2}}}"#, r#"{"p":8675309}"#),
        (r#"{"properties":{"p":{"prefixItems":[{}],"items":false}}}"#, r#"{"p":[1,"hunter2"]}"#),
        (r#"{"properties":{"p":{"prefixItems":[{}],"unevaluatedItems":false}}}"#, r#"{"p":[1,"hunter2"]}"#),
        (r#"{"properties":{"p":false}}"#, r#"{"p":"hunter2"}"#),
        (r#"{"properties":{"p":{"dependentRequired":{"a":["b"]}}}}"#, r#"{"p":{"a":"hunter2"}}"#),
        (
            r#"{"$schema":"http://json-schema.org/draft-07/schema#","properties":{"p":{"format":"email"}}}"#,
            r#"{"p":"hunter2"}"#,
        ),
        (
            r#"{"properties":{"p":{"contentEncoding":"base64"}},"$schema":"http://json-schema.org/draft-07/schema#"}"#,
            r#"{"p":"hunter2!"}"#,
        ),
        (r#"{"properties":{"p":{"maxProperties":0}}}"#, r#"{"p":{"k":"hunter2"}}"#),
        (r#"{"properties":{"p":{"if":true,"then":{"type":"null"}}}}"#, r#"{"p":"hunter2"}"#),
    ] {
        let found = faults(schema, arguments);
        assert!(!found.is_empty(), "{schema}");
        for fault in found {
            assert!(!fault.contains("hunter2") && !fault.contains("8675309"), "{schema}: {fault}");
        }
    }
}

/// Messages reach models and logs: few, short and safe to print.
#[test]
fn faults_are_few_short_and_safe() {
    let schema = r#"{"additionalProperties":{"type":"null"}}"#;
    let members: Vec<String> = (0..50).map(|n| format!("\"\\u001b[2K\\u202e{}{n}\":1", "k".repeat(1_000))).collect();
    let found = faults(schema, &format!("{{{}}}", members.join(",")));
    assert_eq!(found.len(), 10);
    for fault in found {
        assert!(fault.starts_with("/\\u{1b}[2K\\u{202e}kkk") && fault.len() < 310, "{fault}");
    }
}

/// An integer that the checker would round is not checked against its rounded self.
#[test]
fn integers_beyond_64_bits_are_refused() {
    let schema = r#"{"properties":{"a":{"maximum":18446744073709551615},"b":{"items":{}}}}"#;
    assert!(faults(schema, r#"{"a":18446744073709551615,"b":[-9223372036854775808,1.5,1e30]}"#).is_empty());
    assert_eq!(
        faults(schema, r#"{"a":18446744073709551616}"#),
        ["/a: an integer beyond 64 bits cannot be checked exactly"]
    );
    assert_eq!(
        faults(schema, r#"{"b":[0,-9223372036854775809]}"#),
        ["/b/1: an integer beyond 64 bits cannot be checked exactly"]
    );
    let exact = r#"{"properties":{"a":{"maximum":9007199254740992}}}"#;
    assert!(faults(exact, r#"{"a":9007199254740992}"#).is_empty());
    assert_eq!(faults(exact, r#"{"a":9007199254740993}"#).len(), 1);
}

/// Local references work, also recursive ones.
#[test]
fn local_references_are_followed() {
    let tree = r##"{"$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":{"kids":{"type":"array","items":{"$ref":"#/$defs/node"}}}}}}"##;
    assert!(faults(tree, r#"{"kids":[{"kids":[]},{}]}"#).is_empty());
    assert_eq!(
        faults(tree, r#"{"kids":[{"kids":[{"kids":1}]}]}"#),
        ["/kids/0/kids/0/kids: value is not of type \"array\""]
    );
    let whole = r##"{"type":"object","additionalProperties":{"$ref":"#"}}"##;
    assert_eq!(faults(whole, r#"{"a":{"b":1}}"#), ["/a/b: value is not of type \"object\""]);
}

/// A schema that could reach out, loop, or is no schema is refused when the tool is listed.
#[test]
fn schemas_that_cannot_be_trusted_are_refused() {
    for reference in [
        "http://x.invalid/s",
        "https://json-schema.org/draft/2020-12/schema",
        "file:///etc/passwd",
        "other.json",
        "#anchor",
        "#/nowhere",
        "#/$defs/%61",
        "",
    ] {
        let text = format!("{{\"properties\":{{\"a\":{{\"$ref\":\"{reference}\"}}}},\"$defs\":{{\"a\":{{}}}}}}");
        assert_eq!(compile(&text).unwrap_err(), SchemaError::Reference(reference.into()));
    }
    let table = [
        ("{\"$schema\":\"http://x.invalid/meta\"}", "Unknown meta-schema"),
        ("{\"properties\":{\"a\":{\"$id\":\"http://x.invalid/\"}}}", "only the root"),
        ("{\"$schema\":\"http://json-schema.org/draft-04/schema#\",\"not\":{\"id\":\"x\"}}", "only the root"),
        ("{\"$ref\":\"#\"}", "refers to itself"),
        (
            "{\"$defs\":{\"a\":{\"anyOf\":[{\"$ref\":\"#/$defs/b\"}]},\"b\":{\"not\":{\"$ref\":\"#/$defs/a\"}}}}",
            "refers to itself",
        ),
        ("{\"type\":\"objekt\"}", "not a valid schema"),
        ("{\"properties\":[]}", "not a valid schema"),
        ("{\"pattern\":\"(a\"}", "not a valid schema"),
        ("{\"pattern\":\"(?=a)b\"}", "not a valid schema"),
        ("{\"pattern\":\"(a)\\\\1\"}", "not a valid schema"),
        ("{\"pattern\":\"((a{1,1000}){1,1000}){1,1000}\"}", "not a valid schema"),
        ("[]", "object or a boolean"),
        ("null", "object or a boolean"),
    ];
    for (schema, expected) in table {
        let error = compile(schema).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(expected), "{schema}: {error}");
    }
    let long = format!("{{\"description\":\"{}\"}}", "x".repeat(256 * 1024));
    assert!(matches!(compile(&long), Err(SchemaError::TooLong { .. })));
    assert!(compile("{\"$id\":\"http://x.invalid/\",\"properties\":{\"$id\":{},\"$ref\":{}}}").is_ok());
}

/// Nested and chained schemas neither abort nor stall, on the stack of a worker thread.
#[test]
fn schema_bombs_are_refused_or_survived() {
    let work = || {
        let nested =
            |open: &str, depth: usize, close: &str| format!("{}{{}}{}", open.repeat(depth), close.repeat(depth));
        for schema in [
            nested("{\"not\":", 90, "}"),
            nested("{\"allOf\":[", 45, "]}"),
            nested("{\"properties\":{\"a\":", 45, "}}"),
            nested("{\"items\":", 90, "}"),
            nested("{\"anyOf\":[{},", 40, "]}"),
        ] {
            if let Ok(schema) = compile(&schema) {
                let _ = schema.check(&json(&nested("{\"a\":", 60, "}")));
                let _ = schema.check(&json(&nested("[", 60, "]")));
            }
        }
        let chain = |links: usize, link: &dyn Fn(usize) -> String| {
            let links: Vec<String> = (0..links).map(|at| format!("\"{at}\":{}", link(at + 1))).collect();
            format!(
                "{{\"$ref\":\"#/$defs/0\",\"$defs\":{{{},\"{}\":{{\"type\":\"null\"}}}}}}",
                links.join(","),
                links.len()
            )
        };
        let deeper = |next: usize| format!("{{\"properties\":{{\"a\":{{\"$ref\":\"#/$defs/{next}\"}}}}}}");
        assert!(compile(&chain(200, &deeper)).is_ok());
        assert!(matches!(compile(&chain(3_000, &deeper)), Err(SchemaError::TooManyReferences { .. })));
        let same = |next: usize| format!("{{\"$ref\":\"#/$defs/{next}\"}}");
        assert!(matches!(compile(&chain(200, &same)), Err(SchemaError::TooHigh { .. })));
        let twice =
            |next: usize| format!("{{\"anyOf\":[{{\"$ref\":\"#/$defs/{next}\"}},{{\"$ref\":\"#/$defs/{next}\"}}]}}");
        let schema = compile(&chain(14, &twice)).unwrap();
        assert_eq!(schema.check(&json("{}")).unwrap_err().len(), 1, "14 doublings are work, but bounded");
        let both = "{\"anyOf\":[{\"properties\":{\"a\":{\"$ref\":\"#/$defs/n\"}}},{\"properties\":{\"a\":{\"$ref\":\"#/$defs/n\"}}}]}";
        let schema = compile(&format!("{{\"$ref\":\"#/$defs/n\",\"$defs\":{{\"n\":{both}}}}}")).unwrap();
        let faults = schema.check(&json(&format!("{}1{}", "{\"a\":".repeat(60), "}".repeat(60)))).unwrap_err();
        assert_eq!(faults, ["/: too large to be checked against the schema"]);
        let names = format!("{{\"propertyNames\":{{\"$ref\":\"#/$defs/0\"}},{}", &chain(12, &twice)[1..]);
        let members: Vec<String> = (0..5_000).map(|at| format!("\"k{at}\":1")).collect();
        let faults = compile(&names).unwrap().check(&json(&format!("{{{}}}", members.join(",")))).unwrap_err();
        assert_eq!(faults, ["/: too large to be checked against the schema"]);
        let unseen = nested("{\"unevaluatedProperties\":{\"type\":\"null\"},\"allOf\":[", 30, "]}");
        let faults = compile(&unseen).unwrap().check(&json("{\"a\":1}")).unwrap_err();
        assert_eq!(faults, ["/: too large to be checked against the schema"]);
    };
    std::thread::Builder::new().stack_size(2 * 1024 * 1024).spawn(work).unwrap().join().unwrap();
}

/// Patterns run in linear time.
#[test]
fn a_hostile_pattern_does_not_stall() {
    let schema = compile("{\"properties\":{\"a\":{\"pattern\":\"^(a+)+$\"}}}").unwrap();
    // A backtracking engine would never come back from this.
    assert!(schema.check(&json(&format!("{{\"a\":\"{}!\"}}", "a".repeat(100_000)))).is_err());
}

/// Compiled schemas are shared between threads.
#[test]
fn a_schema_is_shared_freely() {
    fn shared<T: Send + Sync + Clone>() {}
    shared::<Schema>();
}
