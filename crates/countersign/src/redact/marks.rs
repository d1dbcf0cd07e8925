//! Which values a schema marks as secret: `writeOnly: true` or `format: password`.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use regex::{Regex, RegexBuilder};
use serde_json::Value;

use crate::json::Json;
use crate::limits;
use crate::schema::steps::{Step, resolve, steps};

/// Whether a schema can mark anything at all. Canonical text spells every word in one way.
pub(super) fn may_mark(schema: &Json) -> bool {
    schema.as_str().contains("\"writeOnly\"") || schema.as_str().contains("\"password\"")
}

/// The subschemas that speak about one value.
#[derive(Clone)]
pub(super) struct Here<'s> {
    schemas: Rc<[&'s Value]>,
    secret: bool,
}

impl Here<'_> {
    /// Whether one of them marks the value as secret.
    pub(super) fn is_secret(&self) -> bool {
        self.secret
    }
}

/// Walks a schema along with a value. Where that takes too long, everything counts as secret.
pub(super) struct Marks<'s> {
    root: Option<&'s Value>,
    patterns: HashMap<&'s str, Option<Regex>>,
    steps: usize,
}

impl<'s> Marks<'s> {
    pub(super) fn new(root: Option<&'s Value>) -> Marks<'s> {
        Marks { root, patterns: HashMap::new(), steps: 0 }
    }

    /// What speaks about the whole value.
    pub(super) fn root(&mut self) -> Here<'s> {
        self.gather(self.root.into_iter().collect())
    }

    /// What speaks about one member.
    pub(super) fn member(&mut self, here: &Here<'s>, name: &str) -> Here<'s> {
        let mut below = Vec::new();
        for schema in here.schemas.iter() {
            let found = self.steps_of(schema);
            let before = below.len();
            for (step, schema) in &found {
                let named = match step {
                    Step::Member(member) => *member == name,
                    Step::Pattern(pattern) => self.matches(pattern, name),
                    Step::Here | Step::OtherMembers | Step::Item(_) | Step::ItemsFrom(_) | Step::Names => false,
                };
                below.extend(named.then_some(*schema));
            }
            if below.len() == before {
                below.extend(found.iter().filter(|(step, _)| *step == Step::OtherMembers).map(|(_, schema)| *schema));
            }
        }
        self.gather(below)
    }

    /// What speaks about one item.
    pub(super) fn item(&mut self, here: &Here<'s>, index: usize) -> Here<'s> {
        let mut below = Vec::new();
        for schema in here.schemas.iter() {
            below.extend(self.steps_of(schema).into_iter().filter_map(|(step, schema)| match step {
                Step::Item(at) => (at == index).then_some(schema),
                Step::ItemsFrom(from) => (index >= from).then_some(schema),
                Step::Here | Step::Member(_) | Step::Pattern(_) | Step::OtherMembers | Step::Names => None,
            }));
        }
        self.gather(below)
    }

    /// The position from which on all items are spoken about alike.
    pub(super) fn alike_from(&mut self, here: &Here<'s>) -> usize {
        let mut from = 0;
        for schema in here.schemas.iter() {
            for (step, _) in self.steps_of(schema) {
                from = match step {
                    Step::Item(at) => from.max(at + 1),
                    Step::ItemsFrom(at) => from.max(at),
                    Step::Here | Step::Member(_) | Step::Pattern(_) | Step::OtherMembers | Step::Names => from,
                };
            }
        }
        from
    }

    fn steps_of(&mut self, schema: &'s Value) -> Vec<(Step<'s>, &'s Value)> {
        if self.steps > limits::REDACTION_STEPS {
            return Vec::new();
        }
        let found = self.root.map(|root| steps(root, schema)).unwrap_or_default();
        self.steps += 1 + found.len();
        found
    }

    /// The schemas and all that stand in them or behind their references for the same value.
    fn gather(&mut self, mut open: Vec<&'s Value>) -> Here<'s> {
        let mut seen: HashSet<*const Value> = HashSet::new();
        let mut schemas = Vec::new();
        let mut secret = false;
        while let Some(schema) = open.pop() {
            if !seen.insert(schema) {
                continue;
            }
            secret |= self.is_marked(schema);
            open.extend(
                self.steps_of(schema).into_iter().filter(|(step, _)| *step == Step::Here).map(|(_, here)| here),
            );
            schemas.push(schema);
        }
        Here { schemas: schemas.into(), secret: secret || self.steps > limits::REDACTION_STEPS }
    }

    // SECURITY: what stands behind a reference that cannot be followed may be a mark.
    fn is_marked(&self, schema: &Value) -> bool {
        let unknown = |reference: &str| self.root.is_some_and(|root| resolve(root, reference).is_none());
        schema.get("writeOnly") == Some(&Value::Bool(true))
            || schema.get("format").and_then(Value::as_str) == Some("password")
            || schema.get("$ref").and_then(Value::as_str).is_some_and(unknown)
    }

    /// A pattern that cannot be used counts as matching.
    fn matches(&mut self, pattern: &'s str, name: &str) -> bool {
        let compile = || RegexBuilder::new(pattern).size_limit(limits::PATTERN_BYTES).build().ok();
        self.patterns.entry(pattern).or_insert_with(compile).as_ref().is_none_or(|regex| regex.is_match(name))
    }
}
