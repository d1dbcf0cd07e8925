//! Writes what a batch changed: a few statements, whatever its size.

use std::sync::Arc;

use countersign::call::Call;
use countersign::event::Event;
use countersign::grant::{Grant, Scope};
use countersign::id::CallId;
use countersign::store::{Halted, StoreError};
use sqlx::PgConnection;

use super::batch::Trouble;
use super::rows::{Key, number, place, session_of};
use super::world::{ChainRow, Changed, Stored, World, denied};

/// Writes everything that changed, inside the batch's transaction.
pub(super) async fn write(connection: &mut PgConnection, world: &World, node: &str) -> Result<(), Trouble> {
    let changed = &world.changed;
    let (new, old) = changed_calls(world)?;
    insert_calls(connection, &new).await?;
    update_calls(connection, &old).await?;
    insert_holds(connection, changed).await?;
    insert_events(connection, &changed.events).await?;
    write_chains(connection, world).await?;
    write_grants(connection, world).await?;
    write_halts(connection, changed).await?;
    write_ruling(connection, changed).await?;
    notify(connection, changed, node).await
}

/// A row that was not as expected: another node wrote it outside the locks, or twice. The batch runs again.
fn exactly(written: u64, expected: usize, what: &'static str) -> Result<(), Trouble> {
    if written == expected as u64 { Ok(()) } else { Err(Trouble::Again(format!("{what} changed meanwhile"))) }
}

struct OldCall {
    call: Arc<Call>,
    stored: Stored,
}

fn changed_calls(world: &World) -> Result<(Vec<Arc<Call>>, Vec<OldCall>), StoreError> {
    let mut new = Vec::new();
    let mut old = Vec::new();
    for (id, stored) in &world.changed.calls {
        let Some(Ok(call)) = world.calls.get(id) else {
            return Err(StoreError::Failed(format!("{id} was changed and is not there")));
        };
        let call = Arc::clone(call);
        match stored {
            Some(stored) => old.push(OldCall { call, stored: *stored }),
            None => new.push(call),
        }
    }
    Ok((new, old))
}

fn text(spelled: serde_json::Result<String>) -> Result<String, StoreError> {
    spelled.map_err(|error| StoreError::Failed(error.to_string()))
}

const INSERT_CALLS: &str = "
    WITH new AS (
        SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
                             $8::bool[], $9::bool[], $10::int8[], $11::bytea[], $12::int8[], $13::text[], $14::text[])
            AS new (id, chain, principal, session, place, key, state, holding, denied, due_at, argument_digest, version,
                    standing, body)
    ), asked AS (
        INSERT INTO requests (call, chain, principal, session, place, key, argument_digest, body)
        SELECT id, chain, principal, session, place, key, argument_digest, body FROM new
    )
    INSERT INTO calls (id, chain, principal, session, place, state, holding, denied, due_at, argument_digest, version,
                       standing)
    SELECT id, chain, principal, session, place, state, holding, denied, due_at, argument_digest, version, standing
    FROM new";

async fn insert_calls(connection: &mut PgConnection, calls: &[Arc<Call>]) -> Result<(), Trouble> {
    if calls.is_empty() {
        return Ok(());
    }
    let each = || calls.iter().map(|call| &**call);
    let query = sqlx::query(INSERT_CALLS)
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
        .bind(each().map(|call| text(call.request_json())).collect::<Result<Vec<_>, _>>()?);
    query.execute(connection).await?;
    Ok(())
}

const UPDATE_CALLS: &str = "
    UPDATE calls
    SET state = new.state, holding = new.holding, denied = new.denied, due_at = new.due_at,
        argument_digest = new.argument_digest, version = new.version, standing = new.standing
    FROM unnest($1::uuid[], $2::int8[], $3::text[], $4::bool[], $5::bool[], $6::int8[], $7::bytea[], $8::int8[],
                $9::text[])
        AS new (id, stored, state, holding, denied, due_at, argument_digest, version, standing)
    WHERE calls.id = new.id AND calls.version = new.stored";

