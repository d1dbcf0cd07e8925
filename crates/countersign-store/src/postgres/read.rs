//! Reads outside of batches: calls, grants, events, and what holds for all nodes.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use countersign::call::{Call, CallState, Path};
use countersign::event::{Cursor, Event};
use countersign::grant::Grant;
use countersign::id::{CallId, GrantId, HoldId};
use countersign::limits;
use countersign::store::{CallFilter, EventFilter, Order, StoreError};
use countersign::time::Time;
use sqlx::postgres::PgRow;
use sqlx::{PgPool, Row};

use super::rows::{self, Key, failed, number};
use super::world::is_halted;

fn page(limit: Option<usize>) -> i64 {
    number(limit.unwrap_or(limits::PAGE_ROWS_DEFAULT).min(limits::PAGE_ROWS) as u64)
}

pub(super) async fn now(pool: &PgPool, offset: i64) -> Result<Time, StoreError> {
    let query = sqlx::query("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint");
    let now: i64 = query.fetch_one(pool).await.and_then(|row| row.try_get(0)).map_err(failed)?;
    Ok(Time(now.saturating_add(offset)))
}

pub(super) async fn call(pool: &PgPool, id: CallId) -> Result<Option<Arc<Call>>, StoreError> {
    const SQL: &str = "
        SELECT id, version, body, standing FROM calls JOIN requests ON requests.call = calls.id WHERE calls.id = $1";
    let query = sqlx::query(SQL).bind(Key::from(id));
    query.fetch_optional(pool).await.map_err(failed)?.as_ref().map(rows::call).transpose()
}

pub(super) async fn call_of_hold(pool: &PgPool, hold: HoldId) -> Result<Option<Arc<Call>>, StoreError> {
    const SQL: &str = "
        SELECT calls.id, version, body, standing
        FROM holds JOIN calls ON calls.id = holds.call JOIN requests ON requests.call = calls.id WHERE holds.id = $1";
    let row = sqlx::query(SQL).bind(Key::from(hold)).fetch_optional(pool).await.map_err(failed)?;
    row.as_ref().map(rows::call).transpose()
}

/// One statement for each index that leads: a page must not depend on how many other rows there are.
macro_rules! listing {
    ($filter:expr, $id:literal, $lead:literal) => {
        match $filter.order {
            Order::Oldest => listing!($id, $lead, " > $1", ""),
            Order::Newest => listing!($id, $lead, " < $1", " DESC"),
        }
    };
    ($id:literal, $lead:literal, $after:literal, $order:literal) => {
        concat!(
            "SELECT calls.id, version, body, standing FROM calls JOIN requests ON requests.call = calls.id WHERE ",
            $lead,
            " AND ",
            $id,
            $after,
            " AND ($2::text IS NULL OR calls.state = $2) AND (NOT $3 OR calls.holding)
              AND ($4::text IS NULL OR calls.session = $4) AND ($5::text IS NULL OR calls.principal = $5)
              AND ($6::bytea IS NULL OR calls.argument_digest = $6)
              ORDER BY ",
            $id,
            $order,
            " LIMIT $7"
        )
    };
}

fn lead(filter: &CallFilter, holding: bool) -> &'static str {
    match filter {
        _ if holding && filter.session.is_some() => {
            listing!(filter, "calls.id", "calls.holding AND calls.session = $4")
        }
        _ if holding => listing!(filter, "calls.id", "calls.holding"),
        CallFilter { argument_digest: Some(_), .. } => {
            listing!(filter, "requests.call", "requests.argument_digest = $6")
        }
        CallFilter { session: Some(_), .. } => listing!(filter, "requests.call", "requests.session = $4"),
        CallFilter { state: Some(state), .. } if is_seldom(*state) => listing!(
            filter,
            "calls.id",
            "calls.state = $2 AND calls.state NOT IN ('allowed', 'pending', 'approved', 'executing', 'succeeded')"
        ),
        CallFilter { state: Some(state), .. } if *state != CallState::Succeeded => {
            listing!(filter, "calls.id", "calls.due_at IS NOT NULL")
        }
        CallFilter { principal: Some(_), .. } => listing!(filter, "requests.call", "requests.principal = $5"),
        CallFilter { .. } => listing!(filter, "calls.id", "true"),
    }
}

