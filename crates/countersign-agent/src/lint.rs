//! Lint of tool definitions: what a model would trip over when it reads them.

use std::sync::Arc;

use countersign::Definition;
use countersign::call::ToolId;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::limits;

/// What kind of thing is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FindingKind {
    /// The tool has no description.
    NoDescription,
    /// Its description says too little.
    ThinDescription,
    /// Its description only repeats its name.
    RepeatsName,
    /// Its schema describes no object.
    NoObject,
    /// A parameter has no description.
    UndescribedParameter,
    /// A parameter is required and need not be.
    NeedlessRequired,
    /// A required parameter is not among the parameters.
    UnknownRequired,
    /// There are more parameters than a model tells apart.
    TooManyParameters,
    /// A name may mean anything, or is almost another one.
    AmbiguousName,
    /// What the values of a parameter mean is not said.
    UndescribedValues,
}

/// One thing that a model would trip over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The tool.
    pub tool: ToolId,
    /// Where: empty for the tool itself, else the parameter, as `outer.inner`.
    pub place: String,
    /// What kind.
    pub kind: FindingKind,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub advice: Arc<str>,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let at = if self.place.is_empty() { String::new() } else { format!(" at `{}`", self.place) };
        write!(f, "{}{at}: {}; {}", self.tool, self.message, self.advice)
    }
}

/// Names of tools that say nothing about what they do.
const VAGUE_TOOLS: &[&str] = &["run", "do", "execute", "process", "handle", "call", "tool", "action", "perform", "go"];
/// Names of parameters that say nothing about what they take.
const VAGUE_PARAMETERS: &[&str] = &[
    "data", "value", "input", "arg", "args", "param", "params", "thing", "object", "obj", "payload", "info", "options",
];
/// Words with which a description says that a parameter can be left out.
const OPTIONAL_WORDS: &[&str] = &["optional", "if omitted", "by default", "defaults to", "may be left out"];
/// Words with which a description says what a boolean means.
const BOOLEAN_WORDS: &[&str] = &["whether", "true", "if ", "when ", "false"];

/// Finds what a model would trip over in a definition. None found is a definition to be content with.
pub fn lint(definition: &Definition) -> Vec<Finding> {
    let mut lint = Lint { definition, findings: Vec::new() };
    lint.description();
    lint.name();
    let schema = definition.input_schema.value();
    match schema.get("type").and_then(Value::as_str) {
        Some("object") => lint.object("", &schema, 1),
        _ => lint.add("", FindingKind::NoObject, "its schema does not say what arguments it takes", SAY_OBJECT),
    }
    lint.findings
}

const SAY_OBJECT: &str = "give `input_schema` the type `object` and its properties";
const DESCRIBE_TOOL: &str = "say what it does, when to use it, what it returns and what it cannot do";
const DESCRIBE_PARAMETER: &str = "say what it is, in which form, and give an example where the form matters";
const MAKE_OPTIONAL: &str = "take it out of `required`, so that the model need not make a value up";

struct Lint<'d> {
    definition: &'d Definition,
    findings: Vec<Finding>,
}

