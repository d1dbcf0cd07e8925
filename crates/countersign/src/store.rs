//! What a store is: one transaction per [`Op`], a few reads, records, and a bell that rings after each commit.
//!
//! Stores do not know the rules. They hand [`apply`](crate::apply::apply) a [`State`] to read and write inside their
//! transaction, and commit what it wrote.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::bell::Bell;
use crate::call::{Call, CallState, Chain, Facts, Outcome, Path, Repeat, Resolution, ToolId};
use crate::digest::{ArgumentDigest, DefinitionDigest, Nonce};
use crate::event::{Cursor, Draft, Event, Head};
use crate::grant::Grant;
use crate::hold::Who;
use crate::id::{CallId, GrantId, HoldId};
use crate::json::Json;
use crate::kept::KeptGrants;
use crate::limits::{self, Limits, Waiting};
use crate::policy::Policy;
use crate::refusal::Refusal;
use crate::signer::Signer;
use crate::time::Time;
use crate::transition::{Asking, Deciding, Rejection, Unasked};
use crate::verdict::Verdict;

/// Why a store could not do its job. Whatever was asked for may or may not have been written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The database, its file or its connection failed.
    #[error("the store failed: {0}")]
    Failed(String),
    /// A row that cannot be read. Nothing it says is believed.
    #[error("the store holds a damaged {what}: {why}")]
    Damaged {
        /// What is damaged.
        what: &'static str,
        /// How.
        why: String,
    },
    /// The store shuts down.
    #[error("the store is closed")]
    Closed,
}

/// Why an operation did not happen.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The rules say no. What time itself brought is written all the same.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A call on its way in: everything but what the store's moment decides.
#[derive(Clone, Debug)]
pub struct NewCall {
    /// Our name for it.
    pub id: CallId,
    /// The agent's name for this place in its run.
    pub key: Option<Arc<str>>,
    /// The model's call id.
    pub label: Option<Arc<str>>,
    /// What rules look at.
    pub facts: Arc<Facts>,
    /// What people are shown of the tool.
    pub description: Option<Arc<str>>,
    /// The tool's definition.
    pub definition: Option<DefinitionDigest>,
    /// The arguments with secrets masked, where that differs.
    pub redacted: Option<Json>,
    /// The agent's text, where it differs from the canonical form.
    pub raw: Option<Arc<str>>,
    /// What a crash while it runs means.
    pub repeat: Repeat,
    /// Compares it with other calls.
    pub argument_digest: ArgumentDigest,
    /// Keeps the call digest from being guessed.
    pub nonce: Nonce,
    /// What the policy says.
    pub verdict: Arc<Verdict>,
    /// The tool's words for whoever is asked.
    pub hint: Option<Arc<str>>,
    /// What is given along to look at.
    pub payload: Option<Json>,
    /// Why it is refused before any rule is asked: bad arguments, unknown tool, hook, authorizer.
    pub refusal: Option<Refusal>,
}

/// Submits a call.
#[derive(Clone, Debug)]
pub struct Submission {
    /// The call.
    pub call: NewCall,
    /// What to do where nobody can be asked; none where somebody can, or where it shall wait.
    pub unasked: Option<Unasked>,
    /// How many may wait.
    pub limits: Arc<Limits>,
    /// Claim it at once if it is allowed.
    pub claim: Option<Claimant>,
    /// The policy that judged it.
    pub policy: Policy,
}

/// Who wants to run a call.
#[derive(Clone, Debug)]
pub struct Claimant {
    /// The executor's name.
    pub owner: Arc<str>,
    /// The definition of the tool that will run.
    pub definition: Option<DefinitionDigest>,
    /// For how long.
    pub lease: Duration,
    /// How many attempts a repeatable call may have.
    pub attempts: u32,
}

