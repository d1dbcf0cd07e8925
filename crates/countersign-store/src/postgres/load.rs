//! What a batch locks and fetches before its operations run.
//!
//! Two kinds of lock, both by agreement among nodes, both held until commit:
//!
//! - *the gate*: what lets calls run (halts, policy, revocations, checkpoints) changes only while it is held alone;
//!   every other batch shares it. So once `halt` returned, no claim that had not seen it can still commit.
//! - *one for each chain* that is written, taken in order, so that nodes never wait in a circle.
//!
//! INVARIANT: they are advisory locks because those take no transaction id. A batch gets its id when it first writes,
//! which is after its last lock; so along one chain ids only grow, and the tail's order is the chain's order.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use countersign::call::{Call, Chain};
use countersign::event::Head;
use countersign::grant::Grant;
use countersign::id::{CallId, GrantId, HoldId};
use countersign::store::{Op, StoreError, Submitted};
use countersign::time::Time;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};

use super::Node;
use super::batch::Trouble;
use super::rows::{self, Key, count, failed, number, place};
use super::world::{ChainRow, Place, World};
use crate::known::Known;

/// The two families of lock keys.
const GATE: i32 = 0x6373_0001;
const CHAIN: i32 = 0x6373_0002;

/// Whether a batch needs the gate for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    Shared,
    Alone,
}

fn gate(op: &Op) -> Gate {
    match op {
        Op::Beside { op, .. } => gate(op),
        Op::Halt { .. }
        | Op::Lift { .. }
        | Op::OfferPolicy { .. }
        | Op::SetPolicy { .. }
        | Op::Grant(_)
        | Op::Revoke { .. }
        | Op::Checkpoint { .. } => Gate::Alone,
        Op::Submit(_)
        | Op::Decide(_)
        | Op::Release { .. }
        | Op::Close { .. }
        | Op::Cancel { .. }
        | Op::Claim { .. }
        | Op::Renew { .. }
        | Op::Ask { .. }
        | Op::Finish { .. }
        | Op::Resolve { .. }
        | Op::Tick { .. }
        | Op::Note { .. } => Gate::Shared,
    }
}

/// Everything a batch of operations reads.
pub(super) struct Plan {
    gate: Gate,
    calls: BTreeSet<CallId>,
    holds: BTreeSet<HoldId>,
    grants: BTreeSet<GrantId>,
    chains: BTreeSet<Chain>,
    submissions: Vec<Submitted>,
    heads: bool,
    counts: bool,
}

impl Plan {
    pub(super) fn of(ops: &[Arc<Op>]) -> Plan {
        let mut plan = Plan {
            gate: Gate::Shared,
            calls: BTreeSet::new(),
            holds: BTreeSet::new(),
            grants: BTreeSet::new(),
            chains: BTreeSet::new(),
            submissions: Vec::new(),
            heads: false,
            counts: false,
        };
        for op in ops {
            let needs = op.needs();
            if gate(op) == Gate::Alone {
                plan.gate = Gate::Alone;
            }
            if let Op::Grant(grant) = &**op {
                plan.grants.insert(grant.id);
            }
            plan.calls.extend(needs.call);
            plan.holds.extend(needs.hold);
            plan.grants.extend(needs.grant);
            plan.chains.extend(needs.chains);
            plan.submissions.extend(needs.submission);
            plan.heads |= needs.heads;
            plan.counts |= needs.waiting;
        }
        plan
    }

    /// Whether the number of waiting holds matters.
    pub(super) fn counts(&self) -> bool {
        self.counts
    }
}

/// Locks and fetches all that the plan names.
pub(super) async fn load(connection: &mut PgConnection, mut plan: Plan, node: &Node) -> Result<World, Trouble> {
    let mut world = World::default();
    let Resolved { chains: found, calls: named, holds } = resolve(connection, &plan, node).await?;
    plan.chains.extend(found);
    world.holds = holds;
    world.asked.calls = plan.calls.iter().copied().collect();
    world.asked.holds = plan.holds.iter().copied().collect();
    lock(connection, &plan).await?;
    chains(connection, &plan, &mut world, node).await?;
    calls(connection, &named, &plan.submissions, &mut world).await?;
    grants(connection, &mut plan, &mut world).await?;
    Ok(world)
}

