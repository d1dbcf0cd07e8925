//! A memory store with a clock of its own, and everything that can happen to a call, at random.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use crate::audit::{ExportOptions, export};
use crate::call::{Call, CallState, Chain, Declared, Facts, Outcome, Path, Repeat, Resolution, ResolvedAs, ToolId};
use crate::digest::{Nonce, argument_digest};
use crate::event::{Draft, EventName};
use crate::grant::Remember;
use crate::hold::{Answer, Decision, HoldRow, Who};
use crate::id::{CallId, HoldId};
use crate::json::Json;
use crate::memory::MemoryStore;
use crate::policy::Policy;
use crate::refusal::{Refusal, RefusalKind};
use crate::signer::Signer;
use crate::store::{Applied, Claimant, Failure, NewCall, Op, Store, Submission};
use crate::time::{Clock, Time};
use crate::transition::{Asking, Deciding, Edit, Unasked};
use crate::verdict::{Because, Effect, Quorum, Terms, Verdict};

/// A small random source, the same for the same seed.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        (self.roll() % bound.max(1) as u64) as usize
    }
}

pub(super) struct Hands(AtomicI64);

impl Hands {
    pub(super) fn turn(&self, seconds: i64) {
        self.0.fetch_add(seconds * 1_000_000, Ordering::SeqCst);
    }
}

impl Clock for Hands {
    fn now(&self) -> Time {
        Time(self.0.load(Ordering::SeqCst))
    }
}

pub(super) struct World {
    pub(super) store: MemoryStore,
    pub(super) clock: Arc<Hands>,
    pub(super) signer: Arc<Signer>,
    pub(super) calls: Vec<CallId>,
}

pub(super) fn key() -> Arc<Signer> {
    Arc::new(Signer::generate().unwrap())
}

/// Runs a future of a store that never waits.
pub(super) fn now<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

impl World {
    pub(super) fn new() -> World {
        let clock = Arc::new(Hands(AtomicI64::new(1_800_000_000_000_000)));
        let store = MemoryStore::with_clock(Arc::clone(&clock) as Arc<dyn Clock>);
        World { store, clock, signer: key(), calls: Vec::new() }
    }

    /// A world in which a number of random things happened.
    pub(super) fn lived(seed: u64, steps: usize) -> World {
        let mut world = World::new();
        let mut dice = Dice(seed);
        for _ in 0..steps {
            world.live(&mut dice);
        }
        world
    }

    pub(super) fn run(&self, op: Op) -> Result<Applied, Failure> {
        now(self.store.run(op))
    }

    pub(super) fn export(&self) -> Vec<u8> {
        self.export_with(Some(&self.signer), None)
    }

    pub(super) fn export_with(&self, signer: Option<&Arc<Signer>>, session: Option<&str>) -> Vec<u8> {
        let mut file = Vec::new();
        let options = ExportOptions { session: session.map(Into::into) };
        now(export(&self.store, signer, &options, &mut file)).unwrap();
        file
    }

    pub(super) fn sign(&self) {
        self.run(Op::Checkpoint { signer: Arc::clone(&self.signer) }).unwrap();
    }

    pub(super) fn submit(&mut self, new: NewCall) -> Arc<Call> {
        self.calls.push(new.id);
        self.run(submission(new, None)).unwrap().call.unwrap()
    }

    pub(super) fn claim(&self, call: CallId) -> Result<Applied, Failure> {
        self.run(Op::Claim { call, claimant: claimant(), policy: Policy::ask_all() })
    }

    pub(super) fn decide(&self, hold: &HoldRow, who: &str, answer: Answer) -> Result<Applied, Failure> {
        let decision = Decision::new(Who::person(who), "test", hold.digest, answer);
        self.run(Op::Decide(Box::new(Deciding::new(hold.id, decision))))
    }

