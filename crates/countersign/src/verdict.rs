//! The policy's word on a call: what to do, and because of which rules.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What a rule does with a call it matches.
///
/// Declared from lax to strict, so the strictest of several effects is their `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// The call may run.
    Allow,
    /// A person is asked first.
    Ask,
    /// The call never runs.
    Deny,
}

impl Effect {
    /// The word used in policy files and on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Effect::Allow => "allow",
            Effect::Ask => "ask",
            Effect::Deny => "deny",
        }
    }
}

/// How much harm a call can do, as its rules say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Risk {
    /// Harmless or easily undone.
    #[default]
    Low,
    /// Whoever asked for the work may not approve it from here up.
    Medium,
    /// Deserves a deliberate act.
    High,
    /// Never remembered.
    Critical,
}

/// The widest memory a decision may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Memory {
    /// Every call is asked anew.
    None,
    /// Until the session ends.
    Session,
    /// For all sessions.
    Global,
}

/// What the end of a hold's life does to its run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnExpired {
    /// The model reads a refusal and goes on.
    #[default]
    Refuse,
    /// The run ends with an error.
    StopRun,
}

/// How long a hold may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Life {
    /// This long.
    For(Duration),
    /// Until somebody decides. Must be spelled out.
    Never,
}

/// How many people must approve, and out of which groups.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Quorum {
    /// Distinct people needed.
    pub approvals: u32,
    /// Groups or people who count; empty means anyone who may decide.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub from: Vec<Arc<str>>,
}

/// On what terms a hold opens: the strictest of every rule that asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// Every one of these must be met.
    pub quorums: Vec<Quorum>,
    /// How long the hold may wait.
    pub life: Life,
    /// The widest memory a decision may ask for.
    pub remember: Memory,
    /// Whether only people lift it (`human: required`).
    pub human_required: bool,
    /// Whether whoever asked for the work may not approve it.
    pub requester_excluded: bool,
    /// How much harm the call can do.
    pub risk: Risk,
    /// What expiry does to the run.
    pub on_expired: OnExpired,
    /// Whether the asking depends on the arguments, so that no whole-tool grant covers it.
    pub depends_on_arguments: bool,
}

impl Default for Terms {
    fn default() -> Self {
        Terms {
            quorums: vec![Quorum { approvals: 1, from: Vec::new() }],
            life: Life::For(crate::limits::HOLD_LIFE),
            remember: Memory::Global,
            human_required: false,
            requester_excluded: false,
            risk: Risk::Low,
            on_expired: OnExpired::Refuse,
            depends_on_arguments: false,
        }
    }
}

impl Terms {
    /// Joins two rules' terms: each part as strict as the stricter of the two.
    #[must_use]
    pub fn join(mut self, other: &Terms) -> Terms {
        self.quorums.extend(other.quorums.iter().cloned());
        self.quorums.sort();
        self.quorums.dedup();
        // A plain "one approval by anyone" adds nothing beside another quorum.
        if self.quorums.len() > 1 {
            self.quorums.retain(|quorum| quorum.approvals > 1 || !quorum.from.is_empty());
        }
        self.life = self.life.min(other.life);
        self.remember = self.remember.min(other.remember);
        self.human_required |= other.human_required;
        self.requester_excluded |= other.requester_excluded;
        self.risk = self.risk.max(other.risk);
        self.on_expired = self.on_expired.max(other.on_expired);
        self.depends_on_arguments |= other.depends_on_arguments;
        self
    }
}

/// One rule's part in a verdict.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Because {
    /// The rule's id; `otherwise`, `declared` or `code` where no written rule spoke.
    pub rule: Arc<str>,
    /// What the rule does.
    pub effect: Effect,
    /// What the rule's author wrote for people to read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Arc<str>>,
}

/// What the policy says about one call, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The strictest effect of all that matched.
    pub effect: Effect,
    /// Every rule that matched, the strictest first: those that decided are its beginning. Shared with the hold.
    pub matched: Arc<[Because]>,
    /// On what terms to ask. Meaningful where the effect is ask.
    pub terms: Arc<Terms>,
    /// Whether the tool is not even listed to the model.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
    /// Whether a delegated child may follow its own policy (`inside: own`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub inside_own: bool,
    /// Which policy spoke: a digest of its text.
    pub policy: Arc<str>,
}

impl Verdict {
    /// The rules that decided: those that matched with exactly this effect.
    pub fn because(&self) -> &[Because] {
        let deciding = self.matched.partition_point(|because| because.effect >= self.effect);
        self.matched.get(..deciding).unwrap_or_default()
    }

    /// The same, to keep: mostly they are all that matched, and one list does for both.
    pub(crate) fn shared_because(&self) -> Arc<[Because]> {
        match self.because() {
            all if all.len() == self.matched.len() => Arc::clone(&self.matched),
            some => some.into(),
        }
    }

    /// One more word, which joins by strictness. It is named before others that say the same.
    pub(crate) fn join(&mut self, because: Because) {
        self.effect = self.effect.max(because.effect);
        let mut matched = self.matched.to_vec();
        matched.insert(matched.partition_point(|other| other.effect > because.effect), because);
        self.matched = matched.into();
    }

    /// The first reason a deciding rule gives, for a refusal or a hold.
    pub fn reason(&self) -> Option<&str> {
        self.because().iter().find_map(|because| because.reason.as_deref())
    }

    /// The ids of the deciding rules.
    pub fn rules(&self) -> Vec<Arc<str>> {
        self.because().iter().map(|because| Arc::clone(&because.rule)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// B36: the strictest effect is the `max`, so order never matters.
    #[test]
    fn effects_are_ordered_from_lax_to_strict() {
        assert!(Effect::Allow < Effect::Ask && Effect::Ask < Effect::Deny);
        assert!(Life::For(Duration::MAX) < Life::Never, "never is the laxest life, so min takes the finite one");
    }

    #[test]
    fn joined_terms_are_as_strict_as_both() {
        let two = Terms { quorums: vec![Quorum { approvals: 2, from: vec!["finance".into()] }], ..Terms::default() };
        let high = Terms { risk: Risk::High, remember: Memory::None, ..Terms::default() };
        let joined = two.clone().join(&high);
        assert_eq!(joined, high.clone().join(&two));
        assert_eq!(joined.quorums, two.quorums);
        assert_eq!(joined.risk, Risk::High);
        assert_eq!(joined.remember, Memory::None);
        assert_eq!(Terms::default().join(&Terms::default()), Terms::default());
    }
}
