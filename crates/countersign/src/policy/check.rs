//! Looks a compiled condition over: what it reads, what it calls, how deep it goes.

use std::collections::HashMap;

use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators};

use super::condition::ConditionError;
use super::error::nearest;
use crate::limits;

/// What a condition may look at.
const VARIABLES: [&str; 8] = ["arguments", "tool", "server", "session", "thread", "agent", "annotations", "now"];

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

/// Which arguments conditions look at, so that the others need not be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reads {
    /// All of them.
    pub(crate) everything: bool,
    /// These, by name: sorted, each once.
    fields: Vec<String>,
}

impl Reads {
    /// Looks at what others look at, too.
    pub(crate) fn join<'r>(&mut self, others: impl IntoIterator<Item = &'r Reads>) {
        for other in others {
            self.everything |= other.everything;
            self.fields.extend(other.fields.iter().cloned());
        }
        self.fields.sort_unstable();
        self.fields.dedup();
    }

    /// Whether any condition looks at this one.
    pub(crate) fn wants(&self, field: &str) -> bool {
        self.everything || self.fields.binary_search_by(|known| known.as_str().cmp(field)).is_ok()
    }
}

const ARGUMENTS: &str = "arguments";

fn is_arguments(expression: &IdedExpr) -> bool {
    matches!(&expression.expr, Expr::Ident(name) if name == ARGUMENTS)
}

/// Walks an expression once, refusing what is too deep or unknown.
#[derive(Default)]
pub(crate) struct Check {
    pub(crate) reads: Reads,
    pub(crate) loops: bool,
    pub(crate) reads_annotations: bool,
    pub(crate) reads_facts: bool,
    bound: HashMap<String, usize>,
}

impl Check {
    pub(crate) fn expression(
        &mut self,
        expression: &IdedExpr,
        depth: usize,
        loops: usize,
    ) -> Result<(), ConditionError> {
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
        self.reads.fields.push(name.to_owned());
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
pub(crate) fn never_loops(comprehension: &ComprehensionExpr) -> bool {
    matches!(&comprehension.iter_range.expr, Expr::List(list) if list.elements.is_empty())
}

fn unknown(what: &str, name: &str, known: &[&'static str]) -> ConditionError {
    let help = match nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("known: {}", known.join(", ")),
    };
    ConditionError { message: format!("condition uses unknown {what} `{name}`"), help: Some(help), at: None }
}
