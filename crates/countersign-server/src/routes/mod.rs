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
mod tools;
mod who;

use countersign_api::wire::Code;

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
        tools::routes(),
        deliveries::routes(),
        system::routes(),
        dialects::routes(),
    ];
    nouns.into_iter().flatten().collect()
}

/// A cursor that was handed out before.
pub(crate) fn cursor<T: std::str::FromStr>(after: Option<&str>) -> Answer<Option<T>> {
    let read =
        |text: &str| text.parse().map_err(|_| Refused::because(Code::BadRequest, "`after` is no cursor of this list"));
    after.map(read).transpose()
}
