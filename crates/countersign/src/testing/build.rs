//! Builders of calls, decisions and grants.

use std::sync::Arc;
use std::time::Duration;

use crate::call::{Call, CallState, Declared, Facts, Outcome, Path, Repeat, ToolId};
use crate::digest::{DefinitionDigest, Nonce, argument_digest};
use crate::grant::{Covers, Grant, Scope};
use crate::hold::{Answer, Decision, Who};
use crate::id::{CallId, GrantId};
use crate::json::Json;
use crate::limits::{self, Limits};
use crate::place::Place;
use crate::policy::Policy;
use crate::refusal::Refusal;
use crate::store::{Applied, Claimant, Failure, NewCall, Op, Store, Submission};
use crate::time::Time;
use crate::transition::{Deciding, Rejection, Unasked};
use crate::verdict::{Because, Effect, Terms, Verdict};

/// A call on its way in, asked about unless said otherwise.
#[derive(Clone, Debug)]
pub struct Proposal(Submission);

/// Proposes a call of a local tool in a session, on behalf of `local`. The verdict is ask, on the usual terms.
pub fn proposal(tool: &str, arguments: serde_json::Value, session: &str) -> Proposal {
    let facts = Facts {
        tool: ToolId::local(tool),
        toolset: None,
        arguments: Json::of(&arguments).unwrap(),
        path: Path::session(session),
        declared: Declared::Nothing,
        annotations: None,
        places: Default::default(),
        at: Time::default(),
    };
    let call = NewCall {
        id: CallId::new(),
        key: None,
        label: None,
        argument_digest: argument_digest(&facts.tool, None, &facts.arguments),
        facts: Arc::new(facts),
        description: None,
        definition: None,
        redacted: None,
        raw: None,
        repeat: Repeat::AtMostOnce,
        nonce: Nonce::new(),
        verdict: Arc::new(verdict(Effect::Ask)),
        hint: None,
        payload: None,
        refusal: None,
    };
    let limits = Arc::new(Limits::default());
    Proposal(Submission { call, unasked: None, limits, claim: None, policy: Policy::ask_all() })
}

/// A verdict of the policy that asks about everything, as if its rule `test` had this effect.
pub fn verdict(effect: Effect) -> Verdict {
    let because = Because { rule: "test".into(), effect, reason: Some("because of the test".into()) };
    Verdict {
        effect,
        matched: Arc::from([because]),
        terms: Arc::new(Terms::default()),
        hidden: false,
        inside_own: false,
        policy: Arc::clone(Policy::ask_all().version()),
    }
}

impl Proposal {
    /// The operation that submits it.
    pub fn op(self) -> Op {
        Op::Submit(Box::new(self.0))
    }

    /// The id it will have.
    pub fn id(&self) -> CallId {
        self.0.call.id
    }

    /// The same again under another id, as an agent that repeats itself sends it.
    #[must_use]
    pub fn again(&self) -> Proposal {
        let mut again = self.clone();
        again.0.call.id = CallId::new();
        again.0.call.nonce = Nonce::new();
        again
    }

    /// Judged like this.
    #[must_use]
    pub fn effect(mut self, effect: Effect) -> Proposal {
        self.0.call.verdict = Arc::new(verdict(effect));
        self
    }

    fn facts(&mut self) -> &mut Facts {
        Arc::make_mut(&mut self.0.call.facts)
    }

    /// Asked about on these terms.
    #[must_use]
    pub fn terms(mut self, terms: Terms) -> Proposal {
        self.0.call.verdict = Arc::new(Verdict { terms: Arc::new(terms), ..verdict(Effect::Ask) });
        self
    }

    /// Of this tool of an MCP server.
    #[must_use]
    pub fn server(mut self, server: &str) -> Proposal {
        self.facts().tool.server = Some(server.into());
        self.digest()
    }

    /// Of a tool that says where an argument points.
    #[must_use]
    pub fn place(mut self, field: &str, place: Place) -> Proposal {
        let facts = self.facts();
        facts.places = std::mem::take(&mut facts.places).and(field, place);
        self
    }

    /// Of a tool with this definition.
    #[must_use]
    pub fn definition(mut self, definition: DefinitionDigest) -> Proposal {
        self.0.call.definition = Some(definition);
        self.digest()
    }

    /// With the agent's name for its place.
    #[must_use]
    pub fn key(mut self, key: &str) -> Proposal {
        self.0.call.key = Some(key.into());
        self
    }

    /// On this path.
    #[must_use]
    pub fn path(mut self, change: impl FnOnce(&mut Path)) -> Proposal {
        change(&mut self.facts().path);
        self
    }

