//! Who asks, and what they may do. A handler says whom it serves by the type of its argument.

pub(crate) mod changes;
pub(crate) mod guard;
pub(crate) mod known;
pub mod people;
pub(crate) mod refusals;
pub(crate) mod secret;
pub mod tokens;

use std::future::Future;
use std::sync::Arc;

use axum::extract::{ConnectInfo, FromRequestParts};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, header};
use countersign::Time;
use countersign::hold::Who;
use countersign::store::StoreError;
use countersign_api::wire::{Code, Role};

use crate::app::App;
use crate::auth::known::Look;
use crate::problem::Refused;
use crate::room::Standing;
use crate::serve::Peer;

/// The header that carries the CSRF value.
pub(crate) const CSRF: &str = "x-countersign-csrf";

/// Who asks.
#[derive(Clone, Debug)]
pub(crate) struct Principal {
    /// Their name: an agent's principal, or who a decision is recorded as.
    pub(crate) name: Arc<str>,
    /// For whom their calls are made, where the credential says so.
    pub(crate) requester: Option<Arc<str>>,
    /// What they may do.
    pub(crate) roles: Vec<Role>,
    /// By which credential.
    pub(crate) by: By,
    /// When it ends.
    pub(crate) expires_at: Time,
    /// Until when nothing but a change of the record makes another answer of this one.
    pub(crate) settled_until: Time,
}

/// The kind of credential.
#[derive(Clone, Debug)]
pub(crate) enum By {
    /// A bearer token.
    Token {
        /// Its secret, to look once more whether it holds.
        secret: Arc<str>,
    },
    /// A browser's session.
    Session {
        /// The cookie, to look once more whether it holds.
        cookie: Arc<str>,
        /// What must come along with every change.
        csrf: Arc<str>,
    },
}

impl Principal {
    /// Whether they have one of these roles.
    pub(crate) fn has(&self, roles: &[Role]) -> bool {
        self.roles.iter().any(|role| roles.contains(role))
    }

    /// Whether they are an agent: it sees only its own.
    pub(crate) fn is_agent(&self) -> bool {
        self.has(&[Role::Agent])
    }

    /// How much their connection is missed.
    fn standing(&self) -> Standing {
        if self.is_agent() { Standing::Agent } else { Standing::Overseer }
    }

    /// As whom decisions are recorded, and where they were made.
    pub(crate) fn decider(&self) -> (Who, &'static str) {
        match &self.by {
            By::Session { .. } => (Who::person(Arc::clone(&self.name)), "web"),
            By::Token { .. } if self.name.starts_with("program:") => (Who::program(Arc::clone(&self.name)), "http"),
            By::Token { .. } => (Who::person(Arc::clone(&self.name)), "http"),
        }
    }

    /// For whom a call is made that says this about it.
    ///
    /// SECURITY: where the credential says for whom, a call cannot say otherwise: whoever asked for the work could then
    /// approve it.
    pub(crate) fn requester(&self, said: Option<String>) -> Result<Option<Arc<str>>, Refused> {
        match (&self.requester, said) {
            (None, said) => Ok(said.map(Arc::from)),
            (Some(person), said) if said.as_deref().is_none_or(|said| *said == **person) => {
                Ok(Some(Arc::clone(person)))
            }
            (Some(person), _) => {
                Err(Refused::because(Code::BadRequest, format!("calls with this token are made for `{person}`")))
            }
        }
    }

    /// Whether the credential still holds.
    pub(crate) async fn still_holds(&self, app: &App) -> bool {
        let again = match &self.by {
            By::Token { secret } => by_token(app, secret).await,
            By::Session { cookie, .. } => by_cookie(app, cookie).await,
        };
        matches!(again, Ok(Some(again)) if again.roles == self.roles && again.name == self.name)
    }
}

/// Every role: whoever has a credential.
pub(crate) const ANYONE: &[Role] = &Role::ALL;
/// Those who oversee agents.
pub(crate) const OVERSEERS: &[Role] = &[Role::Approver, Role::Operator, Role::Auditor];
/// Those who make and end grants, and ask about the policy.
pub(crate) const GRANTERS: &[Role] = &[Role::Approver, Role::Operator];

