//! Loading is strict, and says where.

use super::*;
use crate::json::Json;

#[track_caller]
fn check_refused(text: &str, expected: &str) {
    let errors = Policy::from_yaml(text).expect_err(text).to_string();
    assert!(errors.contains(expected), "{expected:?} not in\n{errors}");
}

/// B46: YAML that readers disagree about is refused.
#[test]
fn ambiguous_yaml_is_refused() {
    check_refused("\u{feff}otherwise: ask", "byte order mark");
    check_refused("otherwise: ask\notherwise: allow", "policy.yml:2:1: ");
    check_refused("a: &a { ask: x }\nrules: [{ <<: *a }]", "policy.yml:");
    check_refused("rules: [{ deny: x, hide: yes }]", "must be `true` or `false`");
    check_refused("otherwise: ask\n---\notherwise: allow", "policy.yml:");
    check_refused("otherwise: !custom ask", "policy.yml:");
    check_refused(&" ".repeat(limits::POLICY_BYTES + 1), "over the limit");
    check_refused(&format!("rules: {}{}", "[".repeat(200), "]".repeat(200)), "policy.yml:1:");
    check_refused("rules: [", "policy.yml:1:");
    let bomb = "a: &a [x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\n\
                d: &d [*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e]\n\
                g: [*f,*f,*f,*f,*f,*f,*f,*f]\nrules: []";
    check_refused(bomb, "policy.yml:");
}

/// B40: a condition's error points into the condition.
#[test]
fn a_broken_condition_is_shown_where_it_breaks() {
    let text = "rules:\n- ask: pay\n  when: arguments.amount >> 5\n";
    let errors = Policy::from_yaml(text).unwrap_err();
    assert_eq!((errors.0[0].line, errors.0.len()), (3, 1), "{errors}");
    assert!(errors.0[0].column > 9, "{errors}");
    check_refused("rules: [{ ask: x, when: 5 }]", "must be text");
    check_refused("rules: [{ ask: x, when: }]", "must be text");
    check_refused("rules: [{ ask: x, when: [] }]", "must be text");
}

/// Ids are unique and none of ours; those not given are made.
#[test]
fn ids_are_unique() {
    check_refused("rules: [{ id: a, ask: x }, { id: a, ask: y }]", "another rule with the id `a`");
    check_refused("rules: [{ id: rule-2, ask: x }, { ask: y }]", "another rule with the id `rule-2`");
    check_refused("preset: starter\nrules: [{ id: starter-reads, ask: x }]", "another rule with the id");
    for id in ["otherwise", "declared", "code", "doubt"] {
        check_refused(&format!("rules: [{{ id: {id}, ask: x }}]"), "reserved");
    }
    check_refused("rules: [{ id: '', ask: x }]", "blank");
}

/// What says how to ask stands only on rules that ask.
#[test]
fn terms_stand_only_on_rules_that_ask() {
    let terms = [
        "approvals: 2",
        "from: [a]",
        "expires_after: 5m",
        "remember: none",
        "human: required",
        "requester: excluded",
        "on_expired: refuse",
    ];
    for term in terms {
        check_refused(&format!("rules: [{{ allow: x, {term} }}]"), "says how to ask, but the rule is allow");
        check_refused(&format!("rules: [{{ deny: x, {term} }}]"), "says how to ask, but the rule is deny");
        Policy::from_yaml(&format!("rules: [{{ ask: x, {term} }}]")).unwrap();
    }
    Policy::from_yaml("rules: [{ deny: x, risk: high, reason: y }, { allow: z, risk: low, reason: y }]").unwrap();
    check_refused("rules: [{ ask: x, approvals: 0 }]", "from 1 to");
    check_refused("rules: [{ ask: x, approvals: many }]", "whole number");
    check_refused("rules: [{ ask: x, from: [] }]", "must name somebody");
    check_refused("rules: [{ ask: x, human: optional }]", "unknown `human`");
    check_refused("rules: [{ deny: x, commands: ['rm **'] }]", "`commands` is not yet supported");
    check_refused("rules: [{ deny: x, except: [{ commands: ['rm **'] }] }]", "`commands` is not yet supported");
}

