//! A grant: a remembered approval. It turns ask into allow, never deny.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::call::{Call, Facts, ToolId};
use crate::digest::{ArgumentDigest, DefinitionDigest};
use crate::hold::Who;
use crate::id::{GrantId, HoldId};
use crate::json::Json;
use crate::place::Place;
use crate::time::Time;
use crate::verdict::{Effect, Memory, Risk, Verdict};
use crate::wrapper::runs_programs;

/// Where a grant holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "scope")]
pub enum Scope {
    /// In one session.
    Session {
        /// The session.
        session: Arc<str>,
    },
    /// In all sessions of the same principal.
    Global,
}

/// Which calls a grant covers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Covers {
    /// Exactly these arguments.
    Exact(ArgumentDigest),
    /// Calls equal in these fields, whatever the others say.
    Fields(BTreeMap<String, Json>),
    /// Calls one of whose arguments points to the same place, or below its folder.
    Folder {
        /// The argument.
        field: String,
        /// Where it pointed in the call that was approved.
        made_for: Place,
    },
    /// Every call of the tool whose asking does not depend on its arguments.
    Tool,
}

impl Covers {
    /// The argument digest it is found by; none where it is found by its tool.
    pub fn exact(&self) -> Option<&ArgumentDigest> {
        match self {
            Covers::Exact(digest) => Some(digest),
            Covers::Fields(_) | Covers::Folder { .. } | Covers::Tool => None,
        }
    }
}

/// The scope a decision asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RememberScope {
    /// This session.
    Session,
    /// All sessions.
    Global,
}

/// The coverage a decision asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RememberCovers {
    /// Exactly these arguments.
    #[default]
    Exact,
    /// The whole tool. A second, deliberate act.
    Tool,
    /// Equal in these fields.
    Fields(Vec<String>),
    /// In the folder that this field points to: where the tool says that the path leads, links followed.
    Folder(String),
}

/// What a decision asks to be remembered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Remember {
    /// Where. There is no default: a missing scope is an error.
    pub scope: RememberScope,
    /// What.
    #[serde(default)]
    pub covers: RememberCovers,
    /// For how long; thirty days at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_after: Option<Duration>,
    /// For how many calls after the approved one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uses: Option<u32>,
}

impl Remember {
    /// Exactly these arguments, in this session.
    pub fn session() -> Remember {
        Remember { scope: RememberScope::Session, covers: RememberCovers::Exact, expires_after: None, uses: None }
    }

    /// Exactly these arguments, in all sessions.
    pub fn global() -> Remember {
        Remember { scope: RememberScope::Global, ..Remember::session() }
    }
}

/// A remembered approval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Our name for it.
    pub id: GrantId,
    /// Where it holds.
    #[serde(flatten)]
    pub scope: Scope,
    /// Whose calls it covers.
    pub principal: Arc<str>,
    /// The root agent whose tree it covers; none where the call had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Arc<str>>,
    /// The tool.
    pub tool: ToolId,
    /// The definition it was made for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<DefinitionDigest>,
    /// Which of the tool's calls.
    pub covers: Covers,
    /// Who made it.
    pub made_by: Who,
    /// The hold it came from; none where an operator made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<HoldId>,
    /// When it was made.
    pub made_at: Time,
    /// When it ends. Every grant does.
    pub expires_at: Time,
    /// How many calls it still covers; any number, if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uses_left: Option<u32>,
    /// When and by whom it was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<(Time, Arc<str>)>,
    /// Grows with every change.
    #[serde(default)]
    pub version: u64,
}

impl Grant {
    /// Whether it can cover anything at all now.
    pub fn is_live(&self, now: Time) -> bool {
        self.revoked.is_none() && now < self.expires_at && self.uses_left != Some(0)
    }

    /// Whether it lifts an ask on this call.
    ///
    /// Looks only at the grant and the call, so the same answer holds at submit and, once more, at claim.
    pub fn covers(
        &self,
        facts: &Facts,
        definition: Option<&DefinitionDigest>,
        arguments: &ArgumentDigest,
        verdict: &Verdict,
        now: Time,
    ) -> bool {
        let terms = &verdict.terms;
        if verdict.effect != Effect::Ask || terms.human_required || terms.risk == Risk::Critical || !self.is_live(now) {
            return false;
        }
        let remembered_at_all = match (&self.scope, terms.remember) {
            (_, Memory::None) | (Scope::Global, Memory::Session) => false,
            (Scope::Session { .. }, Memory::Session | Memory::Global) | (Scope::Global, Memory::Global) => true,
        };
        let in_scope = match &self.scope {
            Scope::Session { session } => facts.path.session.as_ref() == Some(session),
            Scope::Global => true,
        };
        let same_tool = self.tool == facts.tool && self.definition.as_ref() == definition;
        let same_tree = self.principal == facts.path.principal && self.agent.as_ref() == facts.path.agents.first();
        if !(remembered_at_all && in_scope && same_tool && same_tree) {
            return false;
        }
        match &self.covers {
            Covers::Exact(digest) => digest == arguments,
            Covers::Fields(fields) => {
                !fields.is_empty()
                    && fields.iter().all(|(name, value)| facts.arguments.field(name).as_ref() == Some(value))
            }
            Covers::Folder { field, made_for } => facts.places.get(field).is_some_and(|place| made_for.covers(place)),
            Covers::Tool => !terms.depends_on_arguments,
        }
    }

