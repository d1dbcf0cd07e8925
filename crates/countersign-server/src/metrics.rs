//! Counts for the operator, as Prometheus reads them. No names of people, agents or tools.

mod log;

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use axum::extract::Request;
use axum::http::{Method, StatusCode};
use tracing::Span;

pub(crate) use log::LogCounts;

use crate::{limits, trace};

/// The route of what is no route: a page was asked for.
const PAGE: &str = "page";
/// Letters of a method that are counted and shown.
const METHOD_LETTERS: usize = 10;

/// What is counted.
#[derive(Default)]
pub(crate) struct Metrics {
    /// What the event log tells.
    pub(crate) log: Arc<LogCounts>,
    requests: Mutex<HashMap<(Method, StatusCode), Routes>>,
}

/// How often each route was asked for.
type Routes = BTreeMap<&'static str, u64>;

/// What stands at this moment.
pub(crate) struct Gauges {
    /// Calls with a hold that waits.
    pub(crate) holds: usize,
    /// Streams that are open here.
    pub(crate) streams: usize,
    /// Deliveries that wait to arrive, to receivers that this node tends.
    pub(crate) deliveries: usize,
    /// Tries of this node to deliver that failed.
    pub(crate) undelivered: u64,
}

/// A request that is being answered, to be counted and traced by its route, never by its path.
pub(crate) struct Counting {
    method: Method,
    route: Option<&'static str>,
    begun: Instant,
    span: Span,
}

impl Counting {
    /// Begins with a request for a route.
    pub(crate) fn begin(request: &Request, route: Option<&'static str>) -> Counting {
        let method = short(request.method());
        let span = trace::request(&method, route);
        Counting { method, route, begun: Instant::now(), span }
    }

    /// The span in which it is answered.
    pub(crate) fn span(&self) -> Span {
        self.span.clone()
    }

    /// Counts what it was answered with.
    pub(crate) fn end(self, metrics: &Metrics, status: StatusCode) {
        let Counting { method, route, begun, span } = self;
        trace::answered(&span, status);
        let route = route.unwrap_or(PAGE);
        let micros = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        tracing::debug!(%method, route, status = status.as_u16(), micros, "answered");
        metrics.add(route, method, status);
    }
}

/// A method is anybody's to make up: so much of it is kept.
fn short(method: &Method) -> Method {
    let head = method.as_str().get(..METHOD_LETTERS);
    head.and_then(|head| head.parse().ok()).unwrap_or_else(|| method.clone())
}

impl Metrics {
    fn add(&self, route: &'static str, method: Method, status: StatusCode) {
        let Ok(mut requests) = self.requests.lock() else { return };
        let key = (method, status);
        if requests.len() >= limits::COUNTED && !requests.contains_key(&key) {
            return;
        }
        *requests.entry(key).or_default().entry(route).or_default() += 1;
    }

    /// The text Prometheus reads.
    pub(crate) fn text(&self, gauges: &Gauges) -> String {
        let mut out = String::from("# TYPE countersign_requests_total counter\n");
        for ((route, method, status), count) in self.counted() {
            let labels = format!("route=\"{route}\",method=\"{method}\",status=\"{status}\"");
            let _ = writeln!(out, "countersign_requests_total{{{labels}}} {count}");
        }
        self.log.write(&mut out);
        let Gauges { holds, streams, deliveries, undelivered } = gauges;
        let _ = writeln!(out, "# TYPE countersign_delivery_failures_total counter");
        let _ = writeln!(out, "countersign_delivery_failures_total {undelivered}");
        for (name, value) in [("streams", streams), ("holds_pending", holds), ("deliveries_pending", deliveries)] {
            let _ = writeln!(out, "# TYPE countersign_{name} gauge\ncountersign_{name} {value}");
        }
        out
    }

    /// The counts in a fixed order.
    fn counted(&self) -> BTreeMap<(&'static str, String, u16), u64> {
        let Ok(requests) = self.requests.lock() else { return BTreeMap::new() };
        let counts = requests.iter().flat_map(|((method, status), routes)| {
            let key = move |route: &'static str| (route, method.to_string(), status.as_u16());
            routes.iter().map(move |(route, count)| (key(route), *count))
        });
        counts.collect()
    }
}
