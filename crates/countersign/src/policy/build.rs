//! Puts a policy together from the sections of a file that speak about it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::error::{At, PolicyErrors, Problems, nearest};
use super::pattern::{Glob, Pattern, Subject};
use super::read::{self, AGENT_POLICY_KEYS, Draft, POLICY_KEYS, names};
use super::rule::{Exceptions, Layer, Otherwise, Rule};
use super::yaml::{self, Key, Node, Tree};
use super::{Inner, Policy, presets};
use crate::limits;
use crate::verdict::{Because, Effect, Life, Risk, Terms};

/// Keys of a whole file.
pub(crate) const FILE_KEYS: [&str; 12] = [
    "store",
    "listen",
    "model",
    "policy",
    "limits",
    "tools",
    "mcp_servers",
    "agents",
    "toolConfirmation",
    "approvers",
    "notify",
    "redact",
];

/// The parts of a whole file that speak about policy.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sections<'n> {
    pub(crate) policy: Option<&'n Node>,
    pub(crate) agents: Option<&'n Node>,
    pub(crate) tools: Option<&'n Node>,
    pub(crate) mcp_servers: Option<&'n Node>,
    pub(crate) tool_confirmation: Option<&'n Node>,
    pub(crate) approvers: Option<&'n Node>,
}

impl<'n> Sections<'n> {
    /// Takes the sections out of a whole file; keys it does not know are problems.
    pub(crate) fn of(root: &'n Node, problems: &mut Problems<'_>) -> Sections<'n> {
        let fields = root.fields("the file", &FILE_KEYS, problems);
        Sections {
            policy: fields.get("policy"),
            agents: fields.get("agents"),
            tools: fields.get("tools"),
            mcp_servers: fields.get("mcp_servers"),
            tool_confirmation: fields.get("toolConfirmation"),
            approvers: fields.get("approvers"),
        }
    }

    /// What of them is policy, as one text that reads back to the same policy.
    fn canonical(&self) -> String {
        let whole = |node: &Option<&Node>| node.cloned();
        let named = |node: &Node| match &node.value {
            Tree::Map(entries) => Tree::Map(entries.clone()),
            _ => Tree::Null,
        };
        let only = |node: &Node, keys: &[&str]| match named(node) {
            Tree::Map(entries) => {
                Tree::Map(entries.into_iter().filter(|(key, _)| keys.contains(&&*key.text)).collect())
            }
            other => other,
        };
        let each = |node: &Option<&Node>, keys: &[&str]| {
            let node = (*node)?;
            let value = match &node.value {
                Tree::Map(entries) => {
                    let part =
                        |(key, value): &(Key, Node)| (key.clone(), Node { at: value.at, value: only(value, keys) });
                    Tree::Map(entries.iter().map(part).collect())
                }
                Tree::List(items) => {
                    Tree::List(items.iter().map(|item| Node { at: item.at, value: only(item, keys) }).collect())
                }
                _ => Tree::Null,
            };
            Some(Node { at: node.at, value })
        };
        let parts = [
            ("agents", each(&self.agents, &["policy"])),
            ("approvers", whole(&self.approvers)),
            ("mcp_servers", each(&self.mcp_servers, &["confirm", "trust_hints"])),
            ("policy", whole(&self.policy)),
            ("toolConfirmation", whole(&self.tool_confirmation)),
            ("tools", each(&self.tools, &["name", "permission"])),
        ];
        let entry = |(key, node): (&str, Option<Node>)| Some((Key { at: At::default(), text: key.to_owned() }, node?));
        let entries = parts.into_iter().filter_map(entry).collect();
        Node { at: At::default(), value: Tree::Map(entries) }.to_json()
    }
}

/// Reads a policy from the `policy:` section alone, or from a whole file.
pub(crate) fn from_yaml(name: &str, text: &str) -> Result<Policy, PolicyErrors> {
    let mut problems = Problems::new(name, text);
    let root = yaml::read(text, &mut problems);
    let mut policy = None;
    if let Some(root) = &root {
        let whole_file = match &root.value {
            Tree::Map(entries) => entries.iter().any(|(key, _)| FILE_KEYS.contains(&key.text.as_str())),
            _ => false,
        };
        let sections = if whole_file {
            Sections::of(root, &mut problems)
        } else {
            Sections { policy: Some(root), ..Sections::default() }
        };
        policy = build(sections, Some(text), &mut problems);
    }
    finish(policy, problems)
}

