//! Tokens: made, listed, revoked.

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing;
use countersign_api::wire::{self, Code, Page};

use crate::app::App;
use crate::auth::Operator;
use crate::auth::tokens::{self, TokenError};
use crate::extract::{Body, Id};
use crate::json::Json;
use crate::list::List;
use crate::problem::{Answer, Refused};
use crate::table::{Route, delete, get, post};

pub(super) fn routes() -> Vec<Route> {
    vec![
        get("/v1/tokens", Operator::ROLES, routing::get(list), "Lists tokens, without their secrets.")
            .lists::<wire::Token>(),
        post("/v1/tokens", Operator::ROLES, routing::post(create), "Makes a token and shows its secret once.")
            .takes::<wire::NewToken>()
            .answers::<wire::MadeToken>("201")
            .refuses(&[Code::Conflict]),
        delete("/v1/tokens/{id}", Operator::ROLES, routing::delete(revoke), "Ends a token.")
            .answers::<wire::Token>("200")
            .refuses(&[Code::Conflict]),
    ]
}

impl From<TokenError> for Refused {
    fn from(error: TokenError) -> Refused {
        match error {
            TokenError::BadName(_) | TokenError::TooLong => Refused::because(Code::BadRequest, error.to_string()),
            TokenError::NotFound => Refused::not_found(),
            TokenError::NoRandomness(_) => Refused::new(Code::Internal),
            TokenError::Store(failure) => failure.into(),
        }
    }
}

async fn list(State(app): State<App>, _caller: Operator, list: List) -> Answer<Json<Page<wire::Token>>> {
    let tokens = tokens::list(&**app.store(), list.after::<String>()?.as_deref(), list.read()).await?;
    list.page(tokens, |token| token.id.clone(), |token| Ok(token.clone())).map(Json)
}

async fn create(
    State(app): State<App>,
    caller: Operator,
    Body(new): Body<wire::NewToken>,
) -> Answer<(StatusCode, Json<wire::MadeToken>)> {
    let made = tokens::create(&**app.store(), new, &caller.0.name).await?;
    Ok((StatusCode::CREATED, Json(made)))
}

async fn revoke(State(app): State<App>, caller: Operator, Id(id): Id<String>) -> Answer<Json<wire::Token>> {
    Ok(Json(tokens::revoke(&**app.store(), &id, &caller.0.name).await?))
}
