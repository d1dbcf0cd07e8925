//! What a person may have remembered, shown before it is made: as a rule, with what it covers.

use countersign::gate::{Counted, Example, GrantPreview};
use countersign::grant::{GrantError, Remember, RememberCovers, RememberScope};
use countersign::show::escape;
use countersign::transition::Rejection;
use countersign::{Gate, GateError, Hold, Json};

use crate::fault::Fault;
use crate::prompt::Offer;

/// Columns of one example.
const EXAMPLE_COLUMNS: usize = 100;

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
        Ok(preview) => Ok(Ok(lines(&preview))),
        Err(GateError::Rejected(Rejection::Grant(error))) => Ok(Err(error)),
        Err(error) => Err(error.into()),
    }
}

fn lines(preview: &GrantPreview) -> Vec<String> {
    let covered = match (preview.past_calls, preview.counted) {
        (0, Counted::All) => "no call so far".to_owned(),
        (count, Counted::All) => format!("{count} of the calls so far"),
        (count, Counted::Stopped) => format!("{count} or more of the calls so far"),
    };
    let mut lines = vec![escape(&preview.rule)];
    lines.extend(preview.examples.iter().map(|example| format!("  such as {}", one_line(example))));
    lines.push(format!("  It would have covered {covered}, besides this one."));
    lines
}

fn one_line(example: &Example) -> String {
    let arguments = crate::prompt::on_one_line(example.arguments.as_str());
    crate::out::fit(&format!("{} {arguments}", escape(&example.tool.to_string())), EXAMPLE_COLUMNS)
}
