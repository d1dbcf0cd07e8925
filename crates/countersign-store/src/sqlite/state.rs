//! What a transition reads and writes: SQL on the writer's connection, inside its transaction.
//!
//! Chain heads and counters change in memory and are written once, before the commit. What was read or written stays in
//! the [`Cache`] for as long as the database proves that nobody else wrote.

use std::sync::Arc;

use countersign::call::{Call, CallState, Chain, Path, ToolId};
use countersign::digest::ArgumentDigest;
use countersign::event::{Draft, EventName, Head};
use countersign::grant::Grant;
use countersign::id::{CallId, GrantId, HoldId};
use countersign::limits::Waiting;
use countersign::refusal::Refusal;
use countersign::store::{Halted, MovedHeads, State, StoreError};
use countersign::time::Time;
use rusqlite::{CachedStatement, Connection, OptionalExtension as _, Params, params};

use super::cache::{Any, Cache, ChainRow, Meta, WaitingRow};
use super::puts::Put;
use super::rows;

// Reads that must find their rows by an index, however many there are; `plans.rs` checks that they do.
pub(super) const BY_KEY: &str = "SELECT r.body, standing FROM calls JOIN requests r ON r.call = n WHERE principal = ?1 \
     AND chain = (SELECT id FROM chains WHERE name = ?2) AND run = ?3 AND key = ?4";
pub(super) const DENIAL: &str = "SELECT r.body, standing FROM calls JOIN requests r ON r.call = n WHERE principal = ?1 \
     AND chain = (SELECT id FROM chains WHERE name = ?2) AND run = ?3 AND argument_digest = ?4 AND denied = 1 \
     ORDER BY id DESC LIMIT 1";
pub(super) const DOUBT: &str = "SELECT id FROM calls WHERE chain = (SELECT id FROM chains WHERE name = ?1) \
     AND argument_digest = ?2 AND principal = ?3 AND state = 'in_doubt' ORDER BY id LIMIT 1";
pub(super) const GRANTS: &str = "SELECT body FROM grants WHERE target IN (?1, ?2) AND revoked = 0 AND principal = ?3 \
     AND expires_at > ?4 AND (session IS NULL OR session = ?5) ORDER BY session IS NULL, id";
pub(super) const MOVED: &str = "SELECT name, seq, head FROM chains \
     WHERE id IN (SELECT chain FROM events WHERE id > ?1) AND signed < seq ORDER BY name";
pub(super) const ANY_GRANT: &str = "SELECT EXISTS (SELECT 1 FROM grants)";
pub(super) const ANY_DOUBT: &str = "SELECT EXISTS (SELECT 1 FROM calls WHERE state = 'in_doubt')";
pub(super) const ANY_DENIAL: &str = "SELECT EXISTS (SELECT 1 FROM calls WHERE denied = 1)";
pub(super) const OF_ID: &str = "SELECT r.body, standing FROM calls JOIN requests r ON r.call = n WHERE id = ?1";
pub(super) const OF_HOLD: &str = "SELECT r.body, standing FROM calls JOIN requests r ON r.call = n \
     WHERE n = (SELECT call FROM holds WHERE id = ?1)";

/// One transaction of the writer.
pub(super) struct Batch<'c> {
    pub(super) connection: &'c Connection,
    pub(super) cache: &'c mut Cache,
    /// What was run so far, to be run again: looking a statement up by its text each time took as long as some of them run.
    statements: Vec<(&'static str, CachedStatement<'c>)>,
    /// The calls that the operation at hand changed.
    pub(super) puts: Vec<Put>,
    pub(super) now: Time,
    /// Why the whole transaction is lost, if it is.
    pub(super) broken: Option<String>,
    pub(super) news: News,
}

/// What to tell once the transaction is committed.
#[derive(Clone, Debug, Default)]
pub(super) struct News {
    pub(super) calls: Vec<CallId>,
    pub(super) any: bool,
    pub(super) all: bool,
    /// The first and last event written.
    pub(super) events: Option<(i64, i64)>,
}