/// The policy, or the problems. Without either the file said nothing that could be built.
pub(crate) fn finish<T>(built: Option<T>, mut problems: Problems<'_>) -> Result<T, PolicyErrors> {
    if built.is_none() && problems.is_empty() {
        problems.add(At::default(), "the policy cannot be built");
    }
    problems.finish(()).and_then(|()| built.ok_or_else(|| PolicyErrors(Vec::new())))
}

/// Builds the policy the sections describe. None, or a problem, where they do not.
pub(crate) fn build(sections: Sections<'_>, source: Option<&str>, problems: &mut Problems<'_>) -> Option<Policy> {
    let canonical = sections.canonical();
    let mut draft = match sections.policy {
        Some(policy) => read::section(policy, &POLICY_KEYS, default_life(&sections), problems),
        None => Draft::default(),
    };
    let preset = join_preset(&mut draft, problems);
    join_tool_confirmation(&mut draft, sections.tool_confirmation, problems);
    join_permissions(&mut draft, sections.tools, problems);
    let trusted = join_servers(&mut draft, sections.mcp_servers, problems);
    let groups = groups(sections.approvers, problems);
    let agents = agents(sections.agents, &draft, problems);
    let top = layer(
        draft.rules,
        Some(draft.otherwise.map_or(Otherwise::Does(Effect::Ask), |(word, _)| word)),
        draft.life,
        problems,
    )?;
    let rules = top.rules.len() + agents.values().map(|layer| layer.rules.len()).sum::<usize>();
    if rules > limits::POLICY_RULES {
        problems.add(At::default(), format!("more than {} rules", limits::POLICY_RULES));
    }
    let mut reads = top.reads();
    agents.values().for_each(|layer| reads.join(&layer.reads()));
    let inner = Inner {
        reads,
        top,
        agents,
        unattended: draft.unattended,
        in_client: draft.in_client.unwrap_or_default(),
        trusted,
        version: version(&canonical, preset),
        source: Some(source.map_or(canonical, str::to_owned)),
    };
    Some(Policy { inner: Arc::new(inner), code: None, groups: Arc::new(groups) })
}

/// How long holds wait where neither the rule nor the policy says so: as the preset or `toolConfirmation` says.
fn default_life(sections: &Sections<'_>) -> Life {
    let find = |node: Option<&Node>, name: &str| match node.map(|node| &node.value) {
        Some(Tree::Map(entries)) => {
            entries.iter().find(|(key, _)| key.text == name).map(|(_, node)| node.value.clone())
        }
        _ => None,
    };
    let usual = Life::For(limits::HOLD_LIFE);
    let preset = match find(sections.policy, "preset") {
        Some(Tree::Text(name)) => presets::draft(&name, usual).and_then(|preset| preset.life),
        _ => None,
    };
    match (preset, sections.tool_confirmation, find(sections.tool_confirmation, "timeout")) {
        (Some((life, _)), ..) => life,
        (None, Some(_), Some(Tree::Int(length))) => milliseconds(u64::try_from(length).unwrap_or(u64::MAX)),
        (None, Some(_), _) => milliseconds(SAIKI_TIMEOUT),
        (None, None, _) => usual,
    }
}

fn milliseconds(length: u64) -> Life {
    Life::For(Duration::from_millis(length).min(limits::LONGEST_LIFE))
}

/// A digest of what is said, and of the preset it builds on.
fn version(canonical: &str, preset: Option<&str>) -> Arc<str> {
    let mut hash = Sha256::new();
    hash.update(canonical);
    hash.update([0]);
    hash.update(preset.unwrap_or_default());
    let hex: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("p:{hex}").into()
}

fn layer(
    rules: Vec<Rule>,
    otherwise: Option<Otherwise>,
    life: Option<(Life, At)>,
    problems: &mut Problems<'_>,
) -> Option<Layer> {
    read::refuse_twins(&rules, problems);
    let life = life.map_or(Life::For(limits::HOLD_LIFE), |(life, _)| life);
    match Layer::new(rules, otherwise, Terms { life, ..Terms::default() }) {
        Ok(layer) => Some(layer),
        Err(error) => {
            problems.add(At::default(), format!("the patterns cannot be used together: {error}"));
            None
        }
    }
}

