//! Writes what a batch changed: one statement, whatever its size, and one for each thing that changes seldom.

use countersign::call::{Call, Chain};
use countersign::event::Event;
use countersign::grant::{Grant, Scope};
use countersign::id::CallId;
use countersign::store::{Halted, StoreError};
use sqlx::postgres::{PgArguments, PgQueryResult};
use sqlx::query::Query;
use sqlx::{PgConnection, Postgres, Row};

use super::batch::Trouble;
use super::rows::{Key, count, number, place, session_of};
use super::world::{ChainRow, Changed, World, denied};

/// Writes everything that changed, inside the batch's transaction.
pub(super) async fn write(connection: &mut PgConnection, world: &World, node: &str) -> Result<(), Trouble> {
    let changed = &world.changed;
    write_rows(connection, world, node).await?;
    for edited in changed.calls.iter().filter(|(_, stored)| stored.is_some_and(|stored| stored.edited)) {
        update_request(connection, changed_call(world, edited.0)?).await?;
    }
    write_grants(connection, world).await?;
    write_halts(connection, changed).await?;
    write_ruling(connection, changed).await
}

/// A row that was not as expected: another node wrote it outside the locks, or twice. The batch runs again.
fn exactly(written: i64, expected: usize, what: &'static str) -> Result<(), Trouble> {
    if count(written) == expected as u64 { Ok(()) } else { Err(Trouble::Again(format!("{what} changed meanwhile"))) }
}

fn affected(written: PgQueryResult) -> i64 {
    number(written.rows_affected())
}

fn changed_call<'w>(world: &'w World, id: &CallId) -> Result<&'w Call, StoreError> {
    match world.calls.get(id) {
        Some(Ok(call)) => Ok(call),
        _ => Err(StoreError::Failed(format!("{id} was changed and is not there"))),
    }
}

fn text(spelled: serde_json::Result<String>) -> Result<String, StoreError> {
    spelled.map_err(|error| StoreError::Failed(error.to_string()))
}

/// Calls that are new and calls that moved, holds, events, chains that are new and chains that moved, and whom to tell:
/// one statement, because each would wait for its own answer. It says how many calls and chains had moved from where
/// they were expected.
const ROWS: &str = "
    WITH new AS (
        SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
                             $8::bool[], $9::bool[], $10::int8[], $11::bytea[], $12::int8[], $13::text[], $14::text[])
            AS new (id, chain, principal, session, place, key, state, holding, denied, due_at, argument_digest, version,
                    standing, body)
    ), asked AS (
        INSERT INTO requests (call, chain, principal, session, place, key, argument_digest, body)
        SELECT id, chain, principal, session, place, key, argument_digest, body FROM new
    ), proposed AS (
        INSERT INTO calls (id, chain, principal, session, place, state, holding, denied, due_at, argument_digest,
                           version, standing)
        SELECT id, chain, principal, session, place, state, holding, denied, due_at, argument_digest, version, standing
        FROM new
    ), stepped AS (
        UPDATE calls
        SET state = new.state, holding = new.holding, denied = new.denied, due_at = new.due_at,
            argument_digest = new.argument_digest, version = new.version, standing = new.standing
        FROM unnest($15::uuid[], $16::int8[], $17::text[], $18::bool[], $19::bool[], $20::int8[], $21::bytea[],
                    $22::int8[], $23::text[])
            AS new (id, stored, state, holding, denied, due_at, argument_digest, version, standing)
        WHERE calls.id = new.id AND calls.version = new.stored
        RETURNING 1
    ), held AS (
        INSERT INTO holds (id, call) SELECT * FROM unnest($24::uuid[], $25::uuid[])
    ), logged AS (
        INSERT INTO events (chain, seq, name, call, hold, at, hash, body)
        SELECT * FROM unnest($26::text[], $27::int8[], $28::text[], $29::uuid[], $30::uuid[], $31::int8[], $32::bytea[],
                             $33::text[])
    ), begun AS (
        INSERT INTO chains (name, session, seq, head, signed, pending)
        SELECT * FROM unnest($34::text[], $35::text[], $36::int8[], $37::bytea[], $38::int8[], $39::int8[])
    ), moved AS (
        UPDATE chains SET seq = new.seq, head = new.head, signed = new.signed, pending = new.pending
        FROM unnest($40::text[], $41::int8[], $42::int8[], $43::bytea[], $44::int8[], $45::int8[])
            AS new (name, stored, seq, head, signed, pending)
        WHERE chains.name = new.name AND chains.seq = new.stored
        RETURNING 1
    )
    SELECT (SELECT count(*) FROM stepped), (SELECT count(*) FROM moved),
           (SELECT count(pg_notify($46, payload)) FROM unnest($47::text[]) AS payload)";

type Rows<'q> = Query<'q, Postgres, PgArguments>;

