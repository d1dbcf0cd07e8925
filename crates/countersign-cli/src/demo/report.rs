//! What happened, at the end of the demo.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use countersign::call::Outcome;
use countersign::event::Event;
use countersign::{Answer, Call, Effect};

use super::script::FILES;
use crate::fault::Fault;
use crate::out::{self, Cell};

/// Prints a row for each call.
pub(crate) fn print_calls(calls: &[Arc<Call>]) -> Result<(), Fault> {
    let rows: Vec<Vec<Cell>> = calls.iter().enumerate().map(|(index, call)| row(index + 1, call)).collect();
    for line in out::table(&["", "call", "rules", "person", "end"], &rows, out::columns()) {
        out::data(line)?;
    }
    Ok(())
}

fn row(number: usize, call: &Call) -> Vec<Cell> {
    let path = call.shown_arguments().field("path").and_then(|path| path.read::<String>().ok()).unwrap_or_default();
    let style = match call.verdict.effect {
        Effect::Allow => out::GOOD,
        Effect::Ask => out::WAIT,
        Effect::Deny => out::BAD,
    };
    let rules = call.verdict.rules().join(", ");
    vec![
        Cell::styled(out::DIM, number),
        Cell::new(out::fit(&format!("{} {path}", call.facts.tool), 26)),
        Cell::styled(style, format!("{} ({rules})", call.verdict.effect.as_str())),
        Cell::new(decided(call)),
        Cell::new(ended(call)),
    ]
}

/// What people said, or who spoke for them.
fn decided(call: &Call) -> String {
    if call.grant.is_some() {
        return "remembered".to_owned();
    }
    let decision = call.holds.iter().flat_map(|hold| hold.decisions.last()).last();
    match decision.map(|decision| &decision.answer) {
        Some(Answer::Approve { arguments: Some(_), .. }) => "edited".to_owned(),
        Some(Answer::Approve { remember: Some(_), .. }) => "remember".to_owned(),
        Some(answer) => answer.as_str().to_owned(),
        None if call.holds.is_empty() => "not asked".to_owned(),
        None => "nothing".to_owned(),
    }
}

fn ended(call: &Call) -> String {
    match (&call.outcome, &call.refusal) {
        (Some(Outcome::Failed { refusal: Some(refusal), .. }), _) | (_, Some(refusal)) => {
            refusal.kind.as_str().replace('_', " ")
        }
        _ => call.state.to_string(),
    }
}

/// Says which files are other than they were.
pub(crate) fn file_changes(folder: &Path) -> Result<Vec<(String, &'static str)>, Fault> {
    let before: BTreeMap<&str, &str> = FILES.into_iter().collect();
    let mut changes = Vec::new();
    let mut now = BTreeMap::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        now.insert(name, std::fs::read(entry.path())?);
    }
    for (name, text) in &before {
        let what = match now.get(*name) {
            None => "deleted",
            Some(found) if found == text.as_bytes() => "untouched",
            Some(_) => "changed",
        };
        changes.push(((*name).to_owned(), what));
    }
    let new = now.keys().filter(|name| !before.contains_key(name.as_str()));
    changes.extend(new.map(|name| (name.clone(), "new")));
    changes.sort();
    Ok(changes)
}

/// Prints the trail.
pub(crate) fn print_trail(events: &[Event]) -> Result<(), Fault> {
    crate::commands::print_events(events, out::columns())
}
