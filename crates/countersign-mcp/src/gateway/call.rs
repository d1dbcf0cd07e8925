//! One `tools/call`, from its request to its answer: judged, and then followed to its end.

use std::sync::Arc;

use countersign::callers::WhoWaits;
use countersign::digest::{ArgumentDigest, DefinitionDigest, argument_digest};
use countersign::gate::{HookAnswer, Scope};
use countersign::{Call, CallId, CallState, Claimed, Gate, GateError, Json, Proposal, Refusal, RefusalKind, ToolId};
use tokio_util::sync::CancellationToken;

use super::Core;
use super::caller::Caller;
use super::catalog::Listed;
use super::forward::Forwarding;
use super::inbound::Taken;
use super::listing::Standing;
use super::prompt::Way;
use super::request::{Era, Request, shown};
use super::retry::{Earlier, Seat, identity};
use super::state::Leg;
use super::words::{self, INVALID_PARAMS};

/// What is said of a state that is not good.
const BAD_STATE: &str = "`requestState` is not one that was given for this call, or it was used before; send the call \
                         without it";

/// What goes back to the client.
pub(super) enum Reply {
    /// A line that delivers no outcome of an asked call.
    Line(String),
    /// The outcome of a call that nobody was asked about.
    Ran(String, ArgumentDigest, Arc<Call>),
    /// The outcome of a call that was written down as owed.
    Outcome(String, ArgumentDigest, Arc<Call>),
    /// Nothing: the client cancelled, or is gone.
    Nothing,
}

impl Core {
    /// Takes one request from its client and sees to its answer.
    ///
    /// Thousands may wait for people at once, so whatever a call does besides waiting is boxed on its way.
    pub(super) async fn attend(self: Arc<Self>, taken: Taken, caller: Caller) {
        let Taken { request, left } = taken;
        let matter = Matter { core: &self, request: &request, caller: &caller, left: &left };
        let reply = matter.settle().await.unwrap_or_else(|error| matter.unsettled(&error));
        self.in_hand().remove(&(caller.lane(), request.id.clone()));
        match reply {
            Reply::Nothing => {}
            Reply::Line(line) => drop(caller.answer(line).await),
            Reply::Ran(line, digest, call) => self.deliver(&caller, line, &digest, &call).await,
            Reply::Outcome(line, digest, call) => {
                // Before it is sent: an identical call that comes right after the answer is a new one.
                self.paid(&digest, call.id).await;
                self.deliver(&caller, line, &digest, &call).await;
            }
        }
    }

    async fn deliver(&self, caller: &Caller, line: String, digest: &ArgumentDigest, call: &Call) {
        if caller.deliver(line).await.is_err() {
            self.still_owe(digest, call).await;
        }
    }
}

/// What became of a request when it was judged.
enum Judged<'a> {
    /// It is answered.
    Done(Reply),
    /// It is attached to a call, and is yet to be followed.
    Open(Open<'a>, Seat<'a>),
}

/// A call that is open, and all that is kept of its request's judging while it is followed.
pub(super) struct Open<'a> {
    pub(super) tool: Forwarding<'a>,
    pub(super) arguments: ArgumentDigest,
    pub(super) digest: ArgumentDigest,
    pub(super) call: Arc<Call>,
    /// How many legs of the wait there were before.
    pub(super) round: usize,
}

/// A request and what it needs.
#[derive(Clone, Copy)]
pub(super) struct Matter<'a> {
    pub(super) core: &'a Arc<Core>,
    pub(super) request: &'a Request,
    pub(super) caller: &'a Caller,
    /// Is cancelled when the client cancels or is gone.
    pub(super) left: &'a CancellationToken,
}

