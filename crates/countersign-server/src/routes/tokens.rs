//! Tokens: made, listed, revoked.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Json, routing};
use countersign_api::wire::{self, Code, Page};
use serde::Deserialize;

use crate::app::App;
use crate::auth::Operator;
use crate::auth::tokens::{self, TokenError};
use crate::extract::{Body, Id, Query};
use crate::problem::{Answer, Refused};
use crate::routes::{page, rows};
use crate::table::{Route, delete, get, post};

pub(super) fn routes() -> Vec<Route> {
    vec![
        get("/v1/tokens", Operator::ROLES, routing::get(list), "Lists tokens, without their secrets.")
            .lists::<wire::Token>(),
        post("/v1/tokens", Operator::ROLES, routing::post(create), "Makes a token and shows its secret once.")
            .takes::<wire::NewToken>()
            .answers::<wire::MadeToken>("201"),
        delete("/v1/tokens/{id}", Operator::ROLES, routing::delete(revoke), "Ends a token.")
            .answers::<wire::Token>("200"),
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    after: Option<String>,
    limit: Option<usize>,
}

async fn list(
    State(app): State<App>,
    _caller: Operator,
    Query(query): Query<ListQuery>,
) -> Answer<Json<Page<wire::Token>>> {
    let rows = rows(query.limit);
    let tokens = tokens::list(&**app.store(), query.after.as_deref(), rows + 1).await?;
    Ok(Json(page(tokens, rows, |token| token.id.clone(), wire::Token::clone)))
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
