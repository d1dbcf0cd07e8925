//! Finding calls: by what stores can tell apart, and by their text.

use std::sync::Arc;

use countersign::store::{CallFilter, Store, StoreError};
use countersign::{Call, CallId, limits as core_limits};
use serde::Deserialize;

use crate::limits;

/// How far back to look at first, in milliseconds.
const FIRST_STRETCH: i64 = 60_000;

/// In which order calls are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Order {
    /// As they were submitted.
    #[default]
    Oldest,
    /// The last one first.
    Newest,
}

/// One page of calls, and one row more where there is another page. Looks through a bounded number of them.
pub(super) async fn find(
    store: &Arc<dyn Store>,
    filter: CallFilter,
    text: Option<&str>,
    order: Order,
    rows: usize,
) -> Result<Vec<Arc<Call>>, StoreError> {
    match (order, text) {
        (Order::Oldest, None) => store.calls(filter).await,
        (Order::Oldest, Some(text)) => search(store, filter, &text.to_lowercase(), rows + 1).await,
        (Order::Newest, text) => newest(store, filter, text.unwrap_or_default(), rows + 1).await,
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

/// Stores list only from old to new, so the newest are found by looking at ever longer stretches of the past.
async fn newest(
    store: &Arc<dyn Store>,
    filter: CallFilter,
    text: &str,
    rows: usize,
) -> Result<Vec<Arc<Call>>, StoreError> {
    let text = text.to_lowercase();
    let (mut found, mut looked_at) = (Vec::new(), 0);
    let mut before = filter.after;
    let mut begin = match before {
        Some(before) => made_at(before),
        None => store.now().await?.0 / 1_000,
    };
    let mut length = FIRST_STRETCH;
    while begin > 0 && found.len() < rows && looked_at < limits::SEARCHED {
        begin = begin.saturating_sub(length).max(0);
        length = length.saturating_mul(4);
        let after = if begin > 0 { Some(first_at(begin)) } else { None };
        let mut calls = stretch(store, CallFilter { after, ..filter.clone() }, before).await?;
        looked_at += calls.len();
        before = after;
        calls.reverse();
        found.extend(calls.into_iter().filter(|call| has(call, &text)));
    }
    found.truncate(rows);
    Ok(found)
}

/// The calls of one stretch of time, up to and without `before`.
async fn stretch(
    store: &Arc<dyn Store>,
    mut filter: CallFilter,
    before: Option<CallId>,
) -> Result<Vec<Arc<Call>>, StoreError> {
    let mut found = Vec::new();
    filter.limit = Some(core_limits::PAGE_ROWS);
    loop {
        let calls = store.calls(filter.clone()).await?;
        let full = calls.len() == core_limits::PAGE_ROWS;
        filter.after = calls.last().map(|last| last.id);
        let read = calls.len();
        found.extend(calls.into_iter().filter(|call| before.is_none_or(|before| call.id < before)));
        if !full || before.is_some_and(|before| filter.after >= Some(before)) || read == 0 {
            return Ok(found);
        }
    }
}

/// When an id was made, in milliseconds: the first six bytes of a UUID v7.
fn made_at(id: CallId) -> i64 {
    id.as_bytes().iter().take(6).fold(0, |time, byte| time << 8 | i64::from(*byte)) + 1
}

/// The least id that could be made at this moment.
fn first_at(milliseconds: i64) -> CallId {
    let mut bytes = [0; 16];
    for (place, byte) in bytes.iter_mut().zip(milliseconds.to_be_bytes().into_iter().skip(2)) {
        *place = byte;
    }
    CallId::from_bytes(bytes)
}

/// Whether a text, in lower case, stands in what is shown of the call.
fn has(call: &Call, text: &str) -> bool {
    let path = &call.facts.path;
    let names = [Some(&call.facts.tool.name), call.facts.tool.server.as_ref(), path.session.as_ref()];
    let names = names.into_iter().flatten().chain(path.agents.iter()).map(|name| &**name);
    let mut shown = names.chain([call.shown_arguments().as_str(), call.state.as_str(), &path.principal]);
    text.is_empty() || shown.any(|shown| shown.to_lowercase().contains(text))
}
