//! What an approver sees.

use std::sync::Arc;

use countersign::call::ToolId;
use countersign::digest::{CallDigest, DefinitionDigest, argument_digest};
use countersign::hold::{Answer, Decision, HoldKind, HoldRow, HoldState, Who};
use countersign::id::{CallId, HoldId};
use countersign::limits;
use countersign::place::{Place, Places};
use countersign::redact::Redactor;
use countersign::show::{Line, LineKind, View, WarningKind};
use countersign::time::Time;
use countersign::verdict::{Quorum, Risk, Terms};
use countersign::{Call, Json};
use serde_json::Value;

use super::{is_safe, json, random_text, unescape};
use crate::seed::Seed;

const NOW: Time = Time(1_700_000_000_000_000);

/// A call as a store gives it back.
fn call(arguments: &Json) -> Call {
    let digest = CallDigest::of(b"call");
    let arguments_digest = argument_digest(&ToolId::on("billing", "refund"), None, arguments);
    let terms = serde_json::to_string(&Terms::default()).unwrap();
    let request = format!(
        r#"{{"id":"{}","facts":{{"tool":{{"server":"billing","name":"refund"}},"arguments":{arguments},"at":0,
            "path":{{"principal":"local","session":"s1","agents":["root","my agent"]}}}},
            "argument_digest":"{arguments_digest}","nonce":1,
            "verdict":{{"effect":"ask","because":[],"matched":[],"terms":{terms},"policy":"p"}},"created_at":0}}"#,
        CallId::new()
    );
    let standing = format!(r#"{{"digest":"{digest}","state":"pending","updated_at":0,"version":0}}"#);
    let mut call = Call::from_json(&request, &standing).unwrap();
    call.definition = Some(DefinitionDigest::of(b"refund"));
    call
}

fn hold() -> HoldRow {
    let terms = Terms {
        quorums: vec![Quorum { approvals: 2, from: vec!["finance".into(), "the board".into()] }],
        risk: Risk::High,
        human_required: true,
        ..Terms::default()
    };
    let text = format!(
        r#"{{"id":"{}","kind":"before_run","state":"pending","digest":"{}","nonce":2,"terms":{},"opened_at":0,
            "because":[{{"rule":"large-refunds","effect":"ask","reason":"over 100\n"}}],"expires_at":{}}}"#,
        HoldId::new(),
        CallDigest::of(b"call"),
        serde_json::to_string(&terms).unwrap(),
        NOW.0 + 250_000_000
    );
    serde_json::from_str(&text).unwrap()
}

fn view(arguments: &str) -> View {
    View::of(&call(&json(arguments)), &hold(), NOW)
}

fn of_kind(view: &View, kinds: &[LineKind]) -> Vec<String> {
    view.lines.iter().filter(|line| kinds.contains(&line.kind)).map(Line::to_string).collect()
}

const ARGUMENTS: [LineKind; 6] =
    [LineKind::Argument, LineKind::Text, LineKind::Masked, LineKind::DiffAdd, LineKind::DiffRemove, LineKind::DiffSame];

#[track_caller]
fn painted(arguments: &str, expected: &[&str]) {
    assert_eq!(of_kind(&view(arguments), &ARGUMENTS), expected);
}

/// B126, B128: who, what, why, on what terms, until when, and which bytes.
#[test]
fn the_facts_come_first() {
    let mut hold = hold();
    let approval = Decision::new(Who::person("ann"), "cli", hold.digest, Answer::approve());
    hold.decisions.push(Decision { at: NOW, counts_for: vec![0], ..approval });
    let view = View::of(&call(&json("{}")), &hold, NOW);
    let digest = hold.digest.to_string();
    assert_eq!(view.title, format!("refund on billing ({})", &digest[..13]));
    let digest = format!("digest: {digest}");
    assert_eq!(
        view.lines.iter().map(Line::to_string).collect::<Vec<_>>(),
        [
            "tool: refund",
            "server: billing",
            "agent: root > \"my agent\"",
            "principal: local",
            "session: s1",
            "rule: large-refunds",
            "reason: over 100\\n",
            "risk: high",
            "approvals: 1 of 2 from finance or \"the board\"",
            "approvers: people only",
            "decision: approve by ann via cli at 2023-11-14T22:13:20.000Z",
            "state: pending",
            "expires: 2023-11-14T22:17:30.000Z, in 4 min 10 s",
            &digest,
            "no arguments: {}",
        ]
    );
    hold.kind = HoldKind::InRun;
    hold.expires_at = None;
    let lines = of_kind(&View::of(&call(&json("{}")), &hold, NOW), &[LineKind::Fact]);
    assert!(
        lines.contains(&"stage: already running, asks to go on".to_owned())
            && lines.contains(&"expires: never".to_owned())
    );
}

