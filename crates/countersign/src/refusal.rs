//! A refusal: why a call will not run, as data; and the one place that words it for a model.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};

use crate::call::Call;

/// Why a call will not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalKind {
    /// A deny rule.
    DeniedByRule,
    /// A person or program said no.
    DeniedByApprover,
    /// Nobody decided in time.
    Expired,
    /// Nobody could be asked.
    NoApprover,
    /// Withdrawn.
    Cancelled,
    /// A before-hook.
    Hook,
    /// The programmatic gate.
    Authorizer,
    /// Not JSON, not an object, or not what the schema says.
    InvalidArguments,
    /// No such tool.
    UnknownTool,
    /// Other bytes or another definition took its place.
    Superseded,
    /// Not claimed in time, or no longer allowed when it was.
    Lapsed,
    /// The grant that allowed it was revoked.
    Revoked,
    /// Everything is halted.
    Halted,
    /// Too many calls wait already.
    Limit,
    /// We could not do our job.
    Error,
    /// A kind a newer version added. Reads as "not run".
    Unknown,
}

impl RefusalKind {
    /// Every kind that can be written.
    pub const ALL: [RefusalKind; 15] = [
        RefusalKind::DeniedByRule,
        RefusalKind::DeniedByApprover,
        RefusalKind::Expired,
        RefusalKind::NoApprover,
        RefusalKind::Cancelled,
        RefusalKind::Hook,
        RefusalKind::Authorizer,
        RefusalKind::InvalidArguments,
        RefusalKind::UnknownTool,
        RefusalKind::Superseded,
        RefusalKind::Lapsed,
        RefusalKind::Revoked,
        RefusalKind::Halted,
        RefusalKind::Limit,
        RefusalKind::Error,
    ];

    /// The word used on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            RefusalKind::DeniedByRule => "denied_by_rule",
            RefusalKind::DeniedByApprover => "denied_by_approver",
            RefusalKind::Expired => "expired",
            RefusalKind::NoApprover => "no_approver",
            RefusalKind::Cancelled => "cancelled",
            RefusalKind::Hook => "hook",
            RefusalKind::Authorizer => "authorizer",
            RefusalKind::InvalidArguments => "invalid_arguments",
            RefusalKind::UnknownTool => "unknown_tool",
            RefusalKind::Superseded => "superseded",
            RefusalKind::Lapsed => "lapsed",
            RefusalKind::Revoked => "revoked",
            RefusalKind::Halted => "halted",
            RefusalKind::Limit => "limit",
            RefusalKind::Error => "error",
            RefusalKind::Unknown => "unknown",
        }
    }
}

impl<'de> Deserialize<'de> for RefusalKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Ok(RefusalKind::ALL.into_iter().find(|kind| kind.as_str() == word).unwrap_or(RefusalKind::Unknown))
    }
}

/// Why a call will not run, and who or what said so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The kind, for programs.
    pub kind: RefusalKind,
    /// The reason, for people and models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The approver or rules that said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Arc<str>>,
}

impl Refusal {
    /// A refusal without a reason.
    pub fn new(kind: RefusalKind) -> Refusal {
        Refusal { kind, reason: None, by: None }
    }

    /// Adds the reason.
    #[must_use]
    pub fn because(mut self, reason: impl Into<String>) -> Refusal {
        self.reason = Some(reason.into());
        self
    }

    /// Adds who or what said so.
    #[must_use]
    pub fn by(mut self, by: impl Into<Arc<str>>) -> Refusal {
        self.by = Some(by.into());
        self
    }
}

/// Words refusals, doubts and edits for a model. The wording is yours to change, the kind is not.
#[derive(Clone, Debug, Default)]
pub struct Wording {
    /// Replaces the closing sentence that tells the model not to retry.
    pub closing: Option<String>,
}

impl Wording {
    /// What the model reads instead of a result. Always flagged as an error by the caller.
    pub fn refusal(&self, refusal: &Refusal) -> String {
        let what = match refusal.kind {
            RefusalKind::DeniedByRule => "The policy does not allow this call.",
            RefusalKind::DeniedByApprover => "An approver denied this call.",
            RefusalKind::Expired => "Nobody decided about this call in time.",
            RefusalKind::NoApprover => "This call needs approval and nobody can be asked.",
            RefusalKind::Cancelled => "This call was cancelled.",
            RefusalKind::Hook => "A check refused this call.",
            RefusalKind::Authorizer => "You are not authorized to make this call.",
            RefusalKind::InvalidArguments => "The arguments of this call are not valid.",
            RefusalKind::UnknownTool => "There is no such tool.",
            RefusalKind::Superseded => "This call was replaced before it ran.",
            RefusalKind::Lapsed => "The permission for this call ended before it was used.",
            RefusalKind::Revoked => "The permission for this call was revoked.",
            RefusalKind::Halted => "All calls are halted by the operator.",
            RefusalKind::Limit => "Too many calls are waiting already.",
            RefusalKind::Error => "This call could not be checked.",
            RefusalKind::Unknown => "This call was refused.",
        };
        let mut text = format!("Not run. {what}");
        if let Some(reason) = &refusal.reason {
            text.push_str(" Reason: ");
            text.push_str(reason.trim_end_matches('.'));
            text.push('.');
        }
        text.push(' ');
        let closing = match refusal.kind {
            RefusalKind::InvalidArguments => "Correct the arguments before you call again.",
            _ => "Do not retry the same call.",
        };
        text.push_str(self.closing.as_deref().unwrap_or(closing));
        text
    }

    /// What the model reads when nobody knows whether the tool acted.
    pub fn doubt(&self) -> String {
        "Outcome unknown: the call may or may not have taken effect. Do not retry it; a person is checking.".into()
    }

    /// What the model reads before the result of a call whose arguments a person changed, or it would believe that its
    /// own were run. None where nobody changed them.
    pub fn edited(&self, call: &Call) -> Option<String> {
        call.proposed_digest?;
        Some(format!("A person changed the arguments before this call ran. It ran with: {}", call.shown_arguments()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// B10, B11: every kind has its own words, says that nothing ran, and tells the model what not to do.
    #[test]
    fn every_refusal_says_not_run_in_its_own_words() {
        let mut seen = std::collections::HashSet::new();
        for kind in RefusalKind::ALL {
            let text = Wording::default().refusal(&Refusal::new(kind).because("too big."));
            assert!(text.starts_with("Not run."), "{text}");
            assert!(text.contains("Reason: too big. "), "{text}");
            assert!(text.contains("retry") || text.contains("before you call again"), "{text}");
            assert!(seen.insert(text));
            let wire = serde_json::to_string(&kind).unwrap();
            assert_eq!(wire, format!("\"{}\"", kind.as_str()));
            assert_eq!(serde_json::from_str::<RefusalKind>(&wire).unwrap(), kind);
        }
        assert_eq!(serde_json::from_str::<RefusalKind>("\"quantum\"").unwrap(), RefusalKind::Unknown);
    }
}