impl Lint<'_> {
    fn add(&mut self, place: &str, kind: FindingKind, message: impl Into<String>, advice: &str) {
        let tool = self.definition.tool.clone();
        self.findings.push(Finding {
            tool,
            place: place.to_owned(),
            kind,
            message: message.into(),
            advice: advice.into(),
        });
    }

    fn description(&mut self) {
        let description = Arc::clone(&self.definition.description);
        let words = words(&description);
        let name = self::words(&self.definition.tool.name);
        if words.is_empty() {
            self.add("", FindingKind::NoDescription, "it has no description", DESCRIBE_TOOL);
        } else if repeats(&words, &name) {
            self.add("", FindingKind::RepeatsName, "its description only repeats its name", DESCRIBE_TOOL);
        } else if words.len() < limits::LINT_WORDS {
            self.add("", FindingKind::ThinDescription, "its description says too little", DESCRIBE_TOOL);
        }
    }

    fn name(&mut self) {
        let name = self.definition.tool.name.to_lowercase();
        if VAGUE_TOOLS.contains(&name.as_str()) || name.chars().count() < 2 {
            let message = format!("the name `{name}` may mean anything");
            self.add("", FindingKind::AmbiguousName, message, "name it by a verb and what the verb acts on");
        }
    }

    fn object(&mut self, place: &str, schema: &Value, depth: usize) {
        let nothing = Map::new();
        let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&nothing);
        let required = required(schema);
        if properties.len() > limits::LINT_PARAMETERS {
            let message = format!("{} parameters are more than a model tells apart", properties.len());
            let advice = "split the tool, or leave out what has one good value";
            self.add(place, FindingKind::TooManyParameters, message, advice);
        }
        for name in required.iter().filter(|name| !properties.contains_key(**name)) {
            let message = format!("`{name}` is required and not described");
            self.add(
                &join(place, name),
                FindingKind::UnknownRequired,
                message,
                "add it to `properties`, or spell it right",
            );
        }
        self.twins(place, properties);
        for (name, schema) in properties {
            self.parameter(&join(place, name), name, schema, required.contains(&name.as_str()));
            if depth < limits::LINT_DEPTH {
                let inner = schema.get("items").unwrap_or(schema);
                self.object(&join(place, name), inner, depth + 1);
            }
        }
    }

    /// Parameters whose names differ only in spelling.
    fn twins(&mut self, place: &str, properties: &Map<String, Value>) {
        let mut seen: Vec<(String, &String)> = Vec::new();
        for name in properties.keys() {
            let bare: String = name.chars().filter(|char| char.is_alphanumeric()).collect::<String>().to_lowercase();
            match seen.iter().find(|(earlier, _)| *earlier == bare) {
                Some((_, earlier)) => {
                    let message = format!("`{name}` and `{earlier}` are almost the same name");
                    self.add(
                        &join(place, name),
                        FindingKind::AmbiguousName,
                        message,
                        "give them names that tell them apart",
                    );
                }
                None => seen.push((bare, name)),
            }
        }
    }

    fn parameter(&mut self, place: &str, name: &str, schema: &Value, required: bool) {
        let description = schema.get("description").and_then(Value::as_str).unwrap_or_default();
        let words = words(description);
        let lower = description.to_lowercase();
        let says = |list: &[&str]| list.iter().any(|word| lower.contains(word));
        if VAGUE_PARAMETERS.contains(&name.to_lowercase().as_str()) || name.chars().count() < 2 {
            let message = format!("the name `{name}` may mean anything");
            self.add(place, FindingKind::AmbiguousName, message, "name it by what it holds");
        }
        if words.is_empty() || repeats(&words, &self::words(name)) {
            self.add(place, FindingKind::UndescribedParameter, "it is not described", DESCRIBE_PARAMETER);
        } else {
            self.values(place, schema, &lower);
        }
        if required && schema.get("default").is_some() {
            self.add(place, FindingKind::NeedlessRequired, "it is required though it has a default", MAKE_OPTIONAL);
        } else if required && says(OPTIONAL_WORDS) {
            let message = "it is required though its description says that it can be left out";
            self.add(place, FindingKind::NeedlessRequired, message, MAKE_OPTIONAL);
        }
    }

    /// What the values of a boolean or an enumeration mean must be said somewhere.
    fn values(&mut self, place: &str, schema: &Value, description: &str) {
        if schema.get("type").and_then(Value::as_str) == Some("boolean")
            && !BOOLEAN_WORDS.iter().any(|word| description.contains(word))
        {
            let advice = "say what true does, as in \"Whether to …\"";
            self.add(place, FindingKind::UndescribedValues, "it does not say what true and false mean", advice);
        }
        let values = schema.get("enum").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        let silent: Vec<&str> = values.filter(|value| !description.contains(&value.to_lowercase())).collect();
        if !silent.is_empty() {
            let message = format!("it does not say what {} means", silent.join(", "));
            self.add(place, FindingKind::UndescribedValues, message, "say what each value does in the description");
        }
    }
}

fn required(schema: &Value) -> Vec<&str> {
    schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

fn join(place: &str, name: &str) -> String {
    if place.is_empty() { name.to_owned() } else { format!("{place}.{name}") }
}

/// The words of a text or a name, in lower case, without those that carry no meaning.
fn words(text: &str) -> Vec<String> {
    let mut split = String::with_capacity(text.len());
    let mut after_lower = false;
    for char in text.chars() {
        if char.is_uppercase() && after_lower {
            split.push(' ');
        }
        after_lower = char.is_lowercase();
        split.push(char);
    }
    let words = split.split(|char: char| !char.is_alphanumeric()).filter(|word| !word.is_empty());
    let words = words.map(str::to_lowercase);
    words.filter(|word| !matches!(word.as_str(), "a" | "an" | "the" | "of" | "to" | "this" | "tool")).collect()
}

/// Whether a description has no word that the name has not, up to endings such as "s".
fn repeats(description: &[String], name: &[String]) -> bool {
    let stem = |word: &str| word.trim_end_matches('s').to_owned();
    let name: Vec<String> = name.iter().map(|word| stem(word)).collect();
    description.iter().all(|word| name.contains(&stem(word)))
}
