//! The calls an operation changed. Each is written once, at the operation's end: then it is known which of the events
//! are its own, and a call that is submitted and claimed at once is one row and no change to it.

use std::sync::Arc;

use countersign::call::{Call, Chain};
use countersign::id::{CallId, HoldId};
use countersign::store::StoreError;
use rusqlite::params;

use super::rows;
use super::state::Batch;

/// A call that is to be written.
pub(super) struct Put {
    call: Arc<Call>,
    place: Place,
    /// The ids of the first and last event that this operation wrote about it; zero where there is none.
    events: (i64, i64),
}

/// Where a call is to be written.
enum Place {
    /// A new row, of this chain.
    New {
        chain: i64,
    },
    Row(Before),
}

/// How a call's row stands so far.
struct Before {
    number: i64,
    version: u64,
    holds: usize,
    asks: Asks,
}

/// Whether the call asks for what its row says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asks {
    TheSame,
    Anew,
}

impl Asks {
    fn of(call: &Call, before: &Call) -> Asks {
        if call.asks_the_same_as(before) { Asks::TheSame } else { Asks::Anew }
    }
}

impl Put {
    pub(super) fn call(&self) -> &Arc<Call> {
        &self.call
    }

    /// The call changed once more.
    fn again(&mut self, call: Arc<Call>) {
        if let Place::Row(before) = &mut self.place
            && Asks::of(&call, &self.call) == Asks::Anew
        {
            before.asks = Asks::Anew;
        }
        self.call = call;
    }

    /// An event about it got this id.
    fn reaches(&mut self, event: i64) {
        let first = if self.events.0 == 0 { event } else { self.events.0 };
        self.events = (first, event);
    }
}

impl Batch<'_> {
    /// The call as this operation has left it so far.
    pub(super) fn put(&self, is_it: impl Fn(&Call) -> bool) -> Option<&Arc<Call>> {
        self.puts.iter().map(Put::call).find(|call| is_it(call))
    }

    pub(super) fn put_later(
        &mut self,
        chain: &Chain,
        call: Arc<Call>,
        before: Option<&Call>,
    ) -> Result<(), StoreError> {
        if let Some(put) = self.puts.iter_mut().find(|put| put.call.id == call.id) {
            put.again(call);
            return Ok(());
        }
        let place = match before {
            Some(before) => Place::Row(Before {
                number: self.number(call.id)?,
                version: before.version,
                holds: before.holds.len(),
                asks: Asks::of(&call, before),
            }),
            None => Place::New { chain: self.chain(chain)?.id },
        };
        self.puts.push(Put { call, place, events: (0, 0) });
        Ok(())
    }

    /// An event about a call is written. INVARIANT: with the call, and on its chain; so its row knows where to look.
    pub(super) fn told(&mut self, call: CallId, event: i64) {
        if let Some(put) = self.puts.iter_mut().find(|put| put.call.id == call) {
            put.reaches(event);
        }
    }

    /// Writes the calls of an operation.
    pub(super) fn settle(&mut self) -> Result<(), StoreError> {
        for put in std::mem::take(&mut self.puts) {
            let (number, known) = match &put.place {
                Place::New { chain } => (self.insert_call(&put.call, *chain, put.events)?, 0),
                Place::Row(before) => (self.update_call(&put.call, before, put.events.1)?, before.holds),
            };
            for hold in put.call.holds.iter().skip(known) {
                self.insert_hold(hold.id, number)?;
            }
            self.cache.calls.keep(number, &put.call);
        }
        Ok(())
    }

    fn insert_hold(&mut self, hold: HoldId, call: i64) -> Result<(), StoreError> {
        self.write_one("INSERT INTO holds (id, call) VALUES (?1, ?2)", params![hold.as_bytes(), call], "hold")
    }

    /// Returns the number of its row.
    fn insert_call(&mut self, call: &Call, chain: i64, (first, last): (i64, i64)) -> Result<i64, StoreError> {
        const CALL: &str = "INSERT INTO calls (id, chain, principal, session, run, key, argument_digest, state, \
             holding, denied, due_at, version, standing, first_event, last_event) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)";
        let path = &call.facts.path;
        let values = params![
            call.id.as_bytes(),
            chain,
            &*path.principal,
            path.session.as_deref(),
            rows::run(path),
            call.key.as_deref(),
            call.argument_digest.as_bytes(),
            call.state.as_str(),
            call.open_hold().is_some(),
            rows::is_remembered_denial(call),
            call.due_at().map(|due| due.0),
            rows::signed(call.version)?,
            rows::text(call.standing_json())?,
            first,
            last,
        ];
        self.write_one(CALL, values, "call")?;
        let number = self.connection.last_insert_rowid();
        let request = rows::text(call.request_json())?;
        self.write_one("INSERT INTO requests (call, body) VALUES (?1, ?2)", params![number, request], "request")?;
        Ok(number)
    }

    /// Returns the number of its row.
    fn update_call(&mut self, call: &Call, before: &Before, last: i64) -> Result<i64, StoreError> {
        const STEP: &str = "UPDATE calls SET state = ?3, holding = ?4, denied = ?5, due_at = ?6, version = ?7, \
             standing = ?8, last_event = max(last_event, ?9) WHERE n = ?1 AND version = ?2";
        let values = params![
            before.number,
            rows::signed(before.version)?,
            call.state.as_str(),
            call.open_hold().is_some(),
            rows::is_remembered_denial(call),
            call.due_at().map(|due| due.0),
            rows::signed(call.version)?,
            rows::text(call.standing_json())?,
            last,
        ];
        self.write_one(STEP, values, "call")?;
        if before.asks == Asks::Anew {
            self.update_request(call, before.number)?;
        }
        Ok(before.number)
    }

    fn number(&mut self, id: CallId) -> Result<i64, StoreError> {
        if let Some(number) = self.cache.calls.beside(id) {
            return Ok(number);
        }
        let number = self.one("SELECT n FROM calls WHERE id = ?1", [id.as_bytes()], |row| row.get(0))?;
        number.ok_or_else(|| StoreError::Failed("the call changed meanwhile".into()))
    }

    /// Apart from the step, because naming an indexed column makes SQLite rewrite its index even if nothing changed.
    fn update_request(&mut self, call: &Call, number: i64) -> Result<(), StoreError> {
        const DIGEST: &str = "UPDATE calls SET argument_digest = ?2 WHERE n = ?1";
        const REQUEST: &str = "UPDATE requests SET body = ?2 WHERE call = ?1";
        self.write_one(DIGEST, params![number, call.argument_digest.as_bytes()], "call")?;
        self.write_one(REQUEST, params![number, rows::text(call.request_json())?], "request")
    }
}
