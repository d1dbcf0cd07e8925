//! A tool's JSON Schema: arguments are checked before anybody is asked.
//!
//! Schemas come from servers nobody vouches for, so compiling and checking are bounded: no reference leaves the schema,
//! patterns run in linear time, and a check that could take too long is refused before it begins.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::json::Json;
use crate::limits;

pub(crate) mod steps;

/// Why a schema cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// More bytes than the bound.
    #[error("schema of {found} bytes is over the limit of {limit}")]
    TooLong {
        /// Bytes found.
        found: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// Not an object or a boolean.
    #[error("a schema is an object or a boolean")]
    NotASchema,
    /// A reference to somewhere else, or to nothing.
    #[error("reference `{0}` does not point into the schema itself as `#` or `#/…`")]
    Reference(String),
    /// References to more places than the bound.
    #[error("schema refers to more than {limit} places")]
    TooManyReferences {
        /// Places allowed.
        limit: usize,
    },
    /// A part of the schema has an address of its own.
    #[error("only the root of a schema may have an `$id`")]
    Base,
    /// A schema that applies itself to the same value again.
    #[error("schema refers to itself without looking deeper into the value")]
    Endless,
    /// Subschemas inside one another, for one value.
    #[error("more than {limit} subschemas stand above one another for one value")]
    TooHigh {
        /// Subschemas allowed.
        limit: usize,
    },
    /// Not a valid schema.
    #[error("not a valid schema: {0}")]
    Invalid(String),
    /// Built without the feature `schema`.
    #[error("this build cannot check schemas: the feature `schema` is off")]
    Unsupported,
}

/// A compiled schema. Cheap to clone.
#[derive(Clone)]
pub struct Schema(Arc<Compiled>);

struct Compiled {
    #[cfg(feature = "schema")]
    root: Value,
    #[cfg(feature = "schema")]
    shape: steps::Shape,
    #[cfg(feature = "schema")]
    validator: jsonschema::Validator,
    digest: crate::digest::DefinitionDigest,
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Schema").field(&self.0.digest).finish()
    }
}

impl Schema {
    /// Compiles a schema.
    ///
    /// Refuses one that is too large, refers to anything outside itself, uses a pattern that needs backtracking, or is
    /// not valid. Without the feature `schema`, refuses every schema that says more than "an object".
    pub fn compile(schema: &Json) -> Result<Schema, SchemaError> {
        let found = schema.as_str().len();
        if found > limits::SCHEMA_BYTES {
            return Err(SchemaError::TooLong { found, limit: limits::SCHEMA_BYTES });
        }
        let root = schema.value();
        if !matches!(root, Value::Object(_) | Value::Bool(_)) {
            return Err(SchemaError::NotASchema);
        }
        let shape = steps::check(&root)?;
        Compiled::new(root, shape, crate::digest::DefinitionDigest::of(schema.as_str().as_bytes()))
            .map(Arc::new)
            .map(Schema)
    }

    /// Checks arguments, and says where and why they do not fit.
    ///
    /// The messages name places, limits and names of members, never a value that was given.
    pub fn check(&self, arguments: &Json) -> Result<(), Vec<String>> {
        self.0.check(arguments)
    }
}

#[cfg(feature = "schema")]
impl Compiled {
    fn new(root: Value, shape: steps::Shape, digest: crate::digest::DefinitionDigest) -> Result<Compiled, SchemaError> {
        let patterns =
            jsonschema::PatternOptions::regex().size_limit(limits::PATTERN_BYTES).dfa_size_limit(limits::PATTERN_BYTES);
        let built = stacker::grow(limits::SCHEMA_STACK, || {
            jsonschema::options().with_pattern_options(patterns).offline().build(&root)
        });
        let validator = built.map_err(|error| {
            SchemaError::Invalid(fault(error.instance_path().as_str(), &error.masked().to_string()))
        })?;
        Ok(Compiled { root, shape, validator, digest })
    }

