//! `countersign policy`, as a user's CI runs it.

use crate::bed::Bed;

const GOOD: &str = "\
policy:
  rules:
    - { id: reads, allow: 'read_*' }
    - id: big-transfers
      ask: transfer_money
      when: arguments.amount > 10000
      reason: Above 10,000 two people look
      approvals: 2
    - { id: small-transfers, allow: transfer_money, when: arguments.amount <= 10000 }
    - { id: no-drops, deny: 'db/drop_*' }
";

#[test]
fn a_good_file_passes() {
    let bed = Bed::new();
    bed.write("good.yml", GOOD);
    let ran = bed.say("policy check good.yml").expect(0);
    assert!(ran.stdout.starts_with("good.yml: ok, 4 rules"), "{}", ran.stdout);
    assert_eq!(bed.say("policy check good.yml --json").expect(0).json()["ok"], true);
}

#[test]
fn every_problem_has_its_place_and_its_line() {
    let bed = Bed::new();
    bed.write("bad.yml", "policy:\n  otherwise: maybe\n  rules:\n    - { id: x, alow: read }\n");
    let ran = bed.say("policy check bad.yml").expect(1);
    assert!(ran.stderr.contains("bad.yml:2:14: "), "{}", ran.stderr);
    assert!(ran.stderr.contains("bad.yml:4:16: "), "{}", ran.stderr);
    assert!(ran.stderr.contains(" 4 |     - { id: x, alow: read }\n   |                ^"), "{}", ran.stderr);
    assert!(ran.stderr.contains("`allow`"), "a near word is suggested: {}", ran.stderr);
    let json = bed.say("policy check bad.yml --json").expect(1).json();
    assert_eq!(json["ok"], false);
    assert_eq!((&json["problems"][0]["line"], &json["problems"][0]["column"]), (&2.into(), &14.into()));
    bed.say("policy check nowhere.yml").expect(2);
}

/// A file an agent wrote cannot paint the terminal of whoever checks it.
#[test]
fn a_hostile_file_paints_nothing() {
    let bed = Bed::new();
    bed.write("bad.yml", "policy: { \"\\e[2J\u{202e}oops\": 1 } # \u{202e}\n");
    let ran = bed.say("policy check bad.yml").expect(1);
    assert!(!ran.stderr.contains(['\u{1b}', '\u{202e}']), "{:?}", ran.stderr);
}

/// B54: what can never matter is a warning, and fails where that is asked for.
#[test]
fn warnings_fail_only_when_strict() {
    let bed = Bed::new();
    bed.write("odd.yml", "policy:\n  rules:\n    - { id: everything, allow: bash }\n");
    let ran = bed.say("policy check odd.yml").expect(0);
    assert!(ran.stderr.contains("odd.yml:3:1: warning: rule `everything` is too broad"), "{}", ran.stderr);
    bed.say("policy check odd.yml --strict").expect(1);
}