/// Lengths of time have a unit; `never` is spelled out.
#[test]
fn lengths_of_time_have_a_unit() {
    use crate::verdict::Life;
    let life = |text: &str| {
        let policy = Policy::from_yaml(&format!("expires_after: {text}"))?;
        Ok::<_, PolicyErrors>(policy.judge(&rule::bare_facts(ToolId::local("x"), Json::empty())).terms.life)
    };
    for (text, seconds) in [("4s", 4), ("10m", 600), ("2h", 7200), ("7d", 604_800), ("3000ms", 3)] {
        assert_eq!(life(text).unwrap(), Life::For(std::time::Duration::from_secs(seconds)));
    }
    assert_eq!(life("never").unwrap(), Life::Never);
    for text in ["5", "0s", "-5s", "5 s", "5x", "'5'", "99999999999999999999d", "9999999d", "[5s]", "1.5h", "''"] {
        assert!(life(text).is_err(), "{text}");
    }
}

/// Rules that do not say how long they wait take the preset's life, and those that do keep theirs.
#[test]
fn rules_take_the_life_of_their_policy() {
    use crate::verdict::Life;
    let text = "preset: patient\nrules: [{ ask: a }, { ask: b, expires_after: 10m }]";
    let policy = Policy::from_yaml(text).unwrap();
    let life = |tool: &str| policy.judge(&rule::bare_facts(ToolId::local(tool), Json::empty())).terms.life;
    assert_eq!(life("a"), Life::For(std::time::Duration::from_secs(604_800)));
    assert_eq!(life("b"), Life::For(std::time::Duration::from_secs(600)));
    assert_eq!(life("c"), life("a"));
}

/// The same words have the same version, whatever their layout; other words have another.
#[test]
fn the_version_follows_what_is_said() {
    let version = |text: &str| Policy::from_yaml(text).unwrap().version().to_string();
    let first = version("otherwise: ask\nrules: [{ id: a, ask: x }]");
    assert!(first.starts_with("p:") && first.len() == 18, "{first}");
    assert_eq!(first, version("# said again\nrules:\n  - ask: x\n    id: a\notherwise: ask\n"));
    assert_eq!(first, version("policy: { otherwise: ask, rules: [{ id: a, ask: x }] }"));
    assert_ne!(first, version("otherwise: ask\nrules: [{ id: a, ask: y }]"));
    assert_ne!(version("preset: ask-all"), version("preset: allow-all"));
    let policy = Policy::from_yaml("otherwise: ask").unwrap();
    assert_eq!(policy.source(), Some("otherwise: ask"));
}

/// B6: whether something can ask, and whether the author said what happens when nobody can be asked.
#[test]
fn a_policy_knows_whether_it_can_ask() {
    for (text, can_ask) in [
        ("otherwise: allow", false),
        ("otherwise: deny", false),
        ("otherwise: ask", true),
        ("", true),
        ("otherwise: declared", true),
        ("otherwise: deny\nrules: [{ ask: x }]", true),
        ("otherwise: deny\nrules: [{ allow: x }]", false),
        ("policy: { otherwise: allow }\nagents: { a: { policy: { rules: [{ ask: x }] } } }", true),
    ] {
        assert_eq!(Policy::from_yaml(text).unwrap().can_ask(), can_ask, "{text}");
    }
    let stated = |text: &str| {
        let policy = Policy::from_yaml(text).unwrap();
        (policy.unattended(), policy.unattended_stated())
    };
    assert_eq!(stated("unattended: deny"), (Unattended::Deny, true));
    assert_eq!(stated("unattended: allow"), (Unattended::Allow, true));
    assert_eq!(stated("otherwise: ask"), (Unattended::Deny, false));
    assert_eq!(Policy::from_yaml("in_client: allow").unwrap().in_client(), InClient::Allow);
}

