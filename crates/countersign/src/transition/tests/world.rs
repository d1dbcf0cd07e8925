//! One call, the moment, and every step that can be tried on it.

use std::time::Duration;

use super::*;
use crate::call::{Facts, Path, Repeat, ToolId};
use crate::digest::{CallDigest, argument_digest};
use crate::grant::Remember;
use crate::hold::Who;
use crate::id::CallId;
use crate::verdict::Quorum;

/// Where a walk may start: each state, and its variants that matter.
#[rustfmt::skip]
pub(super) const CASES: &[&str] = &[
    "pending", "half", "must-ask", "superseded", "allowed", "approved", "released", "executing", "asking", "repeatable",
    "unattended", "approved by program", "allowed, again", "in doubt", "went on", "lost while asking", "denied", "denied by ann", "answered", "expired", "cancelled", "lapsed", "succeeded", "failed", "resolved",
];

/// What may be tried.
#[rustfmt::skip]
pub(super) const TRIES: &[&str] = &[
    "tick", "tick late",
    "ann approves", "bo approves", "cy approves late", "ann approves other bytes", "ann approves an unknown hold",
    "ann approves second", "program approves", "ann approves, remembers", "ann approves unjudged",
    "ann edits, allowed", "ann edits, asked", "ann edits, two needed", "ann edits, denied", "bo edits, allowed",
    "ann denies", "bo denies", "ann denies other bytes", "ann denies second", "ann responds", "bo responds",
    "release", "release by other grant", "release late", "close", "close second", "close an unknown hold", "cancel",
    "claim", "claim halted", "claim late", "claim, other definition", "claim, denied now", "claim, asked now", "claim, people now",
    "claim with grant", "claim with revoked grant", "claim again without attempts left",
    "renew", "renew by old fence", "ask", "ask by old fence", "ask, nobody, deny", "ask, nobody, allow", "ask too often",
    "finish ok", "finish failed", "finish without answer", "finish by old fence", "resolve",
];

const LEASE: Duration = Duration::from_secs(30);
const LATE: Duration = Duration::from_secs(24 * 60 * 60);

pub(super) struct World {
    pub(super) call: Call,
    pub(super) now: Time,
    grant: Grant,
}

fn json(text: &str) -> Json {
    Json::arguments(text, &crate::Limits::default()).unwrap()
}

pub(super) fn terms(approvals: u32) -> Terms {
    Terms { quorums: vec![Quorum { approvals, from: Vec::new() }], ..Terms::default() }
}

fn verdict(effect: Effect, terms: Terms) -> Verdict {
    let matched = Arc::from([Because { rule: "r1".into(), effect, reason: None }]);
    let terms = Arc::new(terms);
    Verdict { effect, matched, terms, hidden: false, inside_own: false, policy: "p1".into() }
}

