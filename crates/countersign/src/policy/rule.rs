//! Rules, and layers of rules ready to be judged by.

use std::sync::Arc;

use super::check::Reads;
use super::condition::Condition;
use super::error::At;
use super::index::Index;
use super::pattern::{Pattern, Reach};
use super::scope::{Claims, Scope, Values};
use crate::call::{Facts, ToolId};
use crate::verdict::{Because, Effect, Risk, Terms};

/// One rule.
#[derive(Debug)]
pub(crate) struct Rule {
    /// Its id, effect and reason, as verdicts give them.
    pub(crate) because: Because,
    pub(crate) patterns: Vec<Pattern>,
    pub(crate) when: Option<Condition>,
    pub(crate) except: Exceptions,
    /// On what terms it asks.
    pub(crate) terms: Arc<Terms>,
    /// What it says itself about whoever asked for the work.
    pub(crate) requester: Option<Requester>,
    pub(crate) risk: Risk,
    pub(crate) hide: bool,
    pub(crate) inside_own: bool,
    pub(crate) at: At,
}

/// Whether whoever asked for the work may approve it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requester {
    Excluded,
    Allowed,
}

/// Whether a rule is about a call.
impl Rule {
    pub(crate) fn effect(&self) -> Effect {
        self.because.effect
    }

    /// How far its bare names reach: what loosens reaches local tools only.
    pub(crate) fn reach(&self) -> Reach {
        match self.effect() {
            Effect::Allow => Reach::Local,
            Effect::Ask | Effect::Deny => Reach::Everywhere,
        }
    }

    /// Whether its patterns, condition and exceptions all say that it is about the call.
    pub(crate) fn matches(&self, values: &Values<'_>, trusted: Claims) -> bool {
        let facts = values.facts();
        let toolset = facts.toolset.as_deref();
        self.patterns.iter().any(|pattern| pattern.matches(&facts.tool, toolset, self.reach()))
            && self.holds(values, trusted)
    }

    /// Whether condition and exceptions say so, for a call its patterns match.
    ///
    /// SECURITY: a condition that errs never loosens. An ask or deny rule then matches, an allow rule does not, and an
    /// exception excepts nothing.
    pub(crate) fn holds(&self, values: &Values<'_>, trusted: Claims) -> bool {
        let meant = match (&self.when, self.effect()) {
            (None, _) => true,
            (Some(when), Effect::Allow) => when.holds(&Scope::new(values, trusted)).unwrap_or(false),
            (Some(when), Effect::Ask | Effect::Deny) => when.holds(&Scope::new(values, Claims::Shown)).unwrap_or(true),
        };
        meant && !self.except.cover(values, trusted)
    }
}

/// What a rule leaves out.
#[derive(Debug, Default)]
pub(crate) struct Exceptions {
    pub(crate) all: Vec<Exception>,
    index: Index,
    /// Those that name no tool.
    any_tool: Vec<u32>,
}

/// One exception: all it names must hold.
#[derive(Debug)]
pub(crate) struct Exception {
    pub(crate) tools: Vec<Pattern>,
    pub(crate) when: Option<Condition>,
}

impl Exceptions {
    pub(crate) fn new(all: Vec<Exception>) -> Result<Exceptions, String> {
        let mut exceptions = Exceptions { all, ..Exceptions::default() };
        for (number, exception) in (0u32..).zip(&exceptions.all) {
            if exception.tools.is_empty() {
                exceptions.any_tool.push(number);
            }
            for pattern in &exception.tools {
                exceptions.index.add(pattern, Reach::Local, number);
            }
        }
        exceptions.index.build()?;
        Ok(exceptions)
    }

    fn cover(&self, values: &Values<'_>, trusted: Claims) -> bool {
        if self.all.is_empty() {
            return false;
        }
        let facts = values.facts();
        let mut found = self.any_tool.clone();
        self.index.find(&facts.tool, facts.toolset.as_deref(), &mut found);
        found.iter().filter_map(|number| self.all.get(usize::try_from(*number).ok()?)).any(|exception| {
            let holds = |when: &Condition| when.holds(&Scope::new(values, trusted)).unwrap_or(false);
            exception.when.as_ref().is_none_or(holds)
        })
    }

