//! Who asks: signing in and out, and what a credential is good for.

use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing;
use countersign::Path;
use countersign_api::wire::{Code, Me, SignIn, timestamp};

use crate::app::App;
use crate::auth::people::{self, PeopleError};
use crate::auth::{self, Anyone, By, Principal};
use crate::extract::Body;
use crate::json::Json;
use crate::limits;
use crate::problem::{Answer, Refused};
use crate::serve::Peer;
use crate::table::{Route, get, post};

pub(super) fn routes() -> Vec<Route> {
    vec![
        get("/v1/me", Anyone::ROLES, routing::get(me), "Says who you are and what you may do.").answers::<Me>("200"),
        post("/v1/sign-in", &[], routing::post(sign_in), "Trades a one-time link for a session cookie.")
            .takes::<SignIn>()
            .answers::<Me>("200")
            .refuses(&[Code::LinkSpent, Code::Limit]),
        post("/v1/sign-out", Anyone::ROLES, routing::post(sign_out), "Ends the session.")
            .takes_nothing()
            .streams("204", "Done."),
    ]
}

async fn me(State(app): State<App>, caller: Anyone) -> Answer<Json<Me>> {
    about(&app, &caller.0).await.map(Json)
}

async fn sign_in(
    State(app): State<App>,
    peer: Option<axum::Extension<ConnectInfo<Peer>>>,
    Body(body): Body<SignIn>,
) -> Answer<Response> {
    let (cookie, session) = match people::sign_in(&**app.store(), &body.link).await {
        Ok(signed_in) => signed_in,
        Err(PeopleError::Spent) => {
            let refused = app.rates.failure(peer.as_ref().map(|peer| &peer.0.0));
            let limited = refused.0.code == Code::Limit;
            return Err(if limited { refused } else { Refused::new(Code::LinkSpent) });
        }
        Err(PeopleError::Store(failure)) => return Err(failure.into()),
        Err(_) => return Err(Refused::new(Code::Internal)),
    };
    let found = people::check(&**app.store(), &cookie).await?;
    let (_, roles) = found.ok_or_else(|| Refused::because(Code::Forbidden, "nobody said what you may do"))?;
    let settled_until = session.settled_until();
    let by = By::Session { cookie: cookie.as_str().into(), csrf: session.csrf.into() };
    let expires_at = session.expires_at;
    let principal = Principal { name: session.name.into(), requester: None, roles, by, expires_at, settled_until };
    let mut response = Json(about(&app, &principal).await?).into_response();
    set_cookie(&app, &mut response, &cookie, limits::APPROVER_LIFE.as_secs())?;
    Ok(response)
}

async fn sign_out(State(app): State<App>, caller: Anyone) -> Answer<Response> {
    if let By::Session { cookie, .. } = &caller.0.by {
        people::sign_out(&**app.store(), cookie).await?;
    }
    let mut response = axum::http::StatusCode::NO_CONTENT.into_response();
    set_cookie(&app, &mut response, "", 0)?;
    Ok(response)
}

/// SECURITY: no script reads it, no other site sends it, and with TLS no other host sets it.
fn set_cookie(app: &App, response: &mut Response, value: &str, seconds: u64) -> Answer<()> {
    let name = app.cookie_name();
    let secure = if app.tls { "; Secure" } else { "" };
    let text = format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}");
    let header = HeaderValue::from_str(&text).map_err(|_| Refused::new(Code::Internal))?;
    response.headers_mut().insert(header::SET_COOKIE, header);
    Ok(())
}

async fn about(app: &App, principal: &Principal) -> Answer<Me> {
    let policy = app.gate.policy();
    let mut groups: Vec<String> = policy.groups_of(&principal.name).iter().map(ToString::to_string).collect();
    if !principal.is_agent() {
        groups.extend(auth::groups(app, &principal.decider().0).await?.iter().map(ToString::to_string));
    }
    groups.sort();
    groups.dedup();
    let (by, csrf) = match &principal.by {
        By::Token { .. } => ("token", None),
        By::Session { csrf, .. } => ("session", Some(csrf.to_string())),
    };
    Ok(Me {
        name: principal.name.to_string(),
        roles: principal.roles.clone(),
        by: by.to_owned(),
        groups,
        csrf,
        expires_at: timestamp(principal.expires_at),
        halted: app.store().halted(&Path::default()).await?,
        tools_as_server: app.tools_as_server && !principal.is_agent(),
        policy: policy.version().to_string(),
        now: timestamp(app.store().now().await?),
    })
}
