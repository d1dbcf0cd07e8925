//! Messages over streamable HTTP. Connections are pooled, answers are bounded, and redirects are not followed.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use futures::stream::BoxStream;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue};
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use rmcp::ErrorData;
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_client::{
    HttpStatusError, SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::Sse;

use super::{encode, ticket_of};
use crate::events::events;
use crate::limits;

const SESSION: &str = "mcp-session-id";
const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";

/// How a message fails to be delivered.
pub(crate) type Failure = StreamableHttpError<reqwest::Error>;
type Headers = HashMap<HeaderName, HeaderValue>;

/// A client that sends the approved bytes of a call and reads no more than it has to.
#[derive(Clone)]
pub(crate) struct Http(Client);

impl Http {
    pub(crate) fn new(client: Client) -> Http {
        Http(client)
    }

    async fn post(&self, request: RequestBuilder, message: &ClientJsonRpcMessage) -> Result<Response, Failure> {
        let request = request.header(ACCEPT, [JSON, EVENTS].join(", ")).header(CONTENT_TYPE, JSON);
        let request = request.body(encode(message)?);
        // An address may hold a secret, and errors are shown.
        let send = async { request.send().await.map_err(reqwest::Error::without_url) };
        let Some(ticket) = ticket_of(message) else { return Ok(send.await?) };
        if !ticket.take() {
            return Err(StreamableHttpError::UnexpectedServerResponse(Cow::Borrowed("the call was withdrawn")));
        }
        let sent = send.await;
        let came_back = match &sent {
            Ok(response) => refused(response.status()),
            Err(error) => error.is_connect(),
        };
        if came_back {
            ticket.came_back();
        }
        Ok(sent?)
    }
}

/// Whether a status says that the server did not look at the call. A time-out says nothing.
fn refused(status: StatusCode) -> bool {
    status.is_redirection() || (status.is_client_error() && status != StatusCode::REQUEST_TIMEOUT)
}

impl StreamableHttpClient for Http {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let mut request =
            headers.into_iter().fold(self.0.post(&*uri), |request, (name, value)| request.header(name, value));
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        if let Some(session) = &session {
            request = request.header(SESSION, &**session);
        }
        let response = self.post(request, &message).await?;
        let status = response.status();
        let wants_answer = matches!(message, ClientJsonRpcMessage::Request(_));
        match status {
            StatusCode::ACCEPTED | StatusCode::NO_CONTENT => return Ok(StreamableHttpPostResponse::Accepted),
            StatusCode::NOT_FOUND if session.is_some() => return Err(StreamableHttpError::SessionExpired),
            _ if !status.is_success() => return refusal(response, &message, session.is_some()).await,
            _ if !wants_answer => return Ok(StreamableHttpPostResponse::Accepted),
            _ => {}
        }
        let session = response.headers().get(SESSION).and_then(|id| id.to_str().ok()).map(str::to_owned);
        if is(&response, EVENTS) {
            return Ok(StreamableHttpPostResponse::Sse(
                events(response.bytes_stream(), |bytes| bytes <= limits::MESSAGE_BYTES),
                session,
            ));
        }
        let body = body(response).await?;
        Ok(StreamableHttpPostResponse::Json(serde_json::from_slice(&body)?, session))
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<(), Failure> {
        self.0.delete_session(uri, session, token, headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last: Option<String>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Failure> {
        let most = limits::MESSAGE_BYTES;
        self.0.get_stream_with_max_sse_event_size(uri, session, last, token, headers, most).await
    }
}

/// What an answer that is no success means.
async fn refusal(
    response: Response,
    message: &ClientJsonRpcMessage,
    in_session: bool,
) -> Result<StreamableHttpPostResponse, Failure> {
    let status = response.status();
    let closed = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
    let json = is(&response, JSON);
    let said = if json { body(response).await.unwrap_or_default() } else { Vec::new() };
    let error = match serde_json::from_slice::<ServerJsonRpcMessage>(&said) {
        Ok(ServerJsonRpcMessage::Error(error)) if !closed => Some(error),
        _ => None,
    };
    // A server of the handshake era may refuse the question for its versions in any way. Answered under the question's
    // own id, it reads as what it is, and the handshake follows.
    if let ClientJsonRpcMessage::Request(request) = message
        && matches!(request.request, ClientRequest::DiscoverRequest(_))
        && !in_session
        && !closed
        && status.is_client_error()
    {
        let error =
            error.map_or_else(|| ErrorData::invalid_request(format!("HTTP {status}"), None), |error| error.error);
        let answer = ServerJsonRpcMessage::error(error, Some(request.id.clone()));
        return Ok(StreamableHttpPostResponse::Json(answer, None));
    }
    match error {
        Some(error) => Ok(StreamableHttpPostResponse::Json(ServerJsonRpcMessage::Error(error), None)),
        None => Err(HttpStatusError::new(status.as_u16(), None).into()),
    }
}

fn is(response: &Response, kind: &str) -> bool {
    response.headers().get(CONTENT_TYPE).is_some_and(|found| found.as_bytes().starts_with(kind.as_bytes()))
}

async fn body(mut response: Response) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(reqwest::Error::without_url)? {
        if bytes.len() + chunk.len() > limits::MESSAGE_BYTES {
            return Err(StreamableHttpError::UnexpectedServerResponse(Cow::Borrowed("a message that is too long")));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}
