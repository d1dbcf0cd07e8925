//! How our values stand in rows: ids as `uuid`, digests as `bytea`, numbers as `bigint`, whole values as JSON text.

use std::str::FromStr;
use std::sync::Arc;

use countersign::call::{Call, Chain, Path};
use countersign::digest::EventHash;
use countersign::event::{Cursor, Event, EventName};
use countersign::grant::Grant;
use countersign::id::{CallId, GrantId, HoldId};
use countersign::store::StoreError;
use countersign::time::Time;
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{PgArgumentBuffer, PgHasArrayType, PgRow, PgTypeInfo, PgValueFormat, PgValueRef};
use sqlx::{Decode, Encode, Postgres, Row, Type};

/// The sixteen bytes of an id, as PostgreSQL's `uuid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key([u8; 16]);

impl Key {
    /// Less than every id of ours.
    pub(super) const LEAST: Key = Key([0; 16]);
    /// Greater than every id of ours.
    pub(super) const GREATEST: Key = Key([u8::MAX; 16]);

    pub(super) fn call(self) -> CallId {
        CallId::from_bytes(self.0)
    }

    pub(super) fn hold(self) -> HoldId {
        HoldId::from_bytes(self.0)
    }
}

impl From<CallId> for Key {
    fn from(id: CallId) -> Key {
        Key(*id.as_bytes())
    }
}

impl From<HoldId> for Key {
    fn from(id: HoldId) -> Key {
        Key(*id.as_bytes())
    }
}

impl From<GrantId> for Key {
    fn from(id: GrantId) -> Key {
        Key(*id.as_bytes())
    }
}

// The numbers PostgreSQL itself gives to `uuid` and `uuid[]`; they never change.
impl Type<Postgres> for Key {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(Oid(2950))
    }
}

impl PgHasArrayType for Key {
    fn array_type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(Oid(2951))
    }
}

impl Encode<'_, Postgres> for Key {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        buffer.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }
}

impl Decode<'_, Postgres> for Key {
    fn decode(value: PgValueRef<'_>) -> Result<Key, BoxDynError> {
        match value.format() {
            PgValueFormat::Binary => Ok(Key(value.as_bytes()?.try_into()?)),
            PgValueFormat::Text => Err("an id came as text".into()),
        }
    }
}

/// What the driver says went wrong while reading.
pub(super) fn failed(error: sqlx::Error) -> StoreError {
    StoreError::Failed(error.to_string())
}

pub(super) fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(super) fn count(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// Where a key or a denial of this path counts: its run, else its session, else nowhere in particular.
pub(super) fn place(path: &Path) -> &str {
    path.run.as_deref().or(path.session.as_deref()).unwrap_or_default()
}

/// The session a chain belongs to; none for `system`.
pub(super) fn session_of(chain: &Chain) -> Option<&str> {
    chain.0.split_once('/').map(|(_, session)| session)
}

/// Reads columns `id`, `version`, `body` and `standing`. A row that contradicts itself is damaged.
pub(super) fn call(row: &PgRow) -> Result<Arc<Call>, StoreError> {
    let id: Key = row.try_get("id").map_err(failed)?;
    let version: i64 = row.try_get("version").map_err(failed)?;
    let (request, standing) = (row.try_get("body").map_err(failed)?, row.try_get("standing").map_err(failed)?);
    let damaged = |why: String| StoreError::Damaged { what: "call", why };
    let call = Call::from_json(request, standing).map_err(|error| damaged(error.to_string()))?;
    if Key::from(call.id) != id || number(call.version) != version {
        return Err(damaged(format!("{} is not what its row says", call.id)));
    }
    Ok(Arc::new(call))
}

/// Reads columns `id`, `version` and `body`.
pub(super) fn grant(row: &PgRow) -> Result<Grant, StoreError> {
    let id: Key = row.try_get("id").map_err(failed)?;
    let version: i64 = row.try_get("version").map_err(failed)?;
    let body: &str = row.try_get("body").map_err(failed)?;
    let damaged = |why: String| StoreError::Damaged { what: "grant", why };
    let grant: Grant = serde_json::from_str(body).map_err(|error| damaged(error.to_string()))?;
    if Key::from(grant.id) != id || number(grant.version) != version {
        return Err(damaged(format!("{} is not what its row says", grant.id)));
    }
    Ok(grant)
}

/// Reads a grant that must not keep anybody from the others: one that cannot be read grants nothing.
pub(super) fn readable_grant(row: &PgRow) -> Option<Grant> {
    grant(row).inspect_err(|error| tracing::warn!(%error, "a stored grant is passed over")).ok()
}

/// Reads an event, with `xid` as text.
pub(super) fn event(row: &PgRow) -> Result<Event, StoreError> {
    let damaged = |why: String| StoreError::Damaged { what: "event", why };
    let text = |column: &str| row.try_get::<&str, _>(column).map_err(failed);
    let integer = |column: &str| row.try_get::<i64, _>(column).map_err(failed);
    let key = |column: &str| row.try_get::<Option<Key>, _>(column).map_err(failed);
    Ok(Event {
        cursor: cursor(row)?,
        chain: Chain(text("chain")?.into()),
        seq: count(integer("seq")?),
        name: EventName::from_str(text("name")?).map_err(damaged)?,
        call: key("call")?.map(Key::call),
        hold: key("hold")?.map(Key::hold),
        at: Time(integer("at")?),
        hash: event_hash(row.try_get("hash").map_err(failed)?)?,
        body: text("body")?.into(),
    })
}

/// Reads an event's place in the log.
pub(super) fn cursor(row: &PgRow) -> Result<Cursor, StoreError> {
    let xid: &str = row.try_get("xid").map_err(failed)?;
    let id: i64 = row.try_get("id").map_err(failed)?;
    let major = xid.parse().map_err(|_| StoreError::Damaged { what: "event", why: format!("transaction `{xid}`") })?;
    Ok(Cursor { major, minor: count(id) })
}

pub(super) fn event_hash(bytes: &[u8]) -> Result<EventHash, StoreError> {
    let bytes = bytes
        .try_into()
        .map_err(|_| StoreError::Damaged { what: "hash", why: format!("{} bytes instead of 32", bytes.len()) })?;
    Ok(EventHash::from_bytes(bytes))
}
