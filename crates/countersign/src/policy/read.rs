//! Reads the `policy:` section into rules, reporting every problem at its place.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::condition::{Condition, ConditionError};
use super::error::{At, Problems};
use super::examples;
use super::pattern::{Pattern, Subject};
use super::rule::{Exception, Exceptions, Otherwise, Requester, Rule};
use super::yaml::{Fields, Node, Tree};
use super::{InClient, Unattended};
use crate::limits;
use crate::verdict::{Because, Effect, Life, Memory, OnExpired, Quorum, Risk, Terms};

/// A policy as it is being read.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    pub(crate) preset: Option<(String, At)>,
    pub(crate) otherwise: Option<(Otherwise, At)>,
    pub(crate) unattended: Option<Unattended>,
    pub(crate) life: Option<(Life, At)>,
    pub(crate) in_client: Option<InClient>,
    /// The widest memory that any rule may allow.
    pub(crate) memory: Option<Memory>,
    pub(crate) rules: Vec<Rule>,
}

/// Keys of the `policy:` section.
pub(crate) const POLICY_KEYS: [&str; 6] = ["preset", "otherwise", "unattended", "expires_after", "in_client", "rules"];
/// Keys of an agent's own policy: what is not the operator's alone.
pub(crate) const AGENT_POLICY_KEYS: [&str; 3] = ["otherwise", "expires_after", "rules"];

/// Keys of a rule.
pub(crate) const RULE_KEYS: [&str; 21] = [
    "id",
    "allow",
    "ask",
    "deny",
    "auto_allow",
    "always_ask",
    "auto_deny",
    "when",
    "except",
    "reason",
    "approvals",
    "from",
    "expires_after",
    "remember",
    "human",
    "requester",
    "risk",
    "on_expired",
    "hide",
    "inside",
    "examples",
];
/// Keys that say how to ask, and so stand only on a rule that asks.
const TERM_KEYS: [&str; 7] = ["approvals", "from", "expires_after", "remember", "human", "requester", "on_expired"];
const EFFECT_KEYS: [(&str, Effect); 6] = [
    ("allow", Effect::Allow),
    ("ask", Effect::Ask),
    ("deny", Effect::Deny),
    ("auto_allow", Effect::Allow),
    ("always_ask", Effect::Ask),
    ("auto_deny", Effect::Deny),
];
/// Keys of an exception that is more than a tool.
pub(crate) const EXCEPTION_KEYS: [&str; 2] = ["tool", "when"];
pub(crate) const OTHERWISES: [(&str, Otherwise); 4] = [
    ("allow", Otherwise::Does(Effect::Allow)),
    ("ask", Otherwise::Does(Effect::Ask)),
    ("deny", Otherwise::Does(Effect::Deny)),
    ("declared", Otherwise::Declared),
];
pub(crate) const RISKS: [(&str, Risk); 4] =
    [("low", Risk::Low), ("medium", Risk::Medium), ("high", Risk::High), ("critical", Risk::Critical)];

pub(crate) const UNATTENDED: [(&str, Unattended); 3] =
    [("deny", Unattended::Deny), ("allow", Unattended::Allow), ("wait", Unattended::Wait)];
pub(crate) const IN_CLIENT: [(&str, InClient); 2] = [("deny", InClient::Deny), ("allow", InClient::Allow)];
pub(crate) const REQUESTERS: [(&str, Requester); 2] =
    [("excluded", Requester::Excluded), ("allowed", Requester::Allowed)];
pub(crate) const MEMORIES: [(&str, Memory); 3] =
    [("none", Memory::None), ("session", Memory::Session), ("global", Memory::Global)];
pub(crate) const ON_EXPIRED: [(&str, OnExpired); 2] = [("refuse", OnExpired::Refuse), ("stop_run", OnExpired::StopRun)];
pub(crate) const HUMAN: [(&str, bool); 1] = [("required", true)];
pub(crate) const INSIDE: [(&str, bool); 1] = [("own", true)];

/// Ids that verdicts use for what no written rule said.
const RESERVED: [&str; 4] = ["otherwise", "declared", "code", "doubt"];

