//! Puts a hold to whoever this process can ask: a function or a channel of the embedder's.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt as _;

use crate::approver::{Approver, Hold};
use crate::call::{Call, CallState};
use crate::gate::local::Local;
use crate::gate::scope::{Asks, Reach};
use crate::id::HoldId;
use crate::limits;
use crate::refusal::{Refusal, RefusalKind};
use crate::store::Op;

impl Local {
    /// Tells whoever is reachable about the hold that is open, if any: once in this process. The hold is durable by now.
    pub(super) fn announce(self: &Arc<Self>, asks: &Arc<Asks>, call: &Arc<Call>) {
        let Some(open) = call.open_hold().and_then(|hold| Hold::of(call, hold.id)) else { return };
        if !asks.asks_here() || !self.is_news(open.id) {
            return;
        }
        match &asks.reach {
            Reach::Nobody | Reach::Elsewhere => {}
            Reach::Channel(channel) => {
                // A reader that is gone leaves the hold to expire: nothing runs because nobody listens.
                let _ = channel.send(open);
            }
            // One that decided before, in a process that is gone, has nothing to add; others are still waited for.
            Reach::Approver(approver) if open.decisions.iter().any(|made| made.by.id == approver.who().id) => {}
            Reach::Approver(approver) => self.put_to(Arc::clone(asks), Arc::clone(approver), open),
        }
    }

    /// Asks about a call that waits: whoever opened its hold may be gone with the process it asked in.
    ///
    /// A tool that runs asks for itself, and its process is the only one to hear the answer.
    pub(super) fn announce_waiting(self: &Arc<Self>, asks: &Arc<Asks>, call: &Arc<Call>) {
        if call.state == CallState::Pending {
            self.announce(asks, call);
        }
    }

    /// Whether this process has not asked about a hold yet. It has from now on.
    fn is_news(&self, hold: HoldId) -> bool {
        let Ok(mut asked) = self.asked.lock() else { return false };
        let news = asked.insert(hold);
        if asked.len() > limits::ASKED_HOLDS {
            // The first is the oldest. Were it still open, it would be asked about once more.
            asked.pop_first();
        }
        news
    }

    /// Puts the question on a thread of its own, so that an approver that blocks defeats neither expiry nor cancel.
    fn put_to(self: &Arc<Self>, asks: Arc<Asks>, approver: Arc<dyn Approver>, open: Hold) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let local = Arc::clone(self);
        let inner = runtime.clone();
        runtime.spawn_blocking(move || inner.block_on(local.ask_approver(asks, approver, open)));
    }

    async fn ask_approver(self: Arc<Self>, asks: Arc<Asks>, approver: Arc<dyn Approver>, open: Hold) {
        let (id, call) = (open.id, open.call.id);
        let asked = AssertUnwindSafe(async { approver.ask(open.clone()).await }).catch_unwind();
        let closed = self.wait(call, |call| call.holds.iter().any(|hold| hold.id == id && !hold.is_pending()));
        // A store that cannot say whether the hold is closed takes no question back.
        let answer = tokio::select! {
            answer = asked => answer,
            Ok(_) = closed => return,
        };
        let problem = match answer {
            Ok(Ok(answer)) => {
                let decision = open.decision(approver.who(), "approver", answer);
                match self.decide(&asks, id, decision, &[]).await {
                    Ok(_) => return,
                    Err(error) => error.to_string(),
                }
            }
            Ok(Err(error)) => error,
            Err(_) => "the approver panicked".to_owned(),
        };
        let refusal = Refusal::new(RefusalKind::Error).because(format!("the approver failed: {problem}"));
        let refusal = self.masked_refusal(refusal);
        if let Err(error) = self.store.run(Op::Close { hold: id, refusal }).await {
            tracing::warn!(hold = %id, %error, "a hold whose approver failed could not be closed; it will expire");
        }
    }
}
