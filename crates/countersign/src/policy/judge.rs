//! Judging: what the policy says about one call. Pure; the strictest word wins, so order never matters.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};

use super::rule::{Layer, Otherwise, Requester, Rule};
use super::scope::{Claims, Values};
use super::{CodeVerdict, Policy, PolicyCode};
use crate::call::{Declared, Facts};
use crate::verdict::{Because, Effect, Risk, Terms, Verdict};

/// Who speaks where no written rule does.
static OTHERWISE: LazyLock<Arc<str>> = LazyLock::new(|| "otherwise".into());
static DECLARED: LazyLock<Arc<str>> = LazyLock::new(|| "declared".into());
static CODE: LazyLock<Arc<str>> = LazyLock::new(|| "code".into());

/// Judges one call.
pub(crate) fn judge(policy: &Policy, facts: &Facts) -> Verdict {
    let values = Values::read_by(facts, &policy.inner.reads);
    let trusted = policy.claims_of(facts.tool.server.as_deref());
    let mut words = Words::default();
    let top = policy.inner.top.matching(&values, trusted);
    if policy.inner.agents.is_empty() {
        words.top(policy, facts, &top);
    } else {
        judge_agents(policy, &values, trusted, &top, &mut words);
    }
    if facts.declared == Declared::MustAsk {
        words.must_ask(&policy.inner.top);
    }
    words.verdict(policy, facts)
}

/// One agent's own rules, and its place in the path.
struct Own<'p> {
    place: usize,
    layer: &'p Layer,
    matching: Vec<&'p Rule>,
}

impl Own<'_> {
    fn has_opinion(&self) -> bool {
        !self.matching.is_empty() || self.layer.otherwise.is_some()
    }
}

/// Joins the top policy with the policies of every agent in the path.
///
/// A layer that lets an agent further in follow its own policy (`inside: own`) keeps only its deny rules and its
/// must-asks for what that agent does, provided the agent, or one inside it, has an opinion on the call.
fn judge_agents<'p>(policy: &'p Policy, values: &Values<'_>, trusted: Claims, top: &[&'p Rule], words: &mut Words<'p>) {
    let facts = values.facts();
    let agents = &facts.path.agents;
    let mut seen = HashSet::new();
    let mut own: Vec<Own<'p>> = Vec::new();
    for (place, agent) in agents.iter().enumerate().rev() {
        if let Some(layer) = policy.inner.agents.get(agent)
            && seen.insert(agent)
        {
            own.push(Own { place, layer, matching: layer.matching(values, trusted) });
        }
    }
    let released = |layer: &Layer, from: usize| {
        agents.iter().enumerate().skip(from).any(|(place, agent)| {
            policy.inner.agents.contains_key(agent)
                && layer.lets_follow_own(agent)
                && own.iter().any(|own| own.place >= place && own.has_opinion())
        })
    };
    if released(&policy.inner.top, 1) {
        words.still_binding(top);
    } else {
        words.top(policy, facts, top);
    }
    for Own { place, layer, matching } in &own {
        if released(layer, place + 1) {
            words.still_binding(matching);
        } else {
            words.layer(layer, facts, matching);
        }
    }
}

/// Everything that was said about the call so far.
#[derive(Default)]
struct Words<'p> {
    matched: Vec<Because>,
    asks: Vec<(&'p Arc<Terms>, Option<Requester>)>,
    risk: Risk,
    by_arguments: bool,
    must_ask: bool,
    hidden: bool,
    inside_own: bool,
}

impl<'p> Words<'p> {
    fn rule(&mut self, rule: &'p Rule) {
        self.matched.push(rule.because.clone());
        self.risk = self.risk.max(rule.risk);
        self.hidden |= rule.hide;
        self.inside_own |= rule.inside_own;
        if rule.effect() == Effect::Ask {
            self.asks.push((&rule.terms, rule.requester));
        }
    }

    fn unwritten(&mut self, rule: &Arc<str>, effect: Effect, reason: Option<Arc<str>>, layer: &'p Layer) {
        self.matched.push(Because { rule: Arc::clone(rule), effect, reason });
        if effect == Effect::Ask {
            self.asks.push((&layer.terms, None));
        }
    }