    /// Whether any exception could be about the tool, whatever the arguments.
    pub(crate) fn may_cover(&self, tool: &ToolId) -> bool {
        let mut found = self.any_tool.clone();
        self.index.find(tool, None, &mut found);
        !found.is_empty()
    }
}

/// What becomes of a call that no rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Otherwise {
    Does(Effect),
    /// The tool's own word decides.
    Declared,
}

/// One set of rules: the top policy's, or an agent's own.
#[derive(Debug)]
pub(crate) struct Layer {
    pub(crate) rules: Vec<Rule>,
    pub(crate) otherwise: Option<Otherwise>,
    /// On what terms it asks where no rule says so.
    pub(crate) terms: Arc<Terms>,
    index: Index,
    /// Rules that let a delegated agent follow its own policy.
    inside_own: Vec<u32>,
}

impl Layer {
    pub(crate) fn new(rules: Vec<Rule>, otherwise: Option<Otherwise>, terms: Terms) -> Result<Layer, String> {
        let mut index = Index::default();
        let mut inside_own = Vec::new();
        for (number, rule) in (0u32..).zip(&rules) {
            for pattern in &rule.patterns {
                index.add(pattern, rule.reach(), number);
            }
            if rule.inside_own {
                inside_own.push(number);
            }
        }
        index.build()?;
        Ok(Layer { rules, otherwise, terms: Arc::new(terms), index, inside_own })
    }

    /// The rules that match, in the order they were written.
    pub(crate) fn matching<'l>(&'l self, values: &Values<'_>, trusted: Claims) -> Vec<&'l Rule> {
        let facts = values.facts();
        let mut matching = self.about(&facts.tool, facts.toolset.as_deref());
        matching.retain(|rule| rule.holds(values, trusted));
        matching
    }

    /// The rules whose patterns match the tool.
    pub(crate) fn about<'l>(&'l self, tool: &ToolId, toolset: Option<&str>) -> Vec<&'l Rule> {
        let mut found = Vec::new();
        self.index.find(tool, toolset, &mut found);
        found.iter().filter_map(|number| self.rules.get(usize::try_from(*number).ok()?)).collect()
    }

    /// Whether a rule lets the agent follow its own policy.
    pub(crate) fn lets_follow_own(&self, agent: &str) -> bool {
        if self.inside_own.is_empty() {
            return false;
        }
        let tool = ToolId::local(format!("agent:{agent}"));
        let rules = self.inside_own.iter().filter_map(|number| self.rules.get(usize::try_from(*number).ok()?));
        rules.into_iter().any(|rule| rule.patterns.iter().any(|pattern| pattern.matches(&tool, None, Reach::Local)))
    }

    /// Which arguments its conditions look at.
    pub(crate) fn reads(&self) -> Reads {
        let mut reads = Reads::default();
        let conditions = self.rules.iter().flat_map(|rule| {
            let excepted = rule.except.all.iter().filter_map(|exception| exception.when.as_ref());
            rule.when.iter().chain(excepted)
        });
        reads.join(conditions.map(|when| &when.reads));
        reads
    }

    /// Whether it could ask about anything.
    pub(crate) fn can_ask(&self) -> bool {
        let otherwise = match self.otherwise {
            Some(Otherwise::Does(effect)) => effect == Effect::Ask,
            Some(Otherwise::Declared) => true,
            None => false,
        };
        otherwise || self.rules.iter().any(|rule| rule.effect() == Effect::Ask)
    }
}

/// The facts of a call of which only the tool and its arguments are known.
pub(crate) fn bare_facts(tool: ToolId, arguments: crate::json::Json) -> Facts {
    Facts {
        tool,
        toolset: None,
        arguments,
        path: crate::call::Path::default(),
        declared: crate::call::Declared::Nothing,
        annotations: None,
        places: Default::default(),
        at: crate::time::Time(0),
    }
}
