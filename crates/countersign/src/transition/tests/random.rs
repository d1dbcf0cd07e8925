//! Random sequences of steps: what no sequence may do.

use super::world::{TRIES, World, pending, terms};
use super::*;
use crate::call::Repeat;

/// How many steps are taken in all.
const STEPS: usize = 250_000;
/// How many steps one call sees.
const LENGTH: usize = 25;

/// A small generator (SplitMix64), so that a seed tells the whole story.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((z ^ (z >> 31)) % sides as u64).unwrap()
    }
}

fn is_claim(moved: &Moved) -> bool {
    moved.drafts.iter().any(|draft| draft.name == EventName::CallClaimed)
}

/// What one step, accepted or refused, may never do.
fn look(before: &Call, after: &Call, taken: &Result<Moved, Rejection>, story: &str) {
    let Ok(moved) = taken else {
        assert_eq!(after, before, "{story}: a refused step changes nothing");
        return;
    };
    let leased = Call { lease: before.lease.clone(), ..after.clone() };
    let changed = leased != *before || is_claim(moved);
    assert_eq!(!moved.drafts.is_empty(), changed, "{story}: state and log move together");
    if before.state.is_final() {
        assert_eq!(after, before, "{story}: nothing of an ended call changes");
    }
    assert!(after.holds.len() >= before.holds.len(), "{story}: no hold disappears");
    for (earlier, later) in before.holds.iter().zip(after.holds.iter()) {
        assert_eq!((earlier.id, earlier.digest), (later.id, later.digest), "{story}: one hold, one digest");
        if !earlier.is_pending() {
            assert_eq!(earlier, later, "{story}: a closed hold stays as it closed");
        }
    }
    if is_claim(moved) {
        claimed(before, after, story);
    }
}

/// What must be true when a permit can come out.
fn claimed(before: &Call, after: &Call, story: &str) {
    match (&before.lease, &after.lease) {
        (None, Some(lease)) => assert_eq!((lease.fence, lease.attempt), (1, 1), "{story}"),
        (Some(earlier), Some(later)) => {
            assert!(after.repeat.may_run_again(), "{story}: only repeatable calls are claimed again");
            assert!(later.fence > earlier.fence && later.attempt == earlier.attempt + 1, "{story}: the fence grows");
        }
        (_, None) => panic!("{story}: a claim without a lease"),
    }
    let by_rule = after.verdict.effect == Effect::Allow && after.holds.iter().all(HoldRow::in_run);
    let asked = after.holds.iter().rev().find(|hold| !hold.in_run());
    let by_people = asked.is_some_and(|hold| match hold.state {
        HoldState::Approved => hold.decisions.iter().any(|d| matches!(d.answer, Answer::Approve { .. })),
        HoldState::Released => after.grant.is_some(),
        _ => false,
    });
    assert!(by_rule || by_people, "{story}: nothing runs without an allow or an approval");
    if let Some(hold) = asked.filter(|hold| hold.state == HoldState::Approved) {
        let edited = hold.decisions.iter().any(|d| matches!(&d.answer, Answer::Approve { arguments: Some(_), .. }));
        let people: BTreeSet<_> = hold.decisions.iter().map(|decision| &decision.by.id).collect();
        let needed = hold.terms.quorums.iter().map(|quorum| quorum.approvals).max().unwrap_or(1);
        assert!(edited || people.len() >= needed as usize, "{story}: one person is not a quorum");
    }
    assert_eq!(after.digest, after.compute_digest(), "{story}: what runs is what was bound");
}

/// Takes one random step and looks at what came of it; says whether it was a claim.
fn random_step(world: &mut World, dice: &mut Dice, story: &str) -> bool {
    let attempt = TRIES[dice.roll(TRIES.len())];
    // Late steps end most sequences: take them, but rarely.
    if attempt.contains("late") && dice.roll(20) != 0 {
        return false;
    }
    let before = world.call.clone();
    let taken = world.take(attempt);
    look(&before, &world.call, &taken, &format!("{story}, {attempt}"));
    world.now = world.now.after(std::time::Duration::from_secs(dice.roll(40) as u64));
    let due = world.call.due_at().filter(|_| dice.roll(10) == 0);
    world.now = due.unwrap_or(world.now).max(world.now);
    taken.is_ok_and(|moved| is_claim(&moved))
}

/// I1, I2, I4, I13: no sequence of steps reopens, runs twice, runs unapproved, or moves without a record.
#[test]
fn no_sequence_of_steps_breaks_a_promise() {
    let seed = std::env::var("SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(20_260_101);
    println!("seed {seed}, {STEPS} steps");
    let mut dice = Dice(seed);
    let repeats = [Repeat::AtMostOnce, Repeat::Verifiable, Repeat::Idempotent, Repeat::Keyed, Repeat::ReadOnly];
    let start = Time(1_000_000_000);
    let mut claims_in_all = 0;
    for sequence in 0..STEPS / LENGTH {
        let repeat = repeats[dice.roll(repeats.len())];
        let asked = Terms { human_required: dice.roll(4) == 0, ..terms(1 + u32::try_from(dice.roll(2)).unwrap()) };
        let mut world = match dice.roll(4) {
            0 => World::at("allowed"),
            _ => World::of(pending(start, repeat, asked), start),
        };
        let story = |step: usize| format!("seed {seed}, sequence {sequence}, step {step}");
        let claims = (0..LENGTH).filter(|step| random_step(&mut world, &mut dice, &story(*step))).count();
        assert!(claims <= 1 || world.call.repeat.may_run_again(), "{}: claimed {claims} times", story(LENGTH));
        assert!(claims <= 3, "{}: {claims} attempts are over the limit", story(LENGTH));
        claims_in_all += claims;
    }
    assert!(claims_in_all > STEPS / LENGTH / 20, "only {claims_in_all} claims: the walk does not get far enough");
}

/// What a database keeps of a call, its request written only when it asks for something else, is the call.
#[test]
fn the_parts_that_a_database_keeps_make_up_the_call_after_every_step() {
    let mut dice = Dice(20_260_102);
    let start = Time(1_000_000_000);
    let mut rewritten = 0;
    for sequence in 0..1_000 {
        let asked = terms(1 + u32::try_from(dice.roll(2)).unwrap());
        let mut world = World::of(pending(start, Repeat::Keyed, asked), start);
        let mut request = world.call.request_json().unwrap();
        for step in 0..LENGTH {
            let before = world.call.clone();
            random_step(&mut world, &mut dice, "kept");
            if !world.call.asks_the_same_as(&before) {
                request = world.call.request_json().unwrap();
                rewritten += 1;
            }
            let read = Call::from_json(&request, &world.call.standing_json().unwrap()).unwrap();
            assert_eq!(read, world.call, "sequence {sequence}, step {step}");
        }
    }
    assert!(rewritten > 0, "no call ever asked for something else");
}

/// A hold that only one of the two parts knows is damage: nothing of the call is believed.
#[test]
fn a_call_with_half_a_hold_is_not_read() {
    let call = pending(Time(1_000_000_000), Repeat::AtMostOnce, terms(1));
    let without = Call { holds: Arc::default(), ..call.clone() };
    assert!(Call::from_json(&call.request_json().unwrap(), &without.standing_json().unwrap()).is_err());
    assert!(Call::from_json(&without.request_json().unwrap(), &call.standing_json().unwrap()).is_err());
}
