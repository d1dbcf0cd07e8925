//! A call that was judged, followed to its end or to the moment its client is told to call again.

use std::sync::Arc;

use countersign::digest::ArgumentDigest;
use countersign::store::Op;
use countersign::transition::Rejection;
use countersign::{Call, CallId, CallState, Claimed, GateError, Permit, Refusal, RefusalKind};
use tokio::time::{Instant, sleep_until};

use super::call::{Matter, NOT_GRANTED, Open, Reply};
use super::forward::Forwarding;
use super::listing::Standing;
use super::prompt::{Prompt, Way};
use super::prompts::Asked;
use super::request::Era;
use super::state::Leg;
use super::words;
use crate::limits;

/// What came of waiting.
enum Waited {
    /// The call has come as far as it was waited for.
    Call(Arc<Call>),
    /// It has not, and the client is told so now.
    Late(Arc<Call>),
    /// The client cancelled, or is gone.
    Left,
}

impl Matter<'_> {
    /// Follows a call from wherever it stands to its end, or to the moment its client is told to call again.
    pub(super) async fn follow(&self, open: &Open<'_>) -> Result<Reply, GateError> {
        let deadline = Instant::now() + self.core.wait;
        let mut waited = self.until_decided(&open.call, deadline).await?;
        while let Waited::Call(call) = &waited
            && matches!(call.state, CallState::Allowed | CallState::Approved)
        {
            let rung = self.core.gate.store().bell().listen(call.id);
            // SECURITY: people thought about it for a while, in which its server may have changed the tool without a word.
            let asked = !call.holds.is_empty() && call.definition.is_some();
            if asked && !Box::pin(self.core.listed_anew(self.request)).await {
                waited = Waited::Late(Arc::clone(call));
                break;
            }
            // SECURITY: nothing runs for a caller that is gone. One that only closed its end still reads answers, but
            // waits for nobody.
            if self.left.is_cancelled() {
                return Ok(Reply::Nothing);
            }
            if call.state == CallState::Approved && self.core.leaving.is_cancelled() {
                waited = Waited::Late(Arc::clone(call));
                break;
            }
            if self.request.more.is_some() && call.grant.is_some() {
                let refusal = Refusal::new(RefusalKind::Superseded).because(NOT_GRANTED);
                waited = Waited::Call(Box::pin(self.withdrawn(call.id, refusal)).await?);
                continue;
            }
            // SECURITY: just before the claim. The tool may have changed since it was judged.
            let now = match Box::pin(self.core.standing(self.request)).await? {
                Standing::Known(listed) => Some(listed.definition.digest()),
                Standing::Unknown => None,
                Standing::Stopped(refusal, _) => {
                    waited = Waited::Call(Box::pin(self.withdrawn(call.id, refusal)).await?);
                    continue;
                }
            };
            waited = match Box::pin(self.core.gate.claim(call.id, now)).await {
                Ok(Claimed::Permit(permit)) => return Box::pin(self.run(permit, &open.tool, open.digest)).await,
                Ok(Claimed::Not(now)) => Waited::Call(now),
                Err(GateError::Rejected(Rejection::Halted)) => Box::pin(self.until_rung(rung, call, deadline)).await?,
                Err(error) => return Err(error),
            };
        }
        if let Waited::Call(call) = &waited {
            // Another request has it, here or in another process: its outcome is this one's, too.
            waited = Box::pin(self.until(call.id, deadline, |call| call.state != CallState::Executing)).await?;
        }
        let (id, era) = (&self.request.id, self.request.era);
        Ok(match waited {
            Waited::Left => Reply::Nothing,
            Waited::Late(call) => Reply::Line(Box::pin(self.not_yet(&open.arguments, &call, open.round)).await?),
            Waited::Call(call) if call.holds.is_empty() && self.request.resumes.is_none() => {
                Reply::Line(words::ended(id, era, &call))
            }
            Waited::Call(call) => Reply::Outcome(words::ended(id, era, &call), open.digest, call),
        })
    }

    /// Waits until something happens to a call that is halted.
    async fn until_rung(
        &self,
        rung: impl Future<Output = ()>,
        call: &Arc<Call>,
        deadline: Instant,
    ) -> Result<Waited, GateError> {
        Ok(tokio::select! {
            () = rung => Waited::Call(self.core.gate.get(call.id).await?),
            () = sleep_until(deadline) => Waited::Late(Arc::clone(call)),
            () = self.core.leaving.cancelled() => Waited::Late(Arc::clone(call)),
            () = self.left.cancelled() => Waited::Left,
        })
    }

    /// A call whose tool is not what it was, as it stands now that nobody may run it.
    async fn withdrawn(&self, id: CallId, refusal: Refusal) -> Result<Arc<Call>, GateError> {
        match Box::pin(self.core.gate.cancel_because(id, refusal)).await {
            // Whoever was quicker has ended it, or runs it.
            Err(GateError::Rejected(_)) => self.core.gate.get(id).await,
            withdrawn => withdrawn,
        }
    }

    /// Tells the client that its call still waits: a newer one to go on waiting, any other what to do.
    async fn not_yet(&self, arguments: &ArgumentDigest, call: &Call, round: usize) -> Result<String, GateError> {
        let (id, era) = (&self.request.id, self.request.era);
        if era == Era::Handshake || round >= limits::LEGS || self.core.leaving.is_cancelled() {
            if call.open_hold().is_some() {
                self.core.sent_away(call.id).await;
            }
            let link = call.open_hold().and_then(|hold| (self.core.links)(hold.id));
            return Ok(words::pending(id, era, call, link.as_deref()));
        }
        let leg = Leg { call: call.id, round: round + 1, asked: None, more: self.request.more.clone() };
        Ok(words::again(id, &self.core.issue(self.request, arguments, leg).await?))
    }

    /// Waits for a decision; meanwhile the person at a client of the handshake era is asked, where that can be.
    async fn until_decided(&self, call: &Arc<Call>, deadline: Instant) -> Result<Waited, GateError> {
        let decided = || self.until(call.id, deadline, |call| call.state != CallState::Pending);
        let prompt = match self.request.era {
            Era::Handshake => Box::pin(self.core.prompt(self.core.able(), call)).await?,
            Era::Modern => None,
        };
        let asked = prompt.and_then(|prompt| Some((self.core.prompts.ask(prompt.hold)?, prompt)));
        match asked {
            None => Box::pin(decided()).await,
            Some((asked, prompt)) => Box::pin(self.until_answered(call, decided(), asked, prompt)).await,
        }
    }

    /// Waits for a decision while the person at the client is asked for one.
    async fn until_answered(
        &self,
        call: &Arc<Call>,
        decided: impl Future<Output = Result<Waited, GateError>>,
        mut asked: Asked<'_>,
        prompt: Prompt,
    ) -> Result<Waited, GateError> {
        tokio::pin!(decided);
        self.caller.note(words::elicit(&asked.id, &prompt.params)).await;
        let waited = tokio::select! {
            waited = &mut decided => {
                let id = asked.id.clone();
                // Before it is told: whoever calls again right after that is asked anew.
                drop(asked);
                self.caller.note(words::cancelled(&id, "this is no longer asked here")).await;
                waited?
            }
            said = asked.answer() => {
                if prompt.way == Way::Form {
                    Box::pin(self.core.take_answer(prompt.hold, call, &said)).await;
                }
                decided.await?
            }
        };
        if prompt.way == Way::Link && matches!(waited, Waited::Call(_)) {
            self.caller.note(words::elicited(prompt.hold)).await;
        }
        Ok(waited)
    }

    /// Waits for a call, telling the client now and then that it still waits.
    async fn until(&self, id: CallId, deadline: Instant, done: impl Fn(&Call) -> bool) -> Result<Waited, GateError> {
        let store = self.core.gate.store();
        let mut next_beat = Instant::now();
        let mut next_tick = next_beat;
        let mut beat = 0;
        loop {
            let rung = store.bell().listen(id);
            let call = self.core.gate.get(id).await?;
            if done(&call) {
                return Ok(Waited::Call(call));
            }
            let due = match call.due_at() {
                Some(due) => Some((Instant::now() + store.now().await?.until(due)).max(next_tick)),
                None => None,
            };
            // One timer for all three, for each of thousands that wait.
            tokio::select! {
                () = rung => continue,
                () = sleep_until(due.unwrap_or(deadline).min(deadline).min(next_beat)) => {}
                () = self.left.cancelled() => return Ok(Waited::Left),
                () = self.core.leaving.cancelled() => return Ok(Waited::Late(call)),
            }
            let now = Instant::now();
            // First: whoever waits as long as the hold is open is told what became of it, and not that it waits.
            let is_due = due.is_some_and(|due| now >= due);
            if is_due {
                if store.run(Op::Tick { call: id }).await.is_ok_and(|ticked| !ticked.replayed) {
                    continue;
                }
                // A store that takes nothing now is not asked without a pause.
                next_tick = now + limits::TICK_AGAIN;
            }
            if now >= deadline {
                return Ok(Waited::Late(call));
            }
            if now >= next_beat {
                next_beat = now + limits::HEARTBEAT;
                beat += 1;
                if let Some(token) = &self.request.token {
                    self.caller.note(words::progress(token, beat, &call)).await;
                }
            }
        }
    }

    /// Runs a call, and answers with the server's own bytes.
    pub(super) async fn run(
        &self,
        permit: Permit,
        tool: &Forwarding<'_>,
        digest: ArgumentDigest,
    ) -> Result<Reply, GateError> {
        let (id, era) = (&self.request.id, self.request.era);
        let asked = !permit.call().holds.is_empty();
        let Ok(call) = self.core.gate.run(permit, tool).await else {
            // It ran, and that could not be recorded: when its lease ends it is in doubt.
            return Ok(Reply::Line(words::doubt(id, era)));
        };
        if self.left.is_cancelled() {
            return Ok(Reply::Nothing);
        }
        let line = tool.answered().and_then(|line| words::answer(id, &line, &call));
        let line = line.unwrap_or_else(|| words::ended(id, era, &call));
        Ok(if asked { Reply::Outcome(line, digest, call) } else { Reply::Ran(line, digest, call) })
    }
}
