//! The routes, one file for each noun: its rows of the table, then its handlers.

mod audit;
mod calls;
mod deliveries;
mod events;
mod grants;
pub(crate) mod holds;
mod insights;
mod operate;
mod policy;
mod run;
mod sessions;
mod socket;
mod system;
mod tokens;
mod who;

use countersign_api::wire::{Code, Page};

use crate::dialects;
use crate::problem::{Answer, Refused};
use crate::table::Route;

/// Every route there is.
pub(crate) fn table() -> Vec<Route> {
    let nouns = [
        who::routes(),
        calls::routes(),
        run::routes(),
        sessions::routes(),
        holds::routes(),
        events::routes(),
        socket::routes(),
        grants::routes(),
        policy::routes(),
        operate::routes(),
        insights::routes(),
        audit::routes(),
        tokens::routes(),
        deliveries::routes(),
        system::routes(),
        dialects::routes(),
    ];
    nouns.into_iter().flatten().collect()
}

/// How many rows a page may have: one less than a store gives at once, for that one says whether there is another page.
fn rows(limit: Option<usize>) -> usize {
    limit.unwrap_or(countersign::limits::PAGE_ROWS_DEFAULT).clamp(1, countersign::limits::PAGE_ROWS - 1)
}

/// A cursor that was handed out before.
fn cursor<T: std::str::FromStr>(after: Option<&str>) -> Answer<Option<T>> {
    let read =
        |text: &str| text.parse().map_err(|_| Refused::because(Code::BadRequest, "`after` is no cursor of this list"));
    after.map(read).transpose()
}

/// A page of what was read with one row more than it may have: that row says that there is another page.
fn page<S, T>(mut read: Vec<S>, rows: usize, key: impl Fn(&S) -> String, show: impl Fn(&S) -> T) -> Page<T> {
    let more = read.len() > rows;
    read.truncate(rows);
    let next = read.last().filter(|_| more).map(key);
    Page { items: read.iter().map(show).collect(), next }
}
