//! What handlers take out of a request, with our problems where it is not there.

use std::str::FromStr;

use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, RawPathParams, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, Uri};
use countersign_api::wire::Code;
use serde::de::DeserializeOwned;

use crate::problem::Refused;

/// The JSON body, read strictly.
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Refused;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refused> {
        let bytes = axum::body::Bytes::from_request(request, state).await.map_err(unread)?;
        let bad = |error: serde_json::Error| Refused::because(Code::BadRequest, format!("the body: {error}"));
        serde_json::from_slice(&bytes).map(Body).map_err(bad)
    }
}

fn unread(rejection: BytesRejection) -> Refused {
    match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => Refused::new(Code::TooLarge),
        _ => Refused::because(Code::BadRequest, "the body could not be read"),
    }
}

/// The query, read strictly.
pub(crate) struct Query<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refused> {
        read_query(&parts.uri).map(Query)
    }
}

/// Reads the query of an address.
pub(crate) fn read_query<T: DeserializeOwned>(uri: &Uri) -> Result<T, Refused> {
    let bad =
        |rejection: QueryRejection| Refused::because(Code::BadRequest, format!("the query: {}", rejection.body_text()));
    axum::extract::Query::try_from_uri(uri).map(|query| query.0).map_err(bad)
}

/// The id in the path. Something that is no id names nothing.
pub(crate) struct Id<T>(pub(crate) T);

impl<T: FromStr, S: Send + Sync> FromRequestParts<S> for Id<T> {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refused> {
        let params = RawPathParams::from_request_parts(parts, state).await.map_err(|_| Refused::not_found())?;
        let id = params.iter().find(|(name, _)| *name == "id").and_then(|(_, text)| text.parse().ok());
        id.map(Id).ok_or_else(Refused::not_found)
    }
}