/// Whether the index of states that calls seldom rest in knows this one.
fn is_seldom(state: CallState) -> bool {
    match state {
        CallState::Allowed | CallState::Pending | CallState::Approved | CallState::Executing | CallState::Succeeded => {
            false
        }
        CallState::Denied
        | CallState::Answered
        | CallState::Expired
        | CallState::Cancelled
        | CallState::Lapsed
        | CallState::Failed
        | CallState::InDoubt
        | CallState::Resolved => true,
    }
}

pub(super) async fn calls(pool: &PgPool, filter: &CallFilter) -> Result<Vec<Arc<Call>>, StoreError> {
    // A pending call has an open hold, so the index of those leads to it.
    let holding = filter.holding || filter.state == Some(CallState::Pending);
    let first = match filter.order {
        Order::Oldest => Key::LEAST,
        Order::Newest => Key::GREATEST,
    };
    let query = sqlx::query(lead(filter, holding))
        .bind(filter.after.map_or(first, Key::from))
        .bind(filter.state.map(CallState::as_str))
        .bind(holding)
        .bind(filter.session.as_deref())
        .bind(filter.principal.as_deref())
        .bind(filter.argument_digest.as_ref().map(|digest| &digest.as_bytes()[..]))
        .bind(page(filter.limit));
    query.fetch_all(pool).await.map_err(failed)?.iter().map(rows::call).collect()
}

pub(super) async fn holding(pool: &PgPool) -> Result<usize, StoreError> {
    let row = sqlx::query("SELECT count(*) FROM calls WHERE holding").fetch_one(pool).await.map_err(failed)?;
    Ok(usize::try_from(row.try_get::<i64, _>(0).map_err(failed)?).unwrap_or_default())
}

pub(super) async fn due(pool: &PgPool, offset: i64, limit: usize) -> Result<Vec<CallId>, StoreError> {
    const SQL: &str = "
        SELECT id FROM calls
        WHERE due_at <= (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) + $1
        ORDER BY due_at, id LIMIT $2";
    let query = sqlx::query(SQL).bind(offset).bind(number(limit as u64));
    let rows = query.fetch_all(pool).await.map_err(failed)?;
    rows.iter().map(|row| row.try_get::<Key, _>(0).map(Key::call).map_err(failed)).collect()
}

pub(super) async fn grant(pool: &PgPool, id: GrantId) -> Result<Option<Grant>, StoreError> {
    let query = sqlx::query("SELECT id, version, body FROM grants WHERE id = $1").bind(Key::from(id));
    query.fetch_optional(pool).await.map_err(failed)?.as_ref().map(rows::grant).transpose()
}

const GRANTS: &str = "SELECT id, version, body FROM grants WHERE $1::uuid IS NULL OR id > $1 ORDER BY id LIMIT $2";

pub(super) async fn grants(pool: &PgPool, after: Option<GrantId>, limit: usize) -> Result<Vec<Grant>, StoreError> {
    let (limit, mut after, mut grants) = (page(Some(limit)), after.map(Key::from), Vec::new());
    loop {
        let rows = sqlx::query(GRANTS).bind(after).bind(limit).fetch_all(pool).await.map_err(failed)?;
        // One that cannot be read grants nothing, and keeps nobody from the others.
        grants.extend(rows.iter().filter_map(rows::readable_grant));
        let Some(last) = rows.last() else { return Ok(grants) };
        after = Some(last.try_get("id").map_err(failed)?);
        let (read, wanted) = (rows.len(), usize::try_from(limit).unwrap_or(usize::MAX));
        if read < wanted || grants.len() >= wanted {
            grants.truncate(wanted);
            return Ok(grants);
        }
    }
}

/// `settled` says that no open transaction can still put a row before this one.
macro_rules! tail {
    ($from:literal) => {
        concat!(
            "SELECT events.xid::text AS xid, events.id, events.chain, events.seq, events.name, events.call, events.hold,
                    events.at, events.hash, events.body,
                    events.xid < pg_snapshot_xmin(pg_current_snapshot()) AS settled
             FROM ",
            $from
        )
    };
}

const OF_ALL: &str = tail!("events WHERE (xid, id) > ($1::xid8, $2) ORDER BY events.xid, id LIMIT $3");
const OF_CALL: &str = tail!("events WHERE call = $4 AND (xid, id) > ($1::xid8, $2) ORDER BY events.xid, id LIMIT $3");
const OPENINGS: &str =
    tail!("events WHERE call = ANY($1) AND hold = ANY($2) AND name = 'hold.opened' ORDER BY events.xid, id");
