//! Asks the person at the terminal: a box with the facts, a bar of choices, and a countdown.

mod body;
mod choice;
mod dialog;
mod draw;
mod editor;
mod input;
mod pick;
mod pretty;
mod terminal;

#[cfg(test)]
mod tests;

pub(crate) use body::Look;
pub(crate) use choice::Choice;
pub(crate) use dialog::{Dialog, Offer, Question, Stage, Step};
pub(crate) use draw::{ADDING, countdown};
pub(crate) use editor::edit;
pub(crate) use input::Input;
pub(crate) use pick::{Item, Picked, pick};
pub(crate) use pretty::on_one_line;
pub(crate) use terminal::{Asked, Guard, ask, flush, is_interactive, next_event};

use std::future::Future;
use std::time::{Duration, Instant};

use countersign::show::escape;
use countersign::{Answer, Gate, Hold};

use crate::fault::Fault;
use crate::offer;
use crate::out;
use crate::signals::Signals;

/// Puts a hold to the person at the terminal, with these choices after the usual ones. `joined` is as for [`ask`].
pub(crate) async fn put(
    gate: &Gate,
    open: &Hold,
    also: &[Choice],
    notice: Option<String>,
    joined: impl Future<Output = ()>,
    signals: &mut Signals,
) -> Result<Asked, Fault> {
    let now = gate.store().now().await?;
    let (offers, fields) = (offer::offers(gate, open).await?, offer::fields(gate, open).await?);
    let mut choices = choices(open, &offers);
    choices.extend(also);
    let view = gate.view(open, now).await?;
    let (arguments, payload) = (open.call.shown_arguments().clone(), open.payload.clone());
    let question = Question { view, arguments, payload, choices, offers, fields, notice };
    let begin = Instant::now();
    let life: Option<Duration> = open.expires_at.map(|at| now.until(at));
    let left = move || life.map(|life| life.saturating_sub(begin.elapsed()));
    let look = async |fields: &[String]| offer::by_fields(gate, open, fields).await;
    Ok(ask(question, left, closed(gate, open), joined, look, signals).await?)
}

/// Asks a question that only a typed yes answers. Where nobody can be asked it is a refusal that says what to do.
pub(crate) fn agreed(question: &str, else_do: &str) -> Result<bool, Fault> {
    if !is_interactive() {
        return Err(Fault::refused("without a terminal nobody can be asked").next(else_do));
    }
    out::say_part(format_args!("{question} Type yes: "));
    let mut said = String::new();
    std::io::stdin().read_line(&mut said)?;
    Ok(said.trim() == "yes")
}

/// An answer as it is said back to whoever gave it. Safe to print.
pub(crate) fn in_words(answer: &Answer) -> String {
    match answer {
        Answer::Approve { arguments: Some(_), .. } => "you approve, with other arguments".to_owned(),
        Answer::Approve { payload: Some(payload), .. } => {
            format!("you approve, and give along: {}", on_one_line(payload.as_str()))
        }
        Answer::Approve { remember: Some(_), .. } => "you approve, and want it remembered".to_owned(),
        Answer::Approve { .. } => "you approve".to_owned(),
        Answer::Deny { reason: Some(reason) } => format!("you deny: {}", escape(reason)),
        Answer::Deny { reason: None } => "you deny".to_owned(),
        Answer::Respond { response } => format!("you answer instead: {}", on_one_line(response.as_str())),
    }
}

/// What a person may choose about a hold. Deny comes first, and so has the focus.
pub(crate) fn choices(open: &Hold, offers: &[Offer]) -> Vec<Choice> {
    let mut choices = vec![Choice::Deny, Choice::Approve];
    if open.in_run() {
        choices.push(Choice::Payload);
        return choices;
    }
    // Masked arguments cannot be edited: the mask would run in the secret's place.
    if open.call.redacted.is_none() {
        choices.push(Choice::Edit);
    }
    choices.extend([Choice::Payload, Choice::Respond]);
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