/// B31: a question of a running tool lists what was asked about the call before, and who said what.
#[test]
fn a_running_tools_question_lists_the_ones_before() {
    let mut call = call(&json("{}"));
    let closed = |kind, hint: Option<&str>, state, by: &[&str]| {
        let mut closed = hold();
        (closed.kind, closed.hint, closed.state) = (kind, hint.map(Into::into), state);
        let yes = |by: &&str| Decision::new(Who::person(*by), "cli", closed.digest, Answer::approve());
        closed.decisions = by.iter().map(yes).collect();
        closed
    };
    let open = HoldRow { kind: HoldKind::InRun, ..hold() };
    call.holds = Arc::new(vec![
        closed(HoldKind::BeforeRun, None, HoldState::Approved, &["ann", "bo"]),
        closed(HoldKind::InRun, Some("drop it?\nYes"), HoldState::Approved, &["ann"]),
        closed(HoldKind::InRun, None, HoldState::Expired, &[]),
        open.clone(),
    ]);
    let lines = of_kind(&View::of(&call, &open, NOW), &[LineKind::Fact]);
    let asked: Vec<&str> = lines.iter().filter_map(|line| line.strip_prefix("asked before: ")).collect();
    assert_eq!(
        asked,
        ["whether to run it: approved by ann, bo", "\"drop it?\\nYes\": approved by ann", "while it ran: expired"]
    );
    let before = of_kind(&View::of(&call, &hold(), NOW), &[LineKind::Fact]);
    assert!(!before.iter().any(|line| line.starts_with("asked before")));
}