async fn update_calls(connection: &mut PgConnection, calls: &[OldCall]) -> Result<(), Trouble> {
    if calls.is_empty() {
        return Ok(());
    }
    let each = || calls.iter().map(|old| &*old.call);
    let query = sqlx::query(UPDATE_CALLS)
        .bind(each().map(|call| Key::from(call.id)).collect::<Vec<_>>())
        .bind(calls.iter().map(|old| number(old.stored.version)).collect::<Vec<_>>())
        .bind(each().map(|call| call.state.as_str()).collect::<Vec<_>>())
        .bind(each().map(|call| call.open_hold().is_some()).collect::<Vec<_>>())
        .bind(each().map(|call| denied(call).is_some()).collect::<Vec<_>>())
        .bind(each().map(|call| call.due_at().map(|due| due.0)).collect::<Vec<_>>())
        .bind(each().map(|call| *call.argument_digest.as_bytes()).collect::<Vec<_>>())
        .bind(each().map(|call| number(call.version)).collect::<Vec<_>>())
        .bind(each().map(|call| text(call.standing_json())).collect::<Result<Vec<_>, _>>()?);
    exactly(query.execute(&mut *connection).await?.rows_affected(), calls.len(), "a call")?;
    for edited in calls.iter().filter(|old| old.stored.edited) {
        update_request(connection, &edited.call).await?;
    }
    Ok(())
}

/// An approver's edit is seldom: one statement each.
async fn update_request(connection: &mut PgConnection, call: &Call) -> Result<(), Trouble> {
    let query = sqlx::query("UPDATE requests SET argument_digest = $2, body = $3 WHERE call = $1")
        .bind(Key::from(call.id))
        .bind(&call.argument_digest.as_bytes()[..])
        .bind(text(call.request_json())?);
    exactly(query.execute(connection).await?.rows_affected(), 1, "a request")
}

const INSERT_HOLDS: &str = "INSERT INTO holds (id, call) SELECT * FROM unnest($1::uuid[], $2::uuid[])";

async fn insert_holds(connection: &mut PgConnection, changed: &Changed) -> Result<(), Trouble> {
    if changed.holds.is_empty() {
        return Ok(());
    }
    let holds: Vec<Key> = changed.holds.iter().map(|(hold, _)| Key::from(*hold)).collect();
    let calls: Vec<Key> = changed.holds.iter().map(|(_, call)| Key::from(*call)).collect();
    sqlx::query(INSERT_HOLDS).bind(holds).bind(calls).execute(connection).await?;
    Ok(())
}

const INSERT_EVENTS: &str = "
    INSERT INTO events (chain, seq, name, call, hold, at, hash, body)
    SELECT * FROM unnest($1::text[], $2::int8[], $3::text[], $4::uuid[], $5::uuid[], $6::int8[], $7::bytea[],
                         $8::text[])";

async fn insert_events(connection: &mut PgConnection, events: &[Event]) -> Result<(), Trouble> {
    if events.is_empty() {
        return Ok(());
    }
    let query = sqlx::query(INSERT_EVENTS)
        .bind(events.iter().map(|event| &*event.chain.0).collect::<Vec<_>>())
        .bind(events.iter().map(|event| number(event.seq)).collect::<Vec<_>>())
        .bind(events.iter().map(|event| event.name.as_str()).collect::<Vec<_>>())
        .bind(events.iter().map(|event| event.call.map(Key::from)).collect::<Vec<_>>())
        .bind(events.iter().map(|event| event.hold.map(Key::from)).collect::<Vec<_>>())
        .bind(events.iter().map(|event| event.at.0).collect::<Vec<_>>())
        .bind(events.iter().map(|event| *event.hash.as_bytes()).collect::<Vec<_>>())
        .bind(events.iter().map(|event| &*event.body).collect::<Vec<_>>());
    query.execute(connection).await?;
    Ok(())
}

