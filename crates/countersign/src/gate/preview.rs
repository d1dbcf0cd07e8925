//! What a grant would say and would have covered, before it is made.

use std::sync::Arc;

use crate::call::{Call, ToolId};
use crate::gate::GateError;
use crate::gate::local::Local;
use crate::gate::scope::Asks;
use crate::grant::{Grant, GrantError, Remember, Scope};
use crate::hold::Who;
use crate::id::{CallId, HoldId};
use crate::json::Json;
use crate::limits;
use crate::store::{CallFilter, Store as _};
use crate::transition::Rejection;

/// A grant as it would be made, for whoever is about to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantPreview {
    /// How it reads as a rule. Holds names that others chose: escape it before it is printed.
    pub rule: String,
    /// Calls it covers, at most [`limits::PREVIEW_EXAMPLES`]: the one that waits, then past ones with other arguments.
    pub examples: Vec<Example>,
    /// How many past calls it would have covered, besides the one that waits.
    pub past_calls: usize,
    /// Whether that is all of them.
    pub counted: Counted,
}

/// One call a grant covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Example {
    /// The call.
    pub call: CallId,
    /// Its tool.
    pub tool: ToolId,
    /// Its arguments, with secrets masked.
    pub arguments: Json,
}

impl Example {
    fn of(call: &Call) -> Example {
        Example { call: call.id, tool: call.facts.tool.clone(), arguments: call.shown_arguments().clone() }
    }
}

/// How far past calls were counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// All of them.
    All,
    /// Only the first [`limits::PREVIEW_CALLS`]: there may be more.
    Stopped,
}

impl Local {
    pub(crate) async fn preview_grant(
        &self,
        asks: &Asks,
        hold: HoldId,
        edited: Option<&Json>,
        remember: &Remember,
    ) -> Result<GrantPreview, GateError> {
        let call = self.store.call_of_hold(hold).await?.ok_or(Rejection::NotFound("hold"))?;
        if call.holds.iter().any(|found| found.id == hold && found.in_run()) {
            return Err(Rejection::Grant(GrantError::InRun).into());
        }
        let call = match edited {
            Some(arguments) => Arc::new(self.edit(asks, hold, arguments).await?.applied_to(&call)),
            None => call,
        };
        let now = self.store.now().await?;
        // Whoever will make it: neither its words nor what it covers depend on them.
        let maker = Who::person("preview");
        let grant = Grant::asked_for(remember, &call, hold, maker, now).map_err(Rejection::Grant)?;
        self.past_calls(&grant, &call).await
    }

    async fn past_calls(&self, grant: &Grant, call: &Call) -> Result<GrantPreview, GateError> {
        let mut filter = candidates(grant);
        let mut seen = vec![call.argument_digest];
        let mut examples = vec![Example::of(call)];
        let mut past_calls = 0;
        let mut looked_at = 0;
        let counted = loop {
            let page = self.store.calls(filter.clone()).await?;
            let Some(last) = page.last() else { break Counted::All };
            filter.after = Some(last.id);
            for past in page.iter().filter(|past| past.id != call.id && would_cover(grant, past)) {
                past_calls += 1;
                if examples.len() < limits::PREVIEW_EXAMPLES && !seen.contains(&past.argument_digest) {
                    seen.push(past.argument_digest);
                    examples.push(Example::of(past));
                }
            }
            looked_at += page.len();
            if looked_at >= limits::PREVIEW_CALLS {
                break Counted::Stopped;
            }
        };
        Ok(GrantPreview { rule: grant.as_rule(), examples, past_calls, counted })
    }
}

/// The calls a grant might cover, as far as stores can tell them apart.
fn candidates(grant: &Grant) -> CallFilter {
    CallFilter {
        session: match &grant.scope {
            Scope::Session { session } => Some(Arc::clone(session)),
            Scope::Global => None,
        },
        principal: Some(Arc::clone(&grant.principal)),
        argument_digest: grant.covers.exact().copied(),
        limit: Some(limits::PAGE_ROWS),
        ..CallFilter::default()
    }
}

fn would_cover(grant: &Grant, past: &Call) -> bool {
    grant.covers(&past.facts, past.definition.as_ref(), &past.argument_digest, &past.verdict, grant.made_at)
}
