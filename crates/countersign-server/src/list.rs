//! Lists: one page at a time, after a cursor, of what a filter lets through.

use axum::extract::FromRequestParts;
use axum::http::Uri;
use axum::http::request::Parts;
use countersign::limits as core_limits;
use countersign_api::wire::{Code, Page};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::extract::read_query;
use crate::problem::{Answer, Refused};
use crate::routes::cursor;

/// What a list was asked for: `after`, `limit`, and the filter of its own, read strictly.
pub(crate) struct List<F = Everything> {
    /// What the list is to show.
    pub(crate) filter: F,
    after: Option<String>,
    rows: usize,
}

/// The filter of a list that has none.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Everything {}

/// What every list may be asked for.
#[derive(Deserialize)]
struct Place {
    after: Option<String>,
    limit: Option<usize>,
}

impl<F: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for List<F> {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refused> {
        let query = parts.uri.query().unwrap_or_default();
        let is_place = |pair: &&str| matches!(pair.split('=').next(), Some("after" | "limit"));
        let (place, filter): (Vec<&str>, Vec<&str>) = query.split('&').partition(is_place);
        let place: Place = read_query(&uri(&place)?)?;
        let rows = place.limit.unwrap_or(core_limits::PAGE_ROWS_DEFAULT).clamp(1, core_limits::PAGE_ROWS - 1);
        Ok(List { filter: read_query(&uri(&filter)?)?, after: place.after, rows })
    }
}

fn uri(pairs: &[&str]) -> Result<Uri, Refused> {
    let bad = |_| Refused::because(Code::BadRequest, "the query cannot be read");
    format!("/?{}", pairs.join("&")).parse().map_err(bad)
}

impl<F> List<F> {
    /// The cursor that the list begins after, as it was handed out before.
    pub(crate) fn after<C: std::str::FromStr>(&self) -> Answer<Option<C>> {
        cursor(self.after.as_deref())
    }

    /// How many rows its page may have: one less than a store gives at once.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// How many rows to read: the one more says whether there is another page.
    pub(crate) fn read(&self) -> usize {
        self.rows + 1
    }

    /// The page, of what was read with one row more than it may have.
    pub(crate) fn page<R, T>(
        &self,
        mut read: Vec<R>,
        key: impl Fn(&R) -> String,
        show: impl FnMut(&R) -> Answer<T>,
    ) -> Answer<Page<T>> {
        let more = read.len() > self.rows;
        read.truncate(self.rows);
        let next = read.last().filter(|_| more).map(key);
        Ok(Page { items: read.iter().map(show).collect::<Answer<_>>()?, next })
    }
}