const INSERT_CHAINS: &str = "
    INSERT INTO chains (name, session, seq, head, signed, pending)
    SELECT * FROM unnest($1::text[], $2::text[], $3::int8[], $4::bytea[], $5::int8[], $6::int8[])";

const UPDATE_CHAINS: &str = "
    UPDATE chains SET seq = new.seq, head = new.head, signed = new.signed, pending = new.pending
    FROM unnest($1::text[], $2::int8[], $3::int8[], $4::bytea[], $5::int8[], $6::int8[])
        AS new (name, stored, seq, head, signed, pending)
    WHERE chains.name = new.name AND chains.seq = new.stored";

async fn write_chains(connection: &mut PgConnection, world: &World) -> Result<(), Trouble> {
    let dirty = || world.chains.iter().filter(|(_, row)| row.dirty);
    let new: Vec<_> = dirty().filter(|(_, row)| row.stored.is_none()).collect();
    let old: Vec<_> = dirty().filter(|(_, row)| row.stored.is_some()).collect();
    let seqs = |rows: &[(_, &ChainRow)]| rows.iter().map(|(_, row)| number(row.head.seq)).collect::<Vec<_>>();
    let heads = |rows: &[(_, &ChainRow)]| rows.iter().map(|(_, row)| *row.head.hash.as_bytes()).collect::<Vec<_>>();
    let signed = |rows: &[(_, &ChainRow)]| rows.iter().map(|(_, row)| number(row.signed)).collect::<Vec<_>>();
    let pending = |rows: &[(_, &ChainRow)]| rows.iter().map(|(_, row)| number(row.pending)).collect::<Vec<_>>();
    if !new.is_empty() {
        let query = sqlx::query(INSERT_CHAINS)
            .bind(new.iter().map(|(chain, _)| &*chain.0).collect::<Vec<_>>())
            .bind(new.iter().map(|(chain, _)| session_of(chain)).collect::<Vec<_>>());
        let query = query.bind(seqs(&new)).bind(heads(&new)).bind(signed(&new)).bind(pending(&new));
        query.execute(&mut *connection).await?;
    }
    if old.is_empty() {
        return Ok(());
    }
    let query = sqlx::query(UPDATE_CHAINS)
        .bind(old.iter().map(|(chain, _)| &*chain.0).collect::<Vec<_>>())
        .bind(old.iter().map(|(_, row)| number(row.stored.unwrap_or(0))).collect::<Vec<_>>());
    let query = query.bind(seqs(&old)).bind(heads(&old)).bind(signed(&old)).bind(pending(&old));
    exactly(query.execute(connection).await?.rows_affected(), old.len(), "a chain")
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
        exactly(query.execute(&mut *connection).await?.rows_affected(), 1, "a grant")?;
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

/// Tells the other nodes which calls moved: ids only, after the sender's name; the name alone where events concern no
/// call. Sent at commit, or not at all.
async fn notify(connection: &mut PgConnection, changed: &Changed, node: &str) -> Result<(), Trouble> {
    let payloads: Vec<String> = if changed.all {
        vec![format!("{node} {EVERYTHING}")]
    } else if changed.rung.is_empty() && !changed.events.is_empty() {
        vec![payload(node, &[])]
    } else {
        let ids: Vec<CallId> = changed.rung.iter().copied().collect();
        ids.chunks(IDS_IN_ONE).map(|ids| payload(node, ids)).collect()
    };
    if payloads.is_empty() {
        return Ok(());
    }
    let query = sqlx::query("SELECT pg_notify($1, payload) FROM unnest($2::text[]) AS payload");
    query.bind(CHANNEL).bind(payloads).execute(connection).await?;
    Ok(())
}

fn payload(node: &str, ids: &[CallId]) -> String {
    ids.iter().fold(node.to_owned(), |mut payload, id| {
        payload.push(' ');
        payload.push_str(&id.to_string());
        payload
    })
}
