//! How a JSON Schema applies to a value: which subschemas speak about it, its members and its items.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::SchemaError;
use crate::limits;

/// What a subschema speaks about, seen from the schema that holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step<'s> {
    /// The same value.
    Here,
    /// One member.
    Member(&'s str),
    /// Members whose name matches.
    Pattern(&'s str),
    /// Members no other keyword names.
    OtherMembers,
    /// One item, by position.
    Item(usize),
    /// Items from this position on.
    ItemsFrom(usize),
    /// The names of the members.
    Names,
}

/// The keywords that point elsewhere.
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// The schema a local reference points to.
pub(crate) fn resolve<'s>(root: &'s Value, reference: &str) -> Option<&'s Value> {
    match reference.strip_prefix('#')? {
        "" => Some(root),
        pointer if pointer.starts_with('/') && !pointer.contains('%') => root.pointer(pointer),
        _ => None,
    }
}

/// The subschemas of one schema, references followed.
pub(crate) fn steps<'s>(root: &'s Value, node: &'s Value) -> Vec<(Step<'s>, &'s Value)> {
    let mut found = Vec::new();
    let Value::Object(keywords) = node else { return found };
    for (keyword, value) in keywords {
        match (keyword.as_str(), value) {
            ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(reference)) => {
                found.extend(resolve(root, reference).map(|target| (Step::Here, target)));
            }
            ("not" | "if" | "then" | "else", schema) => found.push((Step::Here, schema)),
            ("allOf" | "anyOf" | "oneOf", Value::Array(schemas)) => {
                found.extend(schemas.iter().map(|schema| (Step::Here, schema)));
            }
            ("dependentSchemas" | "dependencies", Value::Object(schemas)) => {
                found.extend(schemas.values().map(|schema| (Step::Here, schema)));
            }
            ("properties", Value::Object(schemas)) => {
                found.extend(schemas.iter().map(|(name, schema)| (Step::Member(name), schema)));
            }
            ("patternProperties", Value::Object(schemas)) => {
                found.extend(schemas.iter().map(|(name, schema)| (Step::Pattern(name), schema)));
            }
            ("additionalProperties" | "unevaluatedProperties", schema) => found.push((Step::OtherMembers, schema)),
            ("prefixItems" | "items", Value::Array(schemas)) => {
                found.extend(schemas.iter().enumerate().map(|(index, schema)| (Step::Item(index), schema)));
            }
            ("items" | "additionalItems", schema) => found.push((Step::ItemsFrom(listed(keywords)), schema)),
            ("propertyNames", schema) => found.push((Step::Names, schema)),
            ("contains" | "unevaluatedItems", schema) => found.push((Step::ItemsFrom(0), schema)),
            _ => {}
        }
    }
    found
}

/// How many items a schema lists one by one.
fn listed(keywords: &serde_json::Map<String, Value>) -> usize {
    let list = ["prefixItems", "items"].iter().find_map(|keyword| keywords.get(*keyword)?.as_array());
    list.map_or(0, Vec::len)
}

/// What is known of a schema before it meets a value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// How many subschemas stand above one another for one value, at most.
    pub(crate) height: usize,
    /// The weight of all subschemas together, where none can be evaluated twice for one value.
    pub(crate) weight: Option<u64>,
}

impl Shape {
    /// Whether checking so much cannot be too much work, whatever exactly it is.
    ///
    /// A schema without references is a tree: each subschema meets each value at most once.
    pub(crate) fn is_cheap(&self, bytes: usize) -> bool {
        let (values, letters) = (bytes as u64, 1 + bytes as u64 / 64);
        let most = self.weight.and_then(|weight| weight.checked_mul(values)?.checked_mul(letters));
        most.is_some_and(|most| most <= limits::SCHEMA_STEPS)
    }
}

/// Refuses what cannot be read in one place and in bounded time: references that leave the schema or depend on a base
/// address, too many of them, and schemas that refer to themselves without looking deeper into the value.
pub(crate) fn check(root: &Value) -> Result<Shape, SchemaError> {
    let mut targets = HashSet::new();
    check_references(root, root, &mut targets)?;
    if targets.len() > limits::SCHEMA_REFERENCES {
        return Err(SchemaError::TooManyReferences { limit: limits::SCHEMA_REFERENCES });
    }
    let mut heights = HashMap::new();
    let mut every = vec![root];
    let mut shape = Shape { height: 0, weight: targets.is_empty().then_some(0) };
    while let Some(node) = every.pop() {
        shape.height = shape.height.max(height(root, node, 0, &mut heights)?);
        shape.weight = shape.weight.and_then(|sum| sum.checked_add(heaviest(node)?));
        match node {
            Value::Object(members) => every.extend(members.values()),
            Value::Array(items) => every.extend(items),
            _ => {}
        }
    }
    Ok(shape)
}

/// What one subschema weighs at most for one letter of a value; nothing for one that looks at values twice.
fn heaviest(node: &Value) -> Option<u64> {
    let Value::Object(keywords) = node else { return Some(1) };
    if ["unevaluatedProperties", "unevaluatedItems"].iter().any(|keyword| keywords.contains_key(*keyword)) {
        return None;
    }
    Some(bare_weight(keywords) + pattern_bytes(keywords))
}