/// Reads one policy section.
pub(crate) fn section(node: &Node, keys: &[&'static str], life: Life, problems: &mut Problems<'_>) -> Draft {
    let fields = node.fields("`policy`", keys, problems);
    let mut draft = Draft::default();
    if let Some(preset) = fields.get("preset") {
        draft.preset = preset.text("`preset`", problems).map(|name| (name.to_owned(), preset.at));
    }
    if let Some(otherwise) = fields.get("otherwise") {
        draft.otherwise = otherwise.word("`otherwise`", &OTHERWISES, problems).map(|word| (word, otherwise.at));
    }
    if let Some(unattended) = fields.get("unattended") {
        draft.unattended = unattended.word("`unattended`", &UNATTENDED, problems);
    }
    if let Some(in_client) = fields.get("in_client") {
        draft.in_client = in_client.word("`in_client`", &IN_CLIENT, problems);
    }
    if let Some(expires_after) = fields.get("expires_after") {
        draft.life = duration(expires_after, "`expires_after`", problems).map(|life| (life, expires_after.at));
    }
    let life = draft.life.map_or(life, |(life, _)| life);
    if let Some(rules) = fields.get("rules") {
        draft.rules = self::rules(rules, life, problems);
    }
    draft
}

fn rules(node: &Node, life: Life, problems: &mut Problems<'_>) -> Vec<Rule> {
    let nodes: &[Node] = if let Tree::Null = node.value { &[] } else { node.list("`rules`", problems) };
    if nodes.len() > limits::POLICY_RULES {
        problems.add(node.at, format!("more than {} rules", limits::POLICY_RULES));
        return Vec::new();
    }
    nodes.iter().enumerate().filter_map(|(index, node)| rule(node, index + 1, life, problems)).collect()
}

/// Refuses two rules of one id.
pub(crate) fn refuse_twins<'r>(rules: impl IntoIterator<Item = &'r Rule>, problems: &mut Problems<'_>) {
    let mut seen = HashSet::new();
    for rule in rules {
        if !seen.insert(&rule.because.rule) {
            problems.add(rule.at, format!("there is another rule with the id `{}`", rule.because.rule));
        }
    }
}

/// Reads one rule. None where it says too little to be one; whatever is wrong is reported.
fn rule(node: &Node, number: usize, life: Life, problems: &mut Problems<'_>) -> Option<Rule> {
    if !matches!(node.value, Tree::Map(_)) {
        problems.add(node.at, format!("a rule must be a mapping, not {}", node.kind()));
        return None;
    }
    if let Some(at) = commands_of(node) {
        problems.add_with_help(at, "`commands` is not yet supported", "use `when` on the tool's arguments");
    }
    let known: Vec<&'static str> = RULE_KEYS.iter().copied().chain(["commands"]).collect();
    let fields = node.fields("a rule", &known, problems);
    let id = fields.get("id").map_or_else(|| Some(format!("rule-{number}")), |id| self::id(id, problems));
    let (effect, tools) = effect(&fields, problems)?;
    refuse_misplaced(&fields, effect, problems);
    let patterns = patterns(tools, problems);
    let when = fields.get("when").map(|when| condition(when, problems));
    let except = fields.get("except").map_or_else(Vec::new, |except| exceptions(except, problems));
    let except = match Exceptions::new(except) {
        Ok(except) => except,
        Err(error) => {
            problems.add(fields.at, format!("`except` cannot be used: {error}"));
            Exceptions::default()
        }
    };
    let (hide, inside_own) = flags(&fields, &patterns, problems);
    let risk = fields.get("risk").and_then(|risk| risk.word("`risk`", &RISKS, problems)).unwrap_or_default();
    let requester = fields.get("requester").and_then(|requester| requester.word("`requester`", &REQUESTERS, problems));
    let mut terms = terms(&fields, life, problems);
    terms.risk = risk;
    terms.depends_on_arguments = when.is_some() || except.all.iter().any(|exception| exception.when.is_some());
    terms.requester_excluded = match requester {
        Some(requester) => requester == Requester::Excluded,
        None => risk >= Risk::Medium,
    };
    let reason = fields.get("reason").and_then(|reason| note(reason, "`reason`", problems));
    let rule = Rule {
        because: Because { rule: id?.into(), effect, reason: reason.map(Arc::from) },
        patterns,
        // A condition that was refused is a problem, so the rule without it is never judged by.
        when: when.flatten(),
        except,
        terms: Arc::new(terms),
        requester,
        risk,
        hide,
        inside_own,
        at: fields.at,
    };
    if let Some(examples) = fields.get("examples") {
        examples::check(&rule, examples, problems);
    }
    Some(rule)
}

/// Where `commands` stands, on the rule or in its exceptions.
fn commands_of(node: &Node) -> Option<At> {
    let Tree::Map(entries) = &node.value else { return None };
    entries.iter().find(|(key, _)| key.text == "commands").map(|(key, _)| key.at)
}

fn id(node: &Node, problems: &mut Problems<'_>) -> Option<String> {
    let id = node.text("`id`", problems)?;
    if id.trim().is_empty() || id.trim() != id || id.chars().any(char::is_control) {
        problems.add(node.at, "`id` is blank, padded or holds control characters");
        return None;
    }
    if id.len() > limits::NAME_BYTES {
        problems.add(node.at, format!("`id` is over the limit of {} bytes", limits::NAME_BYTES));
        return None;
    }
    if RESERVED.contains(&id) {
        problems.add_with_help(node.at, format!("the id `{id}` is reserved"), "choose another");
        return None;
    }
    Some(id.to_owned())
}

