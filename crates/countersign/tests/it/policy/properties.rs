//! Properties: what no policy may do, whatever it says.

use std::sync::Arc;

use countersign::testing::races::seed;
use countersign::verdict::Because;
use countersign::{Effect, Facts, Policy, ToolId, Verdict};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::RngSeed;

use super::facts;

/// Rules as texts, each with an id of its own.
fn rules() -> impl Strategy<Value = Vec<String>> {
    let effect = select(vec!["allow", "ask", "deny"]);
    let tool = select(vec!["*", "a", "b", "a*", "*b", "s/*", "s/a", "*/a", "agent:*", "{a,b}"]);
    let more = select(vec![
        "",
        ", when: 'arguments.n > 5'",
        ", when: 'arguments.n == \"x\"'",
        ", except: [a]",
        ", except: [{ when: 'arguments.n > 9' }]",
        ", risk: high",
    ]);
    proptest::collection::vec((effect, tool, more), 0..8).prop_map(|rules| {
        let rules = rules.into_iter().enumerate();
        rules.map(|(index, (effect, tool, more))| format!("{{ id: r{index}, {effect}: '{tool}'{more} }}")).collect()
    })
}

fn otherwise() -> impl Strategy<Value = &'static str> {
    select(vec!["allow", "ask", "deny", "declared"])
}

fn calls() -> impl Strategy<Value = Facts> {
    let tool = select(vec![
        ToolId::local("a"),
        ToolId::local("b"),
        ToolId::local("ab"),
        ToolId::local("agent:kid"),
        ToolId::on("s", "a"),
        ToolId::on("t", "a"),
        ToolId::on("s", "z"),
    ]);
    let arguments = select(vec!["{}", r#"{"n":3}"#, r#"{"n":7}"#, r#"{"n":12}"#, r#"{"n":"x"}"#]);
    (tool, arguments).prop_map(|(tool, arguments)| facts(tool, arguments, &["boss", "kid"]))
}

fn policy(otherwise: &str, rules: &[String]) -> Policy {
    Policy::from_yaml(&format!("otherwise: {otherwise}\nrules: [{}]", rules.join(", "))).unwrap()
}

/// A verdict but for the policy's version.
fn said(verdict: Verdict) -> Verdict {
    Verdict { policy: Arc::from(""), ..verdict }
}

/// The same cases each time, or those of the environment variable `SEED`.
fn config() -> ProptestConfig {
    let rng_seed = RngSeed::Fixed(seed());
    ProptestConfig { cases: 500, failure_persistence: None, rng_seed, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    /// B36: adding a deny rule never loosens any verdict.
    #[test]
    fn adding_a_deny_never_loosens(otherwise in otherwise(), rules in rules(), tool in select(vec!["*", "a", "s/*"]), call in calls()) {
        let before = policy(otherwise, &rules).judge(&call);
        let mut more = rules.clone();
        more.push(format!("{{ id: added, deny: '{tool}' }}"));
        let after = policy(otherwise, &more).judge(&call);
        prop_assert!(after.effect >= before.effect);
    }

    /// B36: adding any rule never loosens what another rule decided, nor its terms.
    #[test]
    fn adding_a_rule_never_loosens_a_rule(otherwise in otherwise(), rules in rules(), added in rules(), call in calls()) {
        let before = policy(otherwise, &rules).judge(&call);
        let renamed = added.iter().map(|rule| rule.replace("id: r", "id: added"));
        let more: Vec<String> = rules.iter().cloned().chain(renamed).collect();
        let after = policy(otherwise, &more).judge(&call);
        if before.because().iter().any(|because: &Because| because.rule.starts_with('r')) {
            prop_assert!(after.effect >= before.effect);
        }
        if (before.effect, after.effect) == (Effect::Ask, Effect::Ask) {
            prop_assert!(after.terms.risk >= before.terms.risk);
            prop_assert!(after.terms.requester_excluded >= before.terms.requester_excluded);
        }
    }

    /// B50: a policy beside another only tightens: the stricter word of the two counts, on terms as strict as both.
    #[test]
    fn a_policy_beside_another_only_tightens(
        (otherwise, rules) in (otherwise(), rules()),
        (beside_otherwise, beside_rules) in (otherwise(), rules()),
        call in calls(),
    ) {
        let (own, beside) = (policy(otherwise, &rules), policy(beside_otherwise, &beside_rules));
        let (alone, other) = (own.judge(&call), beside.judge(&call));
        let both = own.clone().tightened_by("folder", beside);
        let verdict = both.judge(&call);
        prop_assert_eq!(verdict.effect, alone.effect.max(other.effect));
        prop_assert!(verdict.because().iter().all(|because| because.effect == verdict.effect) && !verdict.because().is_empty());
        prop_assert_eq!(verdict.matched.len(), alone.matched.len() + other.matched.len());
        if verdict.effect == Effect::Ask {
            prop_assert!(verdict.terms.risk >= other.terms.risk || other.effect != Effect::Ask);
            prop_assert!(verdict.terms.risk >= alone.terms.risk || alone.effect != Effect::Ask);
        }
        prop_assert_eq!(&verdict.policy, both.version());
        prop_assert_ne!(both.version(), own.version());
    }

    /// B36: order never matters, to nothing in the verdict.
    #[test]
    fn order_never_matters(otherwise in otherwise(), rules in rules().prop_shuffle(), call in calls()) {
        let mut sorted = rules.clone();
        sorted.sort();
        prop_assert_eq!(said(policy(otherwise, &rules).judge(&call)), said(policy(otherwise, &sorted).judge(&call)));
    }

    /// B115: an agent's own policy never loosens what stands above it.
    #[test]
    fn an_agents_policy_never_loosens(otherwise in otherwise(), rules in rules(), own in rules(), call in calls()) {
        let top = format!("policy: {{ otherwise: {otherwise}, rules: [{}] }}\n", rules.join(", "));
        let with = format!("{top}agents: {{ kid: {{ policy: {{ rules: [{}] }} }} }}", own.join(", "));
        let before = Policy::from_yaml(&top).unwrap().judge(&call);
        let after = Policy::from_yaml(&with).unwrap().judge(&call);
        prop_assert!(after.effect >= before.effect);
    }

    /// B39: the deciding rules are those of the strictest effect, and all of them matched.
    #[test]
    fn verdicts_are_consistent(otherwise in otherwise(), rules in rules(), call in calls()) {
        let verdict = policy(otherwise, &rules).judge(&call);
        prop_assert!(!verdict.because().is_empty());
        prop_assert!(verdict.because().iter().all(|because| because.effect == verdict.effect));
        prop_assert!(verdict.matched.iter().all(|matched| matched.effect <= verdict.effect));
        let deciding: Vec<&Because> = verdict.matched.iter().filter(|matched| matched.effect == verdict.effect).collect();
        prop_assert_eq!(deciding, verdict.because().iter().collect::<Vec<_>>());
    }
}
