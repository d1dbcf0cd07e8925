//! Conditions: CEL expressions over the facts of a call, compiled once and bounded in every way.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};

use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue};
use cel::common::types::{CelBool, CelInt};
use cel::{Context, Env, ExecutionError, ParseErrors, Value};
use regex::{Regex, RegexBuilder};

use super::check::{Check, Reads};
use super::guard;
use super::scope::{Scope, Sizes};
use super::steps::steps;
use crate::limits;

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