/// B7: tools that no rule can be about are not admitted.
#[test]
fn unjudgeable_tools_are_not_admitted() {
    let tries = |tool: ToolId| Policy::allow_all().admits(&rule::bare_facts(tool, Json::empty()));
    for tool in [ToolId::local("read"), ToolId::on("gh", "get"), ToolId::on("gh", "a/b:c"), ToolId::local("agent:x")] {
        assert_eq!(tries(tool), Ok(()));
    }
    let long = "x".repeat(limits::NAME_BYTES + 1);
    for tool in [
        ToolId::local(""),
        ToolId::local(" "),
        ToolId::local("a b"),
        ToolId::local("a/b"),
        ToolId::local("a:b"),
        ToolId::local("a\u{7}"),
        ToolId::local(long.as_str()),
        ToolId::local("agent:"),
        ToolId::on("", "x"),
        ToolId::on("a/b", "x"),
        ToolId::on("gh", ""),
    ] {
        assert!(tries(tool.clone()).is_err(), "{tool:?}");
    }
}

/// B54: dead, shadowed and too broad rules, and quorums that cannot be met.
#[test]
fn lint_finds_what_cannot_be_meant() {
    #[track_caller]
    fn check(text: &str, expected: &[(&str, LintKind)]) {
        let found = Policy::from_yaml(text).unwrap().lint();
        let found: Vec<(&str, LintKind)> = found.iter().map(|lint| (&*lint.rule, lint.kind)).collect();
        assert_eq!(found, expected, "{text}");
    }
    check("rules: [{ id: a, allow: x, except: ['*'] }]", &[("a", LintKind::Dead)]);
    check("rules: [{ id: a, ask: x, when: 1 > 2 }]", &[("a", LintKind::Dead)]);
    check("rules: [{ id: a, ask: gh/x, except: ['*'] }]", &[]);
    check("rules: [{ id: a, allow: gh/x, when: annotations.readOnlyHint }]", &[("a", LintKind::Dead)]);
    check("rules: [{ id: a, allow: x }, { id: b, deny: '*' }]", &[("a", LintKind::Shadowed)]);
    check("rules: [{ id: a, allow: ['x*', gh/y] }, { id: b, ask: ['x*', 'y'] }]", &[("a", LintKind::Shadowed)]);
    check("rules: [{ id: a, allow: ['x*', z] }, { id: b, ask: 'x*' }]", &[]);
    check("rules: [{ id: a, allow: 'x*' }, { id: b, ask: xy }]", &[]);
    check("rules: [{ id: a, allow: x }, { id: b, deny: x, when: arguments.y }]", &[]);
    check("rules: [{ id: a, allow: 'run_*' }]", &[("a", LintKind::TooBroad)]);
    check("rules: [{ id: a, allow: '*' }]", &[("a", LintKind::TooBroad)]);
    check("rules: [{ id: a, allow: 'box/*' }]", &[("a", LintKind::TooBroad)]);
    check("rules: [{ id: a, allow: bash, when: arguments.command == 'ls' }]", &[]);
    check("rules: [{ id: a, ask: 'run_*' }]", &[]);
    let quorum = |groups: &str| {
        format!(
            "policy: {{ rules: [{{ id: a, ask: x, approvals: 2, from: [f, ann] }}] }}\napprovers: {{ groups: {{ {groups} }} }}"
        )
    };
    check(&quorum("f: [ann, bo]"), &[]);
    check(&quorum("f: [ann]"), &[("a", LintKind::ImpossibleQuorum)]);
    check("rules: [{ id: a, ask: x, approvals: 3, from: [f, ann] }]", &[("a", LintKind::ImpossibleQuorum)]);
    check("rules: [{ id: a, ask: x, expires_after: 59s }, { id: b, ask: y }]", &[("a", LintKind::ShortExpiry)]);
    check("rules: [{ id: a, ask: x, expires_after: 60s }, { id: b, ask: y, expires_after: never }]", &[]);
    let both = [("otherwise", LintKind::ShortExpiry), ("a", LintKind::ShortExpiry)];
    check("expires_after: 5s\nrules: [{ id: a, ask: x }]", &both);
    check("expires_after: 5s\notherwise: allow", &[]);
    for preset in presets::NAMES {
        assert_eq!(Policy::preset(preset).unwrap().lint(), [], "{preset}");
    }
}
