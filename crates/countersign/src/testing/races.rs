//! Races: everybody at once at one hold, and one winner.

use std::sync::Arc;

use tokio::sync::Barrier;

use super::{TestStore, claim, decide, grant_for, proposal, submit};
use crate::call::{Call, CallState};
use crate::event::{Cursor, Event, EventName};
use crate::grant::Grant;
use crate::hold::{Answer, Who};
use crate::limits;
use crate::refusal::{Refusal, RefusalKind};
use crate::store::{Applied, EventFilter, Failure, Op};

/// A small generator (SplitMix64), so that a seed tells the whole story.
pub struct Dice(u64);

impl Dice {
    /// Begins with a seed.
    pub fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    /// A number below `sides`.
    pub fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((z ^ (z >> 31)) % sides as u64).unwrap()
    }
}

/// What one racer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Racer {
    Approve,
    Deny,
    Repeat,
    Cancel,
    Expire,
    Release,
    Revoke,
    Halt,
    Claim,
}

const RACERS: [Racer; 9] = [
    Racer::Approve,
    Racer::Deny,
    Racer::Repeat,
    Racer::Cancel,
    Racer::Expire,
    Racer::Release,
    Racer::Revoke,
    Racer::Halt,
    Racer::Claim,
];

/// Runs races from a seed and checks each. Counts how often each kind of ending won.
///
/// # Panics
///
/// When a hold has no winner or two, a call is claimed twice, or the log does not explain the state.
pub async fn race(store: &dyn TestStore, seed: u64, races: usize) -> Vec<(EventName, usize)> {
    let mut dice = Dice::new(seed);
    let mut endings: Vec<(EventName, usize)> = Vec::new();
    for number in 0..races {
        let story = format!("seed {seed}, race {number}");
        let ending = one_race(store, &mut dice, number, &story).await;
        match endings.iter_mut().find(|(name, _)| *name == ending) {
            Some((_, count)) => *count += 1,
            None => endings.push((ending, 1)),
        }
    }
    endings
}

async fn one_race(store: &dyn TestStore, dice: &mut Dice, number: usize, story: &str) -> EventName {
    let agent = format!("agent-{number}");
    let asked = proposal("deploy", serde_json::json!({ "race": number }), &format!("race-{number}")).agent(&agent);
    let call = submit(store.store().as_ref(), asked).await;
    let grant = grant_for(&call, store.store().now().await.unwrap());
    store.store().run(Op::Grant(Box::new(grant.clone()))).await.unwrap();

    // Somebody always ends it, so that there is a winner to look for.
    let mut racers = vec![[Racer::Approve, Racer::Deny, Racer::Cancel][dice.roll(3)]];
    let most = if dice.roll(8) == 0 { 63 } else { 10 };
    let width = 2 + dice.roll(most);
    racers.extend((1..width).map(|_| RACERS[dice.roll(RACERS.len())]));
    let results = run_together(store, &call, &grant, &agent, &racers).await;

    let store = store.store();
    let lifted = Op::Lift { agent: Some(agent.as_str().into()), by: "op".into() };
    store.run(lifted).await.unwrap();
    let _ = claim(store.as_ref(), call.id, "after the race").await;
    let ended = store.call(call.id).await.unwrap().unwrap();
    let filter = EventFilter { call: Some(call.id), limit: Some(1_000), ..EventFilter::default() };
    let log = store.events(Cursor::default(), filter).await.unwrap();
    let won = results.iter().flatten().filter(|applied| is_permit(applied)).count();
    check(&ended, &log, won, &format!("{story}, {racers:?}"))
}

fn is_permit(applied: &Applied) -> bool {
    applied.call.as_ref().is_some_and(|call| call.state == CallState::Executing)
}