#[derive(Default)]
struct Resolved {
    chains: Vec<Chain>,
    calls: Vec<Named>,
    holds: HashMap<HoldId, CallId>,
}

/// A call that a batch names, and as this node last wrote it, where it did.
struct Named {
    id: Key,
    known: Option<Arc<Call>>,
}

const RESOLVE: &str = "
    SELECT NULL::uuid AS hold, id AS call, chain FROM calls WHERE id = ANY($1)
    UNION ALL
    SELECT holds.id, calls.id, calls.chain FROM holds JOIN calls ON calls.id = holds.call WHERE holds.id = ANY($2)";

/// Finds the chains of the calls and holds named. A call never changes its chain, so this needs no lock yet, nor a look
/// at the database for a call that this node wrote; one that is not there by now counts as not there.
async fn resolve(connection: &mut PgConnection, plan: &Plan, node: &Node) -> Result<Resolved, Trouble> {
    let mut resolved = Resolved::default();
    let (calls, holds) = resolved.take_known(plan, &node.known());
    if calls.is_empty() && holds.is_empty() {
        return Ok(resolved);
    }
    for row in sqlx::query(RESOLVE).bind(calls).bind(holds).fetch_all(connection).await? {
        let call: Key = row.try_get("call")?;
        if let Some(hold) = row.try_get::<Option<Key>, _>("hold")? {
            resolved.holds.insert(hold.hold(), call.call());
        }
        resolved.calls.push(Named { id: call, known: None });
        resolved.chains.push(Chain(row.try_get::<&str, _>("chain")?.into()));
    }
    Ok(resolved)
}

impl Resolved {
    /// Takes what this node knows, and returns the calls and holds it does not.
    fn take_known(&mut self, plan: &Plan, known: &Known<()>) -> (Vec<Key>, Vec<Key>) {
        let (mut calls, mut holds) = (Vec::new(), Vec::new());
        for id in &plan.calls {
            match known.call(*id) {
                Some(call) => self.take(call),
                None => calls.push(Key::from(*id)),
            }
        }
        for id in &plan.holds {
            match known.call_of_hold(*id) {
                Some(call) => {
                    self.holds.insert(*id, call.id);
                    self.take(call);
                }
                None => holds.push(Key::from(*id)),
            }
        }
        (calls, holds)
    }

    fn take(&mut self, call: &Arc<Call>) {
        self.chains.push(call.facts.path.chain());
        self.calls.push(Named { id: Key::from(call.id), known: Some(Arc::clone(call)) });
    }
}

const LOCK: &str = "
    SELECT CASE WHEN shared THEN pg_advisory_xact_lock_shared(family, key) ELSE pg_advisory_xact_lock(family, key) END
    FROM unnest($1::int4[], $2::int4[], $3::bool[]) AS wanted (family, key, shared)";

async fn lock(connection: &mut PgConnection, plan: &Plan) -> Result<(), Trouble> {
    let mut wanted = vec![(GATE, 0, plan.gate == Gate::Shared)];
    if plan.gate == Gate::Shared {
        let keys: BTreeSet<i32> = plan.chains.iter().map(lock_key).collect();
        wanted.extend(keys.into_iter().map(|key| (CHAIN, key, false)));
    }
    let families: Vec<i32> = wanted.iter().map(|(family, _, _)| *family).collect();
    let keys: Vec<i32> = wanted.iter().map(|(_, key, _)| *key).collect();
    let shared: Vec<bool> = wanted.iter().map(|(_, _, shared)| *shared).collect();
    sqlx::query(LOCK).bind(families).bind(keys).bind(shared).execute(connection).await?;
    Ok(())
}

/// Names a chain's lock: FNV-1a, the same on every node. Two chains with one key only wait for each other.
fn lock_key(chain: &Chain) -> i32 {
    let hash = chain.0.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    hash.cast_signed()
}

/// One row at least: the clock, what holds for all nodes, and no chain.
const CHAINS: &str = "
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now, policy_version, checkpoint,
           ARRAY(SELECT scope FROM halts) AS halts, name, seq, head, signed, pending
    FROM ruling LEFT JOIN chains ON name = ANY($1)";
