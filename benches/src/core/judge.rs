//! Judging: flat in the number of rules, and close to what its parts cost bare.

use std::fmt::Write as _;
use std::hint::black_box;

use anyhow::{Result, anyhow};
use cel::{Context, Env};
use countersign::call::{Declared, Facts, Path};
use countersign::{Json, Policy, Time, ToolId};

use super::{Goal, compared, nanoseconds_each};
use crate::figure::Figure;

pub(crate) fn figures() -> Result<Vec<Figure>> {
    let facts = facts();
    let few = policy(10)?;
    let many = policy(10_000)?;
    let judge = |policy: &Policy| nanoseconds_each(20_000, || drop(black_box(policy.judge(&facts))));
    let (at_few, at_many) = (judge(&few), judge(&many));
    let bare = bare(&facts)?;
    Ok(vec![
        compared("judge with 10,000 rules, over 10", "ns", at_many, at_few, Goal::AtMost(1.5)),
        compared("judge with 10,000 rules, over globset and CEL bare", "ns", at_many, bare, Goal::AtMost(2.0)),
    ])
}

fn facts() -> Facts {
    Facts {
        tool: ToolId::local("transfer_money"),
        toolset: None,
        arguments: Json::of(&serde_json::json!({ "amount": 20_000, "to": "bo" })).unwrap_or_else(|_| Json::empty()),
        path: Path::session("s1"),
        declared: Declared::Nothing,
        annotations: None,
        places: Default::default(),
        at: Time(0),
    }
}

/// Half literal patterns, half prefixes, and one condition on the rule that matches.
fn policy(rules: usize) -> Result<Policy> {
    let mut text = String::from("rules:\n");
    text.push_str("  - { id: big, ask: transfer_money, when: arguments.amount > 10000 }\n");
    for index in 1..rules {
        match index % 2 {
            0 => writeln!(text, "  - {{ id: r{index}, allow: tool_number_{index} }}")?,
            _ => writeln!(text, "  - {{ id: r{index}, ask: 'prefix_{index}_*' }}")?,
        }
    }
    Policy::from_yaml(&text).map_err(|errors| anyhow!("{errors}"))
}

/// What judging is made of: one glob look-up and one condition, evaluated in a context that is used again.
fn bare(facts: &Facts) -> Result<f64> {
    let mut globs = globset::GlobSetBuilder::new();
    globs.add(globset::Glob::new("transfer_money")?);
    for index in 1..10_000 {
        let glob = if index % 2 == 0 { format!("tool_number_{index}") } else { format!("prefix_{index}_*") };
        globs.add(globset::Glob::new(&glob)?);
    }
    let globs = globs.build()?;
    let program = Env::stdlib().compile("arguments.amount > 10000").map_err(|error| anyhow!("{error}"))?;
    let root = Context::default();
    let arguments = facts.arguments.value();
    Ok(nanoseconds_each(20_000, || {
        black_box(globs.matches("transfer_money"));
        let mut scope = root.new_inner_scope();
        let _ = scope.add_variable("arguments", &arguments);
        let _ = black_box(program.execute(&scope));
    }))
}
