//! What other sections of the file say about permission, in the words of the policy.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::error::{At, Problems};
use super::pattern::{Glob, Pattern, Subject};
use super::read::Draft;
use super::rule::{Exceptions, Otherwise, Rule};
use super::yaml::{Key, Node, Tree};
use crate::limits;
use crate::verdict::{Because, Effect, Life, Memory, Risk, Terms};

/// Keys of `toolConfirmation`.
pub(crate) const TOOL_CONFIRMATION_KEYS: [&str; 3] = ["mode", "timeout", "allowedToolsStorage"];

pub(crate) const MODES: [(&str, Effect); 3] =
    [("event-based", Effect::Ask), ("auto-approve", Effect::Allow), ("auto-deny", Effect::Deny)];
pub(crate) const STORAGES: [(&str, Memory); 2] = [("storage", Memory::Global), ("memory", Memory::Session)];
pub(crate) const PERMISSIONS: [(&str, Effect); 3] =
    [("auto_allow", Effect::Allow), ("always_ask", Effect::Ask), ("auto_deny", Effect::Deny)];

/// Milliseconds a hold waits there when nobody says how long.
pub(crate) const SAIKI_TIMEOUT: u64 = 30_000;

/// `toolConfirmation:` as `otherwise`, a rule, the life of holds, and how long anything is remembered.
pub(crate) fn join_tool_confirmation(draft: &mut Draft, node: Option<&Node>, problems: &mut Problems<'_>) {
    let Some(node) = node else { return };
    let fields = node.fields("`toolConfirmation`", &TOOL_CONFIRMATION_KEYS, problems);
    if let Some(mode) = fields.get("mode")
        && let Some(effect) = mode.word("`mode`", &MODES, problems)
    {
        if draft.otherwise.is_some_and(|(otherwise, _)| otherwise != Otherwise::Does(effect)) {
            problems.add_with_help(mode.at, "`mode` contradicts the policy's `otherwise`", "leave one of the two out");
        }
        draft.otherwise = Some((Otherwise::Does(effect), mode.at));
        if effect == Effect::Deny {
            let all = Pattern { subject: Subject::Bare(Glob::All) };
            draft.rules.push(written("toolConfirmation.mode".to_owned(), effect, vec![all], draft.life, mode.at));
        }
    }
    let stated = fields.get("timeout");
    let timeout = match stated {
        Some(timeout) => timeout.whole::<u64>("`timeout`", problems).filter(|length| *length > 0),
        None => Some(SAIKI_TIMEOUT),
    };
    let life = timeout.map(milliseconds);
    let at = stated.map_or(node.at, |timeout| timeout.at);
    if life.is_none() {
        problems.add(at, "`timeout` must be a number of milliseconds");
    }
    if stated.is_some() && draft.life.is_some_and(|(own, _)| Some(own) != life) {
        problems.add_with_help(at, "`timeout` contradicts `expires_after`", "leave one of the two out");
    }
    if draft.life.is_none() {
        draft.life = life.map(|life| (life, at));
    }
    if let Some(storage) = fields.get("allowedToolsStorage") {
        draft.memory = storage.word("`allowedToolsStorage`", &STORAGES, problems);
    }
}

/// `permission:` of a tool, as a rule.
pub(crate) fn join_permissions(draft: &mut Draft, tools: Option<&Node>, problems: &mut Problems<'_>) {
    let Some(Tree::List(tools)) = tools.map(|tools| &tools.value) else { return };
    for tool in tools {
        let Tree::Map(entries) = &tool.value else { continue };
        let find = |name: &str| entries.iter().find(|(key, _)| key.text == name).map(|(_, node)| node);
        let (Some(name), Some(permission)) = (find("name"), find("permission")) else { continue };
        let Some(effect) = permission.word("`permission`", &PERMISSIONS, problems) else { continue };
        let Some(text) = name.text("`name`", problems) else { continue };
        if let Some(pattern) = literal(text, name.at, problems) {
            let id = format!("tools.{text}.permission");
            draft.rules.push(written(id, effect, vec![pattern], draft.life, permission.at));
        }
    }
}

/// `confirm:` of MCP servers, as rules. Returns the servers whose claims may loosen.
pub(crate) fn join_servers(
    draft: &mut Draft,
    servers: Option<&Node>,
    problems: &mut Problems<'_>,
) -> HashSet<Arc<str>> {
    let mut trusted = HashSet::new();
    let Some(Tree::Map(servers)) = servers.map(|servers| &servers.value) else { return trusted };
    for (server, node) in servers {
        let Tree::Map(entries) = &node.value else { continue };
        let find = |name: &str| entries.iter().find(|(key, _)| key.text == name).map(|(_, node)| node);
        if let Some(trust) = find("trust_hints")
            && trust.boolean("`trust_hints`", problems) == Some(true)
        {
            trusted.insert(server.text.as_str().into());
        }
        if let Some(confirm) = find("confirm") {
            join_confirm(draft, server, confirm, problems);
        }
    }
    trusted
}

fn join_confirm(draft: &mut Draft, server: &Key, confirm: &Node, problems: &mut Problems<'_>) {
    let Ok(Glob::Literal(name)) = Glob::parse(&server.text) else {
        problems.add(server.at, format!("`{}` cannot be the name of a server", server.text));
        return;
    };
    let on = |tool: Glob| Pattern { subject: Subject::On { server: Glob::Literal(name.clone()), name: tool } };
    let patterns = match &confirm.value {
        Tree::Text(word) if word == "none" => Vec::new(),
        Tree::Text(word) if word == "all" => vec![on(Glob::All)],
        Tree::List(tools) => {
            let mut patterns = Vec::new();
            for tool in tools {
                let Some(text) = tool.text("a tool", problems) else { continue };
                match Glob::parse(text) {
                    Ok(glob) => patterns.push(on(glob)),
                    Err(error) => problems.add(tool.at, format!("pattern `{text}` {error}")),
                }
            }
            patterns
        }
        _ => {
            problems.add(confirm.at, "`confirm` is `none`, `all` or a list of tools");
            Vec::new()
        }
    };
    if !patterns.is_empty() {
        let id = format!("mcp_servers.{name}.confirm");
        draft.rules.push(written(id, Effect::Ask, patterns, draft.life, confirm.at));
    }
}

/// A name that is no glob.
fn literal(name: &str, at: At, problems: &mut Problems<'_>) -> Option<Pattern> {
    match Pattern::parse(name) {
        Ok(pattern) if matches!(pattern.subject, Subject::Bare(Glob::Literal(_))) => Some(pattern),
        Ok(_) | Err(_) => {
            problems.add(at, format!("`{name}` cannot be the name of a tool"));
            None
        }
    }
}

/// A rule that another section of the file stands for.
fn written(id: String, effect: Effect, patterns: Vec<Pattern>, life: Option<(Life, At)>, at: At) -> Rule {
    let life = life.map_or(Life::For(limits::HOLD_LIFE), |(life, _)| life);
    Rule {
        because: Because { rule: id.into(), effect, reason: None },
        patterns,
        when: None,
        except: Exceptions::default(),
        terms: Arc::new(Terms { life, ..Terms::default() }),
        requester: None,
        risk: Risk::Low,
        hide: false,
        inside_own: false,
        at,
    }
}

/// The life of a hold, from milliseconds.
pub(crate) fn milliseconds(length: u64) -> Life {
    Life::For(Duration::from_millis(length).min(limits::LONGEST_LIFE))
}