async fn write_rows(connection: &mut PgConnection, world: &World, node: &str) -> Result<(), Trouble> {
    let changed = &world.changed;
    let (mut new, mut old) = (Vec::new(), Vec::new());
    for (id, stored) in &changed.calls {
        let call = changed_call(world, id)?;
        match stored {
            Some(stored) => old.push((call, stored.version)),
            None => new.push(call),
        }
    }
    let dirty = world.chains.iter().filter(|(_, row)| row.dirty);
    let (begun, moved): (Vec<_>, Vec<_>) = dirty.partition(|(_, row)| row.stored.is_none());
    let payloads = payloads(changed, node);
    if new.len() + old.len() + changed.events.len() + begun.len() + moved.len() + payloads.len() == 0 {
        return Ok(());
    }
    let query = bind_old(bind_new(sqlx::query(ROWS), &new)?, &old)?
        .bind(changed.holds.iter().map(|(hold, _)| Key::from(*hold)).collect::<Vec<_>>())
        .bind(changed.holds.iter().map(|(_, call)| Key::from(*call)).collect::<Vec<_>>());
    let query = bind_events(query, &changed.events)
        .bind(begun.iter().map(|(chain, _)| &*chain.0).collect::<Vec<_>>())
        .bind(begun.iter().map(|(chain, _)| session_of(chain)).collect::<Vec<_>>());
    let query = bind_ends(query, &begun)
        .bind(moved.iter().map(|(chain, _)| &*chain.0).collect::<Vec<_>>())
        .bind(moved.iter().map(|(_, row)| number(row.stored.unwrap_or(0))).collect::<Vec<_>>());
    let row = bind_ends(query, &moved).bind(CHANNEL).bind(payloads).fetch_one(connection).await?;
    exactly(row.try_get(0)?, old.len(), "a call")?;
    exactly(row.try_get(1)?, moved.len(), "a chain")
}

