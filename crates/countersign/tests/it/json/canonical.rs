//! The canonical form.

use std::collections::BTreeMap;

use countersign::Json;
use countersign::call::Outcome;
use countersign::digest::CallDigest;
use countersign::hold::{Answer, Decision, Who};
use countersign::json::Bounds;
use serde_json::Value;

use super::{json, mutate, random_text, read};
use crate::seed::Seed;

const INPUTS: u64 = 100_000;

/// One spelling for everything but numbers.
#[test]
fn equal_values_have_one_spelling() {
    let spellings = [
        (" { \"b\" : 1 , \"a\" : [ true , null ] } ", "{\"a\":[true,null],\"b\":1}"),
        ("{\"\\u0061\":\"\\u0041\\/\\u00e9\"}", "{\"a\":\"A/é\"}"),
        ("\"\\u0008\\u000c\\u000a\\u000d\\u0009\\u0022\\u005c\"", "\"\\b\\f\\n\\r\\t\\\"\\\\\""),
        ("\"\\u0000\\u001F\\u007f\"", "\"\\u0000\\u001f\u{7f}\""),
        (
            "{\"é\":1,\"z\":2,\"Z\u{10ffff}\":3,\"\u{ffff}\":4,\"😀\":5}",
            "{\"Z\u{10ffff}\":3,\"z\":2,\"é\":1,\"\u{ffff}\":4,\"😀\":5}",
        ),
        ("{\"a\":{\"d\":1,\"c\":{\"f\":1,\"e\":2}},\"\":0}", "{\"\":0,\"a\":{\"c\":{\"e\":2,\"f\":1},\"d\":1}}"),
    ];
    for (text, canonical) in spellings {
        assert_eq!(json(text).as_str(), canonical);
    }
}

/// Numbers keep their spelling, so none is rounded and no two that differ become one.
#[test]
fn numbers_keep_their_spelling() {
    let different = [
        ("9007199254740993", "9007199254740992"),
        ("18446744073709551616", "18446744073709551617"),
        ("1.0", "1"),
        ("1e2", "100"),
        ("1E2", "1e2"),
        ("-0", "0"),
        ("0.1", "0.10"),
        ("0.1000000000000000055511151231257827", "0.1"),
    ];
    for (one, other) in different {
        assert_ne!(json(one), json(other));
        assert_eq!(json(&format!("[{one}, {other}]")).as_str(), format!("[{one},{other}]"));
    }
}

/// The canonical form of a canonical form is itself, and the order of members does not count.
#[test]
fn canonical_form_is_idempotent_and_independent_of_order() {
    for number in 0..INPUTS {
        let mut seed = Seed::new(number);
        let text = random_text(&mut seed, 4);
        let first = json(&text);
        assert_eq!(json(first.as_str()), first, "seed {number}");
        let shuffled = shuffle(&mut seed, &text);
        assert_eq!(json(&shuffled), first, "seed {number}: {text} against {shuffled}");
    }
}

/// The same members in another order, numbers untouched.
fn shuffle(seed: &mut Seed, text: &str) -> String {
    use serde_json::value::RawValue;
    if let Ok(members) = serde_json::from_str::<BTreeMap<String, &RawValue>>(text) {
        let mut members: Vec<String> = members
            .into_iter()
            .map(|(key, value)| format!("{}: {}", Json::string(&key), shuffle(seed, value.get())))
            .collect();
        for at in (1..members.len()).rev() {
            members.swap(at, seed.below(at + 1));
        }
        return format!("{{ {} }}", members.join(","));
    }
    match serde_json::from_str::<Vec<&RawValue>>(text) {
        Ok(items) => {
            format!("[{}]", items.into_iter().map(|item| shuffle(seed, item.get())).collect::<Vec<_>>().join(" ,"))
        }
        Err(_) => text.to_owned(),
    }
}

