//! YAML as a tree that knows its places, so that every problem can point into the file.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{MergeKeyPolicy, Options, Spanned};

use super::error::{At, Problems, nearest};
use crate::json::write_string;
use crate::limits;

/// One value, and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) at: At,
    pub(crate) value: Tree,
}

/// A value.
#[derive(Clone, Debug)]
pub(crate) enum Tree {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
}

/// A key, and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) at: At,
    pub(crate) text: String,
}

/// Reads one document strictly: no duplicate keys, no merge keys, no YAML 1.1 booleans, bounded in every way.
pub(crate) fn read(text: &str, problems: &mut Problems<'_>) -> Option<Node> {
    let start = At { line: 1, column: 1 };
    if text.len() > limits::POLICY_BYTES {
        let message = format!("file of {} bytes is over the limit of {}", text.len(), limits::POLICY_BYTES);
        problems.add(start, message);
        return None;
    }
    if text.starts_with('\u{feff}') {
        problems.add_with_help(start, "file begins with a byte order mark", "save it as UTF-8 without one");
        return None;
    }
    match serde_saphyr::from_str_with_options::<Node>(text, options()) {
        Ok(node) => Some(node),
        Err(error) => {
            let at = error.location().map_or(start, place);
            problems.add(at, one_line(&error.without_snippet().to_string()));
            None
        }
    }
}

fn options() -> Options {
    let budget = serde_saphyr::budget! {
        max_depth: limits::POLICY_DEPTH,
        flow_nesting_limit: limits::POLICY_DEPTH,
        max_documents: 1,
        max_anchors: 256,
        max_aliases: 1_000,
        max_nodes: limits::POLICY_NODES,
        max_events: 2 * limits::POLICY_NODES,
    };
    serde_saphyr::options! {
        budget: budget,
        strict_booleans: true,
        merge_keys: MergeKeyPolicy::Error,
        reject_unsupported_tags: true,
        with_snippet: false,
    }
}

fn place(location: serde_saphyr::Location) -> At {
    let number = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
    At { line: number(location.line()), column: number(location.column()) }
}