    /// Submits, approves, claims and finishes one call.
    pub(super) fn one_whole_call(&mut self, session: Option<&str>) -> CallId {
        let call = self.submit(proposal(session, Effect::Ask));
        self.decide(&call.holds[0], "ann", Answer::approve()).unwrap();
        self.claim(call.id).unwrap();
        self.run(Op::Finish { call: call.id, fence: 1, outcome: Outcome::Succeeded { output: Json::empty() } })
            .unwrap();
        call.id
    }

    /// Lets one random thing happen. Much of it is refused, as it should be.
    fn live(&mut self, dice: &mut Dice) {
        self.clock.turn([0, 0, 0, 1, 20, 40, 400][dice.below(7)]);
        if self.calls.is_empty() || dice.below(5) == 0 {
            return self.propose_something(dice);
        }
        // Mostly the latest calls, so that stories go on.
        let from = self.calls.len().saturating_sub(4);
        let id = self.calls[from + dice.below(self.calls.len() - from)];
        let call = now(self.store.call(id)).unwrap().unwrap();
        let fence = call.lease.as_ref().map_or(0, |lease| lease.fence);
        let refusal = Refusal::new(RefusalKind::Cancelled).because("changed my mind");
        let op = match dice.below(14) {
            0..=3 => match call.open_hold() {
                Some(hold) => decision(&call, hold, dice),
                None => Op::Tick { call: id },
            },
            4..=6 => Op::Claim { call: id, claimant: claimant(), policy: Policy::ask_all() },
            7 => Op::Ask { call: id, asking: Box::new(asking(fence, dice)) },
            8 => Op::Finish { call: id, fence, outcome: outcome(dice) },
            9 => match (call.open_hold(), dice.below(2)) {
                (Some(hold), 0) => Op::Close { hold: hold.id, refusal: Refusal::new(RefusalKind::Error) },
                _ => Op::Cancel { call: id, refusal },
            },
            10 => Op::Resolve { call: id, resolution: resolution() },
            11 => match (call.open_hold(), now(self.store.grants()).unwrap().pop()) {
                (Some(hold), Some(grant)) => Op::Release { hold: hold.id, grant: grant.id },
                _ => Op::Renew { call: id, fence, lease: Duration::from_secs(9) },
            },
            12 => something_else(self, dice),
            _ => Op::Tick { call: id },
        };
        match self.run(op) {
            Ok(_) | Err(Failure::Rejected(_)) => {}
            Err(Failure::Store(error)) => panic!("{error}"),
        }
    }

    fn propose_something(&mut self, dice: &mut Dice) {
        let session = [None, Some("alpha"), Some("beta"), Some("gamma")][dice.below(4)];
        let effect = [Effect::Allow, Effect::Ask, Effect::Ask, Effect::Ask, Effect::Deny][dice.below(5)];
        let mut new = proposal(session, effect);
        new.repeat = [Repeat::AtMostOnce, Repeat::Idempotent][dice.below(2)];
        new.payload = (dice.below(3) == 0).then(|| Json::string("look \"at\" this\n"));
        if dice.below(3) == 0 {
            let terms = Terms { quorums: vec![Quorum { approvals: 2, from: Vec::new() }], ..Terms::default() };
            Arc::get_mut(&mut new.verdict).unwrap().terms = Arc::new(terms);
        }
        if dice.below(9) == 0 {
            new.refusal = Some(Refusal::new(RefusalKind::Hook).because("no"));
        }
        let id = new.id;
        let unasked = [None, None, None, Some(Unasked::Allow), Some(Unasked::Deny)][dice.below(5)];
        if self.run(submission(new, unasked)).is_ok() {
            self.calls.push(id);
        }
    }

    /// How many calls stand in each state.
    pub(super) fn states(&self) -> Vec<CallState> {
        self.calls.iter().map(|id| now(self.store.call(*id)).unwrap().unwrap().state).collect()
    }
}