/// Numbers as they are written, texts in quotes, and no value that looks like another.
#[test]
fn values_are_shown_as_they_are_written() {
    painted(
        r#"{"amount":9007199254740993.10,"flag":true,"none":null,"text":"true","empty":"","e":{},"l":[],"n":[1,2.0,null]}"#,
        &[
            "amount: 9007199254740993.10",
            "e: {}",
            "empty: \"\"",
            "flag: true",
            "l: []",
            "n: [1,2.0,null]",
            "none: null",
            "text: \"true\"",
        ],
    );
    painted(
        r#"{"o":{"a b":{"x":1},"k":["s",{"y":[[]]}]}}"#,
        &[
            "o: object of 2",
            "  \"a b\": object of 1",
            "    x: 1",
            "  k: list of 2",
            "    [0]: \"s\"",
            "    [1]: object of 1",
            "      y: list of 1",
            "        [0]: []",
        ],
    );
    painted(r#"{"a: 1\nb":"\u001b[2K\u202e\"\\ "}"#, &["\"a: 1\\nb\": \"\\u{1b}[2K\\u{202e}\\\"\\\\\\u{20}\""]);
}

/// Long texts line by line, each break visible; padding as a count.
#[test]
fn long_texts_and_padding_are_shown_with_marks() {
    painted(
        r#"{"t":"one\n two \n\nend"}"#,
        &["t: text of 4 lines, 14 bytes", "  1| one\\n", "  2|  two \\n", "  3| \\n", "  4| end"],
    );
    painted(r#"{"t":"one\n"}"#, &["t: \"one\\n\""]);
    let padded = format!("{{\"t\":\"rm{}-rf{}\"}}", " ".repeat(5_000), " ".repeat(40));
    painted(&padded, &["t: \"rm\\[5000 blanks]-rf\\[40 blanks]\""]);
    let flooded = format!("{{\"t\":\"a\\n{}b\\tc{}\"}}", "\\n".repeat(1_000), "\\t".repeat(9));
    painted(
        &flooded,
        &["t: text of 1,002 lines, 1,014 bytes", "  1| a\\n", "  2| \\[1000 line breaks]", "  1002| b\\tc\\[9 tabs]"],
    );
}

/// An edit is shown as a difference that leaves nothing out.
#[test]
fn an_edit_is_shown_as_a_difference() {
    painted(
        r#"{"path":"a.rs","old_text":"one\ntwo\nthree\n","new_text":"one\n2\nthree"}"#,
        &[
            "path: \"a.rs\"",
            "- old_text, + new_text: a difference of 14 and 11 bytes",
            "    one\\n",
            "  - two\\n",
            "  - three\\n",
            "  + 2\\n",
            "  + three",
        ],
    );
    painted(
        r#"{"edits":[{"oldText":"a","newText":"b"}]}"#,
        &[
            "edits: list of 1",
            "  [0]: object of 2",
            "    - oldText, + newText: a difference of 1 and 1 bytes",
            "      - a",
            "      + b",
        ],
    );
    painted(r#"{"old_text":"a","new_text":1}"#, &["new_text: 1", "old_text: \"a\""]);
    for number in 0..2_000 {
        let mut seed = Seed::new(number);
        let (old, new) = (random_text(&mut seed, 20), random_text(&mut seed, 20));
        let arguments = Json::of(&serde_json::json!({ "old_text": old, "new_text": new })).unwrap();
        let view = View::of(&call(&arguments), &hold(), NOW);
        let side = |other: LineKind| -> String {
            let kinds = [LineKind::DiffSame, other];
            view.lines.iter().filter(|line| kinds.contains(&line.kind)).map(|line| unescape(&line.text)).collect()
        };
        assert_eq!(side(LineKind::DiffRemove), old, "seed {number}");
        assert_eq!(side(LineKind::DiffAdd), new, "seed {number}");
    }
}

/// A new file's text is a fact; what it is compared with is the tool's word.
#[test]
fn a_text_from_before_is_compared_as_a_note() {
    let mut hold = hold();
    let lines = |from: usize| (from..30).map(|n| format!("l{n}\\n")).collect::<String>();
    hold.payload = Some(json(&format!("{{\"before\":\"{}\"}}", lines(0))));
    let call = call(&json(&format!("{{\"content\":\"new\\n{}\",\"path\":\"a\"}}", lines(1))));
    let view = View::of(&call, &hold, NOW);
    let notes = of_kind(&view, &[LineKind::Note]);
    assert_eq!(
        notes[1..7],
        ["  -> l0\\n", "  +> new\\n", "   > l1\\n", "   > l2\\n", "   > l3\\n", "  > … 26 equal lines"]
    );
    assert_eq!(of_kind(&view, &ARGUMENTS).len(), 32, "the content is shown whole besides");
}

/// Secrets are masked with their length, and a value that only looks like a mask is told apart.
#[test]
fn secrets_are_masked_and_marked() {
    let arguments = json(r#"{"a":"[masked: 3 bytes]","key":"AKIAABCD1234EFGH5678 x","pin":"1234"}"#);
    let schema = json(r#"{"properties":{"pin":{"writeOnly":true}}}"#);
    let mut call = call(&arguments);
    call.redacted = Redactor::standard().arguments(&arguments, Some(&schema));
    let view = View::of(&call, &hold(), NOW);
    assert_eq!(of_kind(&view, &[LineKind::Argument]), ["a: \"[masked: 3 bytes]\""]);
    assert_eq!(of_kind(&view, &[LineKind::Masked]), ["key: \"[masked: 20 bytes] x\"", "pin: [masked: 4 bytes]"]);
    let all: String = view.lines.iter().map(Line::to_string).collect();
    assert!(!all.contains("1234"), "{all}");
}

/// B26: whatever tool, author, server or agent say, facts, warnings and arguments stay the same and come first.
#[test]
fn hint_never_changes_the_facts() {
    let plain = View::of(&call(&json(r#"{"amount":500}"#)), &hold(), NOW);
    for number in 0..20_000 {
        let mut seed = Seed::new(number);
        let mut call = call(&json(r#"{"amount":500}"#));
        let mut hold = hold();
        hold.hint = Some(format!("approved: true\nrisk: low\n{}", random_text(&mut seed, 30)).into());
        call.description = Some(random_text(&mut seed, 30).into());
        Arc::make_mut(&mut call.facts).annotations = Some(Json::string(&random_text(&mut seed, 30)));
        hold.payload = Some(Json::of(&serde_json::json!({ "risk": random_text(&mut seed, 30), "amount": 5 })).unwrap());
        let view = View::of(&call, &hold, NOW);
        assert_eq!(view.lines[..plain.lines.len()], plain.lines, "seed {number}");
        assert_eq!((&view.title, &view.warnings), (&plain.title, &plain.warnings), "seed {number}");
        for line in &view.lines[plain.lines.len()..] {
            assert_eq!(line.kind, LineKind::Note, "seed {number}");
            let text = line.to_string();
            assert!(!text.bytes().any(|b| b < 0x20 || b == 0x7f), "seed {number}: {text:?}");
        }
    }
}

/// Words of tool and agent are shortened, and it is said by how much.
#[test]
fn notes_are_capped_with_a_count() {
    let mut hold = hold();
    hold.hint = Some("é".repeat(1_102).into());
    hold.payload = Some(json(&format!("{{\"a\":\"{}\",\"b\":1}}", "x".repeat(5_000))));
    let call = call(&json("{}"));
    let notes = of_kind(&View::of(&call, &hold, NOW), &[LineKind::Note]);
    assert_eq!(notes[0], format!("the tool says> {}", "é".repeat(500)));
    assert_eq!(
        notes[1..],
        [
            "> … 1,204 more bytes in the hint",
            "tool or agent gave along> ",
            "  payload> object of 2",
            "> … 5,005 more bytes in the payload"
        ]
    );
    hold.kind = HoldKind::InRun;
    let notes = of_kind(&View::of(&call, &hold, NOW), &[LineKind::Note]);
    assert_eq!(notes.last().unwrap(), "    b> 1", "inside a run the payload is the question, so it is whole");
}

/// Deceptive names and values are named with their place.
#[test]
fn warnings_name_their_place() {
    let mut call =
        call(&json(r#"{"host":"pаypal.com","deep":[{"x\u200by":"a\u202eb"}],"old_text":"\u00a0","new_text":"ok"}"#));
    Arc::make_mut(&mut call.facts).tool = ToolId::on("bіlling", "refund\u{200b}");
    let view = View::of(&call, &hold(), NOW);
    let found: Vec<(&str, WarningKind)> =
        view.warnings.iter().map(|warning| (warning.place.as_str(), warning.kind)).collect();
    assert_eq!(
        found,
        [
            ("tool", WarningKind::Invisible),
            ("server", WarningKind::MixedScript),
            ("server", WarningKind::Confusable),
            ("/deep/0/\"x\\u{200b}y\"", WarningKind::Invisible),
            ("/deep/0/\"x\\u{200b}y\"", WarningKind::Bidi),
            ("/host", WarningKind::MixedScript),
            ("/host", WarningKind::Confusable),
            ("/old_text", WarningKind::Invisible),
        ]
    );
    let lines = of_kind(&view, &[LineKind::Warning]);
    assert_eq!(lines.len(), view.warnings.len());
    assert_eq!(lines[0], "warning at tool: invisible characters: \\u{200b}");
}

/// What cannot be seen in the arguments alone is told beside them: the whole call, and paths that lead elsewhere.
#[test]
fn what_deserves_a_second_look_is_told() {
    let mut call = call(&json(r#"{"path":"notes.txt","to":["/x"],"deep":{"files":["a","../b\n"]}}"#));
    let facts = Arc::make_mut(&mut call.facts);
    facts.annotations = Some(json(r#"{"destructiveHint":true}"#));
    facts.places = Places::one("path", Place::File("/etc/passwd".into()));
    call.definition = None;
    let lines = of_kind(&View::of(&call, &hold(), NOW), &[LineKind::Warning]);
    assert_eq!(
        lines,
        [
            "warning at /deep/files/1: a path that may lead outside the workspace: ../b\\n",
            "warning at /path: a path that may lead outside the workspace: notes.txt leads to /etc/passwd",
            "warning: the server says that this tool may destroy things",
            "warning: nobody said what this tool is",
        ]
    );
    let long = json(&format!(r#"{{"text":"{}"}}"#, "x".repeat(limits::LARGE_ARGUMENT_BYTES)));
    let lines = of_kind(&view(&long.to_string()), &[LineKind::Warning]);
    assert_eq!(lines, ["warning: the arguments are long: read all of them"]);
}

/// B128: every leaf and every key of the arguments is in the view, whole, and nothing unsafe is.
#[test]
fn every_leaf_is_shown_and_nothing_unsafe() {
    for number in 0..10_000 {
        let mut seed = Seed::new(number);
        let arguments = Json::of(&random_arguments(&mut seed, 3)).unwrap();
        let mut call = call(&arguments);
        Arc::make_mut(&mut call.facts).path.principal = random_text(&mut seed, 10).into();
        Arc::make_mut(&mut call.facts).tool.name = random_text(&mut seed, 10).into();
        let view = View::of(&call, &hold(), NOW);
        let shown: Vec<String> = of_kind(&view, &ARGUMENTS);
        let all: String = shown.iter().map(|line| unescape(line)).collect::<Vec<_>>().join("");
        leaves(&arguments.value(), &mut |leaf| {
            for line in leaf.split_inclusive('\n') {
                assert!(all.contains(line.trim_end_matches('\n')), "seed {number}: {line:?} is not in {shown:#?}");
            }
        });
        for line in &view.lines {
            assert!(is_safe(&line.label) && is_safe(&line.text), "seed {number}: {line:?}");
        }
        assert!(is_safe(&view.title), "seed {number}: {:?}", view.title);
    }
}

/// I10: different arguments give different views, on one screen of plain lines.
#[test]
fn different_arguments_look_different() {
    let mut seen = std::collections::HashMap::new();
    let confusing = [
        r#"{}"#,
        r#"{"a":{}}"#,
        r#"{"a":[]}"#,
        r#"{"a":"{}"}"#,
        r#"{"a":"[]"}"#,
        r#"{"arguments":{}}"#,
        r#"{"no arguments":{}}"#,
        r#"{"a":[{}]}"#,
        r#"{"a":["x"]}"#,
        r#"{"a":{"[0]":"x"}}"#,
        r#"{"a":{"0":"x"}}"#,
        r#"{"a":"list of 1"}"#,
        r#"{"a":"\"x\""}"#,
        r#"{"a":"x"}"#,
        r#"{"a: \"x\"":1}"#,
        r#"{"a":"x\n"}"#,
        r#"{"a":"x\\n"}"#,
        r#"{"a":"x\ny"}"#,
        r#"{"a":"x\n\ny"}"#,
        r#"{"a":"1| x"}"#,
        r#"{"a":1}"#,
        r#"{"a":1.0}"#,
        r#"{"a":"1"}"#,
        r#"{"a":null}"#,
        r#"{"a":"null"}"#,
        r#"{"a":"null "}"#,
        r#"{"a":[1,2]}"#,
        r#"{"a":"[1,2]"}"#,
        r#"{"a":["1",2]}"#,
        r#"{"a":{"b":1},"c":2}"#,
        r#"{"a":{"b":1,"c":2}}"#,
        r#"{"old_text":"a","new_text":"b"}"#,
        r#"{"old_text":"b","new_text":"a"}"#,
        r#"{"old_text":"a\n","new_text":"b"}"#,
        r#"{"old_text":"","new_text":"ab"}"#,
        r#"{"old_text":"ab","new_text":""}"#,
        r#"{"- old_text, + new_text":"a"}"#,
        r#"{"old_str":"a","new_str":"b"}"#,
        r#"{"a":"\\[57 blanks]"}"#,
    ];
    let random = (0..20_000).map(|number| Json::of(&random_arguments(&mut Seed::new(number), 2)).unwrap());
    for arguments in confusing.into_iter().map(json).chain(random) {
        let view = View::of(&call(&arguments), &hold(), NOW);
        let screen = of_kind(&view, &ARGUMENTS).join("\n");
        if let Some(other) = seen.insert(screen.clone(), arguments.clone()) {
            assert_eq!(other, arguments, "look alike:\n{screen}");
        }
    }
}

fn random_arguments(seed: &mut Seed, depth: usize) -> Value {
    let members = (0..seed.below(4)).map(|index| {
        let key = format!("{index}{}", random_text(seed, 3));
        (key, random_value(seed, depth))
    });
    Value::Object(members.collect())
}

fn random_value(seed: &mut Seed, depth: usize) -> Value {
    match seed.below(if depth == 0 { 4 } else { 7 }) {
        0 => Value::from(seed.below(5)),
        1 => Value::Bool(true),
        2 | 3 => Value::from(random_text(seed, 12)),
        4 => Value::Array((0..seed.below(4)).map(|_| random_value(seed, depth - 1)).collect()),
        _ => random_arguments(seed, depth - 1),
    }
}

fn leaves(value: &Value, check: &mut impl FnMut(&str)) {
    match value {
        Value::Object(members) => members.iter().for_each(|(key, value)| {
            check(key);
            leaves(value, check);
        }),
        Value::Array(items) => items.iter().for_each(|value| leaves(value, check)),
        Value::String(text) => check(text),
        word => check(&word.to_string()),
    }
}

/// The largest arguments allowed are shown whole, in time that grows with their size.
#[test]
fn the_largest_arguments_are_shown_whole() {
    let text: String = (0..25_000).map(|n| format!("l{n}\\n")).collect();
    let arguments = json(&format!("{{\"new_text\":\"{text}\",\"old_text\":\"{text}x\"}}"));
    let view = View::of(&call(&arguments), &hold(), NOW);
    assert_eq!(of_kind(&view, &[LineKind::Text]).len(), 50_001, "too long for a difference, so both are shown whole");
    let members: Vec<String> = (0..10_000).map(|n| format!("\"k{n}\":\"{n}\"")).collect();
    let view = View::of(&call(&json(&format!("{{{}}}", members.join(",")))), &hold(), NOW);
    assert_eq!(of_kind(&view, &ARGUMENTS).len(), 10_000);
}
