//! Each step of a call, taken at the server.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use countersign::call::{Call, CallState};
use countersign::callers::WhoWaits;
use countersign::digest::Nonce;
use countersign::gate::{Asks, Backend, Checked, Defined, Submitted};
use countersign::hold::HoldState;
use countersign::store::{Claimant, Op, Store};
use countersign::transition::Rejection;
use countersign::{CallId, GateError, HoldId, Json, Limits, Refusal, limits};
use serde_json::value::RawValue;

use super::call::{claimed, shown};
use super::patience::{Asked, Patience};
use super::receipt;
use crate::client::{self, Client, ClientError};
use crate::wire::{self, Code, Problem, Span};

/// Names of tools that are asked about in one request.
const HIDDEN_AT_ONCE: usize = 500;

/// How long one request waits for people before it is made anew.
const LEG: Duration = Duration::from_secs(30);
/// How often a claim that a halt stopped is tried again.
const HALTED_FOR: Duration = Duration::from_secs(1);

/// A server, how long it may be away, and which key must sign what it hands over.
#[derive(Clone)]
pub(super) struct Server {
    pub(super) client: Client,
    pub(super) patience: Patience,
    pub(super) key: Option<Arc<str>>,
}

/// The backend of a remote gate.
pub(super) struct Remote {
    pub(super) server: Server,
    pub(super) store: Arc<dyn Store>,
}

impl Server {
    /// Makes a request about a call until it is answered.
    async fn ask<T, F>(&self, about: Option<(CallId, u64)>, request: impl Fn() -> F) -> Result<(T, Asked), GateError>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        match self.patience.ask(request).await {
            (Ok(answer), asked) => Ok((answer, asked)),
            (Err(ClientError::Refused(problem)), _) => Err(self.refused(&problem, about).await),
            (Err(error), _) => Err(GateError::Unreachable(error.to_string())),
        }
    }

    /// A server's no, in the core's words.
    async fn refused(&self, problem: &Problem, about: Option<(CallId, u64)>) -> GateError {
        let rejection = match problem.code {
            Code::NotFound => Rejection::NotFound("call"),
            Code::Halted => Rejection::Halted,
            Code::KeyReused => Rejection::KeyReused,
            Code::Conflict => Rejection::Conflict,
            Code::BadRequest | Code::InvalidArguments => return GateError::BadInput(problem.to_string()),
            Code::WrongState | Code::AlreadyClaimed | Code::StaleFence => {
                let Some((id, found)) = about else { return GateError::Refused(problem.to_string()) };
                let Ok(call) = self.client.call(id).await else { return GateError::Refused(problem.to_string()) };
                match problem.code {
                    Code::WrongState => Rejection::WrongState(call.state),
                    Code::AlreadyClaimed => Rejection::AlreadyClaimed(call.state),
                    _ => Rejection::StaleFence { found, current: call.lease.map_or(0, |lease| lease.fence) },
                }
            }
            _ => return GateError::Refused(problem.to_string()),
        };
        GateError::Rejected(rejection)
    }

    pub(super) async fn call(&self, id: CallId) -> Result<Arc<Call>, GateError> {
        let (call, _) = self.ask(Some((id, 0)), || self.client.call(id)).await?;
        Ok(Arc::new(shown(call)))
    }

    pub(super) async fn renew(&self, id: CallId, fence: u64) -> Result<(), GateError> {
        self.ask(Some((id, fence)), || self.client.renew(id, fence)).await.map(drop)
    }

    /// Ends a run, withdraws a call, or looks what time brought to it.
    pub(super) async fn run(&self, op: Op) -> Result<Arc<Call>, GateError> {
        let (call, _) = match op {
            Op::Finish { call, fence, outcome } => {
                let report = wire::NewOutcome::new(&outcome, fence);
                self.ask(Some((call, fence)), || self.client.report(call, &report)).await?
            }
            Op::Cancel { call, .. } => self.ask(Some((call, 0)), || self.client.cancel(call)).await?,
            Op::Tick { call } => self.ask(Some((call, 0)), || self.client.call(call)).await?,
            _ => return Err(GateError::Remote("do this")),
        };
        Ok(Arc::new(shown(call)))
    }

    /// Waits until a call, as its server shows it, is as it should be.
    async fn until(&self, id: CallId, done: impl Fn(&wire::Call) -> bool) -> Result<Arc<Call>, GateError> {
        loop {
            // Each leg is as patient as any other request: people may take days, a server may not.
            let (call, _) = self.ask(Some((id, 0)), || self.client.wait(id, LEG)).await?;
            if done(&call) {
                return Ok(Arc::new(shown(call)));
            }
        }
    }

    /// A claimed call, if it is the one that was wanted, and surely still ours.
    async fn ours(
        &self,
        claimed_call: wire::Claimed,
        claimant: &Claimant,
        executor: &str,
        asked: Asked,
    ) -> Result<Arc<Call>, GateError> {
        if claimed_call.bound.definition != claimant.definition {
            return Err(GateError::Refused(
                "it handed over a call of another tool than the one that was claimed".into(),
            ));
        }
        receipt::check(&claimed_call, self.key.as_deref())?;
        let (id, fence) = (claimed_call.call, claimed_call.fence);
        let call = claimed(claimed_call, executor)?;
        if asked == Asked::Again {
            // The claim may be as old as its first request, and its lease nearly over.
            self.renew(id, fence).await?;
        }
        Ok(Arc::new(call))
    }
}