const MOVED: &str = "SELECT name, seq, head, signed, pending FROM chains WHERE moved";

/// Reads the clock, once for the batch, what holds for all nodes, and the chains.
async fn chains(connection: &mut PgConnection, plan: &Plan, world: &mut World, node: &Node) -> Result<(), Trouble> {
    world.chains.extend(plan.chains.iter().map(|chain| (chain.clone(), ChainRow::default())));
    let names: Vec<&str> = plan.chains.iter().map(|chain| &*chain.0).collect();
    let mut found = sqlx::query(CHAINS).bind(names).fetch_all(&mut *connection).await?;
    let moment = found.first().ok_or(sqlx::Error::RowNotFound)?;
    world.now = node.time(Time(moment.try_get("now")?));
    world.policy_version = moment.try_get::<Option<&str>, _>("policy_version")?.map(Arc::from);
    world.checkpoint = moment.try_get::<Option<&[u8]>, _>("checkpoint")?.map(rows::event_hash).transpose()?;
    world.halts = moment.try_get::<Vec<String>, _>("halts")?.into_iter().collect();
    found.retain(|row| row.try_get::<Option<&str>, _>("name").is_ok_and(|name| name.is_some()));
    if plan.heads {
        found.extend(sqlx::query(MOVED).fetch_all(connection).await?);
        world.asked.heads = true;
    }
    for row in &found {
        let (chain, row) = chain(row)?;
        world.chains.insert(chain, row);
    }
    Ok(())
}

fn chain(row: &PgRow) -> Result<(Chain, ChainRow), StoreError> {
    let integer = |column: &str| row.try_get::<i64, _>(column).map(count).map_err(failed);
    let seq = integer("seq")?;
    let head = Head { seq, hash: rows::event_hash(row.try_get("head").map_err(failed)?)? };
    let chain = Chain(row.try_get::<&str, _>("name").map_err(failed)?.into());
    let row =
        ChainRow { stored: Some(seq), head, signed: integer("signed")?, pending: integer("pending")?, dirty: false };
    Ok((chain, row))
}

/// A call that is still as this node wrote it comes without its body: a version never changes what it says.
const CALLS: &str = "
    SELECT true AS named, id, version, body, CASE WHEN version <> known THEN standing END AS standing
    FROM unnest($1::uuid[], $7::int8[]) AS named (call, known) JOIN calls ON calls.id = named.call
    LEFT JOIN requests ON requests.call = calls.id AND version <> known
    UNION ALL
    SELECT false, id, version, body, standing
    FROM unnest($2::text[], $3::text[], $4::text[], $5::text[]) AS new (chain, principal, place, key)
    JOIN requests ON requests.chain = new.chain AND requests.principal = new.principal AND requests.place = new.place
                 AND requests.key = new.key
    JOIN calls ON calls.id = requests.call
    UNION ALL
    SELECT false, id, version, body, standing
    FROM unnest($2::text[], $3::text[], $4::text[], $6::bytea[]) AS new (chain, principal, place, argument)
    CROSS JOIN LATERAL (
        SELECT id, version, standing FROM calls
        WHERE denied AND chain = new.chain AND principal = new.principal AND place = new.place
          AND argument_digest = new.argument
        LIMIT 1
    ) AS denied
    JOIN requests ON requests.call = denied.id
    UNION ALL
    SELECT false, id, version, body, standing FROM unnest($2::text[], $3::text[], $6::bytea[]) AS new (chain, principal, argument)
    CROSS JOIN LATERAL (
        SELECT id, version, standing FROM calls
        WHERE state = 'in_doubt' AND chain = new.chain AND argument_digest = new.argument
          AND principal = new.principal
        LIMIT 1
    ) AS doubt
    JOIN requests ON requests.call = doubt.id";

