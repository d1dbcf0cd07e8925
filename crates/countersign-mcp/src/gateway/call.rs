//! One `tools/call`, the whole way: judged, held, claimed, sent on, recorded, answered.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use countersign::digest::{ArgumentDigest, DefinitionDigest, argument_digest};
use countersign::gate::{HookAnswer, Scope};
use countersign::json::Bounds;
use countersign::store::Op;
use countersign::transition::Rejection;
use countersign::{
    Call, CallId, CallState, Claimed, Definition, Gate, GateError, Json, Permit, Proposal, Refusal, RefusalKind,
    Running, Tool, ToolError, ToolId,
};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::Core;
use super::caller::Caller;
use super::catalog::Listed;
use super::link::{Asked, Missing};
use super::listing::Standing;
use super::message::{Envelope, pick};
use super::post::mirrored;
use super::request::{Era, Renamed, Request};
use super::retry::{Earlier, proposed};
use super::words::{self, INVALID_PARAMS};
use crate::limits;

/// What is said of a state that is not good.
const BAD_STATE: &str = "`requestState` is not one that was given for this call, or it was used before; send the call \
                         without it";

/// What goes back to the client.
enum Reply {
    /// A line that delivers no outcome of an asked call.
    Line(String),
    /// The outcome of a call that nobody was asked about.
    Ran(String, ArgumentDigest, Arc<Call>),
    /// The outcome of a call that was written down as owed.
    Outcome(String, ArgumentDigest, Arc<Call>),
    /// Nothing: the client cancelled, or is gone.
    Nothing,
}

/// What came of waiting.
enum Waited {
    /// The call has come as far as it was waited for.
    Call(Arc<Call>),
    /// It has not, and the client is told so now.
    Late(Arc<Call>),
    /// The client cancelled, or is gone.
    Left,
}

impl Core {
    /// Takes one request from its client and sees to its answer.
    pub(super) async fn attend(self: Arc<Self>, request: Request, caller: Caller, left: CancellationToken) {
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
        if caller.answer(line).await.is_err() {
            self.still_owe(digest, call).await;
        }
    }
}

/// A request and what it needs.
struct Matter<'a> {
    core: &'a Arc<Core>,
    request: &'a Request,
    caller: &'a Caller,
    /// Is cancelled when the client cancels or is gone.
    left: &'a CancellationToken,
}

