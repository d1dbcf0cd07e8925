//! Spans of the path of a call: submit, hold, wait, decide, claim, outcome, each within the request that asked for it; and
//! of the agents that run here: drive, call.
//!
//! SECURITY: a span holds ids, states, routes and statuses, which are ours, and never arguments, names or words, which are
//! not.

use std::collections::HashMap;

use axum::http::{Method, StatusCode};
use countersign::{Call, CallId, HoldId};
use countersign_agent::RunEvent;
use tracing::{Span, field};

/// The target of every span, for whoever collects them. They are of the level `debug`.
pub const SPANS: &str = "countersign::call";

/// The span of answering a request, with the names that OpenTelemetry has for such things. What is no route has none.
pub(crate) fn request(method: &Method, route: Option<&str>) -> Span {
    let Some(route) = route else { return Span::none() };
    tracing::debug_span!(
        target: SPANS,
        "request",
        otel.name = %format_args!("{method} {route}"),
        otel.kind = "server",
        http.request.method = %method,
        http.route = route,
        http.response.status_code = field::Empty,
    )
}

/// Notes what a request was answered with.
pub(crate) fn answered(request: &Span, status: StatusCode) {
    request.record("http.response.status_code", i64::from(status.as_u16()));
}

/// Notes on the current span what became of a call.
pub(crate) fn tell(call: &Call) {
    let span = Span::current();
    span.record("call", field::display(call.id)).record("state", field::display(call.state));
    if let Some(hold) = call.open_hold() {
        tell_hold(hold.id);
    }
}

/// The spans of the calls of a run that is driven here: each from when it was proposed to its end.
#[derive(Default)]
pub(crate) struct Calls(HashMap<CallId, Span>);

impl Calls {
    /// Follows what happens in the run.
    pub(crate) fn follow(&mut self, event: &RunEvent) {
        match event {
            RunEvent::Called { call } => {
                let (id, state) = (call.id, call.state);
                let span = tracing::debug_span!(target: SPANS, "call", call = %id, hold = field::Empty, %state);
                self.0.insert(id, span);
            }
            RunEvent::Held { hold } => {
                if let Some(span) = self.0.get(&hold.call.id) {
                    span.record("hold", field::display(hold.id));
                }
            }
            RunEvent::Ended { call } => {
                if let Some(span) = self.0.remove(&call.id) {
                    span.record("state", field::display(call.state));
                }
            }
            _ => {}
        }
    }
}

/// Notes on the current span which hold it is about.
pub(crate) fn tell_hold(hold: HoldId) {
    Span::current().record("hold", field::display(hold));
}
