//! Ending a run before its time: nothing stays open, and its history stays whole.

use std::sync::Arc;

use countersign::call::{Outcome, Path};
use countersign::limits::PAGE_ROWS;
use countersign::store::CallFilter;
use countersign::{Call, CallState, Gate, GateError, Refusal, RefusalKind};
use futures::FutureExt as _;
use futures::future::BoxFuture;

use super::Run;
use super::call::words;
use super::calls::open_calls;
use crate::error::RunError;
use crate::limits;
use crate::model::Given;
use crate::session::MAIN;
use crate::transcript::{Entry, Next, Spent, Stopped, Transcript};

/// Withdraws what waits, leaves in doubt what runs, gives every open call its result, and writes down why.
///
/// Nobody drives the run any more. What was on its way to the store may still arrive, so this looks again if it does.
pub(crate) async fn settle(run: &Run, why: Stopped) -> Result<(), RunError> {
    for _ in 0..limits::SETTLE_ATTEMPTS {
        match settle_once(run, why.clone()).await {
            Err(RunError::Busy) => {}
            settled => return settled,
        }
    }
    Err(RunError::Busy)
}

async fn settle_once(run: &Run, why: Stopped) -> Result<(), RunError> {
    let mut transcript = close_thread(run, MAIN.into()).await?;
    withdraw_the_rest(run, &transcript.history.run).await?;
    match transcript.history.next() {
        // What was answered in the last moment stays answered.
        Next::Nothing | Next::Done | Next::Stopped(_) => Ok(()),
        Next::Ask | Next::Calls | Next::Await => transcript.append(Entry::Stopped { why }).await,
    }
}

/// Ends the calls of a thread's last turn, the children it began there, and those in the background.
fn close_thread(run: &Run, thread: Arc<str>) -> BoxFuture<'_, Result<Transcript, RunError>> {
    async move {
        let gate = &run.agent.inner.gate;
        let mut transcript = Transcript::open(gate.store(), &run.session, &thread).await?;
        for child in transcript.history.children.clone() {
            close_thread(run, child.thread).await?;
        }
        if transcript.history.next() == Next::Calls {
            let results = close_turn(run, &transcript, thread).await?;
            transcript.append(results).await?;
        }
        Ok(transcript)
    }
    .boxed()
}

async fn close_turn(run: &Run, transcript: &Transcript, thread: Arc<str>) -> Result<Entry, RunError> {
    let history = &transcript.history;
    let gate = &run.agent.inner.gate;
    let wording = &run.agent.inner.wording;
    let run_name = Some(Arc::clone(&history.run));
    let path = Path { run: run_name, thread: Some(Arc::clone(&thread)), ..run.path.clone() };
    let proposed = open_calls(gate, &path, history).await?;
    let refused = wording.refusal(&Refusal::new(RefusalKind::Cancelled));
    let (mut given, mut calls) = (Vec::new(), Vec::new());
    for (index, wanted) in history.said().iter().flat_map(|said| &said.calls).enumerate() {
        let key = format!("{thread}.{}.{index}", history.turn());
        let (text, is_error) = match proposed.get(key.as_str()) {
            None => (refused.as_str().into(), true),
            Some(call) => {
                let ended = end(gate, call).await?;
                calls.push(ended.id);
                if ended.facts.tool.delegate().is_some() && ended.state == CallState::Succeeded {
                    close_thread(run, ended.id.to_string().into()).await?;
                    (refused.as_str().into(), true)
                } else {
                    words(&ended, wording)
                }
            }
        };
        given.push(Given { label: Arc::clone(&wanted.label), name: Arc::clone(&wanted.name), text, is_error });
    }
    Ok(Entry::Results { given, calls, agent: None, started: Vec::new(), spent: Spent::default() })
}

/// Withdraws what else of the run waits for people: the question whether it may take more.
async fn withdraw_the_rest(run: &Run, run_name: &Arc<str>) -> Result<(), RunError> {
    let gate = &run.agent.inner.gate;
    let mut filter = CallFilter {
        holding: true,
        session: run.path.session.clone(),
        principal: Some(Arc::clone(&run.path.principal)),
        limit: Some(PAGE_ROWS),
        ..CallFilter::default()
    };
    loop {
        let calls = gate.store().calls(filter.clone()).await?;
        let Some(last) = calls.last() else { return Ok(()) };
        filter.after = Some(last.id);
        for call in calls.iter().filter(|call| call.facts.path.run.as_ref() == Some(run_name)) {
            end(gate, call).await?;
        }
    }
}

/// Ends one call: withdrawn if it does not run yet, in doubt if it does. One that ended keeps its result.
async fn end(gate: &Gate, call: &Call) -> Result<Arc<Call>, GateError> {
    let now = gate.get(call.id).await?;
    let ended = match (now.state, &now.lease) {
        (CallState::Pending | CallState::Allowed | CallState::Approved, _) => gate.cancel(now.id).await,
        (CallState::Executing, Some(lease)) => {
            let outcome = Outcome::MayHaveApplied { why: "cancelled while it ran".into() };
            gate.finish(now.id, lease.fence, outcome).await
        }
        _ => return Ok(now),
    };
    match ended {
        // It moved meanwhile: say what stands.
        Err(GateError::Rejected(_)) => gate.get(call.id).await,
        ended => ended,
    }
}
