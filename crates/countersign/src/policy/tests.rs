//! The promises of section 5 of the behaviour list, one table each.

use super::*;
use crate::call::{Declared, Path};
use crate::json::{Bounds, Json};
use crate::time::Time;
use crate::verdict::{Life, Memory, OnExpired, Quorum, Risk};
use Effect::{Allow, Ask, Deny};

/// The facts of a call of a local tool without arguments.
fn call(tool: &str) -> Facts {
    with(tool, "{}")
}

/// The facts of a call; `server/tool` is a tool of a server.
fn with(tool: &str, arguments: &str) -> Facts {
    rule::bare_facts(examples::tool_named(tool), Json::ingest(arguments, Bounds::PAYLOAD).unwrap())
}

#[track_caller]
fn policy(text: &str) -> Policy {
    match Policy::from_yaml(text) {
        Ok(policy) => policy,
        Err(errors) => panic!("{errors}"),
    }
}

/// The only place that judges and compares effects.
#[track_caller]
fn check(text: &str, facts: &Facts, expected: Effect) {
    let verdict = policy(text).judge(facts);
    assert_eq!(verdict.effect, expected, "{text}\n{facts:?}\n{verdict:?}");
}

/// The messages of a text that must not load, with their places.
#[track_caller]
fn refused(text: &str) -> Vec<String> {
    match Policy::from_yaml(text) {
        Ok(_) => panic!("loaded:\n{text}"),
        Err(errors) => {
            errors.iter().map(|error| format!("{}:{}: {}", error.line, error.column, error.message)).collect()
        }
    }
}

#[track_caller]
fn check_refused(text: &str, expected: &str) {
    let messages = refused(text);
    assert!(messages.iter().any(|message| message.contains(expected)), "{expected:?} not in {messages:#?}\n{text}");
}

/// B36: the strictest matching rule wins, whatever the order.
#[test]
fn strictest_rule_wins_in_any_order() {
    let rules = ["- { id: a, allow: shell }", "- { id: b, ask: shell }", "- { id: c, deny: shell }"];
    for (picked, expected) in
        [(&[0][..], Allow), (&[0, 1], Ask), (&[1, 0], Ask), (&[2, 0, 1], Deny), (&[0, 1, 2], Deny)]
    {
        let text: Vec<&str> = picked.iter().map(|index: &usize| rules[*index]).collect();
        check(&format!("rules:\n{}", text.join("\n")), &call("shell"), expected);
    }
}

