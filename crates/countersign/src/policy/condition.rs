//! Conditions: CEL expressions over the facts of a call, compiled once and bounded in every way.

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};

use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators};
use cel::common::types::{CelBool, CelInt};
use cel::{Context, Env, ExecutionError, ParseErrors, Value};
use regex::{Regex, RegexBuilder};

use super::error::nearest;
use super::guard;
use super::scope::{Scope, Sizes};
use crate::limits;

/// What a condition may look at.
pub(crate) const VARIABLES: [&str; 8] =
    ["arguments", "tool", "server", "session", "thread", "agent", "annotations", "now"];

/// Names of types, for `type(x) == int`.
const TYPES: [&str; 10] = ["bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"];

/// What a condition may call, besides operators and macros.
const FUNCTIONS: [&str; 35] = [
    "size",
    "contains",
    "startsWith",
    "endsWith",
    "matches",
    "int",
    "uint",
    "double",
    "string",
    "bool",
    "bytes",
    "type",
    "dyn",
    "duration",
    "timestamp",
    "getFullYear",
    "getMonth",
    "getDayOfYear",
    "getDayOfMonth",
    "getDate",
    "getDayOfWeek",
    "getHours",
    "getMinutes",
    "getSeconds",
    "getMilliseconds",
    "hasValue",
    "value",
    "or",
    "orValue",
    "of",
    "none",
    "ofNonZeroValue",
    "optMap",
    "optFlatMap",
    "has",
];

/// The function that stands for `matches` once its pattern is compiled.
const MATCHES: &str = "matches_compiled";

static ENV: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));

/// The functions and types of every condition.
pub(crate) fn environment() -> &'static Env {
    &ENV
}

/// A compiled condition.
pub(crate) struct Condition {
    /// Which arguments it looks at.
    pub(crate) reads: Reads,
    pub(crate) reads_annotations: bool,
    reads_nothing: bool,
    expression: IdedExpr,
    root: Context<'static, 'static>,
    loops: bool,
}

impl std::fmt::Debug for Condition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Condition").field(&self.expression).finish()
    }
}

/// Why a condition was refused when it was loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConditionError {
    pub(crate) message: String,
    pub(crate) help: Option<String>,
    /// Where in the condition's text: line and column, from 1.
    pub(crate) at: Option<(usize, usize)>,
}

impl From<String> for ConditionError {
    fn from(message: String) -> Self {
        ConditionError { message, help: None, at: None }
    }
}

impl Condition {
    /// Compiles a condition, or says why it may not be used.
    pub(crate) fn compile(text: &str) -> Result<Condition, ConditionError> {
        guard::check(text)?;
        // SECURITY: compiler and checks recurse over the expression, so they run, and drop what they refuse, on a stack
        // of their own.
        stacker::grow(limits::CONDITION_STACK, || {
            match catch_unwind(AssertUnwindSafe(|| Condition::compile_here(text))) {
                Ok(result) => result,
                Err(_) => Err("condition cannot be compiled".to_owned().into()),
            }
        })
    }

    fn compile_here(text: &str) -> Result<Condition, ConditionError> {
        let program = ENV.compile(text).map_err(syntax)?;
        let mut expression = program.expression().clone();
        let mut check = Check::default();
        check.expression(&expression, 1, 0)?;
        if steps(&expression, Sizes::default()) > limits::CONDITION_STEPS {
            return Err("condition takes too many steps".to_owned().into());
        }
        let mut regexes = Vec::new();
        compile_regexes(&mut expression, &mut regexes)?;
        let mut root = Context::with_env(Arc::clone(&ENV));
        if !regexes.is_empty() {
            let regexes: Arc<[Regex]> = regexes.into();
            let matches = move |subject: Arc<String>, number: i64| is_match(&regexes, &subject, number);
            root.add_function(MATCHES, matches).map_err(|error| ConditionError::from(error.to_string()))?;
        }
        Ok(Condition {
            reads: check.reads,
            reads_annotations: check.reads_annotations,
            reads_nothing: !check.reads_facts,
            expression,
            root,
            loops: check.loops,
        })
    }

    /// Whether the call meets the condition. An error, or anything but a boolean, is an error.
    pub(crate) fn holds(&self, scope: &Scope<'_, '_>) -> Result<bool, String> {
        // SECURITY: the library may panic on odd values; a panic is an error like any other.
        catch_unwind(AssertUnwindSafe(|| self.evaluate(scope))).unwrap_or_else(|_| Err("condition panicked".to_owned()))
    }