impl<'a> Matter<'a> {
    async fn settle(&self) -> Result<Reply, GateError> {
        let (core, request) = (self.core, self.request);
        let listed = match core.standing(request).await? {
            Standing::Known(listed) => Some(listed),
            Standing::Unknown => None,
            Standing::Stopped(refusal, listed) => {
                let tool = Forwarding::new(self, listed.as_deref());
                let refused = Box::pin(core.gate.refuse(&tool, self.proposal(), refusal)).await?;
                return Ok(Reply::Line(words::ended(&request.id, request.era, &refused)));
            }
        };
        let known = listed.as_ref().map(|listed| listed.definition.digest());
        let Some(digest) = self.digest(known.as_ref()) else {
            // Arguments that cannot be read: the gate refuses them, and has it on record.
            let tool = Forwarding::new(self, listed.as_deref());
            let refused = self.submit(&core.gate, &tool).await?;
            return Ok(Reply::Line(words::ended(&request.id, request.era, &refused)));
        };
        let leg = match &request.state {
            None => request.resumes.map(|call| Leg { call, round: 0, asked: None, more: None }),
            Some(state) => match core.redeem(state, request, &digest).await? {
                None => return Ok(Reply::Line(words::error(Some(&request.id), INVALID_PARAMS, BAD_STATE))),
                leg => leg,
            },
        };
        let carrying = match leg.as_ref().and_then(|leg| leg.more.as_ref()) {
            None => None,
            Some(more) => match request.clone().carrying(more, &core.states) {
                None => return Ok(Reply::Line(words::error(Some(&request.id), INVALID_PARAMS, BAD_STATE))),
                carrying => carrying.map(Box::new),
            },
        };
        let matter = Matter { request: carrying.as_deref().unwrap_or(request), ..*self };
        let (open, seat) = match Box::pin(matter.judged(listed, digest, leg)).await? {
            Judged::Done(reply) => return Ok(reply),
            Judged::Open(open, seat) => (open, seat),
        };
        let reply = matter.follow(&open).await;
        drop(seat);
        let has_left = match &reply {
            Ok(Reply::Nothing) => true,
            // It closed its end, and reads at most that its call waits.
            Ok(Reply::Line(_)) => core.leaving.is_cancelled(),
            Ok(Reply::Ran(..) | Reply::Outcome(..)) | Err(_) => false,
        };
        if has_left {
            Box::pin(core.linger(open.call.id)).await;
        }
        reply
    }

