//! Counts in advance how long a condition can run.

use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators};

use super::check::never_loops;
use super::scope::Sizes;

/// How many times the bodies of the expression's loops can run, given the longest list and text they may meet.
///
/// What is linear in its operands counts for more than one: membership by the length of the list, functions of text by
/// the kibibyte.
pub(crate) fn steps(expression: &IdedExpr, sizes: Sizes) -> usize {
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
        operators::ADD if call.args.iter().any(is_number) => 0,
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
