//! The gate's own half of each step: policy, store, approver and redaction, in this process.

use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;

use crate::bell::Listener;
use crate::call::{Call, CallState, Chain, Declared, Facts, Outcome};
use crate::digest::{DefinitionDigest, Nonce, argument_digest};
use crate::event::{Draft, EventName};
use crate::gate::GateError;
use crate::gate::backend::{Defined, Submitted};
use crate::gate::bounded::Bounded;
use crate::gate::hooks::{Checked, valid};
use crate::gate::scope::{Asks, Reach};
use crate::grant::{Grant, Scope};
use crate::hold::{Answer, Decision, Who};
use crate::id::{CallId, HoldId};
use crate::json::Json;
use crate::kept::Keep;
use crate::limits::{self, Limits};
use crate::place::Places;
use crate::policy::{Policy, Unattended};
use crate::redact::Redactor;
use crate::refusal::Refusal;
use crate::signer::Signer;
use crate::store::{Applied, CallFilter, Claimant, Failure, NewCall, Op, Store, Submission};
use crate::time::{Clock as _, SystemClock};
use crate::tool::Definition;
use crate::transition::{Asking, Deciding, Edit, Rejection, Unasked};
use crate::verdict::{Because, Effect, Memory, Verdict};

/// What came of a decision.
#[derive(Clone, Debug)]
pub struct Decided {
    /// The call as it stands now.
    pub call: Arc<Call>,
    /// Whether the same decision had been recorded before.
    pub replayed: bool,
    /// The grant made along with it.
    pub grant: Option<Grant>,
    /// How many other holds that grant released.
    pub released: usize,
}

/// Policy and store, in this process.
pub(crate) struct Local {
    pub(crate) store: Arc<Bounded>,
    /// The same store, as others see it.
    pub(crate) shared: Arc<dyn Store>,
    pub(crate) policy: ArcSwap<Policy>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) redactor: Redactor,
    pub(crate) signer: Option<Arc<Signer>>,
    /// Definitions already written down, so that other processes can check an edit.
    pub(crate) known: Mutex<HashSet<DefinitionDigest>>,
    /// Tools of principals that people were asked about before.
    pub(crate) noted: Mutex<HashSet<String>>,
    /// Holds that this process has asked about.
    pub(crate) asked: Mutex<BTreeSet<HoldId>>,
    pub(crate) runs_since_checkpoint: AtomicU64,
}

/// Where definitions are kept among the store's records.
pub(crate) const DEFINITIONS: &str = "definitions";
/// How often a judgement is made anew because the policy of the store changed under it.
const STALE_RETRIES: usize = 3;

impl Local {
    pub(crate) async fn run(&self, op: Op) -> Result<Arc<Call>, GateError> {
        self.runs_since_checkpoint.fetch_add(1, Ordering::Relaxed);
        let applied = self.store.run(op).await?;
        applied.call.ok_or(GateError::Rejected(Rejection::NotFound("call")))
    }

    pub(crate) async fn get(&self, id: CallId) -> Result<Arc<Call>, GateError> {
        self.store.call(id).await?.ok_or(GateError::Rejected(Rejection::NotFound("call")))
    }

    /// Freezes the bytes, judges them, and writes the call down. Nothing changes the arguments after this line.
    pub(crate) async fn freeze(
        self: &Arc<Self>,
        asks: &Arc<Asks>,
        defined: Option<Defined<'_>>,
        checked: &Checked,
        claim: Option<Claimant>,
    ) -> Result<Submitted, GateError> {
        let id = CallId::new();
        for _ in 0..STALE_RETRIES {
            let policy = self.policy.load_full();
            let definition = defined.map(|defined| defined.definition);
            let mut submission = Box::new(self.submission(asks, id, definition, checked, &policy));
            submission.claim.clone_from(&claim);
            if let Some(defined) = defined {
                self.preview(defined, &mut submission.call).await;
            }
            match self.store.run(Op::Submit(submission)).await {
                Err(Failure::Rejected(Rejection::StalePolicy)) => Box::pin(self.follow_store()).await?,
                Err(failure) => return Err(failure.into()),
                Ok(applied) => {
                    let call = applied.call.ok_or(GateError::Rejected(Rejection::NotFound("call")))?;
                    if !applied.replayed {
                        self.note_tool(&call).await;
                    }
                    self.announce_waiting(asks, &call);
                    return Ok(Submitted { call, replayed: applied.replayed });
                }
            }
        }
        Err(GateError::Rejected(Rejection::StalePolicy))
    }