    /// Whether it says the same about every call.
    pub(crate) fn is_constant(&self) -> bool {
        self.reads_nothing
    }

    fn evaluate(&self, scope: &Scope<'_, '_>) -> Result<bool, String> {
        if self.loops && steps(&self.expression, scope.sizes()) > limits::CONDITION_STEPS {
            return Err(format!("condition would take more than {} steps", limits::CONDITION_STEPS));
        }
        let mut context = self.root.new_inner_scope();
        context.set_variable_resolver(scope);
        let value = Value::resolve_val(&self.expression, &context).map_err(|error| error.to_string())?;
        match value.downcast_ref::<CelBool>() {
            Some(value) => Ok(*value.inner()),
            None => Err("condition is not a boolean".to_owned()),
        }
    }
}

fn is_match(regexes: &[Regex], subject: &str, number: i64) -> Result<bool, ExecutionError> {
    let regex = usize::try_from(number).ok().and_then(|number| regexes.get(number));
    match regex {
        Some(regex) => Ok(regex.is_match(subject)),
        None => Err(ExecutionError::function_error("matches", "unknown pattern")),
    }
}

fn syntax(errors: ParseErrors) -> ConditionError {
    let Some(first) = errors.errors.first() else { return "condition is not CEL".to_owned().into() };
    let number = |value: isize| usize::try_from(value).ok().filter(|value| *value > 0);
    let at = number(first.pos.0).zip(number(first.pos.1));
    let line = first.msg.lines().next().unwrap_or_default();
    ConditionError { message: format!("condition is not CEL: {line}"), help: None, at }
}

/// Which arguments conditions look at, so that the others need not be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reads {
    /// All of them.
    pub(crate) everything: bool,
    /// These, by name.
    pub(crate) fields: HashSet<String>,
}

impl Reads {
    /// Looks at what others look at, too.
    pub(crate) fn join(&mut self, other: &Reads) {
        self.everything |= other.everything;
        self.fields.extend(other.fields.iter().cloned());
    }
}

const ARGUMENTS: &str = "arguments";

fn is_arguments(expression: &IdedExpr) -> bool {
    matches!(&expression.expr, Expr::Ident(name) if name == ARGUMENTS)
}

/// Walks an expression once, refusing what is too deep or unknown.
#[derive(Default)]
struct Check {
    reads: Reads,
    loops: bool,
    reads_annotations: bool,
    reads_facts: bool,
    bound: HashMap<String, usize>,
}