/// A call that a rule has just allowed.
fn allowed(now: Time, repeat: Repeat) -> Call {
    let facts = Facts {
        tool: ToolId::local("deploy"),
        toolset: None,
        arguments: json(r#"{"to":"prod"}"#),
        path: Path::session("s1"),
        declared: Declared::Nothing,
        annotations: None,
        places: Default::default(),
        at: now,
    };
    let mut call = Call {
        id: CallId::new(),
        key: None,
        label: None,
        description: None,
        definition: None,
        redacted: None,
        raw: None,
        repeat,
        argument_digest: argument_digest(&facts.tool, None, &facts.arguments),
        proposed_digest: None,
        digest: CallDigest::from_bytes([0; 32]),
        nonce: Nonce::new(),
        verdict: Arc::new(verdict(Effect::Allow, terms(1))),
        state: CallState::Allowed,
        holds: Arc::default(),
        grant: None,
        unattended: false,
        claim_by: Some(now.after(limits::CLAIM_WITHIN)),
        lease: None,
        outcome: None,
        response: None,
        resolution: None,
        refusal: None,
        created_at: now,
        updated_at: now,
        version: 1,
        facts: Arc::new(facts),
    };
    call.digest = call.compute_digest();
    call
}

/// A call that waits on these terms.
pub(super) fn pending(now: Time, repeat: Repeat, terms: Terms) -> Call {
    let mut call = allowed(now, repeat);
    call.verdict = Arc::new(verdict(Effect::Ask, terms));
    call.claim_by = None;
    open_hold(&mut call, None, None, now);
    call
}

impl World {
    pub(super) fn of(call: Call, now: Time) -> World {
        let asked = Call { verdict: Arc::new(verdict(Effect::Ask, terms(1))), ..call.clone() };
        let grant = Grant::asked_for(&Remember::session(), &asked, HoldId::new(), Who::person("ann"), now).unwrap();
        World { call, now, grant }
    }

    /// Brings a fresh call to where the walk starts.
    pub(super) fn at(case: &str) -> World {
        let now = Time(1_000_000_000);
        let ask = |terms| World::of(pending(now, Repeat::AtMostOnce, terms), now);
        let start = || World::of(allowed(now, Repeat::AtMostOnce), now);
        let running = || ask(terms(1)).after(&["ann approves", "claim"]);
        match case {
            "pending" => ask(terms(1)),
            "half" => ask(terms(2)).after(&["ann approves"]),
            "must-ask" => ask(Terms { human_required: true, ..terms(1) }),
            "superseded" => ask(terms(1)).after(&["ann edits, two needed"]),
            "allowed" => start(),
            "approved" => ask(terms(1)).after(&["ann approves"]),
            "released" => ask(terms(1)).after(&["release"]),
            "executing" => running(),
            "asking" => running().after(&["ask"]),
            "repeatable" => {
                let fresh = World::of(pending(now, Repeat::Idempotent, terms(1)), now);
                let mut world = fresh.after(&["ann approves", "claim", "ask"]);
                world.now = world.now.after(LEASE);
                world
            }
            "unattended" => {
                let mut world = start();
                world.call.unattended = true;
                world.call.verdict = Arc::new(verdict(Effect::Ask, terms(1)));
                world.call.digest = world.call.compute_digest();
                world
            }
            "approved by program" => ask(terms(1)).after(&["program approves"]),
            "allowed, again" => {
                let mut world = World::of(allowed(now, Repeat::Idempotent), now).after(&["claim"]);
                world.now = world.now.after(LEASE);
                world
            }
            "in doubt" => running().after(&["finish without answer"]),
            "went on" => running().after(&["ask", "ann denies second", "finish ok"]),
            "lost while asking" => running().after(&["ask", "tick late"]),
            "denied" => {
                let mut world = start();
                world.call.state = CallState::Denied;
                world.call.refusal = Some(Refusal::new(RefusalKind::DeniedByRule));
                world
            }
            "denied by ann" => ask(terms(1)).after(&["ann denies"]),
            "answered" => ask(terms(1)).after(&["ann responds"]),
            "expired" => ask(terms(1)).after(&["tick late"]),
            "cancelled" => ask(terms(1)).after(&["cancel"]),
            "lapsed" => ask(terms(1)).after(&["ann approves", "tick late"]),
            "succeeded" => running().after(&["finish ok"]),
            "failed" => running().after(&["finish failed"]),
            "resolved" => running().after(&["finish without answer", "finish ok"]),
            other => panic!("no case `{other}`"),
        }
    }

    fn after(mut self, steps: &[&str]) -> World {
        for step in steps {
            self.take(step).unwrap_or_else(|rejection| panic!("{step}: {rejection}"));
        }
        self
    }

    /// Tries one step, by its name.
    pub(super) fn take(&mut self, attempt: &str) -> Result<Moved, Rejection> {
        let (who, what) = attempt.split_once(' ').unwrap_or((attempt, ""));
        match who {
            "ann" | "bo" => self.person(Who::person(who), what),
            "program" => self.person(Who::program("bot"), what),
            "cy" => self.later(|world| world.decide(0, Who::person("cy"), Answer::approve(), None)),
            "claim" | "claim," => self.claims(attempt),
            "finish" | "renew" | "ask" | "ask," => self.executor(attempt),
            "tick" | "release" | "close" | "cancel" | "resolve" => self.others(attempt),
            other => panic!("no step `{other}`"),
        }
    }

    fn person(&mut self, by: Who, what: &str) -> Result<Moved, Rejection> {
        let approve = |arguments, remember| Answer::Approve { arguments, payload: None, remember };
        match what {
            "approves" => self.decide(0, by, Answer::approve(), None),
            "approves second" => self.decide(1, by, Answer::approve(), None),
            "approves an unknown hold" => self.decide(99, by, Answer::approve(), None),
            "approves other bytes" => self.wrong_digest(by, Answer::approve()),
            "approves, remembers" => self.decide(0, by, approve(None, Some(Remember::session())), None),
            "approves unjudged" => self.decide(0, by, approve(Some(json(r#"{"to":"else"}"#)), None), None),
            "edits, allowed" => self.edits(by, verdict(Effect::Allow, terms(1))),
            "edits, asked" => self.edits(by, verdict(Effect::Ask, terms(1))),
            "edits, two needed" => self.edits(by, verdict(Effect::Ask, terms(2))),
            "edits, denied" => self.edits(by, verdict(Effect::Deny, terms(1))),
            "denies" => self.decide(0, by, Answer::deny("no"), None),
            "denies second" => self.decide(1, by, Answer::deny("no"), None),
            "denies other bytes" => self.wrong_digest(by, Answer::deny("no")),
            "responds" => self.decide(0, by, Answer::Respond { response: Json::string("42") }, None),
            other => panic!("no step `{other}`"),
        }
    }

    fn claims(&mut self, attempt: &str) -> Result<Moved, Rejection> {
        let other = Some(DefinitionDigest::of(b"other"));
        let revoked = Grant { revoked: Some((self.now, "ann".into())), ..self.grant.clone() };
        match attempt {
            "claim" => self.claim(|_| {}),
            "claim late" => self.later(|world| world.claim(|_| {})),
            "claim halted" => self.claim(|claiming| claiming.halted = true),
            "claim, other definition" => self.claim(|claiming| claiming.definition = other),
            "claim, denied now" => self.claim(|claiming| claiming.verdict = Some(verdict(Effect::Deny, terms(1)))),
            "claim, asked now" => self.claim(|claiming| claiming.verdict = Some(verdict(Effect::Ask, terms(1)))),
            "claim, people now" => {
                let must_ask = Terms { human_required: true, ..terms(1) };
                self.claim(|claiming| claiming.verdict = Some(verdict(Effect::Ask, must_ask)))
            }
            "claim with grant" => self.claim_with(&self.grant.clone()),
            "claim with revoked grant" => self.claim_with(&revoked),
            "claim again without attempts left" if self.call.lease.is_none() => Err(Rejection::Conflict),
            "claim again without attempts left" => self.claim(|claiming| claiming.attempts = 1),
            other => panic!("no step `{other}`"),
        }
    }

    fn executor(&mut self, attempt: &str) -> Result<Moved, Rejection> {
        let fence = self.call.lease.as_ref().map_or(0, |lease| lease.fence);
        let old = fence.wrapping_sub(1);
        let ok = Outcome::Succeeded { output: Json::string("done") };
        match attempt {
            "renew" => self.step(&Step::Renew { fence, lease: LEASE * 2 }),
            "renew by old fence" => self.step(&Step::Renew { fence: old, lease: LEASE * 2 }),
            "ask" => self.ask(fence, None, 100),
            "ask by old fence" => self.ask(old, None, 100),
            "ask, nobody, deny" => self.ask(fence, Some(Unasked::Deny), 100),
            "ask, nobody, allow" => self.ask(fence, Some(Unasked::Allow), 100),
            "ask too often" => self.ask(fence, None, 0),
            "finish ok" => self.step(&Step::Finish { fence, outcome: &ok }),
            "finish by old fence" => self.step(&Step::Finish { fence: old, outcome: &ok }),
            "finish failed" => {
                self.step(&Step::Finish { fence, outcome: &Outcome::Failed { error: "no".into(), refusal: None } })
            }
            "finish without answer" => {
                self.step(&Step::Finish { fence, outcome: &Outcome::MayHaveApplied { why: "cut".into() } })
            }
            other => panic!("no step `{other}`"),
        }
    }

    fn others(&mut self, attempt: &str) -> Result<Moved, Rejection> {
        let grant = self.grant.clone();
        let lasting = Grant { expires_at: Time(i64::MAX), ..grant.clone() };
        let foreign = Grant { principal: "somebody".into(), ..grant.clone() };
        let refusal = Refusal::new(RefusalKind::Error);
        let (first, second) = (self.hold(0).0, self.hold(1).0);
        match attempt {
            "tick" => self.step(&Step::Tick),
            "tick late" => self.later(|world| world.step(&Step::Tick)),
            "release" => self.step(&Step::Release { hold: first, grant: &grant }),
            "release late" => self.later(|world| world.step(&Step::Release { hold: first, grant: &lasting })),
            "release by other grant" => self.step(&Step::Release { hold: first, grant: &foreign }),
            "close" => self.step(&Step::Close { hold: first, refusal: &refusal }),
            "close second" => self.step(&Step::Close { hold: second, refusal: &refusal }),
            "close an unknown hold" => self.step(&Step::Close { hold: HoldId::new(), refusal: &refusal }),
            "cancel" => self.step(&Step::Cancel { refusal: &Refusal::new(RefusalKind::Cancelled) }),
            "resolve" => {
                let (reason, by) = ("I looked".to_owned(), "ann".into());
                let resolution = Resolution { r#as: ResolvedAs::Applied, reason, by, at: self.now };
                self.step(&Step::Resolve { resolution: &resolution })
            }
            other => panic!("no step `{other}`"),
        }
    }

    fn step(&mut self, step: &Step<'_>) -> Result<Moved, Rejection> {
        super::step(&mut self.call, step, self.now)
    }

    /// Takes a step a day from now, without anybody having let time pass first.
    fn later(&mut self, take: impl FnOnce(&mut World) -> Result<Moved, Rejection>) -> Result<Moved, Rejection> {
        let now = self.now;
        self.now = now.after(LATE);
        let taken = take(self);
        self.now = now;
        taken
    }

    fn hold(&self, index: usize) -> (HoldId, CallDigest) {
        let none = (HoldId::new(), self.call.digest);
        self.call.holds.get(index).map_or(none, |hold| (hold.id, hold.digest))
    }

    fn decide(&mut self, index: usize, by: Who, answer: Answer, edit: Option<Edit>) -> Result<Moved, Rejection> {
        let (hold, digest) = self.hold(index);
        let decision = Decision::new(by, "test", digest, answer);
        self.step(&Step::Decide(&Deciding { edit, ..Deciding::new(hold, decision) }))
    }

    fn wrong_digest(&mut self, by: Who, answer: Answer) -> Result<Moved, Rejection> {
        let hold = self.hold(0).0;
        let decision = Decision::new(by, "test", CallDigest::of(b"other bytes"), answer);
        self.step(&Step::Decide(&Deciding::new(hold, decision)))
    }

    fn edits(&mut self, by: Who, verdict: Verdict) -> Result<Moved, Rejection> {
        let arguments = json(r#"{"to":"test"}"#);
        let answer = Answer::Approve { arguments: Some(arguments.clone()), payload: None, remember: None };
        let edit = Edit::of(&self.call, arguments, verdict);
        self.decide(0, by, answer, Some(edit))
    }

    fn claim(&mut self, change: impl FnOnce(&mut Claiming<'_>)) -> Result<Moved, Rejection> {
        let (owner, definition, verdict, grant) = ("worker".into(), None, None, None);
        let mut claiming = Claiming { owner, definition, verdict, grant, halted: false, lease: LEASE, attempts: 3 };
        change(&mut claiming);
        super::step(&mut self.call, &Step::Claim(&claiming), self.now)
    }

    fn claim_with(&mut self, grant: &Grant) -> Result<Moved, Rejection> {
        let (owner, definition, verdict, grant) = ("worker".into(), None, None, Some(grant));
        let claiming = Claiming { owner, definition, verdict, grant, halted: false, lease: LEASE, attempts: 3 };
        super::step(&mut self.call, &Step::Claim(&claiming), self.now)
    }

    fn ask(&mut self, fence: u64, unattended: Option<Unasked>, most: usize) -> Result<Moved, Rejection> {
        let (hint, payload) = (Some("go on?".into()), Some(json(r#"{"rows":9}"#)));
        let limits = Arc::new(Limits { holds_per_call: most, ..Limits::default() });
        let asking = &Asking { hold: HoldId::new(), fence, hint, payload, unattended, limits };
        self.step(&Step::Ask { asking, full: None })
    }
}