    fn submission(
        &self,
        asks: &Asks,
        id: CallId,
        definition: Option<&Arc<Definition>>,
        checked: &Checked,
        policy: &Arc<Policy>,
    ) -> Submission {
        let proposal = &checked.proposal;
        let schema = definition.map(|definition| &definition.input_schema);
        let redacted = self.redactor.arguments(&checked.arguments, schema);
        let facts = Facts {
            tool: proposal.tool.clone(),
            toolset: definition.and_then(|definition| definition.toolset.clone()),
            arguments: checked.arguments.clone(),
            path: proposal.path.clone(),
            declared: checked.declared,
            annotations: definition.and_then(|definition| definition.annotations.clone()),
            places: self.showable(checked, redacted.as_ref()),
            at: SystemClock.now(),
        };
        let digest = definition.map(|definition| definition.digest());
        let raised = checked.raised.as_deref().map(|reason| self.redactor.text(reason));
        let raw = proposal.arguments.as_str() != facts.arguments.as_str();
        let mut call = NewCall {
            id,
            key: proposal.key.clone(),
            label: proposal.label.clone(),
            description: definition.map(|definition| Arc::clone(&definition.description)),
            definition: digest,
            redacted,
            raw: raw.then(|| self.redactor.text(head(&proposal.arguments, self.limits.argument_bytes)).into()),
            repeat: definition.map(|definition| definition.repeat).unwrap_or_default(),
            argument_digest: argument_digest(&facts.tool, digest.as_ref(), &facts.arguments),
            nonce: Nonce::new(),
            verdict: Arc::new(asks.cap(raise(policy.judge(&facts), raised.as_deref()))),
            facts: Arc::new(facts),
            // What the agent says and shows is written down and shown, so secrets in it are masked as elsewhere.
            hint: match &proposal.hint {
                Some(hint) => Some(self.redactor.text(hint).into()),
                None => definition.map(|definition| definition.hint_or_default()),
            },
            payload: proposal.payload.as_ref().map(|payload| self.masked(payload)),
            refusal: checked.refusal.clone().map(|refusal| self.masked_refusal(refusal)),
        };
        if call.redacted.is_some() {
            // SECURITY: the agent's text holds the secret that was just masked.
            call.raw = None;
        }
        Submission {
            call,
            unasked: unasked(&asks.reach, policy),
            limits: Arc::clone(&self.limits),
            claim: None,
            policy: Policy::clone(policy),
        }
    }

    /// Lets the tool show what a call would change, where people will be asked about it.
    async fn preview(&self, defined: Defined<'_>, call: &mut NewCall) {
        if call.refusal.is_none() && call.verdict.effect == Effect::Ask {
            let shown = Box::pin(defined.payload(&call.facts.arguments, call.payload.take())).await;
            call.payload = shown.map(|payload| self.masked(&payload));
        }
    }

    fn masked(&self, json: &Json) -> Json {
        self.redactor.arguments(json, None).unwrap_or_else(|| json.clone())
    }

    /// What hooks, tools and approvers give for a reason is written down.
    pub(crate) fn masked_refusal(&self, refusal: Refusal) -> Refusal {
        let reason = refusal.reason.map(|reason| self.redactor.text(&reason).into_owned());
        Refusal { reason, ..refusal }
    }

    /// The places that may be shown and written down as they are.
    fn showable(&self, checked: &Checked, redacted: Option<&Json>) -> Places {
        if checked.places.is_empty() {
            return Places::default();
        }
        checked.places.clone().kept(|field, place| {
            // SECURITY: a place repeats its argument, so what is masked there must not be legible here.
            let masked = redacted.is_some_and(|redacted| redacted.field(field) != checked.arguments.field(field));
            !masked && self.redactor.text(place.path()) == place.path()
        })
    }