/// Another reader never sees other values than ours, and never refuses what we accept.
#[test]
fn readers_agree_or_refuse() {
    let (mut accepted, mut refused) = (0, 0);
    for number in 0..INPUTS {
        let mut seed = Seed::new(number);
        let mut text = random_text(&mut seed, 3);
        if number % 3 > 0 {
            text = mutate(&mut seed, &text);
        }
        let theirs = serde_json::from_str::<Value>(&text);
        match read(&text) {
            Ok(ours) => {
                let theirs = theirs.unwrap_or_else(|error| panic!("seed {number}: only we read {text:?}: {error}"));
                assert_eq!(ours.value(), theirs, "seed {number}: {text:?}");
                accepted += 1;
            }
            Err(_) => refused += 1,
        }
    }
    println!("{accepted} accepted, {refused} refused");
    assert!(accepted > INPUTS / 3 && refused > INPUTS / 5, "{accepted} accepted, {refused} refused");
}

/// What is written is read back to the byte, wherever it stands: through buffers numbers would be rounded.
#[test]
fn stored_json_comes_back_to_the_byte() {
    let exact = json("{\"a\":1.0,\"b\":123456789012345678901234567890,\"c\":1E2,\"d\":null}");
    for value in [exact.clone(), json("null"), json("1.00"), json("\"\\u0000\"")] {
        let digest = CallDigest::of(b"x");
        for answer in [
            Answer::Respond { response: value.clone() },
            Answer::Approve { arguments: Some(exact.clone()), payload: Some(value.clone()), remember: None },
            Answer::deny("no"),
            Answer::approve(),
        ] {
            let decision =
                Decision { counts_for: vec![0, 2], ..Decision::new(Who::person("ann"), "cli", digest, answer.clone()) };
            let text = serde_json::to_string(&decision).unwrap();
            assert_eq!(serde_json::from_str::<Decision>(&text).unwrap(), decision, "{text}");
            let text = serde_json::to_string(&answer).unwrap();
            assert_eq!(serde_json::from_str::<Answer>(&text).unwrap(), answer, "{text}");
        }
        for outcome in [
            Outcome::Succeeded { output: value.clone() },
            Outcome::Failed { error: "no".into(), refusal: None },
            Outcome::MayHaveApplied { why: "cut".into() },
        ] {
            let text = serde_json::to_string(&outcome).unwrap();
            assert_eq!(serde_json::from_str::<Outcome>(&text).unwrap(), outcome, "{text}");
        }
    }
    assert!(serde_json::from_str::<Answer>("{\"answer\":\"respond\"}").is_err());
    assert!(serde_json::from_str::<Outcome>("{\"outcome\":\"succeeded\"}").is_err());
    assert!(serde_json::from_str::<Answer>("{\"answer\":\"maybe\"}").is_err());
}

/// Members are found by name, and values of ours take the same form.
#[test]
fn fields_and_own_values_are_canonical() {
    let object = json("{\"b\":{\"y\":1,\"x\":1.50},\"a\":\"q\"}");
    assert_eq!(object.field("b"), Some(json("{\"x\":1.50,\"y\":1}")));
    assert_eq!(object.field("c"), None);
    assert_eq!(json("[1]").field("0"), None);
    let own: BTreeMap<&str, u64> = [("z", 1), ("a", u64::MAX)].into();
    assert_eq!(Json::of(&own).unwrap().as_str(), "{\"a\":18446744073709551615,\"z\":1}");
    assert!(Json::of(&BTreeMap::from([("a", 1), ("A", 2)])).is_err());
    assert_eq!(Json::string("a\"\\\n\u{1}é").as_str(), "\"a\\\"\\\\\\n\\u0001é\"");
}

/// Two hundred thousand keys in the worst order, alike but for their end: quadratic work would never end here.
#[test]
fn many_keys_take_no_quadratic_time() {
    let members: Vec<String> =
        (0..200_000).rev().map(|key| format!("\"{}{key:06}\":{{\"v\":{key}}}", "k".repeat(20))).collect();
    let text = Json::ingest(&format!("{{{}}}", members.join(",")), Bounds::STORED).unwrap();
    assert!(text.as_str().starts_with(&format!("{{\"{}000000\":", "k".repeat(20))));
}