    /// Reads the grant as a rule would be written, for people to check before it is made.
    pub fn as_rule(&self) -> String {
        let what = match &self.covers {
            Covers::Exact(_) => "with exactly these arguments".to_owned(),
            Covers::Fields(fields) => {
                // Names only: a value may be a secret, and this text is written to the log.
                let list: Vec<&str> = fields.keys().map(String::as_str).collect();
                format!("whenever the same in {}", list.join(", "))
            }
            Covers::Folder { field, made_for } => match made_for.folder() {
                Some(folder) => format!("whenever {field} leads into {}", folder.display()),
                None => format!("never: {field} leads into no folder"),
            },
            Covers::Tool => "with any arguments".to_owned(),
        };
        let scope = match &self.scope {
            Scope::Session { session } => format!("in session {session}"),
            Scope::Global => "in every session".to_owned(),
        };
        let uses = match self.uses_left {
            Some(uses) => format!(", {uses} times at most"),
            None => String::new(),
        };
        format!("allow {} {what}, {scope}, until {}{uses}", self.tool, self.expires_at)
    }
}

/// Why a decision may not make the grant it asks for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GrantError {
    /// A rule limits what may be remembered.
    #[error("the rules that ask about this call allow no memory wider than `{0:?}`")]
    TooWide(Memory),
    /// Must-ask and critical calls are never remembered.
    #[error("a call that only people may lift, or of critical risk, is never remembered")]
    Never,
    /// The rule asks because of the arguments.
    #[error("the rule asks because of the arguments, so no grant can cover the whole tool")]
    DependsOnArguments,
    /// Shells, interpreters, wrappers and task runners run anything.
    #[error("`{0}` runs other programs, so no grant but an exact one can be made")]
    Wrapper(Arc<str>),
    /// The call has no session to remember in.
    #[error("the call has no session, so nothing can be remembered for one")]
    NoSession,
    /// A named field is not in the arguments, or is blank or padded.
    #[error("the arguments have no field `{0}` to remember the call by")]
    NoField(String),
    /// The tool did not say where a field points, or it points into the root.
    #[error("the tool does not say in which folder `{0}` lies, or it lies in none but the root")]
    NoFolder(String),
    /// No field named.
    #[error("name at least one field")]
    NoFields,
    /// An in-run hold is always asked.
    #[error("a hold from inside a running tool cannot be remembered")]
    InRun,
    /// Whoever must approve the edited call has not done so yet.
    #[error("the edited call must be approved anew, and can be remembered then")]
    AskedAnew,
    /// More than one approval is needed each time.
    #[error("a call that needs more than one approval is never remembered")]
    Quorum,
}

impl Grant {
    /// Builds the grant a decision asks for, or says why it may not be made.
    pub fn asked_for(
        remember: &Remember,
        call: &Call,
        hold: HoldId,
        made_by: Who,
        now: Time,
    ) -> Result<Grant, GrantError> {
        let terms = &call.verdict.terms;
        if terms.human_required || terms.risk == Risk::Critical {
            return Err(GrantError::Never);
        }
        if terms.quorums.iter().any(|quorum| quorum.approvals > 1) {
            return Err(GrantError::Quorum);
        }
        let wanted = match remember.scope {
            RememberScope::Session => Memory::Session,
            RememberScope::Global => Memory::Global,
        };
        if wanted > terms.remember {
            return Err(GrantError::TooWide(terms.remember));
        }
        let scope = match (remember.scope, &call.facts.path.session) {
            (RememberScope::Global, _) => Scope::Global,
            (RememberScope::Session, Some(session)) => Scope::Session { session: Arc::clone(session) },
            (RememberScope::Session, None) => return Err(GrantError::NoSession),
        };
        let life = remember.expires_after.unwrap_or(crate::limits::GRANT_LIFE).min(crate::limits::GRANT_LIFE);
        Ok(Grant {
            id: GrantId::new(),
            scope,
            principal: Arc::clone(&call.facts.path.principal),
            agent: call.facts.path.agents.first().cloned(),
            tool: call.facts.tool.clone(),
            definition: call.definition,
            covers: covers_asked_for(&remember.covers, call)?,
            made_by,
            hold: Some(hold),
            made_at: now,
            expires_at: now.after(life),
            uses_left: remember.uses,
            revoked: None,
            version: 0,
        })
    }
}

/// A blank or padded text is no key to remember a call by.
fn is_blank(value: &Json) -> bool {
    value.read::<String>().is_ok_and(|text| text.is_empty() || text.trim() != text)
}

fn covers_asked_for(covers: &RememberCovers, call: &Call) -> Result<Covers, GrantError> {
    let facts = &call.facts;
    // SECURITY: what such a tool does is in the text it is given; only the very same text is known.
    if *covers != RememberCovers::Exact && runs_programs(&facts.tool, &facts.arguments) {
        return Err(GrantError::Wrapper(Arc::clone(&facts.tool.name)));
    }
    match covers {
        RememberCovers::Exact => Ok(Covers::Exact(call.argument_digest)),
        RememberCovers::Tool if call.verdict.terms.depends_on_arguments => Err(GrantError::DependsOnArguments),
        RememberCovers::Tool => Ok(Covers::Tool),
        RememberCovers::Fields(names) if names.is_empty() => Err(GrantError::NoFields),
        RememberCovers::Fields(names) => {
            let field = |name: &String| match facts.arguments.field(name) {
                Some(value) if !is_blank(&value) => Ok((name.clone(), value)),
                _ => Err(GrantError::NoField(name.clone())),
            };
            names.iter().map(field).collect::<Result<_, _>>().map(Covers::Fields)
        }
        RememberCovers::Folder(field) => match facts.places.get(field) {
            Some(place) if place.folder().is_some() => {
                Ok(Covers::Folder { field: field.clone(), made_for: place.clone() })
            }
            _ => Err(GrantError::NoFolder(field.clone())),
        },
    }
}