impl Check {
    fn expression(&mut self, expression: &IdedExpr, depth: usize, loops: usize) -> Result<(), ConditionError> {
        if depth > limits::CONDITION_DEPTH {
            return Err(format!("condition nests deeper than {} levels", limits::CONDITION_DEPTH).into());
        }
        let inner = depth + 1;
        match &expression.expr {
            Expr::Unspecified => Err("condition is incomplete".to_owned().into()),
            Expr::Literal(_) => Ok(()),
            Expr::Ident(name) => self.name(name),
            Expr::Select(select) if is_arguments(&select.operand) => self.field(&select.field),
            Expr::Select(select) => self.expression(&select.operand, inner, loops),
            Expr::List(list) => list.elements.iter().try_for_each(|element| self.expression(element, inner, loops)),
            Expr::Map(map) => map.entries.iter().try_for_each(|entry| match &entry.expr {
                EntryExpr::StructField(field) => self.expression(&field.value, inner, loops),
                EntryExpr::MapEntry(entry) => {
                    self.expression(&entry.key, inner, loops)?;
                    self.expression(&entry.value, inner, loops)
                }
            }),
            Expr::Struct(_) => Err("condition builds a message; there are none here".to_owned().into()),
            Expr::Call(call) => self.call(call, inner, loops),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension, inner, loops),
        }
    }

    fn name(&mut self, name: &str) -> Result<(), ConditionError> {
        if self.bound.get(name).is_some_and(|count| *count > 0) || TYPES.contains(&name) {
            return Ok(());
        }
        if VARIABLES.contains(&name) {
            self.reads_facts = true;
            self.reads.everything |= name == ARGUMENTS;
            self.reads_annotations |= name == "annotations";
            return Ok(());
        }
        Err(unknown("variable", name, &VARIABLES))
    }

    /// `arguments.name` and its like: one field is read, and no other.
    fn field(&mut self, name: &str) -> Result<(), ConditionError> {
        self.reads_facts = true;
        self.reads.fields.insert(name.to_owned());
        Ok(())
    }

    fn call(&mut self, call: &CallExpr, inner: usize, loops: usize) -> Result<(), ConditionError> {
        let name = call.func_name.as_str();
        let is_operator = name.starts_with(['_', '!', '-', '@']);
        if !is_operator && !FUNCTIONS.contains(&name) {
            return Err(unknown("function", name, &FUNCTIONS));
        }
        if let (operators::INDEX | operators::OPT_INDEX | operators::OPT_SELECT, [subject, field]) =
            (name, call.args.as_slice())
            && let Expr::Literal(LiteralValue::String(field)) = &field.expr
            && is_arguments(subject)
        {
            return self.field(field.inner());
        }
        if let Some(target) = &call.target {
            // `optional.of(x)` is one name, not a call on a variable.
            let namespace = matches!(&target.expr, Expr::Ident(name) if name == "optional");
            if !namespace {
                self.expression(target, inner, loops)?;
            }
        }
        call.args.iter().try_for_each(|argument| self.expression(argument, inner, loops))
    }

    fn comprehension(&mut self, it: &ComprehensionExpr, inner: usize, loops: usize) -> Result<(), ConditionError> {
        self.expression(&it.iter_range, inner, loops)?;
        self.expression(&it.accu_init, inner, loops)?;
        let body = if never_loops(it) { loops } else { loops + 1 };
        self.loops |= body > loops;
        if body > limits::CONDITION_COMPREHENSIONS {
            let most = limits::CONDITION_COMPREHENSIONS;
            return Err(format!("condition has more than {most} loops inside one another").into());
        }
        let names = [Some(&it.iter_var), it.iter_var2.as_ref(), Some(&it.accu_var)];
        for name in names.into_iter().flatten() {
            *self.bound.entry(name.clone()).or_default() += 1;
        }
        let checked = [&it.loop_cond, &it.loop_step, &it.result]
            .into_iter()
            .try_for_each(|part| self.expression(part, inner, body));
        for name in names.into_iter().flatten() {
            *self.bound.entry(name.clone()).or_default() -= 1;
        }
        checked
    }
}

/// `optMap` and the like bind a name by a loop over nothing.
fn never_loops(comprehension: &ComprehensionExpr) -> bool {
    matches!(&comprehension.iter_range.expr, Expr::List(list) if list.elements.is_empty())
}

fn unknown(what: &str, name: &str, known: &[&'static str]) -> ConditionError {
    let help = match nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("known: {}", known.join(", ")),
    };
    ConditionError { message: format!("condition uses unknown {what} `{name}`"), help: Some(help), at: None }
}

/// Compiles every `matches` pattern once. Only literals may be patterns, so nobody but the author writes one.
fn compile_regexes(expression: &mut IdedExpr, regexes: &mut Vec<Regex>) -> Result<(), ConditionError> {
    match &mut expression.expr {
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) | Expr::Struct(_) => Ok(()),
        Expr::Select(select) => compile_regexes(&mut select.operand, regexes),
        Expr::List(list) => list.elements.iter_mut().try_for_each(|element| compile_regexes(element, regexes)),
        Expr::Map(map) => map.entries.iter_mut().try_for_each(|entry| match &mut entry.expr {
            EntryExpr::StructField(field) => compile_regexes(&mut field.value, regexes),
            EntryExpr::MapEntry(entry) => {
                compile_regexes(&mut entry.key, regexes)?;
                compile_regexes(&mut entry.value, regexes)
            }
        }),
        Expr::Comprehension(it) => {
            [&mut it.iter_range, &mut it.accu_init, &mut it.loop_cond, &mut it.loop_step, &mut it.result]
                .into_iter()
                .try_for_each(|part| compile_regexes(part, regexes))
        }
        Expr::Call(call) => {
            if let Some(target) = &mut call.target {
                compile_regexes(target, regexes)?;
            }
            call.args.iter_mut().try_for_each(|argument| compile_regexes(argument, regexes))?;
            if call.func_name == "matches" { compile_regex(call, regexes) } else { Ok(()) }
        }
    }
}