    fn check(&self, arguments: &Json) -> Result<(), Vec<String>> {
        if self.says_nothing() {
            return Ok(());
        }
        let value = arguments.value();
        if let Some(place) = unreadable(&arguments.tree(), &mut String::new()) {
            return Err(vec![fault(&place, "an integer beyond 64 bits cannot be checked exactly")]);
        }
        // A new stack costs more than the check of a plain value, which has room on the one we are on.
        let frames = (self.shape.height + 2) * (depth(&value) + 1);
        stacker::maybe_grow(frames * limits::SCHEMA_FRAME, limits::SCHEMA_STACK, || {
            self.check_here(&value, arguments.as_str().len())
        })
    }

    fn says_nothing(&self) -> bool {
        matches!(&self.root, Value::Object(keywords) if keywords.is_empty())
    }

    fn check_here(&self, value: &Value, bytes: usize) -> Result<(), Vec<String>> {
        if !self.shape.is_cheap(bytes) && steps::Work::of(&self.root, value) > limits::SCHEMA_STEPS {
            return Err(vec![fault("", "too large to be checked against the schema")]);
        }
        if self.validator.is_valid(value) {
            return Ok(());
        }
        let errors = self.validator.iter_errors(value).take(limits::SCHEMA_FAULTS);
        Err(errors.map(|error| fault(error.instance_path().as_str(), &error.masked().to_string())).collect())
    }
}

#[cfg(not(feature = "schema"))]
impl Compiled {
    fn new(root: Value, _: steps::Shape, digest: crate::digest::DefinitionDigest) -> Result<Compiled, SchemaError> {
        let says_nothing = match &root {
            Value::Bool(pass) => *pass,
            Value::Object(keywords) => keywords.iter().all(|(keyword, value)| match keyword.as_str() {
                "type" => value == "object",
                "properties" => value.as_object().is_some_and(serde_json::Map::is_empty),
                "$schema" | "title" | "description" => true,
                _ => false,
            }),
            _ => false,
        };
        if says_nothing { Ok(Compiled { digest }) } else { Err(SchemaError::Unsupported) }
    }

    fn check(&self, arguments: &Json) -> Result<(), Vec<String>> {
        match arguments.as_str().starts_with('{') {
            true => Ok(()),
            false => Err(vec!["/: value is not of type \"object\"".to_owned()]),
        }
    }
}

/// One message: where, then what, safe to print and of bounded length.
#[cfg(feature = "schema")]
fn fault(place: &str, what: &str) -> String {
    let mut text = crate::show::escape(&format!("{}: {what}", if place.is_empty() { "/" } else { place }));
    if text.len() > limits::SCHEMA_FAULT_BYTES {
        text.truncate(text.floor_char_boundary(limits::SCHEMA_FAULT_BYTES));
        text.push('…');
    }
    text
}

/// How deep a value goes: 1 for one without members or items.
#[cfg(feature = "schema")]
fn depth(value: &Value) -> usize {
    let below = match value {
        Value::Array(items) => items.iter().map(depth).max(),
        Value::Object(members) => members.values().map(depth).max(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    };
    1 + below.unwrap_or(0)
}

/// The place of the first integer that the validator would round.
#[cfg(feature = "schema")]
fn unreadable(tree: &crate::json::Tree<'_>, place: &mut String) -> Option<String> {
    use crate::json::Tree;
    let length = place.len();
    match tree {
        Tree::Word(word) => {
            let integer = word.bytes().all(|b| matches!(b, b'-' | b'0'..=b'9'));
            let exact = word.parse::<u64>().is_ok() || word.parse::<i64>().is_ok();
            (integer && !exact).then(|| place.clone())
        }
        Tree::Text(_) => None,
        Tree::List(items) => items.iter().enumerate().find_map(|(index, item)| {
            place.truncate(length);
            place.push_str(&format!("/{index}"));
            unreadable(item, place)
        }),
        Tree::Map(members) => members.iter().find_map(|(key, value)| {
            place.truncate(length);
            place.push('/');
            place.push_str(key);
            unreadable(value, place)
        }),
    }
}