fn bind_new<'q>(query: Rows<'q>, calls: &[&'q Call]) -> Result<Rows<'q>, StoreError> {
    let each = || calls.iter().copied();
    Ok(query
        .bind(each().map(|call| Key::from(call.id)).collect::<Vec<_>>())
        .bind(each().map(|call| call.facts.path.chain().0.to_string()).collect::<Vec<_>>())
        .bind(each().map(|call| &*call.facts.path.principal).collect::<Vec<_>>())
        .bind(each().map(|call| call.facts.path.session.as_deref()).collect::<Vec<_>>())
        .bind(each().map(|call| place(&call.facts.path)).collect::<Vec<_>>())
        .bind(each().map(|call| call.key.as_deref()).collect::<Vec<_>>())
        .bind(each().map(|call| call.state.as_str()).collect::<Vec<_>>())
        .bind(each().map(|call| call.open_hold().is_some()).collect::<Vec<_>>())
        .bind(each().map(|call| denied(call).is_some()).collect::<Vec<_>>())
        .bind(each().map(|call| call.due_at().map(|due| due.0)).collect::<Vec<_>>())
        .bind(each().map(|call| *call.argument_digest.as_bytes()).collect::<Vec<_>>())
        .bind(each().map(|call| number(call.version)).collect::<Vec<_>>())
        .bind(each().map(|call| text(call.standing_json())).collect::<Result<Vec<_>, _>>()?)
        .bind(each().map(|call| text(call.request_json())).collect::<Result<Vec<_>, _>>()?))
}

/// Calls that moved, with the version that the database has.
fn bind_old<'q>(query: Rows<'q>, calls: &[(&'q Call, u64)]) -> Result<Rows<'q>, StoreError> {
    let each = || calls.iter().map(|(call, _)| *call);
    Ok(query
        .bind(each().map(|call| Key::from(call.id)).collect::<Vec<_>>())
        .bind(calls.iter().map(|(_, stored)| number(*stored)).collect::<Vec<_>>())
        .bind(each().map(|call| call.state.as_str()).collect::<Vec<_>>())
        .bind(each().map(|call| call.open_hold().is_some()).collect::<Vec<_>>())
        .bind(each().map(|call| denied(call).is_some()).collect::<Vec<_>>())
        .bind(each().map(|call| call.due_at().map(|due| due.0)).collect::<Vec<_>>())
        .bind(each().map(|call| *call.argument_digest.as_bytes()).collect::<Vec<_>>())
        .bind(each().map(|call| number(call.version)).collect::<Vec<_>>())
        .bind(each().map(|call| text(call.standing_json())).collect::<Result<Vec<_>, _>>()?))
}

fn bind_events<'q>(query: Rows<'q>, events: &'q [Event]) -> Rows<'q> {
    query
        .bind(events.iter().map(|event| &*event.chain.0).collect::<Vec<_>>())
        .bind(events.iter().map(|event| number(event.seq)).collect::<Vec<_>>())
        .bind(events.iter().map(|event| event.name.as_str()).collect::<Vec<_>>())
        .bind(events.iter().map(|event| event.call.map(Key::from)).collect::<Vec<_>>())
        .bind(events.iter().map(|event| event.hold.map(Key::from)).collect::<Vec<_>>())
        .bind(events.iter().map(|event| event.at.0).collect::<Vec<_>>())
        .bind(events.iter().map(|event| *event.hash.as_bytes()).collect::<Vec<_>>())
        .bind(events.iter().map(|event| &*event.body).collect::<Vec<_>>())
}

/// Where chains end now.
fn bind_ends<'q>(query: Rows<'q>, chains: &[(&Chain, &ChainRow)]) -> Rows<'q> {
    query
        .bind(chains.iter().map(|(_, row)| number(row.head.seq)).collect::<Vec<_>>())
        .bind(chains.iter().map(|(_, row)| *row.head.hash.as_bytes()).collect::<Vec<_>>())
        .bind(chains.iter().map(|(_, row)| number(row.signed)).collect::<Vec<_>>())
        .bind(chains.iter().map(|(_, row)| number(row.pending)).collect::<Vec<_>>())
}

/// An approver's edit is seldom: one statement each.
async fn update_request(connection: &mut PgConnection, call: &Call) -> Result<(), Trouble> {
    let query = sqlx::query("UPDATE requests SET argument_digest = $2, body = $3 WHERE call = $1")
        .bind(Key::from(call.id))
        .bind(&call.argument_digest.as_bytes()[..])
        .bind(text(call.request_json())?);
    exactly(affected(query.execute(connection).await?), 1, "a request")
}

const INSERT_GRANT: &str = "
    INSERT INTO grants (id, tool, session, argument_digest, expires_at, revoked, limited, version, body)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";

const UPDATE_GRANT: &str = "
    UPDATE grants SET tool = $2, session = $3, argument_digest = $4, expires_at = $5, revoked = $6, limited = $7,
                      version = $8, body = $9
    WHERE id = $1 AND version = $10";

/// Grants change seldom: one statement each, in order of id.
async fn write_grants(connection: &mut PgConnection, world: &World) -> Result<(), Trouble> {
    let mut changed: Vec<_> = world.changed.grants.iter().collect();
    changed.sort_by_key(|(id, _)| **id);
    for (id, stored) in changed {
        let Some(grant) = world.grants.get(id) else { continue };
        let query = sqlx::query(if stored.is_some() { UPDATE_GRANT } else { INSERT_GRANT })
            .bind(Key::from(grant.id))
            .bind(&*grant.tool.name)
            .bind(session(grant))
            .bind(exact(grant))
            .bind(grant.expires_at.0)
            .bind(grant.revoked.is_some())
            .bind(grant.uses_left.is_some())
            .bind(number(grant.version))
            .bind(text(serde_json::to_string(grant))?);
        let query = match stored {
            Some(stored) => query.bind(number(*stored)),
            None => query,
        };
        exactly(affected(query.execute(&mut *connection).await?), 1, "a grant")?;
    }
    Ok(())
}

fn session(grant: &Grant) -> Option<&str> {
    match &grant.scope {
        Scope::Session { session } => Some(session),
        Scope::Global => None,
    }
}

fn exact(grant: &Grant) -> Option<&[u8]> {
    grant.covers.exact().map(|digest| digest.as_bytes().as_slice())
}

async fn write_halts(connection: &mut PgConnection, changed: &Changed) -> Result<(), Trouble> {
    for (scope, halted) in &changed.halts {
        let sql = match halted {
            Halted::Yes => "INSERT INTO halts (scope) VALUES ($1) ON CONFLICT DO NOTHING",
            Halted::No => "DELETE FROM halts WHERE scope = $1",
        };
        sqlx::query(sql).bind(scope).execute(&mut *connection).await?;
    }
    Ok(())
}

async fn write_ruling(connection: &mut PgConnection, changed: &Changed) -> Result<(), Trouble> {
    if let Some((version, source)) = &changed.policy {
        let query = sqlx::query("UPDATE ruling SET policy_version = $1, policy_source = $2");
        query.bind(&**version).bind(&**source).execute(&mut *connection).await?;
    }
    if let Some(hash) = &changed.checkpoint {
        let query = sqlx::query("UPDATE ruling SET checkpoint = $1");
        query.bind(&hash.as_bytes()[..]).execute(connection).await?;
    }
    Ok(())
}

/// The channel all nodes listen on.
pub(super) const CHANNEL: &str = "countersign";
/// Stands for "anything may have changed".
pub(super) const EVERYTHING: &str = "*";
/// A notification carries less than 8,000 bytes; an id has 37.
const IDS_IN_ONE: usize = 200;

/// What tells the other nodes which calls moved: ids only, after the sender's name; the name alone where events concern
/// no call. Sent at commit, or not at all.
fn payloads(changed: &Changed, node: &str) -> Vec<String> {
    if changed.all {
        return vec![format!("{node} {EVERYTHING}")];
    }
    if changed.rung.is_empty() && !changed.events.is_empty() {
        return vec![payload(node, &[])];
    }
    let ids: Vec<CallId> = changed.rung.iter().copied().collect();
    ids.chunks(IDS_IN_ONE).map(|ids| payload(node, ids)).collect()
}

fn payload(node: &str, ids: &[CallId]) -> String {
    ids.iter().fold(node.to_owned(), |mut payload, id| {
        payload.push(' ');
        payload.push_str(&id.to_string());
        payload
    })
}