impl<'c> Batch<'c> {
    pub(super) fn new(connection: &'c Connection, cache: &'c mut Cache) -> Batch<'c> {
        Batch {
            connection,
            cache,
            statements: Vec::new(),
            puts: Vec::new(),
            now: Time::default(),
            broken: None,
            news: News::default(),
        }
    }

    /// Forgets what was read: the transaction was rolled back to before it.
    pub(super) fn forget(&mut self) {
        self.puts.clear();
        self.cache.forget();
    }

    /// Writes what was kept in memory. Nothing is committed before.
    pub(super) fn flush(&mut self) -> Result<(), StoreError> {
        let connection = self.connection;
        let mut changed = Vec::new();
        for row in self.cache.chains.values_mut().filter(|row| row.changed) {
            let (seq, signed) = (rows::signed(row.head.seq)?, rows::signed(row.signed)?);
            let (pending, stored) = (rows::signed(row.pending)?, rows::signed(row.stored)?);
            changed.push((row.id, seq, *row.head.hash.as_bytes(), signed, pending, stored, row.ends));
            row.stored = row.head.seq;
            row.changed = false;
        }
        const CHAIN: &str = "UPDATE chains SET seq = ?2, head = ?3, signed = ?4, pending = ?5, first = ?7, last = ?8 \
             WHERE id = ?1 AND seq = ?6";
        for (id, seq, head, signed, pending, stored, (first, last)) in changed {
            self.write_one(CHAIN, params![id, seq, head, signed, pending, stored, first, last], "chain")?;
        }
        self.flush_waiting()?;
        let Some(meta) = self.cache.meta.as_mut().filter(|meta| meta.changed) else { return Ok(()) };
        meta.changed = false;
        let checkpoint = meta.last_checkpoint.map(|hash| *hash.as_bytes());
        let values = params![meta.policy.as_deref(), meta.signed_event, checkpoint];
        const META: &str = "UPDATE meta SET policy = ?1, signed_event = ?2, last_checkpoint = ?3";
        let written = connection.prepare_cached(META).and_then(|mut statement| statement.execute(values));
        written.map_err(|error| self.sql(error))?;
        Ok(())
    }

    fn flush_waiting(&mut self) -> Result<(), StoreError> {
        const WAITING: &str = "INSERT INTO waiting (principal, pending) VALUES (?1, ?2) \
             ON CONFLICT (principal) DO UPDATE SET pending = excluded.pending";
        let mut changed = Vec::new();
        for (principal, row) in self.cache.waiting.iter_mut().filter(|(_, row)| row.changed) {
            changed.push((Arc::clone(principal), rows::signed(row.pending)?));
            row.changed = false;
        }
        for (principal, pending) in changed {
            self.write_one(WAITING, params![&*principal, pending], "count of waiting calls")?;
        }
        Ok(())
    }

    /// An SQL error. One that is not about a constraint is about the disk or the file: then nothing of the whole
    /// transaction may be believed.
    pub(super) fn sql(&mut self, error: rusqlite::Error) -> StoreError {
        if error.sqlite_error_code() != Some(rusqlite::ErrorCode::ConstraintViolation) {
            self.broken = Some(error.to_string());
        }
        rows::failed(error)
    }

    /// A statement, found by where its text lies.
    fn statement(&mut self, sql: &'static str) -> rusqlite::Result<&mut CachedStatement<'c>> {
        let at = match self.statements.iter().position(|(known, _)| std::ptr::eq(*known, sql)) {
            Some(at) => at,
            None => {
                self.statements.push((sql, self.connection.prepare_cached(sql)?));
                self.statements.len() - 1
            }
        };
        // It was found or pushed just now.
        self.statements.get_mut(at).map(|(_, statement)| statement).ok_or(rusqlite::Error::InvalidQuery)
    }

    /// Reads one row.
    pub(super) fn one<T>(
        &mut self,
        sql: &'static str,
        values: impl Params,
        read: impl FnOnce(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, StoreError> {
        let found = self.statement(sql).and_then(|statement| statement.query_row(values, read).optional());
        found.map_err(|error| self.sql(error))
    }

    /// Reads the call of a row with its two parts.
    fn one_call(
        &mut self,
        sql: &'static str,
        values: impl Params,
        id: Option<CallId>,
    ) -> Result<Option<Arc<Call>>, StoreError> {
        let parts = self.one(sql, values, rows::parts)?;
        parts.map(|parts| rows::call(&parts, id)).transpose()
    }

    fn write(&mut self, sql: &'static str, values: impl Params) -> Result<usize, StoreError> {
        let written = self.statement(sql).and_then(|statement| statement.execute(values));
        written.map_err(|error| self.sql(error))
    }

    /// Writes exactly one row. Anything else means that it is not the row that was read.
    pub(super) fn write_one(
        &mut self,
        sql: &'static str,
        values: impl Params,
        what: &'static str,
    ) -> Result<(), StoreError> {
        match self.write(sql, values)? {
            1 => Ok(()),
            _ => Err(StoreError::Failed(format!("the {what} changed meanwhile"))),
        }
    }

    /// Whether there is any row of a kind at all. Looked up once; whoever writes one says so.
    fn any(&mut self, sql: &'static str, known: impl Fn(&mut Any) -> &mut Option<bool>) -> Result<bool, StoreError> {
        if let Some(found) = *known(&mut self.cache.any) {
            return Ok(found);
        }
        let connection = self.connection;
        let read = connection.prepare_cached(sql).and_then(|mut statement| statement.query_row([], |row| row.get(0)));
        let found = read.map_err(|error| self.sql(error))?;
        *known(&mut self.cache.any) = Some(found);
        Ok(found)
    }

    fn meta(&mut self) -> Result<&mut Meta, StoreError> {
        if self.cache.meta.is_none() {
            const READ: &str = "SELECT policy, signed_event, last_checkpoint FROM meta";
            let connection = self.connection;
            let read = connection.prepare_cached(READ).and_then(|mut statement| {
                statement.query_row([], |row| {
                    let policy: Option<String> = row.get(0)?;
                    Ok((policy, row.get::<_, i64>(1)?, row.get::<_, Option<Vec<u8>>>(2)?))
                })
            });
            let (policy, signed_event, checkpoint) = read.map_err(|error| self.sql(error))?;
            self.cache.meta = Some(Meta {
                policy: policy.map(Into::into),
                signed_event,
                last_checkpoint: checkpoint.map(|bytes| rows::hash(&bytes)).transpose()?,
                changed: false,
            });
        }
        self.cache.meta.as_mut().ok_or(StoreError::Closed)
    }

    pub(super) fn chain(&mut self, chain: &Chain) -> Result<&mut ChainRow, StoreError> {
        if !self.cache.chains.contains_key(chain) {
            let row = match self.read_chain(chain)? {
                Some(row) => row,
                None => self.new_chain(chain)?,
            };
            self.cache.chains.insert(chain.clone(), row);
        }
        self.cache.chains.get_mut(chain).ok_or(StoreError::Closed)
    }

    fn read_chain(&mut self, chain: &Chain) -> Result<Option<ChainRow>, StoreError> {
        const READ: &str = "SELECT id, seq, head, signed, pending, first, last FROM chains WHERE name = ?1";
        let row = self.one(READ, [&*chain.0], |row| {
            let numbers: (i64, i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(3)?, row.get(4)?);
            Ok((numbers, row.get::<_, Vec<u8>>(2)?, (row.get(5)?, row.get(6)?)))
        })?;
        let Some(((id, seq, signed, pending), head, ends)) = row else { return Ok(None) };
        let stored = seq.unsigned_abs();
        let head = Head { seq: stored, hash: rows::hash(&head)? };
        let (signed, pending) = (signed.unsigned_abs(), pending.unsigned_abs());
        Ok(Some(ChainRow { id, head, ends, signed, pending, stored, changed: false }))
    }

    fn new_chain(&mut self, chain: &Chain) -> Result<ChainRow, StoreError> {
        const NEW: &str = "INSERT INTO chains (name, session, seq, head, first, last, signed, pending) \
             VALUES (?1, ?2, 0, ?3, 0, 0, 0, 0)";
        let head = Head::default();
        let session = chain.0.split_once('/').map(|(_, session)| session);
        self.write_one(NEW, params![&*chain.0, session, head.hash.as_bytes()], "chain")?;
        let id = self.connection.last_insert_rowid();
        Ok(ChainRow { id, head, ends: (0, 0), signed: 0, pending: 0, stored: 0, changed: false })
    }

    fn waiting(&mut self, principal: &Arc<str>) -> Result<&mut WaitingRow, StoreError> {
        if !self.cache.waiting.contains_key(principal) {
            const READ: &str = "SELECT pending FROM waiting WHERE principal = ?1";
            let pending: Option<i64> = self.one(READ, [&**principal], |row| row.get(0))?;
            let row = WaitingRow { pending: pending.unwrap_or(0).unsigned_abs(), changed: false };
            self.cache.waiting.insert(Arc::clone(principal), row);
        }
        self.cache.waiting.get_mut(principal).ok_or(StoreError::Closed)
    }

    /// How many calls wait, whoever's.
    fn waiting_in_all(&mut self) -> Result<u64, StoreError> {
        if let Some(pending) = self.cache.waiting_in_all {
            return Ok(pending);
        }
        // What was counted so far may be in memory only.
        self.flush_waiting()?;
        let pending: Option<i64> = self.one("SELECT coalesce(sum(pending), 0) FROM waiting", [], |row| row.get(0))?;
        let pending = pending.unwrap_or(0).unsigned_abs();
        self.cache.waiting_in_all = Some(pending);
        Ok(pending)
    }

    fn halts(&mut self) -> Result<&[String], StoreError> {
        if self.cache.halts.is_none() {
            let connection = self.connection;
            let read = connection.prepare_cached("SELECT who FROM halts").and_then(|mut statement| {
                let halts = statement.query_map([], |row| row.get(0))?;
                halts.collect::<rusqlite::Result<Vec<String>>>()
            });
            self.cache.halts = Some(read.map_err(|error| self.sql(error))?);
        }
        Ok(self.cache.halts.as_deref().unwrap_or_default())
    }

    fn count_pending(&mut self, chain: &Chain, principal: &Arc<str>, by: i64) -> Result<(), StoreError> {
        if by == 0 {
            return Ok(());
        }
        let miscounted = || rows::damaged("count of pending calls", "it would fall below zero");
        let in_all = self.waiting_in_all()?.checked_add_signed(by).ok_or_else(miscounted)?;
        let row = self.chain(chain)?;
        row.pending = row.pending.checked_add_signed(by).ok_or_else(miscounted)?;
        row.changed = true;
        let waiting = self.waiting(principal)?;
        waiting.pending = waiting.pending.checked_add_signed(by).ok_or_else(miscounted)?;
        waiting.changed = true;
        self.cache.waiting_in_all = Some(in_all);
        Ok(())
    }

    fn heads_since(&mut self, event: i64) -> rusqlite::Result<Vec<(String, i64, Vec<u8>)>> {
        let mut statement = self.connection.prepare_cached(MOVED)?;
        let heads = statement.query_map([event], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        heads.collect()
    }

    fn last_event(&mut self) -> Result<i64, StoreError> {
        let read = self.connection.query_row("SELECT coalesce(max(id), 0) FROM events", [], |row| row.get(0));
        read.map_err(|error| self.sql(error))
    }

    fn grant_bodies(
        &mut self,
        path: &Path,
        tool: &ToolId,
        arguments: &ArgumentDigest,
    ) -> rusqlite::Result<Vec<rusqlite::Result<String>>> {
        let mut statement = self.connection.prepare_cached(GRANTS)?;
        let (exact, wide) = (&arguments.as_bytes()[..], rows::tool_target(tool));
        let values = params![exact, wide, &*path.principal, self.now.0, path.session.as_deref()];
        let bodies = statement.query_map(values, |row| row.get(0))?;
        Ok(bodies.collect())
    }
}

impl State for Batch<'_> {
    fn now(&self) -> Time {
        self.now
    }

    fn call(&mut self, id: CallId) -> Result<Option<Arc<Call>>, StoreError> {
        if let Some(call) = self.put(|call| call.id == id).or_else(|| self.cache.calls.call(id)) {
            return Ok(Some(Arc::clone(call)));
        }
        self.one_call(OF_ID, [id.as_bytes()], Some(id))
    }

    fn call_of_hold(&mut self, hold: HoldId) -> Result<Option<Arc<Call>>, StoreError> {
        let is_held = |call: &Call| call.holds.iter().any(|row| row.id == hold);
        if let Some(call) = self.put(is_held).or_else(|| self.cache.calls.call_of_hold(hold)) {
            return Ok(Some(Arc::clone(call)));
        }
        self.one_call(OF_HOLD, [hold.as_bytes()], None)
    }

    fn call_by_key(&mut self, path: &Path, key: &str) -> Result<Option<Arc<Call>>, StoreError> {
        self.one_call(BY_KEY, params![&*path.principal, &*path.chain().0, rows::run(path), key], None)
    }

    fn denial(&mut self, path: &Path, arguments: &ArgumentDigest) -> Result<Option<Refusal>, StoreError> {
        if !self.any(ANY_DENIAL, |any| &mut any.denial)? {
            return Ok(None);
        }
        let place = params![&*path.principal, &*path.chain().0, rows::run(path), arguments.as_bytes()];
        Ok(self.one_call(DENIAL, place, None)?.and_then(|call| call.refusal.clone()))
    }

    fn doubt(&mut self, path: &Path, arguments: &ArgumentDigest) -> Result<Option<CallId>, StoreError> {
        if !self.any(ANY_DOUBT, |any| &mut any.doubt)? {
            return Ok(None);
        }
        let place = params![&*path.chain().0, arguments.as_bytes(), &*path.principal];
        let id = self.one(DOUBT, place, |row| row.get::<_, Vec<u8>>(0))?;
        id.map(|bytes| rows::call_id(&bytes)).transpose()
    }

    fn grants_for(&mut self, path: &Path, tool: &ToolId, arguments: &ArgumentDigest) -> Result<Vec<Grant>, StoreError> {
        if !self.any(ANY_GRANT, |any| &mut any.grant)? {
            return Ok(Vec::new());
        }
        let bodies = self.grant_bodies(path, tool, arguments).map_err(|error| self.sql(error))?;
        let mut grants = Vec::with_capacity(bodies.len());
        for body in bodies {
            let body = body.map_err(|error| self.sql(error))?;
            // SECURITY: a grant that cannot be read grants nothing; the call is asked about.
            grants.extend(rows::readable_grant(&body));
        }
        Ok(grants)
    }

    fn grant(&mut self, id: GrantId) -> Result<Option<Grant>, StoreError> {
        let body: Option<String> =
            self.one("SELECT body FROM grants WHERE id = ?1", [id.as_bytes()], |row| row.get(0))?;
        Ok(body.and_then(|body| rows::readable_grant(&body)))
    }

    fn pending(&mut self, path: &Path) -> Result<Waiting, StoreError> {
        let in_session = match &path.session {
            Some(_) => self.chain(&path.chain())?.pending,
            None => 0,
        };
        let of_agent = self.waiting(&path.principal)?.pending;
        Ok(Waiting { in_session, of_agent, in_all: self.waiting_in_all()? })
    }

    fn halted(&mut self, path: &Path) -> Result<bool, StoreError> {
        let halts = self.halts()?;
        if halts.is_empty() {
            return Ok(false);
        }
        let is_set = |who: &str| halts.iter().any(|halt| halt == who);
        Ok(is_set("all") || path.agents.iter().any(|agent| is_set(&rows::halt(Some(agent)))))
    }

    fn halt_is_set(&mut self, agent: Option<&str>) -> Result<bool, StoreError> {
        let who = rows::halt(agent);
        Ok(self.halts()?.contains(&who))
    }

    fn policy_version(&mut self) -> Result<Option<Arc<str>>, StoreError> {
        Ok(self.meta()?.policy.clone())
    }

    fn moved_heads(&mut self) -> Result<MovedHeads, StoreError> {
        // Heads may so far be in memory only.
        self.flush()?;
        let meta = self.meta()?;
        let (signed_event, previous) = (meta.signed_event, meta.last_checkpoint);
        let mut heads = Vec::new();
        for (name, seq, hash) in self.heads_since(signed_event).map_err(|error| self.sql(error))? {
            heads.push((Chain(name.into()), Head { seq: seq.unsigned_abs(), hash: rows::hash(&hash)? }));
        }
        Ok(MovedHeads { heads, previous })
    }

    fn put_call(&mut self, chain: &Chain, call: Arc<Call>, before: Option<&Call>) -> Result<(), StoreError> {
        let waits = |call: &Call| call.waiting() as i64;
        self.count_pending(chain, &call.facts.path.principal, waits(&call) - before.map_or(0, waits))?;
        self.news.calls.push(call.id);
        if call.state == CallState::InDoubt {
            self.cache.any.doubt = Some(true);
        }
        if rows::is_remembered_denial(&call) {
            self.cache.any.denial = Some(true);
        }
        self.put_later(chain, call, before)
    }

    fn put_grant(&mut self, grant: &Grant) -> Result<(), StoreError> {
        self.cache.any.grant = Some(true);
        const INSERT: &str = "INSERT INTO grants (id, principal, session, target, expires_at, revoked, version, body) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
        const UPDATE: &str = "UPDATE grants SET expires_at = ?3, revoked = ?4, version = ?5, body = ?6 \
             WHERE id = ?1 AND version = ?2";
        let body = rows::text(serde_json::to_string(grant))?;
        let (id, revoked) = (grant.id.as_bytes(), grant.revoked.is_some());
        let (expires_at, version) = (grant.expires_at.0, rows::signed(grant.version)?);
        // A change writes over exactly the version before it: no save in flight undoes a revoke.
        if version > 0 {
            return self.write_one(UPDATE, params![id, version - 1, expires_at, revoked, version, body], "grant");
        }
        let (principal, session, target) = (&*grant.principal, rows::session_of(grant), rows::target(grant));
        let values = params![id, principal, session, target, expires_at, revoked, version, body];
        self.write_one(INSERT, values, "grant")
    }

    fn put_halt(&mut self, agent: Option<&str>, halted: Halted) -> Result<(), StoreError> {
        let who = rows::halt(agent);
        match halted {
            Halted::Yes => self.write("INSERT OR IGNORE INTO halts (who) VALUES (?1)", [&who])?,
            Halted::No => self.write("DELETE FROM halts WHERE who = ?1", [&who])?,
        };
        self.cache.halts = None;
        self.news.all = true;
        Ok(())
    }

    fn put_policy(&mut self, version: &str, source: &str) -> Result<(), StoreError> {
        const KEEP: &str = "INSERT INTO policies (version, source) VALUES (?1, ?2) \
             ON CONFLICT (version) DO UPDATE SET source = excluded.source";
        self.write_one(KEEP, [version, source], "policy")?;
        let meta = self.meta()?;
        meta.policy = Some(version.into());
        meta.changed = true;
        self.news.all = true;
        Ok(())
    }

    fn put_checkpoint(&mut self, heads: &[(Chain, Head)]) -> Result<(), StoreError> {
        for (chain, head) in heads {
            let row = self.chain(chain)?;
            row.signed = head.seq;
            row.changed = true;
        }
        let last = self.last_event()?;
        let meta = self.meta()?;
        meta.signed_event = last;
        meta.changed = true;
        Ok(())
    }

    fn append(&mut self, chain: &Chain, draft: Draft) -> Result<(), StoreError> {
        const INSERT: &str = "INSERT INTO events (chain, seq, name, call, hold, at, hash, body) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
        let now = self.now;
        let row = self.chain(chain)?;
        let event = row.head.seal(chain, now, draft);
        row.changed = true;
        let id = row.id;
        if event.name == EventName::CheckpointSigned {
            row.signed = event.seq;
            let meta = self.meta()?;
            meta.last_checkpoint = Some(event.hash);
            meta.changed = true;
        }
        let (call, hold) = (event.call.as_ref().map(CallId::as_bytes), event.hold.as_ref().map(HoldId::as_bytes));
        let (seq, name, hash) = (rows::signed(event.seq)?, event.name.as_str(), event.hash.as_bytes());
        self.write_one(INSERT, params![id, seq, name, call, hold, now.0, hash, &*event.body], "event")?;
        let id = self.connection.last_insert_rowid();
        self.chain(chain)?.reaches(id);
        if let Some(call) = event.call {
            self.told(call, id);
        }
        let first = self.news.events.map_or(id, |(first, _)| first);
        self.news.events = Some((first, id));
        self.news.any = true;
        Ok(())
    }
}