/// B39: `explain` prints what a call would get, the rules that decide it and why.
#[test]
fn explain_says_which_rule_decides() {
    let bed = Bed::new();
    bed.write("good.yml", GOOD);
    let explain = |tool: &str, arguments: &str| {
        let args = ["policy", "explain", "--config", "good.yml", "--tool", tool, "--arguments", arguments, "--json"];
        bed.run(args).expect(0).json()
    };
    let big = explain("transfer_money", r#"{"amount": 20000}"#);
    assert_eq!(big["effect"], "ask");
    assert_eq!(big["because"][0]["rule"], "big-transfers");
    assert_eq!(big["because"][0]["effect"], "ask");
    assert_eq!(big["because"][0]["reason"], "Above 10,000 two people look");
    assert_eq!(big["grant"], serde_json::Value::Null);
    assert!(big["matched"].is_array());
    assert_eq!(explain("transfer_money", r#"{"amount": 5}"#)["effect"], "allow");
    assert_eq!(explain("nonsense", "{}")["effect"], "ask");
    let server = "policy explain --config good.yml --tool drop_table --server db --session s1 --agent a --json";
    assert_eq!(bed.say(server).expect(0).json()["effect"], "deny");
    let text = bed.say("policy explain --config good.yml --tool read_file").expect(0);
    assert!(text.stdout.contains("allow  read_file") && text.stdout.contains("reads"), "{}", text.stdout);
    bed.run(["policy", "explain", "--config", "good.yml", "--tool", "x", "--arguments", "{"]).expect(2);
}

#[test]
fn a_file_of_calls_is_judged_and_compared() {
    let bed = Bed::new();
    bed.write("good.yml", GOOD);
    let right = "\
- { tool: read_file, arguments: { path: a }, expect: allow, rule: reads }
- { tool: drop_table, server: db, expect: deny }
- { tool: transfer_money, agent: banker, arguments: { amount: 20000 }, expect: ask }
";
    bed.write("calls.yml", right);
    let ran = bed.say("policy test calls.yml --config good.yml").expect(0);
    assert_eq!(ran.stdout, "3 passed, 0 failed\n");
    bed.write(
        "wrong.yml",
        &format!("{right}- {{ tool: read_file, expect: deny }}\n- {{ tool: read_file, expect: allow, rule: x }}\n"),
    );
    let ran = bed.say("policy test wrong.yml --config good.yml").expect(1);
    assert!(ran.stdout.contains("wrong.yml:4:1: FAILED read_file: expected deny, found allow"), "{}", ran.stdout);
    assert!(ran.stdout.contains("wrong.yml:5:1: FAILED"), "{}", ran.stdout);
    assert_eq!(bed.say("policy test wrong.yml --config good.yml --json").expect(1).json()["failed"], 2);
    bed.write("calls.json", r#"[{"tool": "read_file", "expect": "allow"}]"#);
    bed.say("policy test calls.json --config good.yml").expect(0);
}

/// A misspelled field would leave a test that tests nothing, so the file is read as strictly as a policy is.
#[test]
fn a_file_of_calls_with_a_mistake_is_refused_with_its_place() {
    let bed = Bed::new();
    bed.write("good.yml", GOOD);
    let good = "- { tool: read_file, expect: allow }";
    for (wrong, place, words) in [
        ("- { tool: read_file, expect: perhaps }", "2:", "perhaps"),
        ("- { tool: read_file, expect: allow, rules: reads }", "2:", "rules"),
        ("- tool: read_file\n  expect: allow\n  args: { path: a }", "4:3:", "args"),
        ("- { tool: read_file, expect: allow, expect: deny }", "2:", "expect"),
        ("- { tool: read_file }", "2:", "expect"),
        ("- { expect: allow }", "2:", "tool"),
        ("- { tool: [read_file], expect: allow }", "2:", "string"),
    ] {
        bed.write("broken.yml", &format!("{good}\n{wrong}\n"));
        let ran = bed.say("policy test broken.yml --config good.yml").expect(2);
        let said = format!("broken.yml:{place}");
        assert!(ran.stderr.contains(&said) && ran.stderr.contains(words), "{wrong}: {}", ran.stderr);
    }
    // What older YAML reads as a boolean is a word.
    bed.write("word.yml", "- { tool: read_file, arguments: { path: no }, expect: allow }\n");
    bed.say("policy test word.yml --config good.yml").expect(0);
}

/// What `policy apply` put into a store judges its calls, so it is what explains them.
#[test]
fn an_explanation_with_a_store_is_by_the_policy_it_holds() {
    let bed = Bed::new();
    bed.write("good.yml", GOOD);
    let explain = |store: Option<&str>| {
        let store = store.map(|url| format!(" --store {url}")).unwrap_or_default();
        bed.say(&format!("policy explain --config good.yml --tool read_file{store}")).expect(0).stdout
    };
    let without = explain(None);
    assert!(without.starts_with("allow") && without.contains("good.yml"), "{without}");
    bed.run(["user", "add", "ann", "--store", &bed.url()]).expect(0);
    let empty = explain(Some(&bed.url()));
    assert!(empty.starts_with("allow") && empty.contains("good.yml"), "a store without a policy has no say: {empty}");
    bed.write("store.yml", "policy: { otherwise: ask, rules: [{ id: nothing-goes, deny: 'read_*' }] }\n");
    bed.say(&format!("policy apply store.yml --store {}", bed.url())).expect(0);
    let held = explain(Some(&bed.url()));
    assert!(held.starts_with("deny") && held.contains("nothing-goes"), "{held}");
    assert!(held.contains("from the store") && !held.contains("good.yml"), "{held}");
    let said = format!("policy explain --config good.yml --tool read_file --store {} --json", bed.url());
    let said = bed.say(&said).expect(0).json();
    assert_eq!((&said["effect"], &said["source"]), (&"deny".into(), &"the store".into()));
}

#[test]
fn an_applied_policy_is_in_the_store() {
    let bed = Bed::new();
    bed.write("good.yml", GOOD);
    let applied = bed.run(["policy", "apply", "good.yml", "--store", &bed.url(), "--json"]).expect(0).json();
    let checked = bed.say("policy check good.yml --json").expect(0).json();
    assert_eq!(applied["policy"], checked["version"]);
    let log = bed.run(["audit", "log", "--json", "--store", &bed.url()]).expect(0);
    assert!(log.stdout.contains("policy.loaded"), "{}", log.stdout);
}

/// The schema in the documentation is the one the command prints.
#[test]
fn the_documented_schema_is_the_one_in_force() {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/countersign.schema.json");
    let documented: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let printed = Bed::new().say("policy schema").expect(0).json();
    assert_eq!(documented, printed, "run `countersign policy schema > docs/reference/countersign.schema.json`");
}
