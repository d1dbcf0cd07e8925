//! A submitted call on its way to the gate.

use std::sync::Arc;

use countersign::gate::{HookAnswer, Scope};
use countersign::{Claimed, Gate, Path, Proposal, Refusal, RefusalKind, ToolId, limits};
use countersign_api::wire::{self, Code};

use crate::app::App;
use crate::auth::Principal;
use crate::problem::{Answer, Refused};
use crate::routes::calls::elsewhere::Elsewhere;
use crate::routes::run::claiming;

/// Proposes a call in the name of a credential, and claims it where that is wanted and it is allowed.
pub(super) async fn propose(app: &App, caller: &Principal, mut new: wire::NewCall) -> Answer<Claimed> {
    let (claim, executor) = (new.claim, new.executor.take());
    let refusal = new.refusal.take().map(|refusal| agents_own(app, refusal)).transpose()?;
    let gate = claiming(&tightened(&app.gate, &mut new)?, executor)?;
    let requester = caller.requester(new.requester.take())?;
    let (tool, proposal) = proposal(caller, requester, new);
    Ok(match (&tool, refusal) {
        (Some(tool), Some(refusal)) => Claimed::Not(gate.refuse(tool, proposal, refusal).await?),
        (None, Some(refusal)) => Claimed::Not(gate.refuse_undefined(proposal, refusal).await?),
        (Some(tool), None) if claim => gate.submit_and_claim(tool, proposal).await?,
        (None, None) if claim => gate.submit_undefined_and_claim(proposal).await?,
        (Some(tool), None) => Claimed::Not(gate.submit(tool, proposal).await?),
        (None, None) => Claimed::Not(gate.submit_undefined(proposal).await?),
    })
}

fn proposal(caller: &Principal, requester: Option<Arc<str>>, new: wire::NewCall) -> (Option<Elsewhere>, Proposal) {
    let text = |text: Option<String>| text.map(Arc::from);
    let path = Path {
        // SECURITY: whose call it is, the credential says, never the body.
        principal: Arc::clone(&caller.name),
        requester,
        session: text(new.session),
        run: text(new.run),
        thread: text(new.thread),
        agents: new.agent.into_iter().map(Arc::from).collect(),
    };
    let tool = ToolId { server: text(new.server), name: new.tool.into() };
    let proposal = Proposal {
        tool: tool.clone(),
        arguments: new.arguments.get().to_owned(),
        path,
        key: text(new.key),
        label: text(new.label),
        hint: text(new.hint),
        payload: new.payload,
    };
    (new.definition.map(|definition| Elsewhere::new(tool, definition, new.places)), proposal)
}

/// The gate with what the agent's own checks add. They only tighten.
fn tightened(gate: &Gate, new: &mut wire::NewCall) -> Answer<Gate> {
    if new.raised.is_none() && new.expires_after.is_none() {
        return Ok(gate.clone());
    }
    let mut scope = Scope::new();
    if let Some(raised) = new.raised.take() {
        if raised.len() > limits::NOTE_BYTES {
            return Err(Refused::because(Code::BadRequest, "`raised` is too long"));
        }
        if new.definition.is_none() {
            return Err(Refused::because(Code::BadRequest, "`raised` needs a `definition`"));
        }
        scope = scope.before_tool(move |_| {
            let raised = raised.clone();
            async move { Ok(HookAnswer::Ask(raised)) }
        });
    }
    if let Some(life) = new.expires_after {
        scope = scope.hold_life(life.0);
    }
    Ok(gate.scoped(&scope))
}

/// What an agent's own checks may refuse a call for.
///
/// SECURITY: nobody but the gate speaks for rules and people, so an agent's refusal names neither.
fn agents_own(app: &App, refusal: Refusal) -> Answer<Refusal> {
    let own = [
        RefusalKind::Hook,
        RefusalKind::Authorizer,
        RefusalKind::InvalidArguments,
        RefusalKind::UnknownTool,
        RefusalKind::Superseded,
        RefusalKind::Limit,
        RefusalKind::Cancelled,
        RefusalKind::Error,
    ];
    if !own.contains(&refusal.kind) {
        let detail = format!("an agent does not refuse for `{}`", refusal.kind.as_str());
        return Err(Refused::because(Code::BadRequest, detail));
    }
    if refusal.reason.as_ref().is_some_and(|reason| reason.len() > limits::NOTE_BYTES) {
        return Err(Refused::because(Code::BadRequest, "the reason of `refusal` is too long"));
    }
    let mut told = Refusal::new(refusal.kind);
    told.reason = refusal.reason.map(|reason| app.redactor.text(&reason).into_owned());
    Ok(told)
}
