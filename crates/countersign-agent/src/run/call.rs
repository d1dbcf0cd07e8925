//! One call on its way through the gate, and what the model reads of its end.

use std::sync::Arc;

use countersign::call::{Outcome, Repeat, ResolvedAs};
use countersign::refusal::Wording;
use countersign::{Call, CallId, CallState, Gate, GateError, Json, Refusal, RefusalKind, Tool};

use crate::stillness::Stillness;

/// Brings a call to its end and runs its tool if it may: waits for people, claims, runs, records.
///
/// Where somebody else runs it, waits for them; where they were lost, goes on as far as the tool may be repeated.
pub(super) async fn run_to_end(
    gate: &Gate,
    tool: &dyn Tool,
    mut call: Arc<Call>,
    stillness: &Stillness,
) -> Result<Arc<Call>, GateError> {
    loop {
        if call.state == CallState::Pending {
            // A run that waits for people may be left; one whose tool runs may not.
            call = gate.wait(call.id).await?;
        }
        if has_ended(&call) {
            return verified(gate, tool, call).await;
        }
        let busy = stillness.begin().await;
        call = gate.take_up(tool, call).await?;
        drop(busy);
        if call.state == CallState::Executing {
            elsewhere(gate, &call).await?;
            // Not only read: whoever finds that it has ended tells the after-hooks.
            call = gate.wait(call.id).await?;
        }
    }
}

/// Asks the tool about a call in doubt, where it can tell what came of it. Every other call is what it is.
pub(super) async fn verified(gate: &Gate, tool: &dyn Tool, call: Arc<Call>) -> Result<Arc<Call>, GateError> {
    match (call.state, call.repeat) {
        (CallState::InDoubt, Repeat::Verifiable) => gate.verify(tool, call.id).await,
        _ => Ok(call),
    }
}

/// Ends a call whose tool is gone. Nobody here can run it, so nobody is to be asked about it any more.
///
/// Where somebody else runs it, waits for them. Where they were lost nobody can go on with it, though it may be repeated.
pub(super) async fn end_without_tool(gate: &Gate, mut call: Arc<Call>) -> Result<Arc<Call>, GateError> {
    while !has_ended(&call) {
        let ended = match (call.state, &call.lease) {
            (CallState::Executing, Some(lease)) if lease.until <= gate.store().now().await? => {
                let outcome = Outcome::MayHaveApplied { why: "It may have taken effect; its tool is gone.".into() };
                gate.finish(call.id, lease.fence, outcome).await
            }
            (CallState::Executing, _) => elsewhere(gate, &call).await.map(|()| Arc::clone(&call)),
            _ => gate.cancel(call.id).await,
        };
        // It moved meanwhile: what stands now is looked at again.
        match ended {
            Ok(_) | Err(GateError::Rejected(_)) => call = gate.get(call.id).await?,
            Err(error) => return Err(error),
        }
    }
    Ok(call)
}

/// Waits for the end of a call that the session's client runs.
pub(super) async fn run_by_client(gate: &Gate, tool: &dyn Tool, id: CallId) -> Result<Arc<Call>, GateError> {
    loop {
        let call = gate.wait(id).await?;
        if has_ended(&call) {
            // Nothing is left to run: this tells the after-hooks.
            return gate.resume(tool, id).await;
        }
        elsewhere(gate, &call).await?;
    }
}

/// Whether the call gives the model something to read.
pub(super) fn has_ended(call: &Call) -> bool {
    call.state.is_final() || call.state == CallState::InDoubt
}

/// Waits until a call that is in other hands moves, or its time there is up.
async fn elsewhere(gate: &Gate, call: &Call) -> Result<(), GateError> {
    let store = gate.store();
    let listener = store.bell().listen(call.id);
    let seen = gate.get(call.id).await?;
    if seen.version != call.version {
        return Ok(());
    }
    let lease_ends = call.lease.as_ref().filter(|_| call.repeat.may_run_again()).map(|lease| lease.until);
    let Some(due) = lease_ends.into_iter().chain(call.due_at()).min() else {
        listener.await;
        return Ok(());
    };
    let now = store.now().await?;
    tokio::select! {
        () = listener => {}
        () = tokio::time::sleep(now.until(due)) => {
            store.run(countersign::store::Op::Tick { call: call.id }).await?;
        }
    }
    Ok(())
}

/// What the model reads of an ended call, and whether that is an error.
pub(super) fn words(call: &Call, wording: &Wording) -> (Arc<str>, bool) {
    let refused = || {
        let refusal = call.refusal.clone().unwrap_or_else(|| Refusal::new(RefusalKind::Error));
        (wording.refusal(&refusal).into(), true)
    };
    let ran = |(text, is_error): (Arc<str>, bool)| match wording.edited(call) {
        Some(edited) => (format!("{edited}\n{text}").into(), is_error),
        None => (text, is_error),
    };
    match (call.state, &call.outcome) {
        (CallState::Succeeded, Some(Outcome::Succeeded { output })) => ran((text_of(output), false)),
        (CallState::Answered, _) => (call.response.as_ref().map_or_else(|| "".into(), text_of), false),
        (CallState::Failed, Some(Outcome::Failed { error, refusal: None })) => ran((error.as_str().into(), true)),
        (CallState::Failed, Some(Outcome::MayHaveApplied { why })) => ran((why.as_str().into(), true)),
        (CallState::Resolved, outcome) => ran(resolved(call, outcome.as_ref(), wording)),
        (CallState::Failed | CallState::Denied | CallState::Expired | CallState::Cancelled | CallState::Lapsed, _) => {
            refused()
        }
        // Not at its end, or without the outcome its state promises: nobody knows.
        (
            CallState::InDoubt
            | CallState::Succeeded
            | CallState::Allowed
            | CallState::Pending
            | CallState::Approved
            | CallState::Executing,
            _,
        ) => (wording.doubt().into(), true),
    }
}

fn resolved(call: &Call, outcome: Option<&Outcome>, wording: &Wording) -> (Arc<str>, bool) {
    match (call.resolution.as_ref().map(|resolution| resolution.r#as), outcome) {
        (Some(ResolvedAs::Applied), Some(Outcome::Succeeded { output })) => (text_of(output), false),
        (Some(ResolvedAs::Applied), _) => ("It took effect; its result is not known.".into(), false),
        (Some(ResolvedAs::NotApplied | ResolvedAs::Failed), Some(Outcome::Failed { error, .. })) => {
            (error.as_str().into(), true)
        }
        (Some(ResolvedAs::NotApplied), _) => ("It did not take effect.".into(), true),
        (Some(ResolvedAs::Failed), _) => ("It failed; its error is not known.".into(), true),
        (Some(ResolvedAs::Abandoned) | None, _) => (wording.doubt().into(), true),
    }
}

/// A text is given as it is, everything else as JSON.
pub(super) fn text_of(json: &Json) -> Arc<str> {
    let text = json.as_str();
    match text.starts_with('"').then(|| json.read::<String>()) {
        Some(Ok(inner)) => inner.into(),
        Some(Err(_)) | None => text.into(),
    }
}