    /// Waits until a call no longer waits for people, and asks those whom this gate can ask, if it has not yet.
    pub(crate) async fn wait_asking(self: &Arc<Self>, asks: &Arc<Asks>, id: CallId) -> Result<Arc<Call>, GateError> {
        let asked = |call: &Arc<Call>| {
            self.announce_waiting(asks, call);
            call.state != CallState::Pending
        };
        self.wait(id, asked).await
    }

    pub(crate) async fn wait(&self, id: CallId, done: impl Fn(&Arc<Call>) -> bool) -> Result<Arc<Call>, GateError> {
        loop {
            let listener = self.store.bell().listen(id);
            let call = self.get(id).await?;
            if done(&call) {
                return Ok(call);
            }
            self.until(listener, &call).await?;
        }
    }

    /// Waits for a ring, or for the moment the call is due; then lets time pass for it.
    pub(crate) async fn until(&self, listener: Listener<CallId>, call: &Call) -> Result<(), GateError> {
        let Some(due) = call.due_at() else {
            listener.await;
            return Ok(());
        };
        let left = self.store.now().await?.until(due);
        tokio::select! {
            () = listener => Ok(()),
            () = tokio::time::sleep(left) => {
                self.run(Op::Tick { call: call.id }).await?;
                Ok(())
            }
        }
    }

    pub(crate) async fn claim(&self, id: CallId, claimant: Claimant) -> Result<Arc<Call>, GateError> {
        for _ in 0..STALE_RETRIES {
            let policy = Policy::clone(&self.policy.load());
            match self.run(Op::Claim { call: id, claimant: claimant.clone(), policy }).await {
                Err(GateError::Rejected(Rejection::StalePolicy)) => Box::pin(self.follow_store()).await?,
                claimed => return claimed,
            }
        }
        Err(GateError::Rejected(Rejection::StalePolicy))
    }

    pub(crate) async fn decide(
        self: &Arc<Self>,
        asks: &Arc<Asks>,
        hold: HoldId,
        decision: Decision,
        groups: &[Arc<str>],
    ) -> Result<Decided, GateError> {
        check_size(&decision)?;
        let decision = self.without_secrets(decision);
        for _ in 0..STALE_RETRIES {
            let deciding = self.deciding(asks, hold, &decision, groups).await?;
            match self.store.run(Op::Decide(Box::new(deciding))).await {
                Err(Failure::Rejected(Rejection::StalePolicy)) => Box::pin(self.follow_store()).await?,
                Err(failure) => return Err(failure.into()),
                Ok(applied) => {
                    let applied = self.with_its_grant(hold, &decision, applied).await?;
                    return self.decided(asks, hold, applied).await;
                }
            }
        }
        Err(GateError::Rejected(Rejection::StalePolicy))
    }

    /// A decision with all that it is judged by, under the policy as this node knows it.
    async fn deciding(
        &self,
        asks: &Asks,
        hold: HoldId,
        decision: &Decision,
        groups: &[Arc<str>],
    ) -> Result<Deciding, GateError> {
        let edit = match &decision.answer {
            Answer::Approve { arguments: Some(arguments), .. } => Some(self.edit(asks, hold, arguments).await?),
            Answer::Approve { .. } | Answer::Deny { .. } | Answer::Respond { .. } => None,
        };
        let mut groups = groups.to_vec();
        groups.extend(self.policy.load().groups_of(&decision.by.id));
        // The tool or the model gets what was written; the log does not.
        let redacted = match &decision.answer {
            Answer::Approve { payload: Some(json), .. } | Answer::Respond { response: json } => {
                self.redactor.arguments(json, None)
            }
            Answer::Approve { payload: None, .. } | Answer::Deny { .. } => None,
        };
        // A policy that keeps nothing in storage has grants end with this process.
        let keep = match self.policy.load().saiki_storage() {
            Some(Memory::None | Memory::Session) => Keep::InMind,
            Some(Memory::Global) | None => Keep::Stored,
        };
        Ok(Deciding { hold, decision: decision.clone(), groups, edit, redacted, keep })
    }

