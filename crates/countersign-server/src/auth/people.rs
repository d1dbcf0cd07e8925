//! People: who may sign in, the one-time links they sign in with, and their browsers' sessions.

use std::sync::Arc;

use countersign::hold::{Who, WhoKind};
use countersign::store::{Expect, Failure, Store, StoreError};
use countersign::{Time, limits as core_limits};
use countersign_api::wire::Role;
use serde::{Deserialize, Serialize};

use crate::auth::changes::{self, Changed};
use crate::auth::secret::{self, NoRandomness};
use crate::limits;

const USERS: &str = "users";
const LINKS: &str = "links";
const SESSIONS: &str = "web-sessions";

/// Why somebody could not be let in.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PeopleError {
    /// Nobody decides what they submit.
    #[error("a person cannot have the role `agent`")]
    Agent,
    /// The name of a person or a group cannot be used.
    #[error("`{0}` cannot be the name of a person or a group")]
    BadName(String),
    /// There is no such person.
    #[error("nobody is called `{0}`")]
    Nobody(String),
    /// The link was used, or its time is over.
    #[error("the link was used before, or its time is over")]
    Spent,
    /// There are no secrets without randomness.
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] Failure),
}

impl From<StoreError> for PeopleError {
    fn from(error: StoreError) -> PeopleError {
        PeopleError::Store(error.into())
    }
}

/// A person as they are kept.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Kept {
    roles: Vec<Role>,
    #[serde(default)]
    groups: Vec<Arc<str>>,
}

/// A person who may sign in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct User {
    /// Their name, as decisions are recorded.
    pub name: String,
    /// What they may do.
    pub roles: Vec<Role>,
    /// The groups of approvers they belong to, beside those that the policy names.
    pub groups: Vec<Arc<str>>,
}

/// Says what a person may do; their groups stay as they are. Counts to servers on this store from the person's next
/// request on, to those of other processes as soon as they hear of it, and to all after [`limits::BELIEVED_FOR`].
pub async fn put_user(store: &dyn Store, name: &str, roles: &[Role]) -> Result<(), PeopleError> {
    let kept = user(store, name).await?.unwrap_or_default();
    write_user(store, name, &Kept { roles: roles.to_vec(), ..kept }).await
}

/// Says what a person may do, and to which groups of approvers they belong. Counts as soon as with [`put_user`].
pub async fn put_member(
    store: &dyn Store,
    name: &str,
    roles: &[Role],
    groups: &[Arc<str>],
) -> Result<User, PeopleError> {
    for group in groups {
        check_name(group)?;
    }
    write_user(store, name, &Kept { roles: roles.to_vec(), groups: groups.to_vec() }).await?;
    Ok(User { name: name.to_owned(), roles: roles.to_vec(), groups: groups.to_vec() })
}

/// Forgets a person: they may do nothing any more, and their links and sessions are worth nothing. Counts as soon as with
/// [`put_user`].
pub async fn remove_user(store: &dyn Store, name: &str) -> Result<(), PeopleError> {
    let record = store.record(USERS, name).await?.ok_or_else(|| PeopleError::Nobody(name.to_owned()))?;
    store.delete_record(USERS, name, Expect::Version(record.version)).await?;
    changes::tell(store, Changed::Person { name }).await?;
    Ok(())
}

/// One page of the people who may sign in, sorted by name.
pub async fn users(store: &dyn Store, after: Option<&str>, limit: usize) -> Result<Vec<User>, PeopleError> {
    let records = store.records(USERS, "", after, limit).await?;
    let shown = |record: &countersign::store::Record| {
        let kept: Kept = serde_json::from_slice(&record.value).map_err(damaged)?;
        Ok(User { name: record.key.clone(), roles: kept.roles, groups: kept.groups })
    };
    records.iter().map(shown).collect()
}

/// The groups that a person's account names. A program has no account, whatever it is called.
pub(crate) async fn groups(store: &dyn Store, who: &Who) -> Result<Vec<Arc<str>>, StoreError> {
    match who.kind {
        WhoKind::Program => Ok(Vec::new()),
        WhoKind::Person => Ok(user(store, &who.id).await?.map(|kept| kept.groups).unwrap_or_default()),
    }
}

async fn user(store: &dyn Store, name: &str) -> Result<Option<Kept>, StoreError> {
    let record = store.record(USERS, name).await?;
    Ok(record.and_then(|record| serde_json::from_slice(&record.value).ok()))
}

async fn write_user(store: &dyn Store, name: &str, kept: &Kept) -> Result<(), PeopleError> {
    check_name(name)?;
    if kept.roles.contains(&Role::Agent) {
        return Err(PeopleError::Agent);
    }
    let value = serde_json::to_vec(kept).map_err(damaged)?;
    let before = store.record(USERS, name).await?;
    store.put_record(USERS, name, &value, Expect::Any, None).await?;
    if before.is_none_or(|before| before.value != value) {
        changes::tell(store, Changed::Person { name }).await?;
    }
    Ok(())
}

fn check_name(name: &str) -> Result<(), PeopleError> {
    let bad = name.trim() != name || name.is_empty() || name.len() > core_limits::NAME_BYTES;
    match bad || name.contains('/') || name.chars().any(char::is_control) {
        true => Err(PeopleError::BadName(name.chars().take(80).collect())),
        false => Ok(()),
    }
}

