//! Finds rules that load and yet do not say what their author can have meant.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use super::Policy;
use super::error::At;
use super::examples::sample;
use super::pattern::{Glob, Pattern, Reach, Subject};
use super::rule::{Layer, Otherwise, Rule, bare_facts};
use super::scope::{Claims, Scope, Values};
use crate::call::ToolId;
use crate::json::Json;
use crate::limits;
use crate::verdict::{Effect, Life};
use crate::wrapper::is_wrapper;

/// What is odd about a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum LintKind {
    /// It can match nothing.
    Dead,
    /// A stricter rule always decides in its place.
    Shadowed,
    /// It allows a shell, an interpreter or a wrapper, and so anything.
    TooBroad,
    /// Fewer people may approve than are needed.
    ImpossibleQuorum,
    /// Its holds expire before anybody can have read them.
    ShortExpiry,
}

/// One finding about one rule. The policy still loads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lint {
    /// The rule's id.
    pub rule: Arc<str>,
    /// What is odd about it.
    pub kind: LintKind,
    /// In words.
    pub message: String,
    /// The line the rule begins on.
    pub line: usize,
}

/// Names that a glob may cover without its author thinking of them.
const PROBES: [&str; 18] = [
    "bash",
    "sh",
    "zsh",
    "shell",
    "terminal",
    "exec",
    "execute",
    "run",
    "run_command",
    "execute_command",
    "run_shell_command",
    "powershell",
    "python",
    "node",
    "eval",
    "npx",
    "sudo",
    "ssh",
];

/// What judges where no rule matches, as verdicts call it.
const OTHERWISE: &str = "otherwise";

/// Looks at every rule.
pub(crate) fn lint(policy: &Policy) -> Vec<Lint> {
    let mut found = Vec::new();
    for layer in std::iter::once(&policy.inner.top).chain(policy.inner.agents.values()) {
        for rule in &layer.rules {
            let mut report = |kind, message: String| {
                let At { line, .. } = rule.at;
                found.push(Lint { rule: Arc::clone(&rule.because.rule), kind, message, line });
            };
            if let Some(why) = dead(rule, policy) {
                report(LintKind::Dead, why);
            }
            if let Some(by) = shadowed(rule, layer) {
                report(LintKind::Shadowed, format!("rule `{by}` is stricter and matches whatever this one does"));
            }
            if let Some(tool) = too_broad(rule) {
                report(LintKind::TooBroad, format!("allows `{tool}`, which runs anything"));
            }
            if let Some(why) = impossible(rule, policy) {
                report(LintKind::ImpossibleQuorum, why);
            }
            if let Some(why) = short(rule.terms.life).filter(|_| rule.effect() == Effect::Ask) {
                report(LintKind::ShortExpiry, why);
            }
        }
        let asks = matches!(layer.otherwise, Some(Otherwise::Does(Effect::Ask) | Otherwise::Declared));
        if let Some(message) = short(layer.terms.life).filter(|_| asks) {
            found.push(Lint { rule: OTHERWISE.into(), kind: LintKind::ShortExpiry, message, line: 1 });
        }
    }
    found.sort_by(|left, right| (left.line, &left.rule, left.kind).cmp(&(right.line, &right.rule, right.kind)));
    found
}

fn dead(rule: &Rule, policy: &Policy) -> Option<String> {
    let excepted = |pattern: &Pattern| {
        let whole = rule.except.all.iter().filter(|exception| exception.when.is_none());
        whole
            .flat_map(|exception| &exception.tools)
            .any(|exception| covers(exception, Reach::Local, pattern, rule.reach()))
    };
    if !rule.patterns.is_empty() && rule.patterns.iter().all(excepted) {
        return Some("its exceptions leave nothing of it".to_owned());
    }
    let when = rule.when.as_ref()?;
    if when.is_constant() {
        let facts = bare_facts(ToolId::local("x"), Json::empty());
        let values = Values::new(&facts);
        if when.holds(&Scope::new(&values, Claims::Withheld)) == Ok(false) {
            return Some("its condition is never true".to_owned());
        }
    }
    if when.reads_annotations && rule.effect() == Effect::Allow && policy.inner.trusted.is_empty() {
        return Some("annotations allow nothing: no server has `trust_hints: true`".to_owned());
    }
    None
}