    /// A reason is written down and read by the model, which needs no secret.
    fn without_secrets(&self, decision: Decision) -> Decision {
        let answer = match decision.answer {
            Answer::Deny { reason: Some(reason) } => Answer::Deny { reason: Some(self.redactor.text(&reason).into()) },
            answer @ (Answer::Approve { .. } | Answer::Deny { reason: None } | Answer::Respond { .. }) => answer,
        };
        Decision { answer, ..decision }
    }

    async fn decided(self: &Arc<Self>, asks: &Arc<Asks>, hold: HoldId, applied: Applied) -> Result<Decided, GateError> {
        let call = applied.call.ok_or(GateError::Rejected(Rejection::NotFound("call")))?;
        let released = match &applied.grant {
            // How many a repetition may still release is known only of one that may release any number.
            Some(grant) if !applied.replayed || grant.uses_left.is_none() => {
                self.release_siblings(grant, &call).await?
            }
            Some(_) | None => 0,
        };
        if !applied.replayed && call.open_hold().is_some_and(|open| open.decisions.is_empty() && open.id != hold) {
            self.announce(asks, &call);
        }
        Ok(Decided { call, replayed: applied.replayed, grant: applied.grant.map(|grant| *grant), released })
    }

    /// A decision that is repeated because its answer was lost finds the grant that it made: whoever made it may have
    /// died before it released anything.
    async fn with_its_grant(&self, hold: HoldId, decision: &Decision, applied: Applied) -> Result<Applied, GateError> {
        let remembers = matches!(decision.answer, Answer::Approve { remember: Some(_), .. });
        if !(applied.replayed && remembers) {
            return Ok(applied);
        }
        let grant = self.store.grants().await?.into_iter().find(|grant| grant.hold == Some(hold));
        Ok(Applied { grant: grant.map(Box::new), ..applied })
    }

    /// Validates and judges edited arguments, as any other arguments are.
    pub(crate) async fn edit(&self, asks: &Asks, hold: HoldId, arguments: &Json) -> Result<Edit, GateError> {
        let call = self.store.call_of_hold(hold).await?.ok_or(GateError::Rejected(Rejection::NotFound("hold")))?;
        let bad = |refusal: Refusal| GateError::BadEdit(refusal.reason.unwrap_or_default());
        let arguments =
            Json::arguments(arguments.as_str(), &self.limits).map_err(|error| GateError::BadEdit(error.to_string()))?;
        let definition = self.definition(&call).await?;
        let arguments = match &definition {
            Some(definition) => valid(definition, arguments).map_err(bad)?,
            None => arguments,
        };
        let mut facts = Facts::clone(&call.facts);
        facts.arguments = arguments.clone();
        let schema = definition.as_ref().map(|definition| &definition.input_schema);
        let redacted = self.redactor.arguments(&arguments, schema);
        let policy = self.policy.load();
        let edit = Edit::of(&call, arguments, asks.cap(policy.judge(&facts)));
        Ok(Edit { redacted, policy: Arc::clone(policy.own_version()), ..edit })
    }

    /// The definition a call was made for, as it was written down.
    async fn definition(&self, call: &Call) -> Result<Option<Definition>, GateError> {
        let Some(digest) = call.definition else { return Ok(None) };
        let record = self.store.record(DEFINITIONS, &digest.to_string()).await?;
        let read = record.and_then(|record| serde_json::from_slice::<Definition>(&record.value).ok());
        match read.filter(|definition| definition.digest() == digest) {
            Some(definition) => Ok(Some(definition)),
            None => Err(GateError::BadEdit("the tool's definition is not on record, so nothing can check it".into())),
        }
    }