/// B37: an exception loosens, so an erring one excepts nothing, and every other rule still applies.
#[test]
fn an_exception_is_judged_as_an_allow_is() {
    let text = "otherwise: allow\nrules: [{ id: a, deny: pay, except: [{ when: arguments.amount < 10 }] }]";
    check(text, &with("pay", r#"{"amount":5}"#), Allow);
    check(text, &with("pay", r#"{"amount":50}"#), Deny);
    check(text, &call("pay"), Deny);
    let text = "otherwise: allow\nrules: [{ deny: '*', except: [read] }, { id: b, ask: read }]";
    check(text, &call("read"), Ask);
    check(text, &call("write"), Deny);
    check(text, &call("files/read"), Deny);
    let text = "otherwise: allow\nrules: [{ deny: '*', except: [{ tool: read, when: arguments.ok }] }]";
    check(text, &with("read", r#"{"ok":true}"#), Allow);
    check(text, &with("read", r#"{"ok":1}"#), Deny);
    check(text, &with("write", r#"{"ok":true}"#), Deny);
}

/// B5, B38: what no rule matches goes to `otherwise`, and that is `ask` unless somebody says something else.
#[test]
fn unmatched_calls_go_to_otherwise() {
    for (otherwise, expected) in
        [("", Ask), ("otherwise: ask", Ask), ("otherwise: allow", Allow), ("otherwise: deny", Deny)]
    {
        check(otherwise, &call("anything"), expected);
    }
    let text = "otherwise: declared";
    for (declared, expected) in
        [(Declared::Nothing, Allow), (Declared::Ask, Ask), (Declared::AskForThese, Ask), (Declared::MustAsk, Ask)]
    {
        check(text, &Facts { declared, ..call("x") }, expected);
        let listed = "otherwise: declared\nrules: [{ allow: x }]";
        let lifted = if declared == Declared::MustAsk { Ask } else { Allow };
        check(listed, &Facts { declared, ..call("x") }, lifted);
    }
    assert_eq!(Policy::ask_all().unattended(), Unattended::Deny);
    assert!(!Policy::ask_all().unattended_stated());
}

/// B39: a verdict names every matching rule and the deciding ones.
#[test]
fn a_verdict_names_all_rules_and_the_deciding_ones() {
    let text =
        "rules: [{ id: a, allow: x }, { id: b, ask: 'x*', reason: Because }, { id: c, ask: '*' }, { id: d, deny: y }]";
    let verdict = policy(text).judge(&call("x"));
    let ids =
        |list: &[crate::verdict::Because]| list.iter().map(|because| because.rule.to_string()).collect::<Vec<_>>();
    assert_eq!(ids(verdict.because()), ["b", "c"]);
    assert_eq!(ids(&verdict.matched), ["b", "c", "a"]);
    assert_eq!(verdict.reason(), Some("Because"));
    let verdict = Policy::ask_all().judge(&call("x"));
    assert_eq!(ids(verdict.because()), ["otherwise"]);
}

/// B40: a condition that errs, or is no boolean, matches for ask and deny and not for allow.
#[test]
fn an_erring_condition_never_loosens() {
    for condition in ["arguments.missing == 1", "arguments.name > 1", "arguments.name", "1 / arguments.zero == 1"] {
        let facts = with("x", r#"{"name":"n","zero":0}"#);
        check(&format!("otherwise: deny\nrules: [{{ allow: x, when: '{condition}' }}]"), &facts, Deny);
        check(&format!("otherwise: allow\nrules: [{{ ask: x, when: '{condition}' }}]"), &facts, Ask);
        check(&format!("otherwise: allow\nrules: [{{ deny: x, when: '{condition}' }}]"), &facts, Deny);
    }
}

/// B24: a small amount runs, a large one asks; integers beyond what a float holds are compared exactly.
#[test]
fn conditions_see_the_arguments_exactly() {
    let text = "otherwise: allow\nrules: [{ ask: pay, when: arguments.amount > 10000 }]";
    check(text, &with("pay", r#"{"amount":10000}"#), Allow);
    check(text, &with("pay", r#"{"amount":10001}"#), Ask);
    check(text, &with("pay", r#"{"amount":10000.5}"#), Ask);
    check(text, &with("pay", r#"{"amount":"10001"}"#), Ask);
    let text = "otherwise: allow\nrules: [{ deny: pay, when: arguments.id == 9007199254740993 }]";
    check(text, &with("pay", r#"{"id":9007199254740993}"#), Deny);
    check(text, &with("pay", r#"{"id":9007199254740992}"#), Allow);
    let text = "otherwise: allow\nrules: [{ deny: pay, when: arguments.?amount.orValue(0) > 5 }]";
    check(text, &call("pay"), Allow);
    check(text, &with("pay", r#"{"amount":6}"#), Deny);
    let text = "otherwise: allow\nrules: [{ deny: x, when: \"arguments.path.matches('^/etc/')\" }]";
    check(text, &with("x", r#"{"path":"/etc/passwd"}"#), Deny);
    check(text, &with("x", r#"{"path":"/home/etc/"}"#), Allow);
}

/// B40: conditions see who calls, when, and what the server claims; claims never loosen unless the operator says so.
#[test]
fn conditions_see_the_other_facts() {
    let facts = Facts {
        path: Path {
            session: Some("s".into()),
            thread: Some("t".into()),
            agents: Arc::from([Arc::from("a")]),
            ..Path::default()
        },
        annotations: Some(Json::ingest(r#"{"readOnlyHint":true}"#, Bounds::PAYLOAD).unwrap()),
        places: Default::default(),
        at: Time(1_700_000_000_000_000),
        ..call("gh/x")
    };
    for condition in [
        "tool == 'x' && server == 'gh' && session == 's' && thread == 't' && agent == 'a'",
        "now > timestamp('2023-11-14T00:00:00Z') && now.getFullYear() == 2023",
        "annotations.readOnlyHint",
    ] {
        check(&format!("otherwise: allow\nrules: [{{ deny: x, when: \"{condition}\" }}]"), &facts, Deny);
    }
    let allow = "{ allow: gh/x, when: annotations.readOnlyHint }";
    check(&format!("rules: [{allow}]"), &facts, Ask);
    check(&format!("policy: {{ rules: [{allow}] }}\nmcp_servers: {{ gh: {{ trust_hints: true }} }}"), &facts, Allow);
    check("otherwise: allow\nrules: [{ deny: '*', when: server == null && session == null }]", &call("x"), Deny);
}

/// B41: every preset loads, and does what its name says.
#[test]
fn presets_do_what_they_say() {
    let table = [
        ("ask-all", "write_file", Ask),
        ("allow-all", "write_file", Allow),
        ("deny-all", "read_file", Deny),
        ("declared", "write_file", Allow),
        ("starter", "read_file", Allow),
        ("starter", "write_file", Ask),
        ("starter", "delete_file", Ask),
        ("starter", "gh/get_issue", Ask),
        ("development", "write_file", Allow),
        ("production", "write_file", Ask),
        ("high-security", "read_file", Ask),
        ("ci", "write_file", Deny),
        ("patient", "write_file", Ask),
    ];
    for (preset, tool, expected) in table {
        assert_eq!(Policy::preset(preset).unwrap().judge(&call(tool)).effect, expected, "{preset} {tool}");
        let same = policy(&format!("preset: {preset}")).judge(&call(tool));
        assert_eq!(same.effect, expected, "{preset} {tool}");
    }
    assert!(Policy::preset("nonsense").is_none());
    assert_eq!(Policy::preset("patient").unwrap().unattended(), Unattended::Wait);
    let verdict = Policy::preset("high-security").unwrap().judge(&call("x"));
    assert_eq!(verdict.terms.remember, Memory::None);
    assert_eq!(verdict.terms.life, Life::For(std::time::Duration::from_secs(60)));
    assert!(verdict.terms.requester_excluded);
    check_refused("preset: ask-al", "unknown preset `ask-al`");
    check_refused("preset: ask-all\notherwise: allow", "2:12: `otherwise` contradicts the preset `ask-all`");
    policy("preset: ask-all\notherwise: ask");
    check("preset: ask-all\nrules: [{ allow: x }]", &call("x"), Allow);
}

/// B41: a blank or invalid name in a rule is a load error.
#[test]
fn bad_names_are_load_errors() {
    for name in [
        "''",
        "' '",
        "'a b'",
        "' a'",
        "srv/",
        "/x",
        "'agent:'",
        "foo:bar",
        "'a**'",
        "'a\\b'",
        "'[a'",
        "'{a'",
        "'toolset:'",
    ] {
        check_refused(&format!("rules: [{{ ask: {name} }}]"), "pattern");
        check_refused(&format!("rules: [{{ allow: x, except: [{name}] }}]"), "pattern");
    }
    check_refused("rules: [{ ask: [] }]", "at least one tool");
    check_refused("rules: [{ ask: 5 }]", "must be text");
    check_refused("rules: [{ ask: }]", "must be text");
}

/// B42, B43: deny beats everything; an allow rule works under `otherwise: deny`; must-ask asks under `otherwise: allow`.
#[test]
fn deny_beats_everything_and_must_ask_everything_else() {
    let must = Facts { declared: Declared::MustAsk, ..call("x") };
    check("rules: [{ deny: x }]", &must, Deny);
    check("otherwise: deny\nrules: [{ allow: x }]", &call("x"), Allow);
    check("otherwise: allow", &must, Ask);
    let verdict = policy("otherwise: allow\nrules: [{ allow: x }]").judge(&must);
    assert_eq!(verdict.effect, Ask);
    assert!(verdict.terms.human_required);
    assert_eq!(verdict.rules(), [Arc::from("declared")]);
    assert!(Policy::ask_all().judge(&must).terms.human_required);
}

/// B44: rules on tool, toolset, server and kind all count; `except` frees one tool of an asked server.
#[test]
fn rules_on_every_kind_of_subject_count() {
    let from_skill = Facts { toolset: Some("pdf".into()), ..call("x") };
    for pattern in ["skill:pdf", "toolset:pdf", "'toolset:p*'"] {
        check(&format!("otherwise: allow\nrules: [{{ deny: {pattern} }}]"), &from_skill, Deny);
        check(&format!("otherwise: allow\nrules: [{{ deny: {pattern} }}]"), &call("x"), Allow);
    }
    let text = "otherwise: allow\nrules: [{ ask: 'gh/*', except: [gh/get] }]";
    check(text, &call("gh/get"), Allow);
    check(text, &call("gh/put"), Ask);
    check(text, &call("gl/get"), Allow);
    let text = "otherwise: allow\nrules: [{ ask: '*/delete_*' }]";
    check(text, &call("gh/delete_x"), Ask);
    check(text, &call("delete_x"), Allow);
}

/// B45: a hiding rule hides, and still refuses with its reason.
#[test]
fn a_hidden_tool_is_hidden_and_still_denied() {
    let text = "rules: [{ deny: 'db/drop_*', hide: true, reason: No drops, except: [db/drop_temp] }, { deny: y }]";
    let policy = policy(text);
    assert!(policy.hides(&ToolId::on("db", "drop_x")));
    assert!(!policy.hides(&ToolId::on("db", "drop_temp")));
    assert!(!policy.hides(&ToolId::local("y")));
    let verdict = policy.judge(&call("db/drop_x"));
    assert_eq!((verdict.effect, verdict.hidden, verdict.reason()), (Deny, true, Some("No drops")));
    check_refused("rules: [{ ask: x, hide: true }]", "only a `deny` rule hides");
    check_refused("rules: [{ deny: x, hide: true, when: arguments.x }]", "no condition");
}

/// B46: unknown keys, effects and words are load errors, with the nearest known one as help.
#[test]
fn unknown_words_are_load_errors() {
    for (text, message, help) in [
        ("rulez: []", "1:1: unknown key `rulez`", "did you mean `rules`?"),
        ("rules: [{ ask: x, resaon: y }]", "1:19: unknown key `resaon` in a rule", "did you mean `reason`?"),
        ("otherwise: alow", "1:12: unknown `otherwise` `alow`", "did you mean `allow`?"),
        ("rules: [{ ask: x, risk: enormous }]", "unknown `risk` `enormous`", "use one of"),
        ("rules: [{ ask: x, remember: forever }]", "unknown `remember`", "use one of"),
        ("rules: [{ ask: x, except: [{ tol: y }] }]", "unknown key `tol`", "did you mean `tool`?"),
        ("unattended: maybe", "unknown `unattended`", "use one of"),
    ] {
        check_refused(text, message);
        let errors = Policy::from_yaml(text).unwrap_err();
        assert!(errors.to_string().contains(help), "{errors}");
    }
    check_refused("rules: [{ id: x }]", "needs `allow`, `ask` or `deny`");
    check_refused("rules: [{ allow: x, deny: x }]", "one effect");
    check_refused("rules: [5]", "must be a mapping");
    check_refused("rules: 5", "must be a list");
    check_refused("- 5", "must be a mapping");
}

/// B48: a bare name in allow or `except` is local; in ask and deny it is on every server, and `*` is delegation too.
#[test]
fn bare_names_loosen_only_local_tools() {
    let allow = "rules: [{ allow: ['*', get] }]";
    check(allow, &call("get"), Allow);
    check(allow, &call("gh/get"), Ask);
    check(allow, &call("agent:math"), Ask);
    check("rules: [{ allow: 'agent:math' }]", &call("agent:math"), Allow);
    check("rules: [{ allow: 'agent:*' }]", &call("gh/x"), Ask);
    for (pattern, tool) in
        [("get", "get"), ("get", "gh/get"), ("'*'", "gh/get"), ("'*'", "agent:math"), ("'agent:m*'", "agent:math")]
    {
        check(&format!("otherwise: allow\nrules: [{{ deny: {pattern} }}]"), &call(tool), Deny);
    }
    let except = "otherwise: allow\nrules: [{ deny: '*', except: ['*'] }]";
    check(except, &call("x"), Allow);
    check(except, &call("gh/x"), Deny);
    check(except, &call("agent:x"), Deny);
    // The pair counts, not the joined text.
    let pair = "rules: [{ allow: a_b/c }]";
    check(pair, &call("a_b/c"), Allow);
    check(pair, &Facts { tool: ToolId::on("a", "b_c"), ..call("x") }, Ask);
    check(pair, &Facts { tool: ToolId::local("a_b/c"), ..call("x") }, Ask);
    check("rules: [{ allow: 'a*/b' }]", &Facts { tool: ToolId::on("a", "x/b"), ..call("x") }, Ask);
    check("rules: [{ allow: 'a/x/b' }]", &Facts { tool: ToolId::on("a", "x/b"), ..call("x") }, Allow);
}

/// B91 and the terms of a hold: the strictest of every rule that asks.
#[test]
fn terms_are_the_strictest_of_all_that_ask() {
    let text = "
expires_after: 1h
rules:
  - { id: a, ask: pay, when: arguments.amount > 10, approvals: 2, from: [finance, ann], risk: high, on_expired: stop_run }
  - { id: b, ask: 'p*', expires_after: 5m, remember: none, human: required }
  - { id: c, ask: 'q*', risk: high, requester: allowed }
  - { id: d, allow: 'r*', risk: critical }
";
    let minutes = |minutes: u64| Life::For(std::time::Duration::from_secs(60 * minutes));
    let terms = policy(text).judge(&with("pay", r#"{"amount":11}"#)).terms;
    assert_eq!(terms.quorums, [Quorum { approvals: 2, from: vec!["ann".into(), "finance".into()] }]);
    assert_eq!((terms.life, terms.remember, terms.on_expired), (minutes(5), Memory::None, OnExpired::StopRun));
    assert!(terms.human_required && terms.requester_excluded && terms.depends_on_arguments);
    assert_eq!(terms.risk, Risk::High);
    let terms = policy(text).judge(&with("pay", r#"{"amount":9}"#)).terms;
    assert!(!terms.requester_excluded && !terms.depends_on_arguments && terms.risk == Risk::Low);
    assert!(!policy(text).judge(&call("quit")).terms.requester_excluded);
    assert_eq!(policy(text).judge(&call("other")).terms.life, minutes(60));
    let text = format!("{text}  - {{ id: e, ask: 'r*' }}");
    let terms = policy(&text).judge(&call("run")).terms;
    assert!(terms.requester_excluded && terms.risk == Risk::Critical);
}

/// B63: an ask that depends on the arguments says so, whoever asks.
#[test]
fn asking_because_of_arguments_is_marked() {
    let these = Facts { declared: Declared::AskForThese, ..call("x") };
    assert!(Policy::declared().judge(&these).terms.depends_on_arguments);
    assert!(Policy::ask_all().judge(&these).terms.depends_on_arguments);
    assert!(!Policy::declared().judge(&Facts { declared: Declared::Ask, ..call("x") }).terms.depends_on_arguments);
    let excepted = policy("rules: [{ ask: x, except: [{ when: arguments.ok }] }]");
    assert!(excepted.judge(&call("x")).terms.depends_on_arguments);
}

/// B52: code of the embedder stands in for `otherwise` or is one more rule, never loosens, and asks when it fails.
#[test]
fn policy_code_joins_by_strictness() {
    struct Code(fn() -> Result<CodeVerdict, String>);
    impl PolicyCode for Code {
        fn judge(&self, _: &Facts) -> Result<CodeVerdict, String> {
            (self.0)()
        }
    }
    let none: fn() -> Result<CodeVerdict, String> = || Ok(CodeVerdict::NoOpinion);
    let allow: fn() -> Result<CodeVerdict, String> = || Ok(CodeVerdict::Says(Allow, None));
    let deny: fn() -> Result<CodeVerdict, String> = || Ok(CodeVerdict::Says(Deny, Some("no".into())));
    let fail: fn() -> Result<CodeVerdict, String> = || Err("broken".to_owned());
    let panics: fn() -> Result<CodeVerdict, String> = || panic!("broken");
    let text = "otherwise: %\nrules: [{ allow: free }, { ask: asked }, { deny: never }]";
    for (otherwise, code, tool, expected) in [
        ("deny", none, "x", Deny),
        ("deny", allow, "x", Allow),
        ("allow", deny, "x", Deny),
        ("ask", allow, "asked", Ask),
        ("ask", allow, "never", Deny),
        ("ask", deny, "free", Deny),
        ("allow", fail, "x", Ask),
        ("deny", fail, "x", Deny),
        ("allow", fail, "free", Ask),
        ("allow", panics, "free", Ask),
        ("deny", panics, "never", Deny),
    ] {
        let policy = policy(&text.replace('%', otherwise)).with_code(Arc::new(Code(code)));
        assert!(policy.can_ask());
        assert_eq!(policy.judge(&call(tool)).effect, expected, "{otherwise} {tool}");
    }
    let must = Facts { declared: Declared::MustAsk, ..call("x") };
    assert_eq!(Policy::ask_all().with_code(Arc::new(Code(allow))).judge(&must).effect, Ask);
}

/// B53: a failing example is a load error at its place.
#[test]
fn examples_are_tried_when_loaded() {
    let rule = "rules:\n- { id: big, ask: pay, when: arguments.amount > 10, examples: { match: [%], no_match: [&] } }";
    let text = |yes: &str, no: &str| rule.replace('%', yes).replace('&', no);
    policy(&text("{ amount: 20 }", "{ amount: 5 }"));
    check_refused(&text("{ amount: 5 }", ""), "2:73: rule `big` does not match this example");
    check_refused(&text("", "{ amount: 50 }"), "rule `big` matches this example");
    check_refused(&text("5", ""), "an example is a mapping");
    policy(
        "rules: [{ allow: 'get_*', examples: { match: [{}, { tool: get_x, arguments: {} }], no_match: [{ tool: gh/get_x, arguments: {} }] } }]",
    );
    policy("rules: [{ ask: 'x[ab]{c,d}?', examples: { match: [{}] } }]");
    policy("rules: [{ ask: 'agent:*', examples: { match: [{}], no_match: [{ tool: x, arguments: {} }] } }]");
    check_refused("rules: [{ ask: 'skill:x', examples: { match: [{}] } }]", "needs a tool name");
}

/// B115: every agent in the path joins by strictness, and never loosens what stands above it.
#[test]
fn agents_own_policies_only_tighten() {
    let text = "
policy: { otherwise: allow, rules: [{ id: top, ask: shared }] }
agents:
  parent: { policy: { rules: [{ id: p, deny: parents }] } }
  child: { policy: { rules: [{ id: c, ask: childs }, { allow: shared }] } }
  strict: { policy: { otherwise: deny, rules: [{ allow: one }] } }
";
    let by = |tool: &str, agents: &[&str]| Facts {
        path: Path { agents: agents.iter().map(|agent| Arc::from(*agent)).collect(), ..Path::default() },
        ..call(tool)
    };
    check(text, &by("parents", &[]), Allow);
    check(text, &by("parents", &["child"]), Allow);
    check(text, &by("parents", &["parent", "child"]), Deny);
    check(text, &by("childs", &["parent", "child"]), Ask);
    check(text, &by("childs", &["parent"]), Allow);
    check(text, &by("shared", &["child"]), Ask);
    check(text, &by("one", &["strict"]), Allow);
    check(text, &by("two", &["strict"]), Deny);
    check(text, &by("two", &["strict", "child"]), Deny);
    check(text, &by("two", &["unknown"]), Allow);
    let verdict = policy(text).judge(&by("childs", &["parent", "child", "child"]));
    assert_eq!(verdict.rules(), [Arc::from("agents.child.c")]);
    check_refused("agents: { a: { policy: { preset: allow-all } } }", "unknown key `preset`");
}

/// B115, B47: `inside: own` frees a child from its parent's asks, never from a parent's deny or must-ask.
#[test]
fn a_child_may_follow_its_own_policy() {
    let text = "
policy:
  otherwise: ask
  rules:
    - { id: own, allow: 'agent:math', inside: own }
    - { id: no, deny: never }
    - { id: must, ask: must, human: required }
    - { id: asks, ask: add }
agents:
  math: { policy: { rules: [{ allow: [add, never, must] }, { ask: sub }] } }
  other: { policy: { rules: [{ ask: add }] } }
";
    let by = |tool: &str, agents: &[&str]| Facts {
        path: Path { agents: agents.iter().map(|agent| Arc::from(*agent)).collect(), ..Path::default() },
        ..call(tool)
    };
    let inside = &["boss", "math"];
    check(text, &by("add", inside), Allow);
    check(text, &by("sub", inside), Ask);
    check(text, &by("never", inside), Deny);
    check(text, &by("must", inside), Ask);
    check(text, &Facts { declared: Declared::MustAsk, ..by("add", inside) }, Ask);
    check(text, &by("unknown", inside), Ask);
    check(text, &by("add", &["boss", "third"]), Ask);
    check(text, &by("add", &["math"]), Ask);
    check(text, &by("add", &["boss", "math", "other"]), Ask);
    check(text, &by("add", &["other", "math"]), Ask);
    assert!(policy(text).judge(&by("agent:math", &["boss"])).inside_own);
    check_refused("rules: [{ allow: x, inside: own }]", "`agent:` patterns");
    check_refused("rules: [{ deny: 'agent:x', inside: own }]", "`agent:` patterns");
    check_refused("rules: [{ allow: 'agent:x', inside: own, when: arguments.x }]", "no `when`");
}

/// Leaving unread arguments out changes nothing that a condition can see.
#[test]
fn conditions_see_all_they_look_at() {
    let facts = with("x", r#"{"a":1,"b":{"c":[1,2]},"d":"e"}"#);
    for condition in [
        "arguments.a == 1",
        "arguments['a'] == 1 && arguments.?a.orValue(0) == 1 && arguments[?'a'].orValue(0) == 1",
        "has(arguments.a) && has(arguments.b.c) && !has(arguments.z)",
        "size(arguments) == 3",
        "'d' in arguments",
        "arguments == {'a': 1, 'b': {'c': [1, 2]}, 'd': 'e'}",
        "arguments.exists(k, k == 'd')",
        "arguments.b.c.all(n, n > 0)",
        "arguments[['d'][0]] == 'e'",
        "[arguments].all(x, x.d == 'e')",
    ] {
        let rule = format!("{{ allow: x, when: \"{condition}\" }}");
        check(&format!("rules: [{rule}]"), &facts, Allow);
        check(&format!("rules: [{rule}, {{ ask: x, when: arguments.d == 'z' }}]"), &facts, Allow);
    }
}