    /// Judges a call, or goes on with the one that it belongs to.
    async fn judged(
        &self,
        listed: Option<Arc<Listed>>,
        arguments: ArgumentDigest,
        leg: Option<Leg>,
    ) -> Result<Judged<'a>, GateError> {
        let (core, request) = (self.core, self.request);
        let mut tool = Forwarding::new(self, listed.as_deref());
        let digest = identity(&arguments, request.more.as_ref());
        let alone = core.retries.alone(&digest).await;
        let (goes_on, round) = leg.as_ref().map_or((false, 0), |leg| (true, leg.round));
        let earlier = match leg {
            Some(leg) => Earlier::Call(Box::pin(self.resumed(&leg)).await?),
            None => core.earlier(&digest, &arguments).await?,
        };
        let is_earlier = matches!(earlier, Earlier::Call(_));
        let claimed = match earlier {
            Earlier::Call(call) => Claimed::Not(call),
            Earlier::Nothing => self.submit_and_claim(&core.gate, &mut tool).await?,
            Earlier::Doubt(_) if listed.is_none() => {
                return Ok(Judged::Done(Reply::Line(words::doubt(&request.id, request.era))));
            }
            Earlier::Doubt(id) => self.submit_and_claim(&raised(&core.gate, id), &mut tool).await?,
        };
        let call = match claimed {
            Claimed::Permit(permit) => {
                self.caller.becomes(permit.call().id);
                drop(alone);
                return Box::pin(self.run(permit, &tool, digest)).await.map(Judged::Done);
            }
            Claimed::Not(call) => call,
        };
        self.caller.becomes(call.id);
        if call.state == CallState::Pending {
            core.owe(&digest, &call).await?;
        }
        if !goes_on
            && call.state == CallState::Pending
            && let Some(line) = Box::pin(self.put_off(&arguments, &call)).await?
        {
            if is_earlier {
                core.forget_caller(call.id).await?;
                core.shared.tell_server(call.id, &WhoWaits::Unknown).await;
            }
            return Ok(Judged::Done(Reply::Line(line)));
        }
        let seat = core.retries.attach(call.id);
        if is_earlier || call.state == CallState::Pending {
            core.attended(call.id).await?;
        }
        drop(alone);
        Ok(Judged::Open(Open { tool, arguments, digest, call, round }, seat))
    }

    /// What a client of the newer era gets at once for a call that waits: a task, or something for its user. None where
    /// it is kept waiting.
    async fn put_off(&self, digest: &ArgumentDigest, call: &Arc<Call>) -> Result<Option<String>, GateError> {
        let (core, request) = (self.core, self.request);
        if request.era == Era::Handshake {
            return Ok(None);
        }
        if request.able.tasks
            && let Some(line) = core.begin_task(request, call).await?
        {
            return Ok(Some(line));
        }
        let Some(prompt) = core.prompt(request.able, call).await? else { return Ok(None) };
        let asked = (prompt.way == Way::Form).then_some(prompt.hold);
        let leg = Leg { call: call.id, round: 1, asked, more: request.more.clone() };
        let state = core.issue(request, digest, leg).await?;
        Ok(Some(words::prompt(&request.id, &state, &prompt.params)))
    }

    /// The call that a client goes on waiting for, after what it brings from its user.
    async fn resumed(&self, leg: &Leg) -> Result<Arc<Call>, GateError> {
        let call = self.core.gate.get(leg.call).await?;
        let Some((hold, said)) = leg.asked.zip(self.request.answered.as_deref()) else { return Ok(call) };
        self.core.take_answer(hold, &call, said).await;
        self.core.gate.get(leg.call).await
    }

    /// What the gate could not do, the client reads as a refusal: nothing ran, or it would not be an error here.
    fn unsettled(&self, error: &GateError) -> Reply {
        let refusal = Refusal::new(RefusalKind::Error).because(error.to_string());
        Reply::Line(words::refusal(&self.request.id, self.request.era, &refusal))
    }

    fn digest(&self, definition: Option<&DefinitionDigest>) -> Option<ArgumentDigest> {
        let arguments = Json::arguments(self.arguments(), &self.core.limits).ok()?;
        Some(argument_digest(&self.tool(), definition, &arguments))
    }

    pub(super) fn tool(&self) -> ToolId {
        ToolId::on(Arc::clone(&self.core.server), self.request.name.as_str())
    }

    fn arguments(&self) -> &str {
        self.request.arguments().unwrap_or("{}")
    }

    fn proposal(&self) -> Proposal {
        let mut proposal = Proposal::new(self.request.name.as_str(), self.arguments()).path(self.core.path.clone());
        proposal.tool = self.tool();
        proposal.label = self.request.label.as_deref().map(Arc::from);
        // Bound to the hold and shown with it, since it is part of what runs.
        proposal.payload = self.request.more.as_ref().and_then(|more| shown(more).ok());
        proposal.hint = self.core.catalog.look_alike(&self.request.name).map(|other| {
            let (tool, other) = (countersign::show::escape(&self.request.name), countersign::show::escape(&other));
            format!(
                "Run `{}/{tool}`. Careful: the server has another tool that looks the same, `{other}`",
                self.core.server
            )
            .into()
        });
        proposal
    }

    async fn submit(&self, gate: &Gate, tool: &Forwarding<'_>) -> Result<Arc<Call>, GateError> {
        match tool.is_listed {
            true => Box::pin(gate.submit(tool, self.proposal())).await,
            false => Box::pin(gate.submit_undefined(self.proposal())).await,
        }
    }

    /// Submits a call that brings the server more than its arguments.
    ///
    /// SECURITY: whoever made a grant saw arguments. What goes with them now, they did not see.
    async fn submit_with_more(&self, gate: &Gate, tool: &mut Forwarding<'_>) -> Result<Arc<Call>, GateError> {
        let call = self.submit(gate, tool).await?;
        if call.grant.is_none() {
            return Ok(call);
        }
        let refusal = Refusal::new(RefusalKind::Superseded).because(NOT_GRANTED);
        Box::pin(gate.cancel_because(call.id, refusal.clone())).await?;
        if !tool.is_listed {
            return Box::pin(gate.refuse_undefined(self.proposal(), refusal)).await;
        }
        tool.must_ask = true;
        self.submit(gate, tool).await
    }

    /// Submits a call and, where it is allowed at once, claims it in the same breath.
    async fn submit_and_claim(&self, gate: &Gate, tool: &mut Forwarding<'_>) -> Result<Claimed, GateError> {
        // SECURITY: nothing runs for a caller that is gone. That it asked is on record all the same.
        if self.left.is_cancelled() {
            return self.submit(gate, tool).await.map(Claimed::Not);
        }
        if self.request.more.is_some() {
            return self.submit_with_more(gate, tool).await.map(Claimed::Not);
        }
        match tool.is_listed {
            true => Box::pin(gate.submit_and_claim(tool, self.proposal())).await,
            false => Box::pin(gate.submit_undefined_and_claim(self.proposal())).await,
        }
    }
}

/// Why a call that a grant covers is asked about all the same.
pub(super) const NOT_GRANTED: &str =
    "a grant covers arguments; what else is sent to the server is for people to look at";

/// The gate, with people asked about a call that may already have happened.
fn raised(gate: &Gate, doubtful: CallId) -> Gate {
    gate.scoped(&Scope::new().before_tool(move |_| async move {
        Ok(HookAnswer::Ask(format!("an identical call, {doubtful}, is in doubt: it may already have happened")))
    }))
}