/// One transaction.
#[derive(Clone, Debug)]
pub enum Op {
    /// A call is proposed.
    Submit(Box<Submission>),
    /// Somebody decides.
    Decide(Box<Deciding>),
    /// A new grant may cover an open hold.
    Release {
        /// The hold.
        hold: HoldId,
        /// The grant.
        grant: GrantId,
    },
    /// The approver function failed.
    Close {
        /// The hold.
        hold: HoldId,
        /// What went wrong.
        refusal: Refusal,
    },
    /// Withdraw a call.
    Cancel {
        /// The call.
        call: CallId,
        /// Why.
        refusal: Refusal,
    },
    /// Take a call to run it.
    Claim {
        /// The call.
        call: CallId,
        /// Who.
        claimant: Claimant,
        /// The policy in force.
        policy: Policy,
    },
    /// Still at it.
    Renew {
        /// The call.
        call: CallId,
        /// The executor's fence.
        fence: u64,
        /// For how long.
        lease: Duration,
    },
    /// A running tool asks.
    Ask {
        /// The call.
        call: CallId,
        /// What.
        asking: Box<Asking>,
    },
    /// A run ended.
    Finish {
        /// The call.
        call: CallId,
        /// The executor's fence.
        fence: u64,
        /// How.
        outcome: Outcome,
    },
    /// A person settles a doubt. Its moment is set by the store.
    Resolve {
        /// The call.
        call: CallId,
        /// How.
        resolution: Resolution,
    },
    /// Time passed for a call.
    Tick {
        /// The call.
        call: CallId,
    },
    /// Nothing is claimed from here on: for one agent, or for all.
    Halt {
        /// The agent; all, if none.
        agent: Option<Arc<str>>,
        /// Who says so.
        by: Arc<str>,
        /// Why.
        reason: Option<String>,
    },
    /// Claims go on.
    Lift {
        /// The agent; all, if none.
        agent: Option<Arc<str>>,
        /// Who says so.
        by: Arc<str>,
    },
    /// An operator makes a grant.
    Grant(Box<Grant>),
    /// A grant ends.
    Revoke {
        /// The grant.
        grant: GrantId,
        /// Who says so.
        by: Who,
    },
    /// Something worth recording that changes no call: a policy loaded or rejected, an access refused.
    Note {
        /// Which chain.
        chain: Chain,
        /// What.
        draft: Draft,
    },
    /// Sign the heads of all chains that moved.
    Checkpoint {
        /// Who signs.
        signer: Arc<Signer>,
    },
    /// An operation, with the grants that only the process that asks for it keeps in mind.
    Beside {
        /// The grants.
        grants: Arc<KeptGrants>,
        /// The operation.
        op: Box<Op>,
    },
    /// Make this the policy all nodes follow where there is none yet; else nothing happens.
    OfferPolicy {
        /// Its version.
        version: Arc<str>,
        /// Its source.
        source: Arc<str>,
        /// Who says so.
        by: Arc<str>,
    },
    /// Make this the policy all nodes follow.
    SetPolicy {
        /// Its version.
        version: Arc<str>,
        /// Its source.
        source: Arc<str>,
        /// Who says so.
        by: Arc<str>,
    },
}

/// What an operation did.
#[derive(Clone, Debug, Default)]
pub struct Applied {
    /// The call as it stands now, if the operation had one.
    pub call: Option<Arc<Call>>,
    /// The grant made or revoked, if any.
    pub grant: Option<Box<Grant>>,
    /// Whether it had happened before and nothing was written now.
    pub replayed: bool,
}

/// What an operation must be able to read, for stores that fetch before they run it.
#[derive(Clone, Debug, Default)]
pub struct Needs {
    /// A call, by id.
    pub call: Option<CallId>,
    /// A call, by one of its holds.
    pub hold: Option<HoldId>,
    /// A grant, by id. The grant a needed call leans on is needed too.
    pub grant: Option<GrantId>,
    /// Chains that will be written besides the call's own.
    pub chains: Vec<Chain>,
    /// What a new call, or an edited one, is compared with.
    pub submission: Option<Submitted>,
    /// All chain heads that moved since the last checkpoint.
    pub heads: bool,
    /// Whether halts matter.
    pub halts: bool,
    /// Whether it matters how many holds wait.
    pub waiting: bool,
}

