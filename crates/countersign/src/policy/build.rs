//! Puts a policy together from the sections of a file that speak about it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::error::{At, PolicyErrors, Problems, nearest};
use super::read::{self, AGENT_POLICY_KEYS, Draft, POLICY_KEYS, names};
use super::rule::{Layer, Otherwise, Rule};
use super::translate::{SAIKI_TIMEOUT, join_permissions, join_servers, join_tool_confirmation, milliseconds};
use super::yaml::{self, Key, Node, Tree};
use super::{Inner, Policy, presets};
use crate::limits;
use crate::verdict::{Effect, Life, Memory, Terms};

/// Keys of `approvers`.
pub(crate) const APPROVER_KEYS: [&str; 1] = ["groups"];
/// Keys of a whole file.
pub(crate) const FILE_KEYS: [&str; 15] = [
    "store",
    "listen",
    "server",
    "model",
    "policy",
    "limits",
    "web_search",
    "fetch",
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
    let otherwise = draft.otherwise.map_or(Otherwise::Does(Effect::Ask), |(word, _)| word);
    let top = layer(draft.rules, Some(otherwise), draft.life, draft.memory, problems)?;
    let rules = top.rules.len() + agents.values().map(|layer| layer.rules.len()).sum::<usize>();
    if rules > limits::POLICY_RULES {
        problems.add(At::default(), format!("more than {} rules", limits::POLICY_RULES));
    }
    let mut reads = top.reads();
    agents.values().for_each(|layer| reads.join([&layer.reads()]));
    let inner = Inner {
        reads,
        top,
        agents,
        unattended: draft.unattended,
        in_client: draft.in_client.unwrap_or_default(),
        storage: draft.memory,
        trusted,
        version: version(&[&canonical, preset.unwrap_or_default()]),
        source: Some(source.map_or(canonical, str::to_owned)),
    };
    Some(Policy { inner: Arc::new(inner), code: None, groups: Arc::new(groups), beside: None })
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

/// A digest of what is said: the text and the preset it builds on, or two policies side by side.
pub(super) fn version(said: &[&str]) -> Arc<str> {
    let mut hash = Sha256::new();
    hash.update(said.join("\0"));
    let hex: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("p:{hex}").into()
}

fn layer(
    mut rules: Vec<Rule>,
    otherwise: Option<Otherwise>,
    life: Option<(Life, At)>,
    memory: Option<Memory>,
    problems: &mut Problems<'_>,
) -> Option<Layer> {
    read::refuse_twins(&rules, problems);
    let life = life.map_or(Life::For(limits::HOLD_LIFE), |(life, _)| life);
    let mut terms = Terms { life, ..Terms::default() };
    if let Some(widest) = memory {
        let of_rules = rules.iter_mut().map(|rule| Arc::make_mut(&mut rule.terms));
        of_rules.chain([&mut terms]).for_each(|terms| terms.remember = terms.remember.min(widest));
    }
    match Layer::new(rules, otherwise, terms) {
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

fn groups(approvers: Option<&Node>, problems: &mut Problems<'_>) -> BTreeMap<Arc<str>, Vec<Arc<str>>> {
    let Some(approvers) = approvers else { return BTreeMap::new() };
    let fields = approvers.fields("`approvers`", &APPROVER_KEYS, problems);
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
        if let Some(layer) = layer(draft.rules, otherwise, life, top.memory, problems) {
            layers.insert(agent.text.as_str().into(), layer);
        }
    }
    layers
}