    /// A new grant releases other holds it covers, each with its own event.
    async fn release_siblings(&self, grant: &Grant, decided: &Call) -> Result<usize, GateError> {
        let session = match &grant.scope {
            Scope::Session { session } => Some(Arc::clone(session)),
            Scope::Global => None,
        };
        let mut filter = CallFilter {
            holding: true,
            session,
            principal: Some(Arc::clone(&grant.principal)),
            argument_digest: Some(decided.argument_digest),
            limit: Some(limits::PAGE_ROWS),
            ..CallFilter::default()
        };
        let most = grant.uses_left.map_or(usize::MAX, |uses| uses as usize);
        let mut released = 0;
        loop {
            let page = self.store.calls(filter.clone()).await?;
            let Some(last) = page.last() else { return Ok(released) };
            filter.after = Some(last.id);
            for sibling in page.iter().filter(|sibling| sibling.id != decided.id) {
                // What it could not let run any more stays asked about.
                if released >= most {
                    return Ok(released);
                }
                released += usize::from(self.release(grant, sibling).await?);
            }
        }
    }

    /// Whether the grant released the call's hold.
    async fn release(&self, grant: &Grant, waiting: &Call) -> Result<bool, GateError> {
        let Some(hold) = waiting.open_hold() else { return Ok(false) };
        match self.store.run(Op::Release { hold: hold.id, grant: grant.id }).await {
            Ok(_) => Ok(true),
            Err(Failure::Rejected(_)) => Ok(false),
            Err(Failure::Store(error)) => Err(error.into()),
        }
    }

    pub(crate) async fn ask(
        self: &Arc<Self>,
        asks: &Arc<Asks>,
        call: &Call,
        fence: u64,
        hint: &str,
        payload: Json,
    ) -> Result<(Arc<Call>, HoldId), GateError> {
        if hint.len() > limits::NOTE_BYTES {
            return Err(GateError::BadInput(format!("the hint has over {} bytes", limits::NOTE_BYTES)));
        }
        let hold = HoldId::new();
        let asking = Asking {
            hold,
            fence,
            hint: Some(self.redactor.text(hint).into()),
            payload: Some(self.masked(&payload)),
            unattended: unasked(&asks.reach, &self.policy.load()),
            limits: Arc::clone(&self.limits),
        };
        let asked = self.run(Op::Ask { call: call.id, asking: Box::new(asking) }).await?;
        self.announce(asks, &asked);
        loop {
            let listener = self.store.bell().listen(call.id);
            let closed = |call: &Arc<Call>| call.holds.iter().any(|found| found.id == hold && !found.is_pending());
            let answered = self.wait(call.id, closed).await?;
            // A halt keeps a yes from being delivered, as it keeps a claim from being made. A no always arrives.
            let yes = answered.holds.iter().any(|found| found.id == hold && found.is_yes());
            if !yes || !self.store.halted(&call.facts.path).await? {
                return Ok((answered, hold));
            }
            listener.await;
        }
    }

    /// SECURITY: a grant covers no other definition; revoked, it does not come back when the old one is put back either.
    pub(crate) async fn void_grants(&self, old: &HashSet<DefinitionDigest>) -> Result<(), GateError> {
        let made_for_it = |grant: &Grant| {
            grant.revoked.is_none() && grant.definition.is_some_and(|definition| old.contains(&definition))
        };
        for grant in self.store.grants().await?.into_iter().filter(made_for_it) {
            self.store.run(Op::Revoke { grant: grant.id, by: Who::program("program:gate") }).await?;
        }
        Ok(())
    }

    pub(crate) fn admit(&self, definition: &Definition) -> Result<(), GateError> {
        usable(definition)?;
        let facts = Facts {
            tool: definition.tool.clone(),
            toolset: definition.toolset.clone(),
            arguments: Json::empty(),
            path: crate::call::Path::default(),
            declared: Declared::Nothing,
            annotations: definition.annotations.clone(),
            places: Places::default(),
            at: SystemClock.now(),
        };
        self.policy.load().admits(&facts).map_err(|why| not_admitted(definition, why))
    }