/// What a new call is compared with.
#[derive(Clone, Debug)]
pub struct Submitted {
    /// Where it stands.
    pub path: Path,
    /// Its key.
    pub key: Option<Arc<str>>,
    /// Its tool.
    pub tool: ToolId,
    /// Its argument digest.
    pub argument_digest: ArgumentDigest,
}

impl Op {
    /// What this operation reads.
    pub fn needs(&self) -> Needs {
        let mut needs = Needs::default();
        match self {
            Op::Submit(submission) => {
                let call = &submission.call;
                needs.chains.push(call.facts.path.chain());
                needs.halts = submission.claim.is_some();
                needs.waiting = true;
                needs.submission = Some(Submitted {
                    path: call.facts.path.clone(),
                    key: call.key.clone(),
                    tool: call.facts.tool.clone(),
                    argument_digest: call.argument_digest,
                });
            }
            Op::Decide(deciding) => {
                needs.hold = Some(deciding.hold);
                needs.submission = deciding.edit.as_ref().map(|edit| Submitted {
                    path: edit.path.clone(),
                    key: None,
                    tool: edit.tool.clone(),
                    argument_digest: edit.argument_digest,
                });
            }
            Op::Release { hold, grant } => {
                needs.hold = Some(*hold);
                needs.grant = Some(*grant);
            }
            Op::Close { hold, .. } => needs.hold = Some(*hold),
            Op::Claim { call, .. } => {
                needs.call = Some(*call);
                needs.halts = true;
            }
            Op::Ask { call, .. } => {
                needs.call = Some(*call);
                needs.waiting = true;
            }
            Op::Cancel { call, .. }
            | Op::Renew { call, .. }
            | Op::Finish { call, .. }
            | Op::Resolve { call, .. }
            | Op::Tick { call } => needs.call = Some(*call),
            Op::Halt { .. } | Op::Lift { .. } => {
                needs.chains.push(Chain::system());
                needs.halts = true;
            }
            Op::OfferPolicy { .. } | Op::SetPolicy { .. } => needs.chains.push(Chain::system()),
            Op::Grant(_) => needs.chains.push(Chain::system()),
            Op::Revoke { grant, .. } => {
                needs.grant = Some(*grant);
                needs.chains.push(Chain::system());
            }
            Op::Note { chain, .. } => needs.chains.push(chain.clone()),
            Op::Beside { op, .. } => return op.needs(),
            Op::Checkpoint { .. } => {
                needs.heads = true;
                needs.chains.push(Chain::system());
            }
        }
        needs
    }
}

