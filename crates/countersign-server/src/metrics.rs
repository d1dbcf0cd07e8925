//! Counts for the operator, as Prometheus reads them. No names of people, agents or tools.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Mutex;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;

use crate::app::App;
use crate::limits;

/// What is counted.
#[derive(Default)]
pub(crate) struct Metrics {
    requests: Mutex<BTreeMap<(String, String, u16), u64>>,
}

/// What stands at this moment.
pub(crate) struct Gauges {
    /// Holds that wait; a page of them at most.
    pub(crate) holds: usize,
    /// Streams that are open here.
    pub(crate) streams: usize,
    /// Deliveries that wait to arrive, to receivers that this node tends.
    pub(crate) deliveries: usize,
}

/// Counts a request by its route, never by its path.
pub(crate) async fn count(State(app): State<App>, request: Request, next: Next) -> Response {
    let method: String = request.method().as_str().chars().take(10).collect();
    let route = request.extensions().get::<MatchedPath>().map_or("page", |path| path.as_str()).to_owned();
    let begun = std::time::Instant::now();
    let response = next.run(request).await;
    let status = response.status().as_u16();
    let micros = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
    tracing::debug!(method, route, status, micros, "answered");
    if let Ok(mut requests) = app.metrics.requests.lock() {
        // Methods are anybody's to make up; routes and statuses are ours.
        if requests.len() < limits::COUNTED {
            *requests.entry((route, method, status)).or_default() += 1;
        }
    }
    response
}

impl Metrics {
    /// The text Prometheus reads.
    pub(crate) fn text(&self, gauges: &Gauges) -> String {
        let mut out = String::from("# TYPE countersign_requests_total counter\n");
        if let Ok(requests) = self.requests.lock() {
            for ((route, method, status), count) in requests.iter() {
                let labels = format!("route=\"{route}\",method=\"{method}\",status=\"{status}\"");
                let _ = writeln!(out, "countersign_requests_total{{{labels}}} {count}");
            }
        }
        let Gauges { holds, streams, deliveries } = gauges;
        for (name, value) in [("streams", streams), ("holds_pending", holds), ("deliveries_pending", deliveries)] {
            let _ = writeln!(out, "# TYPE countersign_{name} gauge\ncountersign_{name} {value}");
        }
        out
    }
}