impl Matter<'_> {
    async fn settle(&self) -> Result<Reply, GateError> {
        let (core, request) = (self.core, self.request);
        let listed = match core.standing(request).await? {
            Standing::Known(listed) => Some(listed),
            Standing::Unknown => None,
            Standing::Stopped(refusal, listed) => {
                let tool = Forwarding::new(self, listed.as_deref());
                let refused = core.gate.refuse(&tool, self.proposal(), refusal).await?;
                return Ok(Reply::Line(words::ended(&request.id, request.era, &refused)));
            }
        };
        let tool = Forwarding::new(self, listed.as_deref());
        let known = listed.as_ref().map(|listed| listed.definition.digest());
        let Some(digest) = self.digest(known.as_ref()) else {
            // Arguments that cannot be read: the gate refuses them, and has it on record.
            let refused = self.submit(&core.gate, &tool).await?;
            return Ok(Reply::Line(words::ended(&request.id, request.era, &refused)));
        };
        let leg = match &request.state {
            None => None,
            Some(state) => match core.redeem(state, request, &digest).await? {
                None => return Ok(Reply::Line(words::error(Some(&request.id), INVALID_PARAMS, BAD_STATE))),
                leg => leg,
            },
        };
        let alone = core.retries.alone(&digest).await;
        let earlier = match leg {
            Some(leg) => Earlier::Call(core.gate.get(leg.call).await?),
            None => core.earlier(&digest).await?,
        };
        let call = match earlier {
            Earlier::Call(call) => call,
            Earlier::Nothing => self.submit(&core.gate, &tool).await?,
            Earlier::Doubt(_) if listed.is_none() => return Ok(Reply::Line(words::doubt(&request.id, request.era))),
            Earlier::Doubt(id) => self.submit(&raised(&core.gate, id), &tool).await?,
        };
        if call.state == CallState::Pending {
            core.owe(&digest, &call).await?;
        }
        let seat = core.retries.attach(call.id);
        drop(alone);
        let round = leg.map_or(0, |leg| leg.round);
        let reply = self.follow(&tool, known, digest, Arc::clone(&call), round).await;
        drop(seat);
        if matches!(reply, Ok(Reply::Nothing)) {
            core.linger(call.id);
        }
        reply
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

    fn tool(&self) -> ToolId {
        ToolId::on(Arc::clone(&self.core.server), self.request.name.as_str())
    }

    fn arguments(&self) -> &str {
        self.request.arguments.as_deref().unwrap_or("{}")
    }

    fn proposal(&self) -> Proposal {
        let mut proposal = Proposal::new(self.request.name.as_str(), self.arguments()).path(self.core.path.clone());
        proposal.tool = self.tool();
        proposal.label = self.request.label.as_deref().map(Arc::from);
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
        match &tool.listed {
            Some(_) => gate.submit(tool, self.proposal()).await,
            None => gate.submit_undefined(self.proposal()).await,
        }
    }

    /// Follows a call from wherever it stands to its end, or to the moment its client is told to call again.
    async fn follow(
        &self,
        tool: &Forwarding<'_>,
        known: Option<DefinitionDigest>,
        digest: ArgumentDigest,
        call: Arc<Call>,
        round: usize,
    ) -> Result<Reply, GateError> {
        let deadline = Instant::now() + self.core.wait;
        let mut waited = self.until(call.id, deadline, |call| call.state != CallState::Pending).await?;
        while let Waited::Call(call) = &waited
            && matches!(call.state, CallState::Allowed | CallState::Approved)
        {
            let rung = self.core.gate.store().bell().listen(call.id);
            // SECURITY: nothing runs for a caller that is gone. One that only closed its end still reads answers, but
            // waits for nobody.
            if self.left.is_cancelled() {
                return Ok(Reply::Nothing);
            }
            if call.state == CallState::Approved && self.core.leaving.is_cancelled() {
                waited = Waited::Late(Arc::clone(call));
                break;
            }
            waited = match self.core.gate.claim(call.id, known).await {
                Ok(Claimed::Permit(permit)) => return self.run(permit, tool, digest).await,
                Ok(Claimed::Not(now)) => Waited::Call(now),
                Err(GateError::Rejected(Rejection::Halted)) => tokio::select! {
                    () = rung => Waited::Call(self.core.gate.get(call.id).await?),
                    () = sleep_until(deadline) => Waited::Late(Arc::clone(call)),
                    () = self.core.leaving.cancelled() => Waited::Late(Arc::clone(call)),
                    () = self.left.cancelled() => Waited::Left,
                },
                Err(error) => return Err(error),
            };
        }
        if let Waited::Call(call) = &waited {
            // Another request has it, here or in another process: its outcome is this one's, too.
            waited = self.until(call.id, deadline, |call| call.state != CallState::Executing).await?;
        }
        let (id, era) = (&self.request.id, self.request.era);
        Ok(match waited {
            Waited::Left => Reply::Nothing,
            Waited::Late(call) => Reply::Line(self.not_yet(&digest, &call, round).await?),
            Waited::Call(call) if call.holds.is_empty() => Reply::Line(words::ended(id, era, &call)),
            Waited::Call(call) => Reply::Outcome(words::ended(id, era, &call), digest, call),
        })
    }

    /// Tells the client that its call still waits: a newer one to go on waiting, any other what to do.
    async fn not_yet(&self, digest: &ArgumentDigest, call: &Call, round: usize) -> Result<String, GateError> {
        let (id, era) = (&self.request.id, self.request.era);
        if era == Era::Handshake || round >= limits::LEGS || self.core.leaving.is_cancelled() {
            return Ok(words::pending(id, era, call));
        }
        Ok(words::again(id, &self.core.issue(self.request, digest, call, round + 1).await?))
    }

    /// Waits for a call, telling the client now and then that it still waits.
    async fn until(&self, id: CallId, deadline: Instant, done: impl Fn(&Call) -> bool) -> Result<Waited, GateError> {
        let store = self.core.gate.store();
        let mut beats = tokio::time::interval(limits::HEARTBEAT);
        let mut beat = 0;
        loop {
            let rung = store.bell().listen(id);
            let call = self.core.gate.get(id).await?;
            if done(&call) {
                return Ok(Waited::Call(call));
            }
            let due = match call.due_at() {
                Some(due) => store.now().await?.until(due),
                None => self.core.wait,
            };
            tokio::select! {
                () = rung => {}
                () = sleep(due) => drop(store.run(Op::Tick { call: id }).await),
                _ = beats.tick() => {
                    beat += 1;
                    if let Some(token) = &self.request.token {
                        self.caller.note(words::progress(token, beat, &call)).await;
                    }
                }
                () = self.left.cancelled() => return Ok(Waited::Left),
                () = self.core.leaving.cancelled() => return Ok(Waited::Late(call)),
                () = sleep_until(deadline) => return Ok(Waited::Late(call)),
            }
        }
    }

    /// Runs a call, and answers with the server's own bytes.
    async fn run(&self, permit: Permit, tool: &Forwarding<'_>, digest: ArgumentDigest) -> Result<Reply, GateError> {
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

/// The gate, with people asked about a call that may already have happened.
fn raised(gate: &Gate, doubtful: CallId) -> Gate {
    gate.scoped(&Scope::new().before_tool(move |_| async move {
        Ok(HookAnswer::Ask(format!("an identical call, {doubtful}, is in doubt: it may already have happened")))
    }))
}

/// The server's tool: to run it is to send the request on.
struct Forwarding<'a> {
    core: &'a Core,
    request: &'a Request,
    caller: &'a Caller,
    left: &'a CancellationToken,
    listed: Option<Arc<Definition>>,
    /// What is told of a tool whose definition is not known.
    bare: Arc<Definition>,
    answer: Mutex<Option<String>>,
}

impl<'a> Forwarding<'a> {
    fn new(matter: &Matter<'a>, listed: Option<&Listed>) -> Forwarding<'a> {
        let mut bare = Definition::new(matter.request.name.as_str(), "");
        bare.tool = matter.tool();
        Forwarding {
            core: matter.core,
            request: matter.request,
            caller: matter.caller,
            left: matter.left,
            listed: listed.map(|listed| Arc::clone(&listed.definition)),
            bare: Arc::new(bare),
            answer: Mutex::default(),
        }
    }

    /// The server's answer, as it came.
    fn answered(&self) -> Option<String> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Waits for the answer; an error says why none came.
    async fn wait(&self, asked: &mut Asked<'_>, call: &Call) -> Result<String, Missing> {
        let late = sleep(self.core.run_within);
        tokio::pin!(late);
        let why = tokio::select! {
            answer = asked.answer() => return answer,
            () = self.left.cancelled() => "the client cancelled the call while it ran".to_owned(),
            () = &mut late => format!("no answer within {:?}", self.core.run_within),
        };
        if self.left.is_cancelled() {
            // Before the outcome is known, so that no identical call slips in between.
            self.core.still_owe(&proposed(call), call).await;
        }
        // In the older era a connection that is cut says nothing about what its client wants.
        if self.caller.gone().is_cancelled() && self.request.era == Era::Handshake {
            tokio::select! {
                answer = asked.answer() => return answer,
                () = late => {}
            }
        }
        let _ = self.core.link.send(&words::cancelled(&asked.id, &why)).await;
        match tokio::time::timeout(limits::CANCEL_WITHIN, asked.answer()).await {
            Ok(answer) => answer,
            Err(_) => Err(Missing::Cut(why)),
        }
    }
}

#[async_trait]
impl Tool for Forwarding<'_> {
    fn definition(&self) -> Arc<Definition> {
        Arc::clone(self.listed.as_ref().unwrap_or(&self.bare))
    }

    async fn run(&self, running: Running) -> Result<Json, ToolError> {
        let unsent = |why: &str| ToolError::Failed(format!("nothing was sent to the server: {why}"));
        let mut asked = self.core.link.ask().ok_or_else(|| unsent("it has ended"))?;
        let renamed = match self.caller {
            Caller::Pipe(_) => Renamed::Id,
            Caller::Exchange(_) => Renamed::IdAndToken,
        };
        let line = self.request.outgoing(&asked.id, renamed, running.arguments());
        let line = line.ok_or_else(|| unsent("the message cannot be put together"))?;
        let (id, token) = (&self.request.id, self.request.token.as_ref());
        let _attached = self.core.client.attach(&asked.id, self.caller, id, token);
        let mirrored = || mirrored(&self.definition().input_schema, running.arguments());
        let sent = self.core.link.send_call(&line, mirrored).await;
        sent.map_err(|error| ToolError::NoAnswer(format!("the message may have been sent in part: {error}")))?;
        let answer = self.wait(&mut asked, running.call()).await.map_err(|missing| match missing {
            Missing::Unsent(_) => ToolError::Failed(missing.to_string()),
            Missing::Gone | Missing::Cut(_) => ToolError::NoAnswer(missing.to_string()),
        })?;
        let outcome = outcome(&answer);
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
        outcome
    }
}

/// What an answer says about the run.
fn outcome(answer: &str) -> Result<Json, ToolError> {
    let unreadable = |error: serde_json::Error| ToolError::NoAnswer(format!("the answer cannot be read: {error}"));
    let envelope = Envelope::read(answer).map_err(unreadable)?;
    let Some(result) = envelope.result else {
        let error = envelope.error.map_or("the answer is empty", |error| error.get());
        return Err(ToolError::Failed(error.to_owned()));
    };
    let [is_error, content] = pick(result.get(), ["isError", "content"]).map_err(unreadable)?;
    if is_error.is_some_and(|is_error| is_error.get() == "true") {
        return Err(ToolError::Failed(texts(content.map_or("[]", |content| content.get()))));
    }
    Ok(Json::ingest(result.get(), Bounds::STORED)
        .unwrap_or_else(|error| Json::string(&format!("[the result was delivered and cannot be kept: {error}]"))))
}

/// The texts of a result's content.
fn texts(content: &str) -> String {
    #[derive(serde::Deserialize)]
    struct Block {
        text: Option<String>,
    }
    let blocks: Vec<Block> = serde_json::from_str(content).unwrap_or_default();
    let texts: Vec<String> = blocks.into_iter().filter_map(|block| block.text).collect();
    if texts.is_empty() { "the tool reports an error".to_owned() } else { texts.join("\n") }
}