fn compile_regex(call: &mut CallExpr, regexes: &mut Vec<Regex>) -> Result<(), ConditionError> {
    let Some(Expr::Literal(LiteralValue::String(pattern))) = call.args.last().map(|pattern| &pattern.expr) else {
        return Err("`matches` takes its pattern as text in quotes".to_owned().into());
    };
    let regex = RegexBuilder::new(pattern.inner())
        .size_limit(limits::REGEX_BYTES)
        .dfa_size_limit(limits::REGEX_BYTES)
        .build()
        .map_err(|error| format!("`matches` has a bad pattern: {}", last_line(&error.to_string())))?;
    let number = i64::try_from(regexes.len()).unwrap_or(i64::MAX);
    regexes.push(regex);
    if let Some(pattern) = call.args.last_mut() {
        pattern.expr = Expr::Literal(LiteralValue::Int(CelInt::from(number)));
    }
    if let Some(subject) = call.target.take() {
        call.args.insert(0, *subject);
    }
    call.func_name = MATCHES.to_owned();
    Ok(())
}

fn last_line(message: &str) -> &str {
    message.lines().last().unwrap_or(message).trim_start_matches("error: ")
}

/// How many times the bodies of the expression's loops can run, given the longest list and text they may meet.
///
/// What is linear in its operands counts for more than one: membership by the length of the list, functions of text by
/// the kibibyte.
fn steps(expression: &IdedExpr, sizes: Sizes) -> usize {
    let sum = |parts: &mut dyn Iterator<Item = &IdedExpr>| {
        parts.fold(0usize, |total, part| total.saturating_add(steps(part, sizes)))
    };
    match &expression.expr {
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => 0,
        Expr::Select(select) => steps(&select.operand, sizes),
        Expr::List(list) => sum(&mut list.elements.iter()),
        Expr::Map(map) => map.entries.iter().fold(0usize, |total, entry| match &entry.expr {
            EntryExpr::StructField(field) => total.saturating_add(steps(&field.value, sizes)),
            EntryExpr::MapEntry(entry) => {
                total.saturating_add(steps(&entry.key, sizes)).saturating_add(steps(&entry.value, sizes))
            }
        }),
        Expr::Struct(_) => 0,
        Expr::Call(call) => {
            let operands = sum(&mut call.target.iter().map(|target| &**target).chain(&call.args));
            operands.saturating_add(weight(call, sizes))
        }
        Expr::Comprehension(it) => {
            let body = sum(&mut [&it.loop_cond, &it.loop_step].into_iter()).max(1);
            let looped = body.saturating_mul(length(&it.iter_range, sizes));
            sum(&mut [&it.iter_range, &it.accu_init, &it.result].into_iter()).saturating_add(looped)
        }
    }
}

fn weight(call: &CallExpr, sizes: Sizes) -> usize {
    let texts = sizes.text / 1024;
    match call.func_name.as_str() {
        operators::IN => call.args.last().map_or(0, |list| length(list, sizes)).saturating_add(texts),
        // Appending to what a loop collects is done in place; a number is added to a number.
        operators::ADD if call.args.iter().any(|side| matches!(side.expr, Expr::List(_))) => texts,
        operators::ADD if call.args.iter().any(|side| is_number(side)) => 0,
        operators::ADD => texts.saturating_add(sizes.list / 64),
        // Comparing with a literal stops at its end.
        operators::EQUALS | operators::NOT_EQUALS
            if call.args.iter().any(|side| matches!(side.expr, Expr::Literal(_))) =>
        {
            0
        }
        operators::EQUALS | operators::NOT_EQUALS => texts.saturating_add(sizes.list / 64),
        name if name.starts_with(['_', '!', '-', '@']) => 0,
        _ => texts,
    }
}

fn is_number(expression: &IdedExpr) -> bool {
    matches!(&expression.expr, Expr::Literal(LiteralValue::Int(_) | LiteralValue::UInt(_) | LiteralValue::Double(_)))
}

/// How long the list or mapping can be that an expression gives.
fn length(expression: &IdedExpr, sizes: Sizes) -> usize {
    match &expression.expr {
        Expr::List(list) => list.elements.len(),
        Expr::Map(map) => map.entries.len(),
        Expr::Comprehension(it) if !never_loops(it) => length(&it.iter_range, sizes),
        Expr::Call(call) if call.func_name == operators::ADD => {
            call.args.iter().fold(0usize, |total, side| total.saturating_add(length(side, sizes)))
        }
        _ => sizes.list,
    }
}