async fn calls(
    connection: &mut PgConnection,
    named: &[Named],
    submissions: &[Submitted],
    world: &mut World,
) -> Result<(), Trouble> {
    for new in submissions {
        let here = Place::of(&new.path);
        if let Some(key) = &new.key {
            world.asked.keys.insert((here.clone(), Arc::clone(key)));
        }
        world.asked.arguments.insert((here, new.argument_digest));
    }
    if named.is_empty() && submissions.is_empty() {
        return Ok(());
    }
    let chains: Vec<String> = submissions.iter().map(|new| new.path.chain().0.to_string()).collect();
    let principals: Vec<&str> = submissions.iter().map(|new| &*new.path.principal).collect();
    let places: Vec<&str> = submissions.iter().map(|new| place(&new.path)).collect();
    let keys: Vec<Option<&str>> = submissions.iter().map(|new| new.key.as_deref()).collect();
    let arguments: Vec<[u8; 32]> = submissions.iter().map(|new| *new.argument_digest.as_bytes()).collect();
    let ids: Vec<Key> = named.iter().map(|named| named.id).collect();
    let known = |named: &Named| named.known.as_ref().map_or(-1, |call| number(call.version));
    let query = sqlx::query(CALLS).bind(ids).bind(chains).bind(principals).bind(places).bind(keys).bind(arguments);
    let found = query.bind(named.iter().map(known).collect::<Vec<i64>>()).fetch_all(connection).await?;
    let known: HashMap<Key, &Arc<Call>> =
        named.iter().filter_map(|named| named.known.as_ref().map(|call| (named.id, call))).collect();
    for row in found {
        let id: Key = row.try_get("id")?;
        if let (None, Some(call)) = (row.try_get::<Option<&str>, _>("standing")?, known.get(&id)) {
            world.fetched(Arc::clone(call));
            continue;
        }
        match rows::call(&row) {
            Ok(call) => world.fetched(call),
            // Only the operation that names a damaged call fails by it. A call that another is compared with must be
            // readable: an unreadable doubt is not no doubt.
            Err(StoreError::Damaged { why, .. }) if row.try_get("named")? => {
                world.calls.insert(id.call(), Err(why));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

const GRANTS: &str = "
    SELECT id, version, body, limited FROM grants WHERE id = ANY($1)
    UNION ALL
    SELECT id, version, body, limited FROM grants
    WHERE argument_digest = ANY($2) AND NOT revoked AND expires_at > $5 AND (session IS NULL OR session = ANY($4))
    UNION ALL
    SELECT id, version, body, limited FROM grants
    WHERE tool = ANY($3) AND argument_digest IS NULL AND NOT revoked AND expires_at > $5
      AND (session IS NULL OR session = ANY($4))";

/// A grant with a number of uses is spent by claims on any chain, so it is locked by itself, in order of id.
const LIMITED: &str = "SELECT id, version, body FROM grants WHERE id = ANY($1) ORDER BY id FOR UPDATE";

async fn grants(connection: &mut PgConnection, plan: &mut Plan, world: &mut World) -> Result<(), Trouble> {
    plan.grants.extend(world.calls.values().flatten().filter_map(|call| call.grant));
    world.asked.grants = plan.grants.iter().copied().collect();
    if plan.grants.is_empty() && plan.submissions.is_empty() {
        return Ok(());
    }
    let submissions = &plan.submissions;
    let ids: Vec<Key> = plan.grants.iter().copied().map(Key::from).collect();
    let arguments: Vec<[u8; 32]> = submissions.iter().map(|new| *new.argument_digest.as_bytes()).collect();
    let tools: Vec<&str> = submissions.iter().map(|new| &*new.tool.name).collect();
    let sessions: Vec<&str> = submissions.iter().filter_map(|new| new.path.session.as_deref()).collect();
    let query = sqlx::query(GRANTS).bind(ids).bind(arguments).bind(tools).bind(sessions).bind(world.now.0);
    let found = query.fetch_all(&mut *connection).await?;
    let mut limited: Vec<Key> = Vec::new();
    for row in &found {
        if row.try_get("limited")? {
            limited.push(row.try_get("id")?);
        }
        world.grants.extend(readable(row).map(|grant| (grant.id, grant)));
    }
    if plan.gate == Gate::Shared && !limited.is_empty() {
        for row in sqlx::query(LIMITED).bind(limited).fetch_all(connection).await? {
            world.grants.extend(readable(&row).map(|grant| (grant.id, grant)));
        }
    }
    Ok(())
}

/// A grant that cannot be read grants nothing.
fn readable(row: &PgRow) -> Option<Grant> {
    rows::grant(row).inspect_err(|error| tracing::warn!(%error, "a stored grant is passed over")).ok()
}