    /// The top policy, with the embedder's code as one more rule or in place of `otherwise`.
    fn top(&mut self, policy: &'p Policy, facts: &Facts, matching: &[&'p Rule]) {
        let top = &policy.inner.top;
        match policy.code.as_ref().map(|code| ask_code(&**code, facts)) {
            None | Some(Ok(CodeVerdict::NoOpinion)) => self.layer(top, facts, matching),
            Some(Ok(CodeVerdict::Says(effect, reason))) => {
                matching.iter().for_each(|rule| self.rule(rule));
                self.unwritten(&CODE, effect, reason, top);
            }
            // SECURITY: failing code has said "ask", and silences nobody.
            Some(Err(error)) => {
                self.layer(top, facts, matching);
                self.unwritten(&CODE, Effect::Ask, Some(error.into()), top);
            }
        }
    }

    fn layer(&mut self, layer: &'p Layer, facts: &Facts, matching: &[&'p Rule]) {
        matching.iter().for_each(|rule| self.rule(rule));
        if !matching.is_empty() {
            return;
        }
        match layer.otherwise {
            Some(Otherwise::Does(effect)) => self.unwritten(&OTHERWISE, effect, None, layer),
            Some(Otherwise::Declared) => {
                let effect = match facts.declared {
                    Declared::Nothing => Effect::Allow,
                    Declared::Ask | Declared::AskForThese | Declared::MustAsk => Effect::Ask,
                };
                self.unwritten(&DECLARED, effect, None, layer);
            }
            None => {}
        }
    }

    /// What binds even a child that follows its own policy.
    fn still_binding(&mut self, matching: &[&'p Rule]) {
        let binds = |rule: &&&'p Rule| match rule.effect() {
            Effect::Deny => true,
            Effect::Ask => rule.terms.human_required,
            Effect::Allow => false,
        };
        matching.iter().filter(binds).for_each(|rule| self.rule(rule));
    }

    fn must_ask(&mut self, layer: &'p Layer) {
        self.must_ask = true;
        if !self.matched.iter().any(|because| because.rule == *DECLARED && because.effect == Effect::Ask) {
            self.unwritten(&DECLARED, Effect::Ask, None, layer);
        }
    }

    fn verdict(mut self, policy: &'p Policy, facts: &Facts) -> Verdict {
        if self.matched.is_empty() {
            self.unwritten(&OTHERWISE, Effect::Ask, None, &policy.inner.top);
        }
        if self.matched.len() > 1 {
            self.matched.sort_by(|left, right| right.effect.cmp(&left.effect).then_with(|| left.cmp(right)));
            self.matched.dedup();
        }
        let effect = self.matched.first().map_or(Effect::Ask, |strictest| strictest.effect);
        self.by_arguments = facts.declared == Declared::AskForThese;
        Verdict {
            effect,
            terms: if effect == Effect::Ask { self.terms() } else { Arc::clone(&policy.inner.top.terms) },
            matched: self.matched.into(),
            hidden: self.hidden,
            inside_own: self.inside_own,
            policy: Arc::clone(&policy.inner.version),
        }
    }

    /// The strictest of all terms on which anybody asks.
    fn terms(&self) -> Arc<Terms> {
        let Some(((first, requester), rest)) = self.asks.split_first() else { return Arc::new(Terms::default()) };
        // Whoever asked for the work may not approve it from medium risk up, unless the asking rule says so.
        let excludes = |terms: &Terms, requester: &Option<Requester>| match requester {
            Some(Requester::Excluded) => true,
            Some(Requester::Allowed) => false,
            None => terms.requester_excluded || self.risk >= Risk::Medium,
        };
        let excluded = self.asks.iter().any(|(terms, requester)| excludes(terms, requester));
        let unchanged = rest.is_empty()
            && first.risk >= self.risk
            && excludes(first, requester) == first.requester_excluded
            && (!self.must_ask || first.human_required)
            && (!self.by_arguments || first.depends_on_arguments);
        if unchanged {
            return Arc::clone(first);
        }
        let mut terms = rest.iter().fold(Terms::clone(first), |terms, (other, _)| terms.join(other));
        terms.risk = terms.risk.max(self.risk);
        terms.requester_excluded |= excluded;
        terms.human_required |= self.must_ask;
        terms.depends_on_arguments |= self.by_arguments;
        Arc::new(terms)
    }
}

/// What the embedder's code says; a panic is an error like any other.
fn ask_code(code: &dyn PolicyCode, facts: &Facts) -> Result<CodeVerdict, String> {
    match catch_unwind(AssertUnwindSafe(|| code.judge(facts))) {
        Ok(Ok(verdict)) => Ok(verdict),
        Ok(Err(error)) => Err(format!("policy code failed: {error}")),
        Err(_) => Err("policy code failed".to_owned()),
    }
}
