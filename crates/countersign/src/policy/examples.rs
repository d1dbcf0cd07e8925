//! A rule's own examples: calls it must match, and calls it must not.

use super::error::Problems;
use super::pattern::{Glob, Pattern, Subject};
use super::rule::{Rule, bare_facts};
use super::scope::{Claims, Values};
use super::yaml::{Node, Tree};
use crate::call::ToolId;
use crate::json::{Bounds, Json};

/// Keys of a rule's examples.
pub(crate) const EXAMPLE_KEYS: [&str; 2] = ["match", "no_match"];

/// Tries every example on the rule alone; one that fails is a problem at its place.
pub(crate) fn check(rule: &Rule, node: &Node, problems: &mut Problems<'_>) {
    let fields = node.fields("`examples`", &EXAMPLE_KEYS, problems);
    for (key, expected) in [("match", true), ("no_match", false)] {
        let Some(list) = fields.get(key) else { continue };
        for example in list.list(&format!("`{key}`"), problems) {
            try_one(rule, example, expected, problems);
        }
    }
}

fn try_one(rule: &Rule, example: &Node, expected: bool, problems: &mut Problems<'_>) {
    if !problems.is_empty() && rule.patterns.is_empty() {
        return;
    }
    let (tool, arguments) = match spelled_out(example) {
        Some((tool, arguments)) => (tool.text("`tool`", problems).map(tool_named), arguments),
        None => (rule.patterns.iter().find_map(sample), example),
    };
    let Tree::Map(_) = arguments.value else {
        problems.add(example.at, format!("an example is a mapping of arguments, not {}", example.kind()));
        return;
    };
    let Some(tool) = tool else {
        let help = "write `{ tool: NAME, arguments: {…} }`";
        problems.add_with_help(example.at, "the example needs a tool name: none follows from the pattern", help);
        return;
    };
    let arguments = match Json::ingest(&arguments.to_json(), Bounds::PAYLOAD) {
        Ok(arguments) => arguments,
        Err(error) => {
            problems.add(example.at, format!("the example's arguments cannot be read: {error}"));
            return;
        }
    };
    let shown = tool.to_string();
    let facts = bare_facts(tool, arguments);
    if rule.matches(&Values::new(&facts), Claims::Withheld) != expected {
        let (id, verb) = (&rule.because.rule, if expected { "does not match" } else { "matches" });
        problems.add(example.at, format!("rule `{id}` {verb} this example (tool `{shown}`)"));
    }
}

/// An example that names its tool: `{ tool: NAME, arguments: {…} }`.
fn spelled_out(example: &Node) -> Option<(&Node, &Node)> {
    let Tree::Map(entries) = &example.value else { return None };
    match entries.as_slice() {
        [(first, tool), (second, arguments)] if first.text == "tool" && second.text == "arguments" => {
            Some((tool, arguments))
        }
        [(first, arguments), (second, tool)] if first.text == "arguments" && second.text == "tool" => {
            Some((tool, arguments))
        }
        _ => None,
    }
}

/// A tool by its name as patterns write it.
pub(crate) fn tool_named(name: &str) -> ToolId {
    match name.split_once('/') {
        Some((server, name)) if !server.starts_with("agent:") => ToolId::on(server, name),
        _ => ToolId::local(name),
    }
}

/// A tool the pattern matches, if one follows from it.
pub(crate) fn sample(pattern: &Pattern) -> Option<ToolId> {
    match &pattern.subject {
        Subject::Bare(name) => Some(ToolId::local(sample_name(name)?)),
        Subject::On { server, name } => Some(ToolId::on(sample_name(server)?, sample_name(name)?)),
        Subject::Agent(name) => Some(ToolId::local(format!("agent:{}", sample_name(name)?))),
        Subject::Toolset(_) => None,
    }
}

fn sample_name(glob: &Glob) -> Option<String> {
    let name = match glob {
        Glob::All => "x".to_owned(),
        Glob::Literal(name) => name.clone(),
        Glob::Prefix(prefix) => format!("{prefix}x"),
        Glob::Suffix(suffix) => format!("x{suffix}"),
        Glob::Other(matcher) => first_choice(matcher.glob().glob()),
    };
    glob.matches(&name).then_some(name)
}

/// Takes the first choice wherever a glob leaves one: good for all but odd classes, and checked by the caller.
fn first_choice(glob: &str) -> String {
    let mut name = String::new();
    let mut chars = glob.chars();
    let mut skipping = false;
    while let Some(char) = chars.next() {
        match char {
            '}' => skipping = false,
            _ if skipping => {}
            '*' | '?' => name.push('x'),
            '[' => {
                name.extend(chars.next());
                chars.by_ref().find(|char| *char == ']');
            }
            ',' => skipping = true,
            '{' => {}
            _ => name.push(char),
        }
    }
    name
}
