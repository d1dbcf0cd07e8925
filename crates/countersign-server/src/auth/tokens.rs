//! Tokens: made, listed, revoked and checked, in the store's records.

use countersign::store::{Expect, Failure, Store, StoreError};
use countersign::{Time, limits as core_limits};
use countersign_api::wire::{self, MadeToken, NewToken, Role, timestamp};
use serde::{Deserialize, Serialize};

use crate::auth::changes::{self, Changed};
use crate::auth::secret::{self, NoRandomness};
use crate::limits;

const NAMESPACE: &str = "tokens";

/// Why a token was not made or revoked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The name cannot be used.
    #[error("{0}")]
    BadName(String),
    /// It would live too long.
    #[error("a token lives at most {} days", limits::TOKEN_LIFE.as_secs() / 86_400)]
    TooLong,
    /// There is no such token.
    #[error("there is no such token")]
    NotFound,
    /// There are no secrets without randomness.
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] Failure),
}

impl From<StoreError> for TokenError {
    fn from(error: StoreError) -> TokenError {
        TokenError::Store(error.into())
    }
}

/// A token as it is kept: everything but the secret.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Kept {
    hash: String,
    pub(crate) role: Role,
    pub(crate) name: String,
    /// For whom its calls are made.
    #[serde(default)]
    pub(crate) requester: Option<String>,
    made_by: String,
    made_at: Time,
    pub(crate) expires_at: Time,
    #[serde(default)]
    revoked: Option<(Time, String)>,
}

impl Kept {
    fn is_live(&self, now: Time) -> bool {
        self.revoked.is_none() && now < self.expires_at
    }

    fn shown(&self, id: String, now: Time) -> wire::Token {
        wire::Token {
            id,
            role: self.role,
            name: self.name.clone(),
            r#for: self.requester.clone(),
            made_by: self.made_by.clone(),
            made_at: timestamp(self.made_at),
            expires_at: timestamp(self.expires_at),
            revoked_at: self.revoked.as_ref().map(|(at, _)| timestamp(*at)),
            revoked_by: self.revoked.as_ref().map(|(_, by)| by.clone()),
            live: self.is_live(now),
        }
    }
}

/// Makes a token. Its secret is in the answer and nowhere else.
pub async fn create(store: &dyn Store, new: NewToken, made_by: &str) -> Result<MadeToken, TokenError> {
    check_name(new.role, &new.name)?;
    if let Some(person) = &new.r#for {
        check_person(new.role, person)?;
    }
    let life = new.expires_after.map_or_else(|| default_life(new.role), |span| span.0);
    if life > limits::TOKEN_LIFE {
        return Err(TokenError::TooLong);
    }
    let token = secret::new_secret(&format!("cs_{}_", new.role))?;
    let now = store.now().await?;
    let kept = Kept {
        hash: secret::hash(&token),
        role: new.role,
        name: new.name.clone(),
        requester: new.r#for.clone(),
        made_by: made_by.to_owned(),
        made_at: now,
        expires_at: now.after(life),
        revoked: None,
    };
    let id = secret::id("tok_", &token);
    let value = serde_json::to_vec(&kept).map_err(damaged)?;
    store.put_record(NAMESPACE, &id, &value, Expect::Absent, Some(life + limits::TOKEN_KEPT)).await?;
    // A token that is not on the record is handed to nobody.
    changes::tell(
        store,
        Changed::TokenMade { id: &id, role: new.role, name: &new.name, r#for: new.r#for.as_deref(), by: made_by },
    )
    .await?;
    Ok(MadeToken { id, token, role: new.role, name: new.name, expires_at: timestamp(kept.expires_at) })
}

fn default_life(role: Role) -> std::time::Duration {
    match role {
        Role::Agent => limits::AGENT_LIFE,
        Role::Approver | Role::Auditor => limits::APPROVER_LIFE,
        Role::Operator => limits::OPERATOR_LIFE,
    }
}

/// SECURITY: a name is who a decision is recorded as. Names of the operating system's users are the local commands' to
/// give, and a principal is the first part of its chains' names.
fn check_name(role: Role, name: &str) -> Result<(), TokenError> {
    let bad = |why: &str| Err(TokenError::BadName(format!("the name of a token {why}")));
    if name.trim().is_empty() || name.trim() != name || name.len() > core_limits::NAME_BYTES {
        return bad("has 1 to 256 bytes and no blanks around it");
    }
    if name.chars().any(char::is_control) || name.contains('/') {
        return bad("holds no `/` and no control characters");
    }
    if name.starts_with("os:") {
        return bad("does not begin with `os:`, which stands for users of this machine");
    }
    if role == Role::Agent && name == "local" {
        return bad("is not `local`, which stands for programs without one");
    }
    Ok(())
}

fn check_person(role: Role, person: &str) -> Result<(), TokenError> {
    let bad = |why: &str| Err(TokenError::BadName(format!("the person a token's calls are made for {why}")));
    if role != Role::Agent {
        return bad("is an agent's to have: only agents make calls");
    }
    match person.trim().is_empty() || person.len() > core_limits::NAME_BYTES || person.chars().any(char::is_control) {
        true => bad("has a name of 1 to 256 bytes without control characters"),
        false => Ok(()),
    }
}

/// One page of tokens, sorted by id, ended ones too.
pub async fn list(store: &dyn Store, after: Option<&str>, limit: usize) -> Result<Vec<wire::Token>, TokenError> {
    let now = store.now().await?;
    let records = store.records(NAMESPACE, "tok_", after, limit.min(limits::TOKENS)).await?;
    let shown = |record: &countersign::store::Record| {
        let kept: Kept = serde_json::from_slice(&record.value).map_err(damaged)?;
        Ok(kept.shown(record.key.clone(), now))
    };
    records.iter().map(shown).collect()
}

/// Ends a token: to servers on this store it is nothing from the next request on, to those of other processes as soon as
/// they hear of it, and to none of them for longer than [`limits::BELIEVED_FOR`]. Ending it again changes nothing.
pub async fn revoke(store: &dyn Store, id: &str, by: &str) -> Result<wire::Token, TokenError> {
    let record = store.record(NAMESPACE, id).await?.ok_or(TokenError::NotFound)?;
    let mut kept: Kept = serde_json::from_slice(&record.value).map_err(damaged)?;
    let now = store.now().await?;
    if kept.revoked.is_none() {
        kept.revoked = Some((now, by.to_owned()));
        let value = serde_json::to_vec(&kept).map_err(damaged)?;
        let life = now.until(kept.expires_at) + limits::TOKEN_KEPT;
        store.put_record(NAMESPACE, id, &value, Expect::Version(record.version), Some(life)).await?;
        changes::tell(store, Changed::Token { id, by }).await?;
    }
    Ok(kept.shown(id.to_owned(), now))
}

/// The token with this secret, if it is good now.
pub(crate) async fn check(store: &dyn Store, token: &str) -> Result<Option<(String, Kept)>, StoreError> {
    let id = secret::id("tok_", token);
    let Some(record) = store.record(NAMESPACE, &id).await? else { return Ok(None) };
    let Ok(kept) = serde_json::from_slice::<Kept>(&record.value) else { return Ok(None) };
    let now = store.now().await?;
    // SECURITY: the prefix says the role to people; what counts is what was kept.
    let good = secret::matches(token, &kept.hash) && kept.is_live(now);
    Ok(good.then_some((id, kept)))
}

fn damaged(error: serde_json::Error) -> TokenError {
    StoreError::Damaged { what: "token", why: error.to_string() }.into()
}
