//! Tickets: what is left to do in a session, and which server does it.
//!
//! A session has a ticket from the moment somebody says something until nothing is left to do. Whoever drives it holds
//! the ticket for a while and says again and again that they still do; where they are lost, another takes it. What keeps
//! two drivers from harm is the transcript, which only one of them can append to: the ticket keeps them from the cost.

use std::sync::Arc;

use countersign::Time;
use countersign::store::{Expect, Failure, Record, Store, StoreError};
use countersign::transition::Rejection;
use serde::{Deserialize, Serialize};

use super::key::Key;
use crate::limits;
use crate::problem::Refused;

const TICKETS: &str = "session-tickets";

/// What is left to do in a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ticket {
    pub(crate) key: Key,
    /// Who drives it, and until when nobody else may.
    #[serde(default)]
    pub(crate) driver: Option<Driver>,
    /// Whether the run only waits and was put away.
    #[serde(default)]
    pub(crate) parked: bool,
    /// When to go on with a parked run even if nothing happens: its time is up.
    #[serde(default)]
    pub(crate) wake_at: Option<Time>,
    /// Why the run broke off. Nobody goes on with it until something is said.
    #[serde(default)]
    pub(crate) failed: Option<String>,
    /// The run that is to be cancelled.
    #[serde(default)]
    pub(crate) cancel: Option<Arc<str>>,
}

/// Who drives a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Driver {
    pub(crate) server: Arc<str>,
    pub(crate) until: Time,
}

/// Whether a ticket is to be written.
pub(crate) enum Change {
    Write,
    Leave,
}

impl Ticket {
    pub(crate) fn new(key: Key) -> Ticket {
        Ticket { key, driver: None, parked: false, wake_at: None, failed: None, cancel: None }
    }

    /// Whether somebody drives it now, and not this server.
    pub(crate) fn is_elsewhere(&self, server: &str, now: Time) -> bool {
        self.driver.as_ref().is_some_and(|driver| *driver.server != *server && driver.until > now)
    }

    /// Whether it should be driven though nothing happened to it: its driver is lost, or its time has come.
    pub(crate) fn is_due(&self, server: &str, now: Time) -> bool {
        let time = self.wake_at.is_some_and(|at| at <= now);
        self.failed.is_none() && !self.is_elsewhere(server, now) && (!self.parked || time || self.cancel.is_some())
    }

    /// Whether it should be driven if something happened to it.
    pub(crate) fn is_waiting(&self, server: &str, now: Time) -> bool {
        self.failed.is_none() && !self.is_elsewhere(server, now)
    }
}

/// Reads a ticket and its version.
pub(crate) async fn read(store: &dyn Store, key: &Key) -> Result<Option<(Ticket, u64)>, StoreError> {
    let record = store.record(TICKETS, &key.to_string()).await?;
    record.map(|record| Ok((ticket_of(&record)?, record.version))).transpose()
}

/// One page of tickets, by key.
pub(crate) async fn page(store: &dyn Store, after: Option<&Key>) -> Result<Vec<Ticket>, StoreError> {
    let after = after.map(ToString::to_string);
    let records = store.records(TICKETS, "", after.as_deref(), countersign::limits::PAGE_ROWS).await?;
    records.iter().map(ticket_of).collect()
}

/// Makes a ticket if there is none, and changes it.
pub(crate) async fn open(store: &dyn Store, key: &Key, mut how: impl FnMut(&mut Ticket)) -> Result<(), Refused> {
    let how = |found: Option<Ticket>| {
        let mut ticket = found.unwrap_or_else(|| Ticket::new(key.clone()));
        how(&mut ticket);
        Some(ticket)
    };
    write(store, key, how).await.map(|_| ())
}

/// Changes a ticket that is there. Says whether it was changed.
pub(crate) async fn change(
    store: &dyn Store,
    key: &Key,
    mut how: impl FnMut(&mut Ticket) -> Change,
) -> Result<bool, Refused> {
    let how = |found: Option<Ticket>| {
        let mut ticket = found?;
        match how(&mut ticket) {
            Change::Write => Some(ticket),
            Change::Leave => None,
        }
    };
    write(store, key, how).await
}

/// Writes a ticket anew. Others may do so at the same time: then looks again.
async fn write(
    store: &dyn Store,
    key: &Key,
    mut how: impl FnMut(Option<Ticket>) -> Option<Ticket>,
) -> Result<bool, Refused> {
    for _ in 0..limits::WRITE_ATTEMPTS {
        let found = read(store, key).await?;
        let expect = found.as_ref().map_or(Expect::Absent, |(_, version)| Expect::Version(*version));
        let Some(ticket) = how(found.map(|(ticket, _)| ticket)) else { return Ok(false) };
        match store.put_record(TICKETS, &key.to_string(), &serde_json::to_vec(&ticket)?, expect, None).await {
            Ok(_) => return Ok(true),
            Err(Failure::Rejected(Rejection::Conflict)) => {}
            Err(failure) => return Err(failure.into()),
        }
    }
    Err(Refused::new(countersign_api::wire::Code::Conflict))
}

/// Gives a ticket up because nothing is left to do. Says whether it was still as it was read.
pub(crate) async fn done(store: &dyn Store, key: &Key, version: u64) -> Result<bool, Refused> {
    match store.delete_record(TICKETS, &key.to_string(), Expect::Version(version)).await {
        Ok(()) => Ok(true),
        Err(Failure::Rejected(Rejection::Conflict)) => Ok(false),
        Err(failure) => Err(failure.into()),
    }
}

fn ticket_of(record: &Record) -> Result<Ticket, StoreError> {
    let damaged = |error: serde_json::Error| StoreError::Damaged { what: "ticket", why: error.to_string() };
    serde_json::from_slice(&record.value).map_err(damaged)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(change: impl FnOnce(&mut Ticket)) -> Ticket {
        let mut ticket = Ticket::new(Key::new(&"bot".into(), "s"));
        change(&mut ticket);
        ticket
    }

    fn driver(server: &str, until: i64) -> Option<Driver> {
        Some(Driver { server: server.into(), until: Time(until) })
    }

    /// Only one of several servers drives a session, until it is lost.
    #[test]
    fn who_goes_on_with_a_session_follows_from_its_ticket() {
        let now = Time(100);
        for (what, ticket, due, waiting) in [
            ("new", ticket(|_| {}), true, true),
            ("ours before a restart", ticket(|t| t.driver = driver("us", 200)), true, true),
            ("driven elsewhere", ticket(|t| t.driver = driver("them", 200)), false, false),
            ("its driver is lost", ticket(|t| t.driver = driver("them", 100)), true, true),
            ("parked", ticket(|t| t.parked = true), false, true),
            ("parked, and its time is up", ticket(|t| (t.parked, t.wake_at) = (true, Some(Time(99)))), true, true),
            ("parked, and cancelled", ticket(|t| (t.parked, t.cancel) = (true, Some("r1".into()))), true, true),
            ("failed", ticket(|t| t.failed = Some("no".into())), false, false),
        ] {
            assert_eq!((ticket.is_due("us", now), ticket.is_waiting("us", now)), (due, waiting), "{what}");
        }
    }
}
