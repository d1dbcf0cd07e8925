//! The policy: rules that allow, ask or deny, and the word on a call that they come to.
//!
//! The strictest matching rule wins (deny over ask over allow), so order never matters. A condition that errs never
//! loosens. What no rule matches goes to `otherwise`, which is `ask` unless the author says something else.
//!
//! ```
//! use countersign::{Effect, Facts, Json, Path, Policy, ToolId};
//!
//! let policy = Policy::from_yaml(
//!     "rules:\n- { id: reads, allow: 'read_*' }\n- { id: big, deny: pay, when: arguments.amount > 100 }\n",
//! )?;
//! let mut facts = Facts {
//!     tool: ToolId::local("pay"),
//!     toolset: None,
//!     arguments: Json::of(&std::collections::BTreeMap::from([("amount", 250)])).unwrap(),
//!     path: Path::session("s1"),
//!     declared: Default::default(),
//!     annotations: None,
//!     places: Default::default(),
//!     at: Default::default(),
//! };
//! assert_eq!(policy.judge(&facts).effect, Effect::Deny);
//! facts.arguments = Json::empty();
//! assert_eq!(policy.judge(&facts).effect, Effect::Deny, "a condition that errs never loosens");
//! facts.tool = ToolId::local("read_file");
//! assert_eq!(policy.judge(&facts).effect, Effect::Allow);
//! facts.tool = ToolId::on("github", "read_file");
//! assert_eq!(policy.judge(&facts).effect, Effect::Ask, "bare names allow local tools only");
//! # Ok::<(), countersign::policy::PolicyErrors>(())
//! ```

mod beside;
mod build;
mod check;
mod condition;
mod error;
pub(crate) mod examples;
mod guard;
mod index;
mod judge;
mod lint;
pub(crate) mod pattern;
pub(crate) mod presets;
pub(crate) mod read;
mod rule;
mod scope;
mod steps;
pub(crate) mod translate;
pub(crate) mod yaml;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use beside::Beside;
pub(crate) use build::{APPROVER_KEYS, FILE_KEYS, Sections, build, finish};
use check::Reads;
pub(crate) use error::Problems;
pub use error::{PolicyError, PolicyErrors};
pub use lint::{Lint, LintKind};
pub(crate) use read::duration;
use rule::{Layer, Otherwise};
use scope::Claims;

use crate::call::{Facts, ToolId};
use crate::limits;
use crate::verdict::{Effect, Memory, Verdict};

/// What happens when a hold opens and nobody can be asked.
///
/// Ordered from strict to lax.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unattended {
    /// The call is refused at once.
    #[default]
    Deny,
    /// The hold waits until it expires.
    Wait,
    /// The call may run, marked as unattended.
    Allow,
}

/// Whether a prompt of an MCP client's own may decide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InClient {
    /// It may not.
    #[default]
    Deny,
    /// It may, recorded as the weaker kind.
    Allow,
}

/// What the embedder's own code says about a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CodeVerdict {
    /// Nothing: the rules and `otherwise` decide.
    NoOpinion,
    /// This, with a reason for people. Stands in for `otherwise` where no rule matches, and never loosens a rule.
    Says(Effect, Option<Arc<str>>),
}

/// Policy code of the embedder: one more rule, written in Rust.
pub trait PolicyCode: Send + Sync {
    /// Says what it thinks of a call. An error or a panic counts as "ask".
    fn judge(&self, facts: &Facts) -> Result<CodeVerdict, String>;
}

/// A loaded policy. Cheap to clone.
#[derive(Clone)]
pub struct Policy {
    inner: Arc<Inner>,
    code: Option<Arc<dyn PolicyCode>>,
    groups: Arc<BTreeMap<Arc<str>, Vec<Arc<str>>>>,
    /// A policy that stands beside this one and can only tighten it.
    beside: Option<Arc<Beside>>,
}

/// What was read from the text.
struct Inner {
    /// Which arguments any condition looks at.
    reads: Reads,
    top: Layer,
    agents: HashMap<Arc<str>, Layer>,
    unattended: Option<Unattended>,
    in_client: InClient,
    storage: Option<Memory>,
    trusted: HashSet<Arc<str>>,
    version: Arc<str>,
    source: Option<String>,
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy").field("version", &self.inner.version).field("rules", &self.rules()).finish()
    }
}

impl Policy {
    /// Asks about every call.
    pub fn ask_all() -> Policy {
        presets::load("ask-all")
    }

    /// Allows every call, but for tools that must ask.
    pub fn allow_all() -> Policy {
        presets::load("allow-all")
    }

    /// Denies every call.
    pub fn deny_all() -> Policy {
        presets::load("deny-all")
    }

    /// Asks about the calls whose tool says so, and allows the others.
    pub fn declared() -> Policy {
        presets::load("declared")
    }

    /// The preset of that name, if there is one.
    pub fn preset(name: &str) -> Option<Policy> {
        presets::NAMES.into_iter().find(|known| *known == name).map(presets::load)
    }

    /// Reads a policy: the `policy:` section alone, or a whole file, of which it takes what belongs to the policy.
    pub fn from_yaml(text: &str) -> Result<Policy, PolicyErrors> {
        build::from_yaml("policy.yml", text)
    }

    /// Says what is to be done with a call, and because of which rules.
    ///
    /// Pure: the same facts get the same verdict. Nothing in it waits, and no input makes it fail.
    pub fn judge(&self, facts: &Facts) -> Verdict {
        let verdict = judge::judge(self, facts);
        match &self.beside {
            None => verdict,
            Some(beside) => beside.tighten(verdict, facts),
        }
    }