/// Starts all racers at the same moment; answers what the claims among them got.
async fn run_together(
    store: &dyn TestStore,
    call: &Arc<Call>,
    grant: &Grant,
    agent: &str,
    racers: &[Racer],
) -> Vec<Result<Applied, Failure>> {
    let hold = call.open_hold().unwrap().id;
    // The clock is everybody's, and races with them.
    let start = Arc::new(Barrier::new(racers.len() + 1));
    let mut running = Vec::new();
    for (index, racer) in racers.iter().copied().enumerate() {
        let (backend, start, call) = (store.store(), Arc::clone(&start), Arc::clone(call));
        let op = match racer {
            Racer::Approve => decide(&call, &format!("person-{index}"), Answer::approve()),
            Racer::Deny => decide(&call, &format!("person-{index}"), Answer::deny("no")),
            Racer::Repeat => decide(&call, "the same person", Answer::approve()),
            Racer::Cancel => Op::Cancel { call: call.id, refusal: Refusal::new(RefusalKind::Cancelled) },
            Racer::Expire => Op::Tick { call: call.id },
            Racer::Release => Op::Release { hold, grant: grant.id },
            Racer::Revoke => Op::Revoke { grant: grant.id, by: Who::person("op") },
            Racer::Halt => Op::Halt { agent: Some(agent.into()), by: "op".into(), reason: None },
            Racer::Claim => Op::Claim {
                call: call.id,
                claimant: super::claimant(&format!("worker-{index}")),
                policy: crate::Policy::ask_all(),
            },
        };
        running.push(tokio::spawn(async move {
            start.wait().await;
            let result = backend.run(op).await;
            (racer == Racer::Claim).then_some(result)
        }));
    }
    start.wait().await;
    if racers.contains(&Racer::Expire) {
        store.advance(limits::HOLD_LIFE).await;
    }
    let mut claims = Vec::new();
    for racer in running {
        claims.extend(racer.await.unwrap());
    }
    claims
}

/// One closing of the hold, at most one claim, and a log that tells the state.
fn check(call: &Call, log: &[Event], permits: usize, story: &str) -> EventName {
    let names: Vec<EventName> = log.iter().map(|event| event.name).collect();
    let closes = |event: &&Event| match event.name {
        EventName::HoldDecided => event.value()["closes"] == true,
        name => matches!(name, EventName::HoldReleased | EventName::HoldExpired | EventName::HoldCancelled),
    };
    let closings: Vec<&Event> = log.iter().filter(closes).collect();
    assert_eq!(closings.len(), 1, "{story}: one winner: {names:?}");
    let claims = names.iter().filter(|name| **name == EventName::CallClaimed).count();
    assert!(claims <= 1, "{story}: claimed {claims} times: {names:?}");
    assert!(permits <= claims, "{story}: {permits} permits for {claims} claims");
    assert_eq!(told(log), call.state, "{story}: the log explains the state: {names:?}");
    if claims == 1 {
        let closing = closings[0];
        let yes = closing.name == EventName::HoldReleased || closing.value()["answer"] == "approve";
        assert!(yes, "{story}: nothing runs without a yes: {names:?}");
    }
    closings[0].name
}

/// The state a reader of the log would believe in.
fn told(log: &[Event]) -> CallState {
    let mut state = CallState::Denied;
    for event in log {
        let body = event.value();
        state = match event.name {
            EventName::HoldOpened => CallState::Pending,
            EventName::HoldDecided if body["closes"] == true && body["answer"] == "approve" => CallState::Approved,
            EventName::HoldReleased => CallState::Approved,
            EventName::CallRefused if body["kind"] == "expired" => CallState::Expired,
            EventName::CallRefused => CallState::Denied,
            EventName::CallCancelled => CallState::Cancelled,
            EventName::CallLapsed => CallState::Lapsed,
            EventName::CallClaimed => CallState::Executing,
            EventName::CallInDoubt => CallState::InDoubt,
            _ => state,
        };
    }
    state
}

/// A seed from the environment variable `SEED`, or a fixed one.
pub fn seed() -> u64 {
    std::env::var("SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(20_260_101)
}

/// One line that says what was raced and what won.
pub fn report(what: &str, seed: u64, races: usize, endings: &[(EventName, usize)]) -> String {
    let endings: Vec<String> = endings.iter().map(|(name, count)| format!("{name} {count}")).collect();
    format!("{races} races on {what}, seed {seed}: {}", endings.join(", "))
}