/// The name of one claim. Nobody else draws the same.
fn executor(claimant: &Claimant) -> String {
    let owner = claimant.owner.get(..claimant.owner.floor_char_boundary(OWNER_BYTES)).unwrap_or_default();
    format!("{owner}#{}", random())
}

/// Bytes of an executor's own name in the names of its claims.
const OWNER_BYTES: usize = 128;

fn random() -> String {
    format!("{:032x}", Nonce::new().0)
}

/// A checked proposal as it is submitted.
async fn new_call(asks: &Asks, defined: Option<Defined<'_>>, checked: Checked) -> Result<wire::NewCall, GateError> {
    let Checked { proposal, arguments, declared, places, raised, refusal, .. } = checked;
    let text = |text: Option<Arc<str>>| text.as_deref().map(str::to_owned);
    let payload = match defined {
        // Whether people will be asked only the server knows, so what they would look at goes along.
        Some(defined) if refusal.is_none() => defined.payload(&arguments, proposal.payload).await,
        _ => proposal.payload,
    };
    let own_words = defined.and_then(|defined| defined.definition.hint.clone());
    // The agent's own spelling is evidence, where it still says what will run.
    let as_written = Json::arguments(&proposal.arguments, &Limits::default()).is_ok_and(|read| read == arguments);
    let written = if as_written { proposal.arguments } else { arguments.to_string() };
    let written = RawValue::from_string(written).map_err(|error| GateError::BadInput(error.to_string()))?;
    let mut definition = defined.map(|defined| wire::Definition::from(&**defined.definition));
    if let Some(definition) = &mut definition {
        definition.declared = declared;
    }
    Ok(wire::NewCall {
        session: text(proposal.path.session),
        run: text(proposal.path.run),
        thread: text(proposal.path.thread),
        agent: proposal.path.agents.iter().map(ToString::to_string).collect(),
        requester: text(proposal.path.requester),
        server: text(proposal.tool.server),
        definition,
        label: text(proposal.label),
        hint: text(proposal.hint.or(own_words)),
        payload,
        // A lost answer is asked for again, so every submission has a name.
        key: Some(text(proposal.key).unwrap_or_else(|| format!("once-{}", random()))),
        places,
        raised: raised.map(short),
        refusal: refusal.map(|refusal| Refusal { reason: refusal.reason.map(short), ..refusal }),
        expires_after: asks.hold_life().map(whole_seconds),
        ..wire::NewCall::new(&*proposal.tool.name, written)
    })
}

/// A note of no more than the server takes.
fn short(mut note: String) -> String {
    note.truncate(note.floor_char_boundary(limits::NOTE_BYTES));
    note
}

/// A length of time as it is written; never none at all.
fn whole_seconds(life: Duration) -> Span {
    Span(Duration::from_secs(life.as_secs().max(1)))
}