    /// A digest of what the policy says. The same text has the same version.
    pub fn version(&self) -> &Arc<str> {
        self.beside.as_ref().map_or(&self.inner.version, |beside| &beside.version)
    }

    /// The version of its own text, whatever stands beside it: what nodes that share a store compare.
    pub(crate) fn own_version(&self) -> &Arc<str> {
        &self.inner.version
    }

    /// The text it was read from, in a form [`Policy::from_yaml`] reads back to the same version.
    ///
    /// None where another policy stands beside it: no one text says both.
    pub fn source(&self) -> Option<&str> {
        self.inner.source.as_deref().filter(|_| self.beside.is_none())
    }

    /// What happens when a hold opens and nobody can be asked.
    pub fn unattended(&self) -> Unattended {
        let own = self.inner.unattended.unwrap_or_default();
        // A policy beside that says nothing about it tightens nothing.
        match self.beside.as_ref().and_then(|beside| beside.policy.inner.unattended) {
            Some(other) => own.min(other),
            None => own,
        }
    }

    /// Whether its author spelled out what happens then.
    pub fn unattended_stated(&self) -> bool {
        self.inner.unattended.is_some()
    }

    /// How far a choice is remembered that a client of Saiki's makes, as `allowedToolsStorage` says.
    pub fn saiki_storage(&self) -> Option<Memory> {
        self.inner.storage
    }

    /// Whether a prompt of an MCP client's own may decide.
    pub fn in_client(&self) -> InClient {
        self.inner.in_client
    }

    /// Whether a call that no rule matches is allowed.
    pub fn allows_unmatched(&self) -> bool {
        self.inner.top.otherwise == Some(Otherwise::Does(Effect::Allow))
            && self.beside.as_ref().is_none_or(|beside| beside.policy.allows_unmatched())
    }

    /// Whether any call could be asked about, besides those of tools that must ask.
    pub fn can_ask(&self) -> bool {
        self.code.is_some()
            || self.inner.top.can_ask()
            || self.inner.agents.values().any(Layer::can_ask)
            || self.beside.as_ref().is_some_and(|beside| beside.policy.can_ask())
    }

    /// Adds code of the embedder, which joins by strictness.
    #[must_use]
    pub fn with_code(mut self, code: Arc<dyn PolicyCode>) -> Policy {
        self.code = Some(code);
        self
    }

    /// Names the groups of approvers, in place of those in the text.
    #[must_use]
    pub fn with_groups(mut self, groups: BTreeMap<Arc<str>, Vec<Arc<str>>>) -> Policy {
        self.groups = Arc::new(groups);
        self
    }

    /// The groups an approver belongs to.
    pub fn groups_of(&self, who: &str) -> Vec<Arc<str>> {
        let has = |members: &Vec<Arc<str>>| members.iter().any(|member| &**member == who);
        self.groups.iter().filter(|(_, members)| has(members)).map(|(group, _)| Arc::clone(group)).collect()
    }

    /// The groups of approvers, with their members.
    pub fn groups(&self) -> &BTreeMap<Arc<str>, Vec<Arc<str>>> {
        &self.groups
    }

    /// How many rules it has, agents' own included.
    pub fn rules(&self) -> usize {
        let own = self.inner.top.rules.len();
        let agents = self.inner.agents.values().map(|layer| layer.rules.len()).sum::<usize>();
        own + agents + self.beside.as_ref().map_or(0, |beside| beside.policy.rules())
    }

    /// Whether the tool is not even listed to the model.
    ///
    /// Only rules that deny the tool whatever its arguments hide it.
    pub fn hides(&self, tool: &ToolId) -> bool {
        let rules = self.inner.top.about(tool, None);
        rules.into_iter().any(|rule| rule.hide && rule.when.is_none() && !rule.except.may_cover(tool))
            || self.beside.as_ref().is_some_and(|beside| beside.policy.hides(tool))
    }

    /// Tries a tool against the policy, before any call of it is made.
    ///
    /// Fails where the tool could not be judged by what rules are written about: names that no pattern can mean.
    pub fn admits(&self, facts: &Facts) -> Result<(), String> {
        let ToolId { server, name } = &facts.tool;
        plausible("tool", facts.tool.delegate().unwrap_or(name))?;
        if let Some(server) = server {
            plausible("server", server)?;
            if server.contains(['/', ':']) {
                return Err(format!("server name `{server}` holds `/` or `:`"));
            }
        } else if facts.tool.delegate().unwrap_or(name).contains(['/', ':']) {
            return Err(format!("local tool name `{name}` holds `/` or `:`"));
        }
        if facts.path.agents.len() > limits::AGENT_DEPTH {
            return Err(format!("agents nest deeper than {}", limits::AGENT_DEPTH));
        }
        self.judge(facts);
        Ok(())
    }

    /// Finds rules that are dead, shadowed or too broad, quorums that cannot be met and holds that expire too soon.
    pub fn lint(&self) -> Vec<Lint> {
        lint::lint(self)
    }

    /// Whether what the tool's server claims about it may loosen.
    fn claims_of(&self, server: Option<&str>) -> Claims {
        match server {
            Some(server) if self.inner.trusted.contains(server) => Claims::Shown,
            Some(_) | None => Claims::Withheld,
        }
    }
}

fn plausible(what: &str, name: &str) -> Result<(), String> {
    if name.trim().is_empty() {
        return Err(format!("{what} name is blank"));
    }
    if name.len() > limits::NAME_BYTES {
        return Err(format!("{what} name of {} bytes is over the limit of {}", name.len(), limits::NAME_BYTES));
    }
    match name.chars().find(|char| char.is_whitespace() || char.is_control()) {
        Some(bad) => Err(format!("{what} name holds {bad:?}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_conditions;
#[cfg(test)]
mod tests_loading;