/// What a transition reads and writes inside one transaction.
pub trait State {
    /// The store's present moment. The same throughout one operation.
    fn now(&self) -> Time;
    /// A call.
    fn call(&mut self, id: CallId) -> Result<Option<Arc<Call>>, StoreError>;
    /// The call a hold belongs to.
    fn call_of_hold(&mut self, hold: HoldId) -> Result<Option<Arc<Call>>, StoreError>;
    /// The call of this path's principal, session and run with this key.
    fn call_by_key(&mut self, path: &Path, key: &str) -> Result<Option<Arc<Call>>, StoreError>;
    /// An earlier denial by an approver of an identical call in the same run.
    fn denial(&mut self, path: &Path, arguments: &ArgumentDigest) -> Result<Option<Refusal>, StoreError>;
    /// An identical call of the same principal and session that is in doubt.
    fn doubt(&mut self, path: &Path, arguments: &ArgumentDigest) -> Result<Option<CallId>, StoreError>;
    /// Unrevoked grants that may cover a call: the session's first, then global ones. May hold more than match.
    fn grants_for(&mut self, path: &Path, tool: &ToolId, arguments: &ArgumentDigest) -> Result<Vec<Grant>, StoreError>;
    /// A grant.
    fn grant(&mut self, id: GrantId) -> Result<Option<Grant>, StoreError>;
    /// How many holds wait, beside a call of this path.
    fn pending(&mut self, path: &Path) -> Result<Waiting, StoreError>;
    /// Whether everything, or one of these agents, is halted.
    fn halted(&mut self, path: &Path) -> Result<bool, StoreError>;
    /// Whether exactly this halt (one agent's, or everybody's) is set.
    fn halt_is_set(&mut self, agent: Option<&str>) -> Result<bool, StoreError>;
    /// The version of the policy all nodes follow, where the store keeps one.
    fn policy_version(&mut self) -> Result<Option<Arc<str>>, StoreError>;
    /// Heads of chains that moved since the last checkpoint, sorted by name; and the last checkpoint's hash.
    fn moved_heads(&mut self) -> Result<MovedHeads, StoreError>;
    /// Writes a call of a chain: new where `before` is none, else over exactly that version.
    fn put_call(&mut self, chain: &Chain, call: Arc<Call>, before: Option<&Call>) -> Result<(), StoreError>;
    /// Writes a grant.
    fn put_grant(&mut self, grant: &Grant) -> Result<(), StoreError>;
    /// Sets or lifts a halt.
    fn put_halt(&mut self, agent: Option<&str>, halted: Halted) -> Result<(), StoreError>;
    /// Writes the policy all nodes follow.
    fn put_policy(&mut self, version: &str, source: &str) -> Result<(), StoreError>;
    /// Remembers that these heads were signed. Appending a `checkpoint.signed` marks the system chain as signed up to
    /// that event, and that event's hash as the last checkpoint's.
    fn put_checkpoint(&mut self, heads: &[(Chain, Head)]) -> Result<(), StoreError>;
    /// Appends an event to a chain.
    fn append(&mut self, chain: &Chain, draft: Draft) -> Result<(), StoreError>;
}

/// Chain heads that no checkpoint has signed yet.
#[derive(Clone, Debug, Default)]
pub struct MovedHeads {
    /// The chains and their heads, sorted by name.
    pub heads: Vec<(Chain, Head)>,
    /// The hash of the last checkpoint's event.
    pub previous: Option<crate::digest::EventHash>,
}

/// Whether a halt is set or lifted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halted {
    /// Nothing is claimed.
    Yes,
    /// Claims go on.
    No,
}

/// Which calls to list.
#[derive(Clone, Debug, Default)]
pub struct CallFilter {
    /// Only in this state.
    pub state: Option<CallState>,
    /// Only calls with an open hold: pending ones, and running ones whose tool asks.
    pub holding: bool,
    /// Only in this session.
    pub session: Option<Arc<str>>,
    /// Only of this principal.
    pub principal: Option<Arc<str>>,
    /// Only with this argument digest.
    pub argument_digest: Option<ArgumentDigest>,
    /// In which order.
    pub order: Order,
    /// Only after this call, in that order.
    pub after: Option<CallId>,
    /// How many at most.
    pub limit: Option<usize>,
}

/// In which order calls are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// As they were submitted.
    #[default]
    Oldest,
    /// The last one first.
    Newest,
}

/// Which events to read.
#[derive(Clone, Debug, Default)]
pub struct EventFilter {
    /// Only of this chain.
    pub chain: Option<Chain>,
    /// Only of chains of this session, whoever's.
    pub session: Option<Arc<str>>,
    /// Only about this call.
    pub call: Option<CallId>,
    /// How many at most.
    pub limit: Option<usize>,
}

/// One record: bytes under a namespace and a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The key.
    pub key: String,
    /// The bytes.
    pub value: Vec<u8>,
    /// Grows by one with every write; the first is 1.
    pub version: u64,
    /// When it is gone.
    pub expires_at: Option<Time>,
}

/// What a record must be for a write to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Anything, or nothing.
    Any,
    /// Not there.
    Absent,
    /// There, in exactly this version.
    Version(u64),
}

/// Keeps calls, grants, events and records; runs every [`Op`] as one transaction.
#[async_trait]
pub trait Store: Send + Sync {
    /// Runs one operation. When this returns, what it did is durable.
    async fn run(&self, op: Op) -> Result<Applied, Failure>;