/// The stricter rule that always matches where this one does.
fn shadowed(rule: &Rule, layer: &Layer) -> Option<Arc<str>> {
    let mut by = None;
    for pattern in &rule.patterns {
        let tool = sample(pattern)?;
        let stricter = layer.about(&tool, None).into_iter().find(|other| {
            other.effect() > rule.effect()
                && other.when.is_none()
                && other.except.all.is_empty()
                && other.patterns.iter().any(|wide| covers(wide, other.reach(), pattern, rule.reach()))
        })?;
        by = Some(Arc::clone(&stricter.because.rule));
    }
    by
}

fn too_broad(rule: &Rule) -> Option<&'static str> {
    if rule.effect() != Effect::Allow || rule.when.is_some() {
        return None;
    }
    let wrappers = PROBES.into_iter().filter(|name| is_wrapper(name));
    wrappers.into_iter().find(|name| {
        let tool = ToolId::local(*name);
        let meant = rule.patterns.iter().any(|pattern| match &pattern.subject {
            Subject::Bare(glob) | Subject::On { name: glob, .. } => glob.matches(name),
            Subject::Agent(_) | Subject::Toolset(_) => false,
        });
        meant && !rule.except.may_cover(&tool)
    })
}

fn impossible(rule: &Rule, policy: &Policy) -> Option<String> {
    if rule.effect() != Effect::Ask {
        return None;
    }
    let quorum = rule.terms.quorums.iter().find(|quorum| !quorum.from.is_empty())?;
    let mut people: BTreeSet<&str> = BTreeSet::new();
    for name in &quorum.from {
        match policy.groups.get(name) {
            Some(members) => people.extend(members.iter().map(|member| &**member)),
            None => {
                people.insert(name);
            }
        }
    }
    let needed = usize::try_from(quorum.approvals).unwrap_or(usize::MAX);
    let distinct: HashSet<&str> = people.into_iter().collect();
    (distinct.len() < needed).then(|| format!("needs {needed} approvals, but only {} may approve", distinct.len()))
}

fn short(life: Life) -> Option<String> {
    match life {
        Life::For(life) if life < limits::SHORT_HOLD_LIFE => {
            Some(format!("its holds expire after {} s, before anybody can have read them", life.as_secs()))
        }
        Life::For(_) | Life::Never => None,
    }
}

/// Whether the first pattern matches everything the second does.
fn covers(wide: &Pattern, wide_reach: Reach, narrow: &Pattern, narrow_reach: Reach) -> bool {
    let reaches = wide_reach == Reach::Everywhere || narrow_reach == Reach::Local;
    match (&wide.subject, &narrow.subject) {
        (Subject::Bare(wide), Subject::Bare(narrow)) => reaches && covers_name(wide, narrow),
        (Subject::Bare(wide), Subject::On { name, .. }) => wide_reach == Reach::Everywhere && covers_name(wide, name),
        (Subject::Bare(Glob::All), Subject::Agent(_) | Subject::Toolset(_)) => wide_reach == Reach::Everywhere,
        (Subject::On { server, name }, Subject::On { server: its_server, name: its_name }) => {
            covers_name(server, its_server) && covers_name(name, its_name)
        }
        (Subject::Agent(wide), Subject::Agent(narrow)) | (Subject::Toolset(wide), Subject::Toolset(narrow)) => {
            covers_name(wide, narrow)
        }
        _ => false,
    }
}

fn covers_name(wide: &Glob, narrow: &Glob) -> bool {
    match (wide, narrow) {
        (Glob::All, _) => true,
        (_, Glob::Literal(name)) => wide.matches(name),
        (Glob::Prefix(wide), Glob::Prefix(narrow)) => narrow.starts_with(wide.as_str()),
        (Glob::Suffix(wide), Glob::Suffix(narrow)) => narrow.ends_with(wide.as_str()),
        (Glob::Other(wide), Glob::Other(narrow)) => wide.glob().glob() == narrow.glob().glob(),
        _ => false,
    }
}
