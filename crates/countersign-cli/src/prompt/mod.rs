//! Asks the person at the terminal: a box with the facts, a bar of choices, and a countdown.

mod body;
mod choice;
mod dialog;
mod draw;
mod input;
mod pretty;
mod terminal;

#[cfg(test)]
mod tests;

pub(crate) use choice::Choice;
pub(crate) use dialog::{Offer, Question};
pub(crate) use pretty::on_one_line;
pub(crate) use terminal::{Asked, ask, is_interactive};

use std::time::Duration;

use countersign::{Gate, Hold};

/// What a person may choose about a hold. Deny comes first, and so has the focus.
pub(crate) fn choices(open: &Hold, offers: &[Offer]) -> Vec<Choice> {
    let mut choices = vec![Choice::Deny, Choice::Approve];
    if open.in_run() {
        return choices;
    }
    // Masked arguments cannot be edited: the mask would run in the secret's place.
    if open.call.redacted.is_none() {
        choices.push(Choice::Edit);
    }
    choices.push(Choice::Respond);
    if !offers.is_empty() {
        choices.push(Choice::Remember);
    }
    choices
}

/// Resolves when a hold closes without the person in front of it: expired, withdrawn, or decided elsewhere.
pub(crate) async fn closed(gate: &Gate, open: &Hold) {
    loop {
        let listener = gate.store().bell().listen(open.call.id);
        let call = gate.get(open.call.id).await;
        let hold = call.ok().and_then(|call| Hold::of(&call, open.id));
        // A store that cannot be read closes nothing: the decision itself will say what is wrong.
        if hold.is_some_and(|hold| !hold.is_pending()) {
            return;
        }
        // Expiry rings no bell by itself where nobody sweeps.
        if tokio::time::timeout(Duration::from_secs(1), listener).await.is_err() {
            let _ = gate.sweep().await;
        }
    }
}