    pub(crate) async fn set_policy(&self, policy: Policy) -> Result<(), GateError> {
        let draft = Draft::new(EventName::PolicyLoaded).text("policy", policy.version());
        // On the record before it counts: a policy that could not be recorded is not in force.
        self.store.run(Op::Note { chain: Chain::system(), draft }).await?;
        self.policy.store(Arc::new(policy));
        Ok(())
    }

    /// Takes over the policy that all nodes follow.
    async fn follow_store(&self) -> Result<(), GateError> {
        let Some((version, source)) = self.store.policy().await? else { return Ok(()) };
        let policy = Policy::from_yaml(&source).map_err(|errors| GateError::BrokenPolicy(errors.to_string()))?;
        if policy.version() != &version {
            let why = format!("the store names policy {version}, its text reads as {}", policy.version());
            return Err(GateError::BrokenPolicy(why));
        }
        let policy = policy.keeping(&self.policy.load());
        self.policy.store(Arc::new(policy));
        Ok(())
    }

    pub(crate) fn redact_outcome(&self, outcome: Outcome) -> Outcome {
        match outcome {
            Outcome::Succeeded { output } => Outcome::Succeeded { output },
            Outcome::Failed { error, refusal } => Outcome::Failed {
                error: self.noted(&error),
                refusal: refusal.map(|refusal| self.masked_refusal(refusal)),
            },
            Outcome::MayHaveApplied { why } => Outcome::MayHaveApplied { why: self.noted(&why) },
        }
    }

    /// A text of somebody else's as it may be written down: of bounded length, with secrets masked.
    pub(crate) fn noted(&self, text: &str) -> String {
        self.redactor.text(head(text, limits::NOTE_BYTES)).into()
    }
}

/// Whether arguments for a tool can be checked at all.
pub(super) fn usable(definition: &Definition) -> Result<(), GateError> {
    definition.schema().map(drop).map_err(|error| not_admitted(definition, error.to_string()))
}

fn not_admitted(definition: &Definition, why: String) -> GateError {
    GateError::NotAdmitted { tool: definition.tool.to_string(), why }
}

/// What becomes of a hold that reaches nobody.
fn unasked(reach: &Reach, policy: &Policy) -> Option<Unasked> {
    match (reach, policy.unattended()) {
        (Reach::Elsewhere | Reach::Approver(_) | Reach::Channel(_), _) => None,
        (Reach::Nobody, Unattended::Deny) => Some(Unasked::Deny),
        (Reach::Nobody, Unattended::Allow) => Some(Unasked::Allow),
        (Reach::Nobody, Unattended::Wait) => None,
    }
}

fn head(text: &str, most: usize) -> &str {
    text.get(..text.floor_char_boundary(most)).unwrap_or(text)
}

fn check_size(decision: &Decision) -> Result<(), GateError> {
    let too_long = |what: &str| Err(GateError::BadInput(format!("the {what} is too long")));
    match &decision.answer {
        Answer::Deny { reason: Some(reason) } if reason.len() > limits::NOTE_BYTES => too_long("reason"),
        Answer::Respond { response } if response.as_str().len() > limits::PAYLOAD_BYTES => too_long("response"),
        Answer::Approve { payload: Some(payload), .. } if payload.as_str().len() > limits::PAYLOAD_BYTES => {
            too_long("payload")
        }
        _ if decision.by.id.trim().is_empty() || decision.by.id.len() > limits::NAME_BYTES => {
            Err(GateError::BadInput("the approver's name is blank or too long".into()))
        }
        Answer::Approve { .. } | Answer::Deny { .. } | Answer::Respond { .. } => Ok(()),
    }
}

/// A hook's wish to have people asked joins the verdict by strictness.
fn raise(mut verdict: Verdict, reason: Option<&str>) -> Verdict {
    let Some(reason) = reason else { return verdict };
    let because = Because { rule: "hook".into(), effect: Effect::Ask, reason: Some(reason.into()) };
    if verdict.effect == Effect::Allow {
        // What a hook asks because of these arguments, no whole-tool grant lifts.
        Arc::make_mut(&mut verdict.terms).depends_on_arguments = true;
    }
    verdict.join(because);
    verdict
}