const OF_CHAIN: &str = tail!(
    "events WHERE chain = $4 AND (xid, id) > ($1::xid8, $2) AND ($5::uuid IS NULL OR call = $5)
     ORDER BY events.xid, id LIMIT $3"
);
const OF_SESSION: &str = tail!(
    "chains CROSS JOIN LATERAL (
         SELECT * FROM events
         WHERE chain = chains.name AND (xid, id) > ($1::xid8, $2) AND ($5::uuid IS NULL OR call = $5)
         ORDER BY events.xid, id LIMIT $3
     ) AS events
     WHERE chains.session = $4 ORDER BY events.xid, id LIMIT $3"
);

/// Reads events after a cursor, in the order of their transactions, and only those below which none is open.
///
/// A chain's events, and so a call's, commit in the order of the chain: they need not wait for anybody. Any other tail
/// waits for transactions in flight, those of other databases on the same server too. A transaction that stays open
/// for long holds it up for as long.
pub(super) async fn events(
    pool: &PgPool,
    after: Cursor,
    filter: &EventFilter,
    settle_within: Duration,
) -> Result<Vec<Event>, StoreError> {
    let one_chain = filter.chain.is_some() || filter.call.is_some();
    let began = tokio::time::Instant::now();
    let mut pause = Duration::from_millis(2);
    let mut wanted = None;
    loop {
        let mut rows = tail(pool, after, filter).await?;
        let last = rows.last().map(rows::cursor).transpose()?;
        // Everything that had committed when the reading began; what commits meanwhile is for the next one.
        let wanted = *wanted.get_or_insert(last);
        let settled = |row: &PgRow| row.try_get::<bool, _>("settled").unwrap_or(false);
        let ready = if one_chain { rows.len() } else { rows.iter().take_while(|row| settled(row)).count() };
        rows.truncate(ready);
        if rows.last().map(rows::cursor).transpose()? >= wanted || began.elapsed() > settle_within {
            return rows.iter().map(rows::event).collect();
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

async fn tail(pool: &PgPool, after: Cursor, filter: &EventFilter) -> Result<Vec<PgRow>, StoreError> {
    let (xid, id, most) = (after.major.to_string(), number(after.minor), page(filter.limit));
    let call = filter.call.map(Key::from);
    let query = match (&filter.chain, &filter.session, call) {
        (Some(chain), session, call) => {
            if session.as_deref().is_some_and(|session| rows::session_of(chain) != Some(session)) {
                return Ok(Vec::new());
            }
            sqlx::query(OF_CHAIN).bind(xid).bind(id).bind(most).bind(chain.0.to_string()).bind(call)
        }
        (None, Some(session), call) => {
            sqlx::query(OF_SESSION).bind(xid).bind(id).bind(most).bind(session.to_string()).bind(call)
        }
        (None, None, Some(call)) => sqlx::query(OF_CALL).bind(xid).bind(id).bind(most).bind(call),
        (None, None, None) => sqlx::query(OF_ALL).bind(xid).bind(id).bind(most),
    };
    query.fetch_all(pool).await.map_err(failed)
}

/// The events by which holds opened. Whoever names a hold has seen it committed, and its event with it.
pub(super) async fn openings(pool: &PgPool, holds: &[(CallId, HoldId)]) -> Result<Vec<Event>, StoreError> {
    let calls: Vec<Key> = holds.iter().map(|(call, _)| Key::from(*call)).collect();
    let ids: Vec<Key> = holds.iter().map(|(_, hold)| Key::from(*hold)).collect();
    let rows = sqlx::query(OPENINGS).bind(calls).bind(ids).fetch_all(pool).await.map_err(failed)?;
    rows.iter().map(rows::event).collect()
}

pub(super) async fn halted(pool: &PgPool, path: &Path) -> Result<bool, StoreError> {
    let rows = sqlx::query("SELECT scope FROM halts").fetch_all(pool).await.map_err(failed)?;
    let scopes = rows.iter().map(|row| row.try_get::<String, _>(0).map_err(failed));
    Ok(is_halted(&scopes.collect::<Result<HashSet<_>, _>>()?, path))
}

pub(super) async fn policy(pool: &PgPool) -> Result<Option<(Arc<str>, Arc<str>)>, StoreError> {
    let query = sqlx::query("SELECT policy_version, policy_source FROM ruling");
    let row = query.fetch_one(pool).await.map_err(failed)?;
    let text = |column: &str| row.try_get::<Option<&str>, _>(column).map_err(failed);
    Ok(text("policy_version")?.zip(text("policy_source")?).map(|(version, source)| (version.into(), source.into())))
}
