//! Answers of JSON.

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::problem::Refused;

/// Room for an answer such as most are: what outgrows it is copied as it grows.
const ROOM: usize = 2 * 1024;
/// Headers of an answer, and a few more.
const HEADERS: usize = 12;

/// Answers with this.
///
/// As axum's, but written to plain bytes with room from the start: the answer to a call is written in hundreds of small
/// pieces, and each costs less there.
pub(crate) struct Json<T>(pub(crate) T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        let mut body = Vec::with_capacity(ROOM);
        match serde_json::to_writer(&mut body, &self.0) {
            Ok(()) => {
                let mut response = Response::new(Body::from(body));
                // With room for what every answer says.
                response.headers_mut().reserve(HEADERS);
                response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
                response
            }
            Err(error) => Refused::from(error).into_response(),
        }
    }
}
