//! Spans of the path of a call: submit, hold, wait, decide, claim, outcome.
//!
//! SECURITY: a span holds ids and states, which are ours, and never arguments, names or words, which are not.

use countersign::{Call, HoldId};
use tracing::{Span, field};

/// The target of every span, for whoever collects them. They are of the level `debug`.
pub const SPANS: &str = "countersign::call";

/// Notes on the current span what became of a call.
pub(crate) fn tell(call: &Call) {
    let span = Span::current();
    span.record("call", field::display(call.id)).record("state", field::display(call.state));
    if let Some(hold) = call.open_hold() {
        tell_hold(hold.id);
    }
}

/// Notes on the current span which hold it is about.
pub(crate) fn tell_hold(hold: HoldId) {
    Span::current().record("hold", field::display(hold));
}
