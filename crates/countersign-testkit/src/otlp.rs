//! Takes traces that a program sends by OTLP over HTTP, and keeps them as they came.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// A receiver that listens until it is dropped.
#[derive(Debug)]
pub struct TraceReceiver {
    url: String,
    kept: Kept,
    serving: JoinHandle<()>,
}

type Kept = Arc<Mutex<Vec<u8>>>;

impl TraceReceiver {
    /// Listens on a free port of this machine.
    pub async fn start() -> Result<TraceReceiver> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let kept = Kept::default();
        let router = Router::new().route("/v1/traces", post(take)).with_state(Arc::clone(&kept));
        let serving = tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        Ok(TraceReceiver { url, kept, serving })
    }

    /// What `OTEL_EXPORTER_OTLP_ENDPOINT` is to say.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Everything that came so far, as text: names and values stand in it as they are.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.kept.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }

    /// Whether a span came with this number under this name, as an attribute is written in protobuf.
    pub fn has_number(&self, name: &str, mut number: u64) -> bool {
        let mut value = vec![0x18];
        while number >= 0x80 {
            value.push(u8::try_from(number & 0x7f).unwrap_or_default() | 0x80);
            number >>= 7;
        }
        value.push(u8::try_from(number).unwrap_or_default());
        let length = u8::try_from(value.len()).unwrap_or_default();
        let attribute = [name.as_bytes(), &[0x12, length], &value].concat();
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.windows(attribute.len()).any(|window| window == attribute)
    }
}

impl Drop for TraceReceiver {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Answers as a real receiver does: an empty message is a whole success.
async fn take(State(kept): State<Kept>, headers: HeaderMap, body: Bytes) -> StatusCode {
    if headers.get("content-type").is_none_or(|kind| kind != "application/x-protobuf") {
        return StatusCode::UNSUPPORTED_MEDIA_TYPE;
    }
    kept.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&body);
    StatusCode::OK
}
