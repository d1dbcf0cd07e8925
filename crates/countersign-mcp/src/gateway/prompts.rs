//! Prompts that are open in a client of the handshake era, and whose answers are whose.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use countersign::HoldId;
use tokio::sync::oneshot;

use super::message::{Envelope, Id};

/// The prompts of one conversation.
///
/// They go to the client under ids of their own that the server never sees, so that no question of the server's is taken
/// for one of ours, nor an answer to one for an answer to the other.
pub(super) struct Prompts {
    prefix: String,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    next: u64,
    answers: HashMap<Id, oneshot::Sender<String>>,
    holds: HashSet<HoldId>,
}

impl Default for Prompts {
    fn default() -> Self {
        Prompts { prefix: format!("countersign-prompt-{}-", uuid::Uuid::new_v4().simple()), open: Mutex::default() }
    }
}

/// A prompt that waits for its answer. Dropped, it waits no more.
pub(super) struct Asked<'p> {
    prompts: &'p Prompts,
    pub(super) id: Id,
    hold: Option<HoldId>,
    answer: oneshot::Receiver<String>,
}

impl Prompts {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an id for a prompt about a hold. None where the person is being asked about it already.
    pub(super) fn ask(&self, hold: HoldId) -> Option<Asked<'_>> {
        let mut open = self.open();
        open.holds.insert(hold).then(|| self.asked(&mut open, Some(hold)))
    }

    /// Takes an id for a question that is not ours, and goes to the client under an id of ours.
    pub(super) fn question(&self) -> Asked<'_> {
        self.asked(&mut self.open(), None)
    }

    fn asked(&self, open: &mut Open, hold: Option<HoldId>) -> Asked<'_> {
        open.next += 1;
        let id = Id::text(&format!("{}{}", self.prefix, open.next));
        let (sender, answer) = oneshot::channel();
        open.answers.insert(id.clone(), sender);
        Asked { prompts: self, id, hold, answer }
    }

    /// Whether an id is one of ours, waited for or not.
    pub(super) fn is_ours(&self, id: &Id) -> bool {
        id.0.strip_prefix('"').is_some_and(|text| text.starts_with(&self.prefix))
    }

    /// Hands an answer to whoever waits for it. False where nobody does: it is late, the second one, or made up.
    pub(super) fn answered(&self, id: &Id, envelope: &Envelope<'_>) -> bool {
        let Some(sender) = self.open().answers.remove(id) else { return false };
        // An error decides nothing, as an empty answer does.
        sender.send(envelope.result.map_or_else(String::new, |result| result.get().to_owned())).is_ok()
    }
}

impl Asked<'_> {
    /// Waits for the answer.
    pub(super) async fn answer(&mut self) -> String {
        // INVARIANT: the other end is dropped only with this one.
        (&mut self.answer).await.unwrap_or_default()
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let mut open = self.prompts.open();
        open.answers.remove(&self.id);
        if let Some(hold) = &self.hold {
            open.holds.remove(hold);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_counts_once_and_only_while_it_is_waited_for() {
        let (prompts, others) = (Prompts::default(), Prompts::default());
        let mut asked = prompts.ask(HoldId::new()).unwrap();
        let id = asked.id.clone();
        assert!(prompts.is_ours(&id) && !others.is_ours(&id) && !prompts.is_ours(&Id::text("countersign-prompt-")));
        let yes = Envelope::read(r#"{"id":1,"result":{"a":1}}"#).unwrap();
        let no = Envelope::read(r#"{"id":1,"error":{"code":1}}"#).unwrap();
        assert!(!others.answered(&id, &yes));
        assert!(prompts.answered(&id, &yes));
        assert!(!prompts.answered(&id, &no));
        assert_eq!(asked.answer().await, r#"{"a":1}"#);
        drop(asked);
        assert!(!prompts.answered(&id, &yes));
    }

    #[test]
    fn a_person_is_asked_once_about_a_hold_at_a_time() {
        let (prompts, hold) = (Prompts::default(), HoldId::new());
        let first = prompts.ask(hold);
        assert!(first.is_some() && prompts.ask(hold).is_none() && prompts.ask(HoldId::new()).is_some());
        drop(first);
        assert!(prompts.ask(hold).is_some());
    }
}
