//! A policy beside another: it can only tighten. A folder's own file stands so beside its user's.

use std::sync::Arc;

use super::{Policy, build};
use crate::call::Facts;
use crate::verdict::{Because, Effect, Verdict};

/// A policy that stands beside another one.
pub(super) struct Beside {
    /// What its rules are called by, so that nobody takes them for the other policy's own.
    name: Arc<str>,
    pub(super) policy: Policy,
    /// The version of both together.
    pub(super) version: Arc<str>,
}

impl Beside {
    /// The stricter word of the two, with the reasons of both.
    pub(super) fn tighten(&self, verdict: Verdict, facts: &Facts) -> Verdict {
        let other = self.policy.judge(facts);
        let named = |because: Because| Because { rule: format!("{}:{}", self.name, because.rule).into(), ..because };
        let mut matched = verdict.matched.to_vec();
        matched.extend(other.matched.iter().cloned().map(named));
        matched.sort_by(|left, right| right.effect.cmp(&left.effect).then_with(|| left.cmp(right)));
        let effect = verdict.effect.max(other.effect);
        let terms = match (verdict.effect, other.effect) {
            (Effect::Ask, Effect::Ask) => Arc::new(verdict.terms.as_ref().clone().join(&other.terms)),
            (_, Effect::Ask) => other.terms,
            _ => verdict.terms,
        };
        Verdict {
            effect,
            matched: matched.into(),
            terms,
            hidden: verdict.hidden || other.hidden,
            // Following one's own policy loosens, so both must say so.
            inside_own: verdict.inside_own && other.inside_own,
            policy: Arc::clone(&self.version),
        }
    }
}

impl Policy {
    /// Puts another policy beside this one. It can only tighten: for each call the stricter word of the two counts.
    ///
    /// Its rules are called `NAME:rule`. Groups of approvers stay this policy's own.
    #[must_use]
    pub fn tightened_by(mut self, name: &str, other: Policy) -> Policy {
        let version = build::version(&[self.own_version(), name, other.version()]);
        self.beside = Some(Arc::new(Beside { name: name.into(), policy: other, version }));
        self
    }

    /// Takes over what no text holds: the embedder's code, and the policy that stands beside.
    ///
    /// For whoever puts the policy of a store in the place of another one.
    #[must_use]
    pub fn keeping(mut self, of: &Policy) -> Policy {
        self.code.clone_from(&of.code);
        match &of.beside {
            Some(beside) => self.tightened_by(&beside.name, beside.policy.clone()),
            None => self,
        }
    }
}