/// The one effect of a rule, and the tools it is about.
fn effect<'n>(fields: &Fields<'n>, problems: &mut Problems<'_>) -> Option<(Effect, &'n Node)> {
    let found = EFFECT_KEYS.iter().filter_map(|(key, effect)| Some((*key, *effect, fields.entry(key)?)));
    let found: Vec<_> = found.collect();
    match found.as_slice() {
        [(_, effect, (_, node))] => Some((*effect, node)),
        [] => {
            problems.add_with_help(fields.at, "a rule needs `allow`, `ask` or `deny`", "say which tools it is about");
            None
        }
        [_, (second, _, (key, _)), ..] => {
            problems.add(key.at, format!("a rule has one effect; `{second}` is one too many"));
            None
        }
    }
}

/// Refuses what says how to ask on a rule that does not, and the like.
fn refuse_misplaced(fields: &Fields<'_>, effect: Effect, problems: &mut Problems<'_>) {
    for key in TERM_KEYS {
        if effect != Effect::Ask
            && let Some((key, _)) = fields.entry(key)
        {
            let message = format!("`{}` says how to ask, but the rule is {}", key.text, effect.as_str());
            problems.add_with_help(key.at, message, "only `ask` rules have terms");
        }
    }
    if effect != Effect::Deny
        && let Some((key, _)) = fields.entry("hide")
    {
        problems.add(key.at, "only a `deny` rule hides tools");
    }
    if effect != Effect::Allow
        && let Some((key, _)) = fields.entry("inside")
    {
        problems.add(key.at, "`inside` stands only on a rule that allows `agent:` patterns");
    }
}

fn patterns(node: &Node, problems: &mut Problems<'_>) -> Vec<Pattern> {
    let nodes = node.one_or_many();
    if nodes.is_empty() {
        problems.add(node.at, "a rule must name at least one tool");
    }
    nodes.iter().filter_map(|node| pattern(node, problems)).collect()
}

fn pattern(node: &Node, problems: &mut Problems<'_>) -> Option<Pattern> {
    let text = node.text("a tool", problems)?;
    match Pattern::parse(text) {
        Ok(pattern) => Some(pattern),
        Err(error) => {
            problems.add(node.at, error);
            None
        }
    }
}

/// Compiles a condition, pointing into it where it is wrong.
fn condition(node: &Node, problems: &mut Problems<'_>) -> Option<Condition> {
    let text = match &node.value {
        Tree::Bool(value) => {
            if *value {
                "true"
            } else {
                "false"
            }
        }
        _ => node.text("a condition", problems)?,
    };
    match Condition::compile(text) {
        Ok(condition) => Some(condition),
        Err(ConditionError { message, help, at }) => {
            let at = at.map_or(node.at, |(line, column)| inside(node.at, text, line, column, problems));
            match help {
                Some(help) => problems.add_with_help(at, message, help),
                None => problems.add(at, message),
            }
            None
        }
    }
}

/// The place in the file of a place in a condition, where the condition stands there as written.
fn inside(at: At, text: &str, line: usize, column: usize, problems: &Problems<'_>) -> At {
    let rest: String = problems.line(at.line).chars().skip(at.column.saturating_sub(1)).collect();
    let quote = usize::from(rest.starts_with(['"', '\'']));
    let written = rest.chars().skip(quote).collect::<String>().starts_with(text);
    if line == 1 && written { At { line: at.line, column: at.column + quote + column - 1 } } else { at }
}

fn exceptions(node: &Node, problems: &mut Problems<'_>) -> Vec<Exception> {
    let mut exceptions = Vec::new();
    for node in node.one_or_many() {
        if let Tree::Map(_) = node.value {
            exceptions.extend(exception(node, problems));
        } else if let Some(pattern) = pattern(node, problems) {
            exceptions.push(Exception { tools: vec![pattern], when: None });
        }
    }
    exceptions
}

fn exception(node: &Node, problems: &mut Problems<'_>) -> Option<Exception> {
    if let Some(at) = commands_of(node) {
        problems.add_with_help(at, "`commands` is not yet supported", "use `when` on the tool's arguments");
        return None;
    }
    let fields = node.fields("an exception", &EXCEPTION_KEYS, problems);
    let tools = fields.get("tool").map_or_else(Vec::new, |tool| patterns(tool, problems));
    let when = fields.get("when").map(|when| condition(when, problems));
    if fields.get("tool").is_none() && when.is_none() {
        problems.add(node.at, "an exception needs `tool` or `when`");
        return None;
    }
    // A condition that was refused excepts nothing.
    match when {
        Some(None) => None,
        Some(Some(when)) => Some(Exception { tools, when: Some(when) }),
        None => Some(Exception { tools, when: None }),
    }
}

