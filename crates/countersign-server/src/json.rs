//! Answers of JSON.

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::problem::Refused;

/// Room for an answer such as most are: what outgrows it is copied as it grows.
const ROOM: usize = 2 * 1024;

/// Answers with this.
///
/// As axum's, but written to plain bytes with room from the start: the answer to a call is written in hundreds of small
/// pieces, and each costs less there.
pub(crate) struct Json<T>(pub(crate) T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        let mut body = Vec::with_capacity(ROOM);
        match serde_json::to_writer(&mut body, &self.0) {
            Ok(()) => ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response(),
            Err(error) => Refused::from(error).into_response(),
        }
    }
}