    /// On behalf of this principal.
    #[must_use]
    pub fn principal(self, principal: &str) -> Proposal {
        self.path(|path| path.principal = principal.into())
    }

    /// In this run of the session.
    #[must_use]
    pub fn run(self, run: &str) -> Proposal {
        self.path(|path| path.run = Some(run.into()))
    }

    /// By this agent.
    #[must_use]
    pub fn agent(self, agent: &str) -> Proposal {
        self.path(|path| path.agents = Arc::from([agent.into()]))
    }

    /// Of a tool that may or may not be run again.
    #[must_use]
    pub fn repeat(mut self, repeat: Repeat) -> Proposal {
        self.0.call.repeat = repeat;
        self
    }

    /// Refused before any rule was asked.
    #[must_use]
    pub fn refused(mut self, refusal: Refusal) -> Proposal {
        self.0.call.refusal = Some(refusal);
        self
    }

    /// Where nobody can be asked.
    #[must_use]
    pub fn unasked(mut self, unasked: Unasked) -> Proposal {
        self.0.unasked = Some(unasked);
        self
    }

    /// Under these limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Proposal {
        self.0.limits = Arc::new(limits);
        self
    }

    /// Claimed at once if it is allowed.
    #[must_use]
    pub fn claim(mut self, claimant: Claimant) -> Proposal {
        self.0.claim = Some(claimant);
        self
    }

    /// The submission, to change what no builder names.
    pub fn submission(&mut self) -> &mut Submission {
        &mut self.0
    }

    fn digest(mut self) -> Proposal {
        let call = &mut self.0.call;
        call.argument_digest = argument_digest(&call.facts.tool, call.definition.as_ref(), &call.facts.arguments);
        self
    }
}

/// Submits a call that must be taken.
pub async fn submit(store: &dyn Store, proposal: Proposal) -> Arc<Call> {
    store.run(proposal.op()).await.unwrap().call.unwrap()
}

/// A person's decision on a call's open hold, for the digest it shows.
pub fn decide(call: &Call, by: &str, answer: Answer) -> Op {
    decide_with(call, by, answer, |_| {})
}

/// A person's decision, changed before it is sent.
pub fn decide_with(call: &Call, by: &str, answer: Answer, change: impl FnOnce(&mut Deciding)) -> Op {
    let hold = call.open_hold().or(call.holds.last()).unwrap();
    let decision = Decision::new(Who::person(by), "test", hold.digest, answer);
    let mut deciding = Deciding::new(hold.id, decision);
    change(&mut deciding);
    Op::Decide(Box::new(deciding))
}

/// A plain yes by `ann`.
pub async fn approve(store: &dyn Store, call: &Call) -> Arc<Call> {
    let approved = store.run(decide(call, "ann", Answer::approve())).await.unwrap().call.unwrap();
    assert_eq!(approved.state, CallState::Approved);
    approved
}

/// An executor of this name, with the usual lease.
pub fn claimant(owner: &str) -> Claimant {
    Claimant { owner: owner.into(), definition: None, lease: limits::LEASE, attempts: 3 }
}

/// Claims a call for an executor.
pub async fn claim(store: &dyn Store, call: CallId, owner: &str) -> Result<Applied, Failure> {
    store.run(Op::Claim { call, claimant: claimant(owner), policy: Policy::ask_all() }).await
}

/// An answer of a tool.
pub fn succeeded(output: &str) -> Outcome {
    Outcome::Succeeded { output: Json::string(output) }
}

/// Reports how a run ended.
pub async fn finish(store: &dyn Store, call: CallId, fence: u64, outcome: Outcome) -> Result<Applied, Failure> {
    store.run(Op::Finish { call, fence, outcome }).await
}

/// A grant by an operator that covers exactly such calls, in every session, for a day.
pub fn grant_for(call: &Call, now: Time) -> Grant {
    Grant {
        id: GrantId::new(),
        scope: Scope::Global,
        principal: Arc::clone(&call.facts.path.principal),
        agent: call.facts.path.agents.first().cloned(),
        tool: call.facts.tool.clone(),
        definition: call.definition,
        covers: Covers::Exact(call.argument_digest),
        made_by: Who::person("olga"),
        hold: None,
        made_at: now,
        expires_at: now.after(Duration::from_secs(24 * 60 * 60)),
        uses_left: None,
        revoked: None,
        version: 0,
    }
}

/// Why the rules said no. A store that failed, or an operation that happened, is a failed test.
#[track_caller]
pub fn rejection<T: std::fmt::Debug>(result: Result<T, Failure>) -> Rejection {
    match result {
        Err(Failure::Rejected(rejection)) => rejection,
        other => panic!("expected a rejection, found {other:?}"),
    }
}