fn check_references<'s>(root: &Value, node: &'s Value, targets: &mut HashSet<&'s str>) -> Result<(), SchemaError> {
    match node {
        Value::Object(members) => {
            let old = root.get("$schema").and_then(Value::as_str).is_some_and(|draft| draft.contains("draft-04"));
            let base = if old { "id" } else { "$id" };
            if !std::ptr::eq(root, node) && members.get(base).is_some_and(Value::is_string) {
                return Err(SchemaError::Base);
            }
            for reference in REFERENCES.iter().filter_map(|keyword| members.get(*keyword)?.as_str()) {
                resolve(root, reference).ok_or_else(|| SchemaError::Reference(crate::show::escape(reference)))?;
                targets.insert(reference);
            }
            members.values().try_for_each(|value| check_references(root, value, targets))
        }
        Value::Array(items) => items.iter().try_for_each(|value| check_references(root, value, targets)),
        _ => Ok(()),
    }
}

/// How many subschemas stand above one another for one and the same value.
fn height<'s>(
    root: &'s Value,
    node: &'s Value,
    below: usize,
    heights: &mut HashMap<*const Value, Option<usize>>,
) -> Result<usize, SchemaError> {
    match heights.get(&std::ptr::from_ref(node)) {
        Some(Some(known)) => return Ok(*known),
        Some(None) => return Err(SchemaError::Endless),
        None => heights.insert(node, None),
    };
    let mut highest = 0;
    for (step, child) in steps(root, node) {
        if step == Step::Here {
            // Asked on the way down, so that a long chain of references does not use up the stack.
            if below >= limits::SCHEMA_HEIGHT {
                return Err(SchemaError::TooHigh { limit: limits::SCHEMA_HEIGHT });
            }
            highest = highest.max(1 + height(root, child, below + 1, heights)?);
        }
    }
    if highest > limits::SCHEMA_HEIGHT {
        return Err(SchemaError::TooHigh { limit: limits::SCHEMA_HEIGHT });
    }
    heights.insert(node, Some(highest));
    Ok(highest)
}

/// How much work checking a value can be, at most: evaluations of subschemas, weighed by what each has to compare.
#[cfg(feature = "schema")]
pub(crate) struct Work<'s> {
    root: &'s Value,
    known: HashMap<(*const Value, *const Value), u64>,
}

#[cfg(feature = "schema")]
impl<'s> Work<'s> {
    /// Counts the work of checking `value` against `root`; stops once it is over the limit.
    pub(crate) fn of(root: &'s Value, value: &Value) -> u64 {
        Work { root, known: HashMap::new() }.count(root, value)
    }

    // INVARIANT: `check` has passed, so a schema never comes back to itself for the same value and this ends.
    fn count(&mut self, node: &'s Value, value: &Value) -> u64 {
        let key = (std::ptr::from_ref(node), std::ptr::from_ref(value));
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let mut sum = weight(node, value);
        // What no other keyword has looked at is found by looking with all of them once more.
        let again = ["unevaluatedProperties", "unevaluatedItems"].iter().any(|keyword| node.get(keyword).is_some());
        for (step, child) in steps(self.root, node) {
            let times = if again { 2 } else { 1 };
            if let (Step::Names, Value::Object(members)) = (step, value) {
                let bytes: usize = members.keys().map(|name| 1 + name.len() / 8).sum();
                sum = sum.saturating_add(self.count(child, &Value::Null).saturating_mul(bytes as u64));
            }
            for below in applies(step, value) {
                if sum > limits::SCHEMA_STEPS || self.known.len() as u64 > limits::SCHEMA_STEPS {
                    return u64::MAX;
                }
                sum = sum.saturating_add(self.count(child, below).saturating_mul(times));
            }
        }
        self.known.insert(key, sum);
        sum
    }
}

/// The values a step leads to. Where only a pattern or a neighbour could tell, it leads there.
#[cfg(feature = "schema")]
fn applies<'v>(step: Step<'_>, value: &'v Value) -> Vec<&'v Value> {
    match (step, value) {
        (Step::Here, value) => vec![value],
        (Step::Member(name), Value::Object(members)) => members.get(name).into_iter().collect(),
        (Step::Pattern(_) | Step::OtherMembers, Value::Object(members)) => members.values().collect(),
        (Step::Item(index), Value::Array(items)) => items.get(index).into_iter().collect(),
        (Step::ItemsFrom(index), Value::Array(items)) => items.iter().skip(index).collect(),
        _ => Vec::new(),
    }
}

#[cfg(feature = "schema")]
fn weight(node: &Value, value: &Value) -> u64 {
    let Value::Object(keywords) = node else { return 1 };
    let text = value.as_str().map_or(0, str::len) as u64;
    bare_weight(keywords) + (pattern_bytes(keywords) * text) / 64
}

fn bare_weight(keywords: &serde_json::Map<String, Value>) -> u64 {
    let choices = keywords.get("enum").and_then(Value::as_array).map_or(0, Vec::len);
    1 + choices as u64 + keywords.len() as u64
}

fn pattern_bytes(keywords: &serde_json::Map<String, Value>) -> u64 {
    keywords.get("pattern").and_then(Value::as_str).map_or(0, str::len) as u64
}