/// What a person may do; nothing, if nobody said so.
async fn roles(store: &dyn Store, name: &str) -> Result<Vec<Role>, StoreError> {
    let mut roles = user(store, name).await?.map(|kept| kept.roles).unwrap_or_default();
    // SECURITY: whatever the record says, no browser both submits and decides.
    roles.retain(|role| *role != Role::Agent);
    Ok(roles)
}

#[derive(Debug, Serialize, Deserialize)]
struct Link {
    hash: String,
    name: String,
}

/// Makes a one-time link for a person: the secret that stands behind the `#`.
pub async fn create_link(store: &dyn Store, name: &str, by: &str) -> Result<String, PeopleError> {
    let link = secret::new_short_secret("cs_link_")?;
    let value = serde_json::to_vec(&Link { hash: secret::hash(&link), name: name.to_owned() }).map_err(damaged)?;
    store.put_record(LINKS, &secret::id("", &link), &value, Expect::Absent, Some(limits::LINK_LIFE)).await?;
    changes::tell(store, Changed::Link { name, by }).await?;
    Ok(link)
}

/// Makes a one-time link for a person who is known.
pub async fn create_link_for(store: &dyn Store, name: &str, by: &str) -> Result<String, PeopleError> {
    match user(store, name).await? {
        Some(_) => create_link(store, name, by).await,
        None => Err(PeopleError::Nobody(name.to_owned())),
    }
}

/// A browser's session as it is kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Session {
    hash: String,
    pub(crate) name: String,
    pub(crate) csrf: String,
    pub(crate) expires_at: Time,
    seen_at: Time,
}

impl Session {
    /// Until when its use need not be noted, nor looked whether it ended.
    pub(crate) fn settled_until(&self) -> Time {
        self.seen_at.after(limits::SEEN_EVERY).min(self.expires_at)
    }
}

/// Trades a link for a session: once, whoever else tries at the same time.
pub(crate) async fn sign_in(store: &dyn Store, link: &str) -> Result<(String, Session), PeopleError> {
    let id = secret::id("", link);
    let record = store.record(LINKS, &id).await?.ok_or(PeopleError::Spent)?;
    let kept: Link = serde_json::from_slice(&record.value).map_err(damaged)?;
    if !secret::matches(link, &kept.hash) {
        return Err(PeopleError::Spent);
    }
    match store.delete_record(LINKS, &id, Expect::Version(record.version)).await {
        Ok(()) => {}
        Err(Failure::Rejected(_)) => return Err(PeopleError::Spent),
        Err(failure) => return Err(failure.into()),
    }
    let cookie = secret::new_secret("cs_web_")?;
    let now = store.now().await?;
    let session = Session {
        hash: secret::hash(&cookie),
        name: kept.name,
        csrf: secret::new_secret("")?,
        expires_at: now.after(limits::APPROVER_LIFE),
        seen_at: now,
    };
    write(store, &cookie, &session, Expect::Absent, now).await?;
    changes::tell(store, Changed::SignedIn { id: &secret::id("", &cookie), name: &session.name }).await?;
    Ok((cookie, session))
}

/// Ends a session.
pub(crate) async fn sign_out(store: &dyn Store, cookie: &str) -> Result<(), Failure> {
    let id = secret::id("", cookie);
    match store.delete_record(SESSIONS, &id, Expect::Any).await {
        Err(Failure::Rejected(_)) | Ok(()) => changes::tell(store, Changed::Session { id: &id }).await,
        Err(failure) => Err(failure),
    }
}

/// The session of a cookie and what its person may do, if it is good now.
pub(crate) async fn check(store: &dyn Store, cookie: &str) -> Result<Option<(Session, Vec<Role>)>, StoreError> {
    let Some(record) = store.record(SESSIONS, &secret::id("", cookie)).await? else { return Ok(None) };
    let Ok(mut session) = serde_json::from_slice::<Session>(&record.value) else { return Ok(None) };
    let now = store.now().await?;
    let idle = session.seen_at.after(limits::IDLE) <= now;
    if !secret::matches(cookie, &session.hash) || now >= session.expires_at || idle {
        return Ok(None);
    }
    if session.seen_at.after(limits::SEEN_EVERY) <= now {
        session.seen_at = now;
        // Another request may write it at the same time: either moment will do.
        match write(store, cookie, &session, Expect::Version(record.version), now).await {
            Ok(()) | Err(PeopleError::Store(Failure::Rejected(_))) => {}
            Err(error) => tracing::warn!(%error, "the use of a session could not be noted"),
        }
    }
    let roles = roles(store, &session.name).await?;
    Ok((!roles.is_empty()).then_some((session, roles)))
}

async fn write(
    store: &dyn Store,
    cookie: &str,
    session: &Session,
    expect: Expect,
    now: Time,
) -> Result<(), PeopleError> {
    let value = serde_json::to_vec(session).map_err(damaged)?;
    let life = now.until(session.expires_at).min(limits::IDLE + limits::SEEN_EVERY);
    store.put_record(SESSIONS, &secret::id("", cookie), &value, expect, Some(life)).await?;
    Ok(())
}

fn damaged(error: serde_json::Error) -> PeopleError {
    StoreError::Damaged { what: "record of a person", why: error.to_string() }.into()
}