fn flags(fields: &Fields<'_>, patterns: &[Pattern], problems: &mut Problems<'_>) -> (bool, bool) {
    let hide = fields.get("hide").and_then(|hide| hide.boolean("`hide`", problems)).unwrap_or(false);
    if hide && let Some((key, _)) = fields.entry("when") {
        problems.add(key.at, "a rule that hides tools has no condition: there are no arguments yet");
    }
    let Some((key, inside)) = fields.entry("inside") else { return (hide, false) };
    let inside_own = inside.word("`inside`", &INSIDE, problems).unwrap_or(false);
    if !patterns.iter().all(|pattern| matches!(pattern.subject, Subject::Agent(_))) {
        problems.add(key.at, "`inside` stands only on a rule that allows `agent:` patterns");
    }
    for unfit in ["when", "except"] {
        if let Some((key, _)) = fields.entry(unfit) {
            problems.add(key.at, format!("a rule with `inside` has no `{unfit}`: it counts for calls further in"));
        }
    }
    (hide, inside_own)
}

fn terms(fields: &Fields<'_>, life: Life, problems: &mut Problems<'_>) -> Terms {
    let mut terms = Terms { life, ..Terms::default() };
    let approvals = fields.get("approvals").and_then(|approvals| {
        let number = approvals.whole::<u32>("`approvals`", problems)?;
        let most = u32::try_from(limits::DECISIONS_PER_HOLD).unwrap_or(u32::MAX);
        if number == 0 || number > most {
            problems.add(approvals.at, format!("`approvals` must be from 1 to {most}"));
            return None;
        }
        Some(number)
    });
    let from = fields.get("from").map_or_else(Vec::new, |from| names(from, "`from`", problems));
    terms.quorums = vec![Quorum { approvals: approvals.unwrap_or(1), from }];
    if let Some(expires_after) = fields.get("expires_after") {
        terms.life = duration(expires_after, "`expires_after`", problems).unwrap_or(life);
    }
    if let Some(remember) = fields.get("remember") {
        terms.remember = remember.word("`remember`", &MEMORIES, problems).unwrap_or(Memory::None);
    }
    if let Some(human) = fields.get("human") {
        terms.human_required = human.word("`human`", &HUMAN, problems).unwrap_or(true);
    }
    if let Some(on_expired) = fields.get("on_expired") {
        terms.on_expired = on_expired.word("`on_expired`", &ON_EXPIRED, problems).unwrap_or_default();
    }
    terms
}

/// One name or a list of names, sorted, each once. None at all is a problem.
pub(crate) fn names(node: &Node, what: &str, problems: &mut Problems<'_>) -> Vec<Arc<str>> {
    let nodes = node.one_or_many();
    if nodes.is_empty() {
        problems.add(node.at, format!("{what} must name somebody"));
    }
    let mut names: Vec<Arc<str>> = Vec::new();
    for node in nodes {
        let Some(name) = node.text(what, problems) else { continue };
        if name.trim().is_empty() || name.trim() != name || name.len() > limits::NAME_BYTES {
            problems.add(node.at, format!("{what} holds a name that is blank, padded or too long"));
        } else {
            names.push(name.into());
        }
    }
    names.sort();
    names.dedup();
    names
}

fn note(node: &Node, what: &str, problems: &mut Problems<'_>) -> Option<String> {
    let text = node.text(what, problems)?;
    if text.len() > limits::NOTE_BYTES {
        problems.add(node.at, format!("{what} is over the limit of {} bytes", limits::NOTE_BYTES));
        return None;
    }
    Some(text.to_owned())
}

/// Reads `4s`, `10m`, `2h`, `7d`, `250ms` or `never`.
pub(crate) fn duration(node: &Node, what: &str, problems: &mut Problems<'_>) -> Option<Life> {
    let text = match &node.value {
        Tree::Text(text) => text.as_str(),
        _ => "",
    };
    if text == "never" {
        return Some(Life::Never);
    }
    let digits = text.len() - text.trim_start_matches(|char: char| char.is_ascii_digit()).len();
    let (number, unit) = text.split_at_checked(digits).unwrap_or_default();
    let milliseconds = match unit {
        "ms" => Some(1),
        "s" => Some(1_000),
        "m" => Some(60_000),
        "h" => Some(3_600_000),
        "d" => Some(86_400_000),
        _ => None,
    };
    let length = number.parse::<u64>().ok().zip(milliseconds).and_then(|(number, unit)| number.checked_mul(unit));
    match length.map(Duration::from_millis) {
        Some(length) if !length.is_zero() && length <= limits::LONGEST_LIFE => Some(Life::For(length)),
        _ => {
            let help = "write `4s`, `10m`, `2h`, `7d` or `never`";
            problems.add_with_help(node.at, format!("{what} is not a length of time"), help);
            None
        }
    }
}