    /// The store's present moment.
    async fn now(&self) -> Result<Time, StoreError>;
    /// Reads a call.
    async fn call(&self, id: CallId) -> Result<Option<Arc<Call>>, StoreError>;
    /// Reads the call a hold belongs to.
    async fn call_of_hold(&self, hold: HoldId) -> Result<Option<Arc<Call>>, StoreError>;
    /// Lists calls in the order of the filter.
    async fn calls(&self, filter: CallFilter) -> Result<Vec<Arc<Call>>, StoreError>;
    /// Counts the calls with an open hold.
    ///
    /// Left to itself it reads them page by page; stores that can count should.
    async fn holding(&self) -> Result<usize, StoreError> {
        let (mut count, mut after) = (0, None);
        loop {
            let limit = Some(limits::PAGE_ROWS);
            let page = self.calls(CallFilter { holding: true, after, limit, ..CallFilter::default() }).await?;
            let Some(last) = page.last() else { return Ok(count) };
            after = Some(last.id);
            count += page.len();
        }
    }
    /// Lists calls whose [`Call::due_at`] has passed.
    async fn due(&self, limit: usize) -> Result<Vec<CallId>, StoreError>;
    /// Reads a grant.
    async fn grant(&self, id: GrantId) -> Result<Option<Grant>, StoreError>;
    /// Lists grants after one, newest last, ended ones too; at most so many, and never more than [`limits::PAGE_ROWS`].
    async fn grants_after(&self, after: Option<GrantId>, limit: usize) -> Result<Vec<Grant>, StoreError>;
    /// Lists all grants, newest last, ended ones too, page by page.
    async fn grants(&self) -> Result<Vec<Grant>, StoreError> {
        let mut grants: Vec<Grant> = Vec::new();
        loop {
            let after = grants.last().map(|last| last.id);
            let page = self.grants_after(after, limits::PAGE_ROWS).await?;
            if page.is_empty() {
                return Ok(grants);
            }
            grants.extend(page);
        }
    }
    /// Reads events after a cursor, oldest first. Never skips one that commits late.
    async fn events(&self, after: Cursor, filter: EventFilter) -> Result<Vec<Event>, StoreError>;
    /// The events by which these holds opened, oldest first. As many holds as fit one page are asked for at once.
    ///
    /// Left to itself it asks call by call; stores that can do it in one reading should.
    async fn openings(&self, holds: &[(CallId, HoldId)]) -> Result<Vec<Event>, StoreError> {
        let mut found = Vec::new();
        for (call, hold) in holds {
            let filter =
                EventFilter { call: Some(*call), limit: Some(crate::limits::PAGE_ROWS), ..EventFilter::default() };
            let events = self.events(Cursor::default(), filter).await?;
            found.extend(events.into_iter().find(|event| event.opens(*hold)));
        }
        found.sort_by_key(|event| event.cursor);
        Ok(found)
    }
    /// Whether everything, or an agent of this path, is halted.
    async fn halted(&self, path: &Path) -> Result<bool, StoreError>;
    /// The policy all nodes follow, where the store keeps one: version and source.
    async fn policy(&self) -> Result<Option<(Arc<str>, Arc<str>)>, StoreError>;

    /// Reads a record.
    async fn record(&self, namespace: &str, key: &str) -> Result<Option<Record>, StoreError>;
    /// Lists records whose key begins with a prefix, sorted by key, after a key.
    async fn records(
        &self,
        namespace: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError>;
    /// Writes a record and returns its new version; a conflict if it is not as expected.
    async fn put_record(
        &self,
        namespace: &str,
        key: &str,
        value: &[u8],
        expect: Expect,
        life: Option<Duration>,
    ) -> Result<u64, Failure>;
    /// Removes a record; a conflict if it is not as expected.
    async fn delete_record(&self, namespace: &str, key: &str, expect: Expect) -> Result<(), Failure>;

    /// Rings after every commit, whoever made it.
    fn bell(&self) -> &Bell<CallId>;
    /// Whether other processes can open this store and decide there.
    fn is_shared(&self) -> bool;
}