macro_rules! callers {
    ($($(#[$doc:meta])* $name:ident = $roles:expr;)*) => {$(
        $(#[$doc])*
        pub(crate) struct $name(pub(crate) Arc<Principal>);

        impl std::ops::Deref for $name {
            type Target = Principal;

            fn deref(&self) -> &Principal {
                &self.0
            }
        }

        impl $name {
            /// The roles it lets in.
            pub(crate) const ROLES: &'static [Role] = $roles;
        }

        impl FromRequestParts<App> for $name {
            type Rejection = Refused;

            async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Refused> {
                admit(parts, app, $roles).await.map($name)
            }
        }
    )*};
}

callers! {
    /// Whoever submits and runs calls.
    Agent = &[Role::Agent];
    /// Whoever decides.
    Approver = &[Role::Approver];
    /// Whoever operates the server.
    Operator = &[Role::Operator];
    /// Whoever reads the record.
    Auditor = &[Role::Auditor];
    /// Approvers and operators.
    Granter = GRANTERS;
    /// Everybody but agents.
    Overseer = OVERSEERS;
    /// Anybody with a credential.
    Anyone = ANYONE;
}

/// Lets in who has a good credential, one of the roles, and room under their rate.
async fn admit(parts: &Parts, app: &App, roles: &[Role]) -> Result<Arc<Principal>, Refused> {
    let peer = parts.extensions.get::<ConnectInfo<Peer>>().map(|peer| &peer.0);
    let Some(principal) = authenticate(app, &parts.headers).await? else { return Err(app.rates.failure(peer)) };
    if let Some(Peer(place)) = peer {
        place.stands(principal.standing());
    }
    app.rates.request(&*principal)?;
    if !principal.has(roles) {
        refusals::note(app, &principal, &parts.method, parts.uri.path()).await;
        return Err(Refused::because(Code::Forbidden, format!("this needs the role {}", names(roles))));
    }
    if let By::Session { csrf, .. } = &principal.by {
        check_csrf(parts, csrf)?;
    }
    Ok(principal)
}

/// Whose credential came with the request; none where none did, or none that is good.
async fn authenticate(app: &App, headers: &HeaderMap) -> Result<Option<Arc<Principal>>, Refused> {
    match (bearer(headers), cookie(app, headers)) {
        (Some(token), _) => by_token(app, token).await,
        (None, Some(cookie)) => by_cookie(app, cookie).await,
        (None, None) => Ok(None),
    }
}

async fn by_token(app: &App, secret: &str) -> Result<Option<Arc<Principal>>, Refused> {
    let found = async {
        let found = tokens::check(&**app.store(), secret).await?;
        Ok(found.map(|(_, kept)| Principal {
            name: kept.name.as_str().into(),
            requester: kept.requester.map(Arc::from),
            roles: vec![kept.role],
            by: By::Token { secret: secret.into() },
            expires_at: kept.expires_at,
            settled_until: kept.expires_at,
        }))
    };
    known_or(app, secret, found).await
}

async fn by_cookie(app: &App, cookie: &str) -> Result<Option<Arc<Principal>>, Refused> {
    let found = async {
        let found = people::check(&**app.store(), cookie).await?;
        Ok(found.map(|(session, roles)| Principal {
            name: session.name.as_str().into(),
            requester: None,
            roles,
            expires_at: session.expires_at,
            settled_until: session.settled_until(),
            by: By::Session { cookie: cookie.into(), csrf: session.csrf.into() },
        }))
    };
    known_or(app, cookie, found).await
}

/// Who has this secret: as it is known, where that still holds; else as it is found.
async fn known_or(
    app: &App,
    secret: &str,
    find: impl Future<Output = Result<Option<Principal>, StoreError>>,
) -> Result<Option<Arc<Principal>>, Refused> {
    let hash = secret::digest(secret);
    let asked = match app.known.look(&hash) {
        // Time passes for what is known, too.
        Look::Known(principal) if app.store().now().await? < principal.settled_until => return Ok(Some(principal)),
        Look::Known(_) => None,
        Look::Ask(asked) => Some(asked),
    };
    let found = find.await?.map(Arc::new);
    if let (Some(asked), Some(principal)) = (asked, &found) {
        app.known.keep(hash, Arc::clone(principal), asked);
    }
    Ok(found)
}

/// The groups that the account of whoever decides names.
pub(crate) async fn groups(app: &App, who: &Who) -> Result<Arc<[Arc<str>]>, Refused> {
    let asked = match app.groups.look(who) {
        Look::Known(groups) => return Ok(groups),
        Look::Ask(asked) => asked,
    };
    let groups: Arc<[Arc<str>]> = people::groups(&**app.store(), who).await?.into();
    app.groups.keep(who.clone(), Arc::clone(&groups), asked);
    Ok(groups)
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ").map(str::trim)
}

/// The session cookie, if exactly one came: two mean that somebody else set one.
fn cookie<'a>(app: &App, headers: &'a HeaderMap) -> Option<&'a str> {
    let name = app.cookie_name();
    let pairs = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = pairs.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let mut ours = pairs.filter(|(found, _)| *found == name).map(|(_, value)| value);
    ours.next().filter(|_| ours.next().is_none())
}

/// The paths of WebSockets.
const SOCKETS: [&str; 2] = ["/v1/ws", "/saiki/ws"];

/// SECURITY: a cookie comes along whoever's page sends the request; the CSRF value is only known to ours.
fn check_csrf(parts: &Parts, csrf: &str) -> Result<(), Refused> {
    // A WebSocket carries changes too, and cannot carry our header: there the exact Origin must be present.
    if parts.method == Method::GET && SOCKETS.contains(&parts.uri.path()) {
        return match parts.headers.contains_key(header::ORIGIN) {
            true => Ok(()),
            false => Err(Refused::new(Code::WrongOrigin)),
        };
    }
    if matches!(parts.method, Method::GET | Method::HEAD) {
        return Ok(());
    }
    let sent = parts.headers.get(CSRF).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if secret::equal(sent, csrf) { Ok(()) } else { Err(Refused::new(Code::WrongCsrf)) }
}

fn names(roles: &[Role]) -> String {
    roles.iter().map(|role| role.as_str()).collect::<Vec<_>>().join(" or ")
}
