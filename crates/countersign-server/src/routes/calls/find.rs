//! Finding calls: by what stores can tell apart, and by their text.

use std::sync::Arc;

use countersign::store::{CallFilter, Store, StoreError};
use countersign::{Call, limits as core_limits};

use crate::limits;

/// One page of calls, and one row more where there is another page. Looks through a bounded number of them.
pub(super) async fn find(
    store: &Arc<dyn Store>,
    filter: CallFilter,
    text: Option<&str>,
    rows: usize,
) -> Result<Vec<Arc<Call>>, StoreError> {
    match text {
        None => store.calls(filter).await,
        Some(text) => search(store, filter, &text.to_lowercase(), rows + 1).await,
    }
}

async fn search(
    store: &Arc<dyn Store>,
    mut filter: CallFilter,
    text: &str,
    rows: usize,
) -> Result<Vec<Arc<Call>>, StoreError> {
    let mut found = Vec::new();
    filter.limit = Some(core_limits::PAGE_ROWS);
    for _ in 0..limits::SEARCHED / core_limits::PAGE_ROWS {
        let calls = store.calls(filter.clone()).await?;
        let Some(last) = calls.last() else { break };
        filter.after = Some(last.id);
        found.extend(calls.into_iter().filter(|call| has(call, text)));
        if found.len() >= rows {
            found.truncate(rows);
            break;
        }
    }
    Ok(found)
}

/// Whether a text, in lower case, stands in what is shown of the call.
fn has(call: &Call, text: &str) -> bool {
    let path = &call.facts.path;
    let names = [Some(&call.facts.tool.name), call.facts.tool.server.as_ref(), path.session.as_ref()];
    let names = names.into_iter().flatten().chain(path.agents.iter()).map(|name| &**name);
    let mut shown = names.chain([call.shown_arguments().as_str(), call.state.as_str(), &path.principal]);
    text.is_empty() || shown.any(|shown| shown.to_lowercase().contains(text))
}
