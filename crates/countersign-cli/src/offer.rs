//! What a person may have remembered, shown before it is made: as a rule, with what it covers.

use countersign::grant::{Grant, GrantError, Remember, RememberCovers, RememberScope};
use countersign::show::escape;
use countersign::transition::Rejection;
use countersign::{Gate, GateError, Hold, Json, Who};
use countersign_api::wire;

use crate::fault::Fault;
use crate::prompt::Offer;

/// Columns of one example.
const EXAMPLE_COLUMNS: usize = 100;

/// How many fields may be chosen from.
const MOST_FIELDS: usize = 16;

/// Everything that may be remembered about a hold, narrowest first. Empty where nothing may.
pub(crate) async fn offers(gate: &Gate, open: &Hold) -> Result<Vec<Offer>, Fault> {
    let mut offers = Vec::new();
    for covers in [RememberCovers::Exact, RememberCovers::Tool] {
        for scope in [RememberScope::Session, RememberScope::Global] {
            let remember = Remember { scope, covers: covers.clone(), ..Remember::session() };
            if let Ok(lines) = preview(gate, open, None, &remember).await? {
                offers.push(Offer { remember, lines });
            }
        }
    }
    Ok(offers)
}

/// The fields of a call that a grant may name. Empty where it may name none.
pub(crate) async fn fields(gate: &Gate, open: &Hold) -> Result<Vec<String>, Fault> {
    if open.in_run() {
        return Ok(Vec::new());
    }
    let now = gate.store().now().await?;
    let may = |scope, name: &String| {
        let remember = by_name(scope, std::slice::from_ref(name));
        Grant::asked_for(&remember, &open.call, open.id, Who::person("preview"), now).is_ok()
    };
    // One by one: a blank value is no key to remember a call by, and says nothing about the others.
    let may_be_named = |name: &String| may(RememberScope::Session, name) || may(RememberScope::Global, name);
    let arguments = open.call.shown_arguments().read::<serde_json::Map<String, serde_json::Value>>();
    let names = arguments.unwrap_or_default().into_iter().map(|(name, _)| name);
    Ok(names.filter(may_be_named).take(MOST_FIELDS).collect())
}

/// What may be remembered by these fields, with their values; or why nothing may.
pub(crate) async fn by_fields(gate: &Gate, open: &Hold, fields: &[String]) -> Result<Vec<Offer>, String> {
    let mut offers = Vec::new();
    let mut why = String::new();
    for scope in [RememberScope::Session, RememberScope::Global] {
        let remember = by_name(scope, fields);
        match preview(gate, open, None, &remember).await.map_err(|fault| fault.to_string())? {
            Ok(mut lines) => {
                lines.splice(1..1, predicate(open, fields));
                offers.push(Offer { remember, lines });
            }
            Err(error) => why = error.to_string(),
        }
    }
    if offers.is_empty() { Err(why) } else { Ok(offers) }
}

fn by_name(scope: RememberScope, fields: &[String]) -> Remember {
    Remember { scope, covers: RememberCovers::Fields(fields.to_vec()), ..Remember::session() }
}

/// What each field must be, as it is shown: secrets stay masked.
fn predicate(open: &Hold, fields: &[String]) -> Vec<String> {
    let shown = open.call.shown_arguments();
    let line = |name: &String| {
        let value = shown.field(name).map(|value| crate::prompt::on_one_line(value.as_str())).unwrap_or_default();
        crate::out::fit(&format!("  where {} is {value}", escape(name)), EXAMPLE_COLUMNS)
    };
    fields.iter().map(line).collect()
}

/// How a grant would read and what it covers, with the arguments as they are or as edited; or why it may not be made.
/// Safe to print.
pub(crate) async fn preview(
    gate: &Gate,
    open: &Hold,
    edited: Option<&Json>,
    remember: &Remember,
) -> Result<Result<Vec<String>, GrantError>, Fault> {
    let preview = match edited {
        Some(arguments) => gate.preview_edited_grant(open.id, arguments, remember).await,
        None => gate.preview_grant(open.id, remember).await,
    };
    match preview {
        Ok(preview) => Ok(Ok(lines(&preview.into()))),
        Err(GateError::Rejected(Rejection::Grant(error))) => Ok(Err(error)),
        Err(error) => Err(error.into()),
    }
}

/// How a grant would read and what it covers. Safe to print.
pub(crate) fn lines(preview: &wire::GrantPreview) -> Vec<String> {
    let covered = match (preview.past_calls, preview.counted_all) {
        (0, true) => "no call so far".to_owned(),
        (count, true) => format!("{count} of the calls so far"),
        (count, false) => format!("{count} or more of the calls so far"),
    };
    let mut lines = vec![escape(&preview.rule)];
    lines.extend(preview.examples.iter().map(|example| format!("  such as {}", one_line(example))));
    lines.push(format!("  It would have covered {covered}, besides this one."));
    lines
}

fn one_line(example: &wire::GrantExample) -> String {
    let arguments = crate::prompt::on_one_line(example.arguments.as_str());
    let server = example.server.as_deref().map(|server| format!("{server}/")).unwrap_or_default();
    crate::out::fit(&format!("{} {arguments}", escape(&format!("{server}{}", example.tool))), EXAMPLE_COLUMNS)
}