/// The first line of a message, without the place it repeats.
fn one_line(message: &str) -> String {
    let line = message.lines().find(|line| !line.trim().is_empty()).unwrap_or("not YAML").trim();
    let line = line.trim_start_matches("error: ");
    line.split_once(" at line ").map_or(line, |(message, _)| message).to_owned()
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Tree>::deserialize(deserializer)?;
        Ok(Node { at: place(spanned.referenced), value: spanned.value })
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<String>::deserialize(deserializer)?;
        Ok(Key { at: place(spanned.referenced), text: spanned.value })
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Tree, E> {
        Ok(Tree::Null)
    }

    fn visit_none<E: de::Error>(self) -> Result<Tree, E> {
        Ok(Tree::Null)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Tree, E> {
        Ok(Tree::Bool(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Tree, E> {
        Ok(Tree::Int(value.into()))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Tree, E> {
        Ok(Tree::Int(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Tree, E> {
        Ok(Tree::Float(value))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Tree, E> {
        Ok(Tree::Text(value.to_owned()))
    }

    fn visit_string<E: de::Error>(self, value: String) -> Result<Tree, E> {
        Ok(Tree::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Tree, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Tree::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tree, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = map.next_key::<Key>()? {
            entries.push((key, map.next_value()?));
        }
        Ok(Tree::Map(entries))
    }
}

impl Node {
    /// What it is, in words.
    pub(crate) fn kind(&self) -> &'static str {
        match self.value {
            Tree::Null => "nothing",
            Tree::Bool(_) => "a boolean",
            Tree::Int(_) | Tree::Float(_) => "a number",
            Tree::Text(_) => "text",
            Tree::List(_) => "a list",
            Tree::Map(_) => "a mapping",
        }
    }

    /// The value as JSON: keys sorted, so that equal values have equal text.
    pub(crate) fn to_json(&self) -> String {
        let mut out = String::new();
        self.write_json(&mut out);
        out
    }

    fn write_json(&self, out: &mut String) {
        match &self.value {
            Tree::Null => out.push_str("null"),
            Tree::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Tree::Int(value) => out.push_str(&value.to_string()),
            Tree::Float(value) => out.push_str(&serde_json::Value::from(*value).to_string()),
            Tree::Text(value) => write_string(out, value),
            Tree::List(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    item.write_json(out);
                }
                out.push(']');
            }
            Tree::Map(entries) => {
                let mut sorted: Vec<_> = entries.iter().collect();
                sorted.sort_by(|(left, _), (right, _)| left.text.cmp(&right.text));
                out.push('{');
                for (index, (key, value)) in sorted.into_iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    write_string(out, &key.text);
                    out.push(':');
                    value.write_json(out);
                }
                out.push('}');
            }
        }
    }

    /// The text, or a problem.
    pub(crate) fn text(&self, what: &str, problems: &mut Problems<'_>) -> Option<&str> {
        match &self.value {
            Tree::Text(text) => Some(text),
            _ => {
                problems.add(self.at, format!("{what} must be text, not {}", self.kind()));
                None
            }
        }
    }

    /// The boolean, or a problem.
    pub(crate) fn boolean(&self, what: &str, problems: &mut Problems<'_>) -> Option<bool> {
        match &self.value {
            Tree::Bool(value) => Some(*value),
            _ => {
                problems.add(self.at, format!("{what} must be `true` or `false`, not {}", self.kind()));
                None
            }
        }
    }

    /// The whole number, or a problem.
    pub(crate) fn whole<T: TryFrom<i128>>(&self, what: &str, problems: &mut Problems<'_>) -> Option<T> {
        let number = match self.value {
            Tree::Int(value) => T::try_from(value).ok(),
            _ => None,
        };
        if number.is_none() {
            problems.add(self.at, format!("{what} must be a whole number in range"));
        }
        number
    }

    /// The items of a list, or the value itself where one item may stand alone.
    pub(crate) fn one_or_many(&self) -> &[Node] {
        match &self.value {
            Tree::List(items) => items,
            _ => std::slice::from_ref(self),
        }
    }

    /// The items of a list, or a problem.
    pub(crate) fn list(&self, what: &str, problems: &mut Problems<'_>) -> &[Node] {
        match &self.value {
            Tree::List(items) => items,
            _ => {
                problems.add(self.at, format!("{what} must be a list, not {}", self.kind()));
                &[]
            }
        }
    }

    /// The entries of a mapping whose keys are names, or a problem. An empty value is an empty mapping.
    pub(crate) fn entries(&self, what: &str, problems: &mut Problems<'_>) -> &[(Key, Node)] {
        match &self.value {
            Tree::Map(entries) => entries,
            Tree::Null => &[],
            _ => {
                problems.add(self.at, format!("{what} must be a mapping, not {}", self.kind()));
                &[]
            }
        }
    }

    /// The entries of a mapping with known keys. Unknown ones are problems, with the nearest known key as help.
    pub(crate) fn fields<'n>(
        &'n self,
        what: &'static str,
        known: &[&'static str],
        problems: &mut Problems<'_>,
    ) -> Fields<'n> {
        let entries = self.entries(what, problems);
        for (key, _) in entries {
            if !known.contains(&key.text.as_str()) {
                unknown_key(key, what, known, problems);
            }
        }
        Fields { at: self.at, entries }
    }

    /// One of a few words, or a problem with the nearest word as help.
    pub(crate) fn word<T: Copy>(
        &self,
        what: &str,
        words: &[(&'static str, T)],
        problems: &mut Problems<'_>,
    ) -> Option<T> {
        let text = self.text(what, problems)?;
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
            return Some(*value);
        }
        let list: Vec<String> = words.iter().map(|(word, _)| format!("`{word}`")).collect();
        let help = match nearest(text, words.iter().map(|(word, _)| *word)) {
            Some(word) => format!("did you mean `{word}`?"),
            None => format!("use one of {}", list.join(", ")),
        };
        problems.add_with_help(self.at, format!("unknown {what} `{text}`"), help);
        None
    }
}

fn unknown_key(key: &Key, what: &str, known: &[&'static str], problems: &mut Problems<'_>) {
    let help = match nearest(&key.text, known.iter().copied()) {
        Some(word) => format!("did you mean `{word}`?"),
        None => format!("known keys: {}", known.join(", ")),
    };
    problems.add_with_help(key.at, format!("unknown key `{}` in {what}", key.text), help);
}

/// The entries of one mapping, by key.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'n> {
    pub(crate) at: At,
    entries: &'n [(Key, Node)],
}

impl<'n> Fields<'n> {
    /// The value under a key. An empty value counts as a value, so that nothing is dropped in silence.
    pub(crate) fn get(&self, key: &str) -> Option<&'n Node> {
        self.entry(key).map(|(_, node)| node)
    }

    /// The key and its value.
    pub(crate) fn entry(&self, key: &str) -> Option<(&'n Key, &'n Node)> {
        self.entries.iter().find(|(found, _)| found.text == key).map(|(key, node)| (key, node))
    }
}