fn something_else(world: &World, dice: &mut Dice) -> Op {
    match dice.below(6) {
        0 => Op::Halt { agent: None, by: "ops".into(), reason: Some("fire".into()) },
        1 | 2 => Op::Lift { agent: None, by: "ops".into() },
        3 => {
            let draft = Draft::new(EventName::AccessRefused).text("what", "decide");
            Op::Note { chain: Chain::system(), draft }
        }
        _ => Op::Checkpoint { signer: Arc::clone(&world.signer) },
    }
}

pub(super) fn proposal(session: Option<&str>, effect: Effect) -> NewCall {
    let tool = ToolId::local("deploy");
    let arguments = Json::of(&serde_json::json!({ "to": "production", "n": 1 })).unwrap();
    let path = session.map_or_else(Path::default, Path::session);
    let because = vec![Because { rule: "r1".into(), effect, reason: Some("because".into()) }];
    NewCall {
        id: CallId::new(),
        key: None,
        label: Some("toolu_1".into()),
        argument_digest: argument_digest(&tool, None, &arguments),
        facts: Arc::new(Facts {
            tool,
            toolset: None,
            arguments,
            path,
            declared: Declared::Nothing,
            annotations: None,
            places: Default::default(),
            at: Time(0),
        }),
        description: None,
        definition: None,
        redacted: None,
        raw: None,
        repeat: Repeat::AtMostOnce,
        nonce: Nonce::new(),
        verdict: Arc::new(Verdict {
            effect,
            matched: because.into(),
            terms: Arc::new(Terms::default()),
            hidden: false,
            inside_own: false,
            policy: Arc::clone(Policy::ask_all().version()),
        }),
        hint: Some("the agent's words".into()),
        payload: None,
        refusal: None,
    }
}

pub(super) fn submission(call: NewCall, unasked: Option<Unasked>) -> Op {
    let limits = Arc::default();
    Op::Submit(Box::new(Submission { call, unasked, limits, claim: None, policy: Policy::ask_all() }))
}

fn claimant() -> Claimant {
    Claimant { owner: "node-1".into(), definition: None, lease: Duration::from_secs(30), attempts: 3 }
}

fn asking(fence: u64, dice: &mut Dice) -> Asking {
    let unattended = [None, None, Some(Unasked::Allow), Some(Unasked::Deny)][dice.below(4)];
    Asking {
        hold: HoldId::new(),
        fence,
        hint: None,
        payload: Some(Json::string("sure?")),
        unattended,
        limits: Arc::default(),
    }
}

fn outcome(dice: &mut Dice) -> Outcome {
    match dice.below(3) {
        0 => Outcome::Failed { error: "disk full".into(), refusal: None },
        1 => Outcome::MayHaveApplied { why: "the wire was cut".into() },
        _ => Outcome::Succeeded { output: Json::string("done") },
    }
}

fn resolution() -> Resolution {
    Resolution { r#as: ResolvedAs::Applied, reason: "I looked".into(), by: "ann".into(), at: Time(0) }
}

/// A random answer to a hold: a yes, a no, a yes to be remembered, other arguments, or an answer instead.
fn decision(call: &Call, hold: &HoldRow, dice: &mut Dice) -> Op {
    let remember = Remember::session();
    let approve = |arguments, remember| Answer::Approve { arguments, payload: None, remember };
    let mut edit = None;
    let answer = match dice.below(8) {
        0..=2 => Answer::approve(),
        3 => approve(None, Some(remember)),
        4 => Answer::deny("no"),
        5 => Answer::Respond { response: Json::string("use the other one") },
        _ => {
            let arguments = Json::of(&serde_json::json!({ "to": "staging", "n": dice.below(9) })).unwrap();
            let mut verdict = Verdict::clone(&call.verdict);
            verdict.effect = [Effect::Allow, Effect::Ask][dice.below(2)];
            edit = Some(Edit::of(call, arguments.clone(), verdict));
            approve(Some(arguments), None)
        }
    };
    let who = ["ann", "ben", "cyd"][dice.below(3)];
    let decision = Decision::new(Who::person(who), "test", hold.digest, answer);
    Op::Decide(Box::new(Deciding { edit, ..Deciding::new(hold.id, decision) }))
}