/// Adds what the preset says, and returns its text.
fn join_preset(draft: &mut Draft, problems: &mut Problems<'_>) -> Option<&'static str> {
    let (name, at) = draft.preset.clone()?;
    let life = draft.life.map_or(Life::For(limits::HOLD_LIFE), |(life, _)| life);
    let Some(mut preset) = presets::draft(&name, life) else {
        let help = match nearest(&name, presets::NAMES) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("known presets: {}", presets::NAMES.join(", ")),
        };
        problems.add_with_help(at, format!("unknown preset `{name}`"), help);
        return None;
    };
    if let (Some((own, at)), Some((its, _))) = (draft.otherwise, preset.otherwise)
        && own != its
    {
        let message = format!("`otherwise` contradicts the preset `{name}`");
        problems.add_with_help(at, message, "leave one of the two out");
    }
    draft.otherwise = draft.otherwise.or(preset.otherwise);
    draft.unattended = draft.unattended.or(preset.unattended);
    draft.life = draft.life.or(preset.life);
    draft.in_client = draft.in_client.or(preset.in_client);
    preset.rules.append(&mut draft.rules);
    draft.rules = preset.rules;
    presets::text(&name)
}

/// Seed words of another system: mode, time-out and storage of approvals.
pub(crate) const TOOL_CONFIRMATION_KEYS: [&str; 3] = ["mode", "timeout", "allowedToolsStorage"];

/// Milliseconds a hold waits there when nobody says how long.
const SAIKI_TIMEOUT: u64 = 30_000;

fn join_tool_confirmation(draft: &mut Draft, node: Option<&Node>, problems: &mut Problems<'_>) {
    let Some(node) = node else { return };
    let fields = node.fields("`toolConfirmation`", &TOOL_CONFIRMATION_KEYS, problems);
    let modes = [("event-based", Effect::Ask), ("auto-approve", Effect::Allow), ("auto-deny", Effect::Deny)];
    if let Some(mode) = fields.get("mode")
        && let Some(effect) = mode.word("`mode`", &modes, problems)
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
        storage.word("`allowedToolsStorage`", &[("storage", ()), ("memory", ())], problems);
    }
}

/// `permission:` of a tool, as a rule.
fn join_permissions(draft: &mut Draft, tools: Option<&Node>, problems: &mut Problems<'_>) {
    let Some(Tree::List(tools)) = tools.map(|tools| &tools.value) else { return };
    let words = [("auto_allow", Effect::Allow), ("always_ask", Effect::Ask), ("auto_deny", Effect::Deny)];
    for tool in tools {
        let Tree::Map(entries) = &tool.value else { continue };
        let find = |name: &str| entries.iter().find(|(key, _)| key.text == name).map(|(_, node)| node);
        let (Some(name), Some(permission)) = (find("name"), find("permission")) else { continue };
        let Some(effect) = permission.word("`permission`", &words, problems) else { continue };
        let Some(text) = name.text("`name`", problems) else { continue };
        if let Some(pattern) = literal(text, name.at, problems) {
            let id = format!("tools.{text}.permission");
            draft.rules.push(written(id, effect, vec![pattern], draft.life, permission.at));
        }
    }
}

/// `confirm:` of MCP servers, as rules. Returns the servers whose claims may loosen.
fn join_servers(draft: &mut Draft, servers: Option<&Node>, problems: &mut Problems<'_>) -> HashSet<Arc<str>> {
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

fn groups(approvers: Option<&Node>, problems: &mut Problems<'_>) -> BTreeMap<Arc<str>, Vec<Arc<str>>> {
    let Some(approvers) = approvers else { return BTreeMap::new() };
    let fields = approvers.fields("`approvers`", &["groups"], problems);
    let Some(groups) = fields.get("groups") else { return BTreeMap::new() };
    let mut read = BTreeMap::new();
    for (group, members) in groups.entries("`groups`", problems) {
        if group.text.trim().is_empty() {
            problems.add(group.at, "a group needs a name");
        }
        read.insert(Arc::from(group.text.as_str()), names(members, "a group", problems));
    }
    read
}

fn agents(node: Option<&Node>, top: &Draft, problems: &mut Problems<'_>) -> HashMap<Arc<str>, Layer> {
    let mut layers = HashMap::new();
    let Some(Tree::Map(agents)) = node.map(|node| &node.value) else { return layers };
    let life = top.life.map_or(Life::For(limits::HOLD_LIFE), |(life, _)| life);
    for (agent, node) in agents {
        let Tree::Map(entries) = &node.value else { continue };
        let Some((_, policy)) = entries.iter().find(|(key, _)| key.text == "policy") else { continue };
        let mut draft = read::section(policy, &AGENT_POLICY_KEYS, life, problems);
        for rule in &mut draft.rules {
            rule.because.rule = format!("agents.{}.{}", agent.text, rule.because.rule).into();
        }
        let otherwise = draft.otherwise.map(|(otherwise, _)| otherwise);
        let life = draft.life.or(top.life);
        if let Some(layer) = layer(draft.rules, otherwise, life, problems) {
            layers.insert(agent.text.as_str().into(), layer);
        }
    }
    layers
}
