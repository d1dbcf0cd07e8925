//! What a person may have remembered, shown before it is made: as a rule, with what it would have covered.

use std::sync::Arc;

use countersign::grant::{Covers, Grant, GrantError, Remember, RememberCovers, RememberScope, Scope};
use countersign::show::escape;
use countersign::store::CallFilter;
use countersign::{Call, Hold, Store, Who, limits};

use crate::fault::Fault;
use crate::prompt::Offer;

/// How many past calls are looked through.
const MOST_PAGES: usize = 50;
/// How many past calls are named.
const EXAMPLES: usize = 3;

/// Everything that may be remembered about a hold, narrowest first. Empty where nothing may.
pub(crate) async fn offers(store: &Arc<dyn Store>, open: &Hold, who: &Who) -> Result<Vec<Offer>, Fault> {
    let mut offers = Vec::new();
    if open.in_run() {
        return Ok(offers);
    }
    for scope in [RememberScope::Session, RememberScope::Global] {
        let remember = Remember { scope, ..Remember::session() };
        if let Ok(lines) = preview(store, open, &remember, who).await? {
            offers.push(Offer { scope, lines });
        }
    }
    Ok(offers)
}

/// How a grant would read and what it would have covered; or why it may not be made. Safe to print.
pub(crate) async fn preview(
    store: &Arc<dyn Store>,
    open: &Hold,
    remember: &Remember,
    who: &Who,
) -> Result<Result<Vec<String>, GrantError>, Fault> {
    let now = store.now().await?;
    let grant = match Grant::asked_for(remember, &open.call, open.id, who.clone(), now) {
        Ok(grant) => grant,
        Err(error) => return Ok(Err(error)),
    };
    let past = past_calls(store, &grant, &open.call).await?;
    let mut lines = vec![escape(&grant.as_rule())];
    lines.push(match (past.covered, past.looked_at_all) {
        (0, true) => "  It would have covered no call so far, besides this one.".to_owned(),
        (count, true) => format!("  It would have covered {count} of the calls so far, besides this one."),
        (count, false) => format!("  It would have covered {count} or more of the calls so far, besides this one."),
    });
    if remember.covers != RememberCovers::Exact {
        lines.extend(past.examples.iter().map(|example| format!("    such as {example}")));
    }
    Ok(Ok(lines))
}

/// What a grant would have covered.
struct Past {
    covered: usize,
    looked_at_all: bool,
    examples: Vec<String>,
}

async fn past_calls(store: &Arc<dyn Store>, grant: &Grant, call: &Call) -> Result<Past, Fault> {
    let mut filter = CallFilter {
        principal: Some(Arc::clone(&grant.principal)),
        limit: Some(limits::PAGE_ROWS),
        ..CallFilter::default()
    };
    if let Scope::Session { session } = &grant.scope {
        filter.session = Some(Arc::clone(session));
    }
    if let Covers::Exact(digest) = &grant.covers {
        filter.argument_digest = Some(*digest);
    }
    let mut past = Past { covered: 0, looked_at_all: false, examples: Vec::new() };
    for _ in 0..MOST_PAGES {
        let calls = store.calls(filter.clone()).await?;
        let Some(last) = calls.last() else {
            past.looked_at_all = true;
            break;
        };
        filter.after = Some(last.id);
        for earlier in calls.iter().filter(|earlier| earlier.id != call.id) {
            let facts = &earlier.facts;
            let digest = &earlier.argument_digest;
            if grant.covers(facts, earlier.definition.as_ref(), digest, &earlier.verdict, grant.made_at) {
                past.covered += 1;
                if past.examples.len() < EXAMPLES {
                    let arguments = crate::prompt::on_one_line(earlier.shown_arguments().as_str());
                    let text = format!("{} {arguments}", escape(&facts.tool.to_string()));
                    past.examples.push(crate::out::fit(&text, 100));
                }
            }
        }
    }
    Ok(past)
}