#[async_trait]
impl Backend for Remote {
    async fn submit(
        &self,
        asks: &Arc<Asks>,
        defined: Option<Defined<'_>>,
        checked: &Checked,
        claim: Option<Claimant>,
    ) -> Result<Submitted, GateError> {
        if asks.asks_here() {
            return Err(GateError::Remote("ask an approver of its own"));
        }
        let arguments = checked.arguments.clone();
        let mut new = new_call(asks, defined, checked.clone()).await?;
        let client = &self.server.client;
        let Some(claimant) = claim.filter(|_| new.refusal.is_none()) else {
            let (call, _) = self.server.ask(None, || client.submit(&new)).await?;
            return Ok(Submitted { call: Arc::new(shown(call)), replayed: true });
        };
        let executor = executor(&claimant);
        new.executor = Some(executor.clone());
        let (submitted, asked) = self.server.ask(None, || client.submit_and_claim(&new)).await?;
        Ok(match submitted {
            // SECURITY: nobody was asked, so nobody can have edited it.
            client::Submitted::Claimed(claimed) if claimed.arguments != arguments => {
                return Err(GateError::Refused("it handed over other arguments than were submitted".into()));
            }
            client::Submitted::Claimed(claimed) => {
                let call = self.server.ours(claimed, &claimant, &executor, asked).await?;
                Submitted { call, replayed: false }
            }
            // SECURITY: whatever it is, it is not claimed by us.
            client::Submitted::Call(call) => Submitted { call: Arc::new(shown(call)), replayed: true },
        })
    }

    async fn wait(&self, id: CallId) -> Result<Arc<Call>, GateError> {
        self.server.until(id, |call| call.state != CallState::Pending).await
    }

    async fn claim(&self, id: CallId, claimant: Claimant) -> Result<Arc<Call>, GateError> {
        let executor = executor(&claimant);
        let claim = wire::Claim { definition: claimant.definition, executor: Some(executor.clone()) };
        let (claimed, asked) = self.server.ask(Some((id, 0)), || self.server.client.claim(id, &claim)).await?;
        if claimed.call != id {
            return Err(GateError::Refused("it handed over another call than the one that was claimed".into()));
        }
        self.server.ours(claimed, &claimant, &executor, asked).await
    }

    async fn lifted(&self, _call: &Call) -> Result<(), GateError> {
        // Who is halted an agent is not told: it tries again now and then, until the call lapses.
        tokio::time::sleep(HALTED_FOR).await;
        Ok(())
    }

    async fn ask(
        &self,
        asks: &Arc<Asks>,
        call: &Call,
        fence: u64,
        hint: &str,
        payload: Json,
    ) -> Result<(Arc<Call>, HoldId), GateError> {
        if asks.asks_here() {
            return Err(GateError::Remote("ask an approver of its own"));
        }
        let id = call.id;
        let hold = wire::NewHold { hint: hint.to_owned(), payload: Some(payload), fence, key: Some(random()) };
        let (opened, _) = self.server.ask(Some((id, fence)), || self.server.client.ask(id, &hold)).await?;
        let closed = |call: &wire::Call| {
            call.holds.iter().any(|found| found.id == opened.id && found.state != HoldState::Pending)
        };
        Ok((self.server.until(id, closed).await?, opened.id))
    }

    async fn renew(&self, id: CallId, fence: u64, _lease: Duration) -> Result<(), GateError> {
        self.server.renew(id, fence).await
    }

    async fn run(&self, op: Op) -> Result<Arc<Call>, GateError> {
        self.server.run(op).await
    }

    async fn get(&self, id: CallId) -> Result<Arc<Call>, GateError> {
        self.server.call(id).await
    }

    async fn tell_who_waits(&self, call: CallId, who: &WhoWaits) -> Result<(), GateError> {
        let (caller, by) = match who {
            WhoWaits::CallerOf(gateway) => (wire::Waits::Waits, gateway.to_string()),
            WhoWaits::Nobody => (wire::Waits::Gone, String::new()),
            WhoWaits::Unknown => (wire::Waits::Unknown, String::new()),
        };
        let told = wire::NewCaller { caller, by };
        // Once, without patience: it is only shown, and will be said again.
        match self.server.client.tell_caller(call, &told).await {
            Ok(_) => Ok(()),
            Err(ClientError::Refused(problem)) => Err(GateError::Refused(problem.to_string())),
            Err(error) => Err(GateError::Unreachable(error.to_string())),
        }
    }

    async fn hidden(&self, server: Option<&str>, names: &[Arc<str>]) -> Result<Vec<Arc<str>>, GateError> {
        let mut hidden = Vec::new();
        for names in names.chunks(HIDDEN_AT_ONCE) {
            let names = names.iter().map(ToString::to_string).collect();
            let ask = wire::AskHidden { server: server.map(str::to_owned), names };
            let (answer, _) = self.server.ask(None, || self.server.client.hidden(&ask)).await?;
            hidden.extend(answer.hidden.into_iter().map(Arc::from));
        }
        Ok(hidden)
    }

    fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }
}
