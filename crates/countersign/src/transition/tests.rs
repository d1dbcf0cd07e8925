//! The exhaustive walk: every state, every step, good and bad. What the table does not list must be refused and must
//! change nothing.

mod random;
mod table;
mod world;

use std::collections::BTreeSet;

use super::*;
use crate::call::ResolvedAs;
use crate::digest::Nonce;
use crate::hold::Answer;
use crate::limits;
use crate::verdict::{Because, Effect};
use table::{ACCEPTED, GRAPH, Then};
use world::{CASES, TRIES, World};

/// The one place that takes a step and looks at what came of it.
fn check(case: &str, attempt: &str) {
    let mut world = World::at(case);
    let before = world.call.clone();
    let expected = ACCEPTED.iter().find(|row| row.0 == case && row.1 == attempt).map(|row| row.2);
    let taken = world.take(attempt);
    let after = &world.call;
    let at = format!("{case}, {attempt}");
    match (expected, taken) {
        (None, Err(_)) => assert_eq!(*after, before, "{at}: a refused step changes nothing"),
        (None, Ok(moved)) if attempt.starts_with("tick") => {
            assert!(moved.drafts.is_empty(), "{at}: {:?}", moved.drafts);
            assert_eq!(*after, before, "{at}: time alone changes nothing here");
        }
        (None, Ok(moved)) => panic!("{at}: accepted, now {} with {:?}", after.state, moved.drafts),
        (Some(_), Err(rejection)) => panic!("{at}: refused: {rejection}"),
        (Some(Then::Replay), Ok(moved)) => {
            assert!(moved.drafts.is_empty() && moved.grant.is_none(), "{at}: a replay writes nothing");
            assert_eq!(*after, before, "{at}: a replay changes nothing");
        }
        (Some(Then::Longer), Ok(moved)) => {
            assert!(moved.drafts.is_empty(), "{at}: a longer lease is no news");
            assert_eq!(Call { lease: before.lease.clone(), ..after.clone() }, before, "{at}: only the lease changes");
        }
        (Some(Then::Now(state)), Ok(moved)) => {
            assert_eq!(after.state, state, "{at}");
            assert!(!moved.drafts.is_empty(), "{at}: what changes is on record");
            assert_ne!(*after, before, "{at}: what is on record changed something");
        }
    }
    for (earlier, later) in before.holds.iter().zip(after.holds.iter()) {
        assert_eq!((earlier.id, earlier.digest), (later.id, later.digest), "{at}: one hold, one digest, for ever");
    }
}

/// DESIGN section 4, B81: every state × every step does exactly what the table says, and nothing else.
#[test]
fn every_step_from_every_state_does_what_the_graph_allows() {
    for case in CASES {
        for attempt in TRIES {
            check(case, attempt);
        }
    }
    println!("{} states and variants x {} steps", CASES.len(), TRIES.len());
}

/// The table itself is no wider than the graph of the design.
#[test]
fn the_table_stays_inside_the_graph() {
    for (case, attempt, then) in ACCEPTED {
        assert!(CASES.contains(case) && TRIES.contains(attempt), "{case}, {attempt}: no such row");
        let from = World::at(case).call.state;
        let Then::Now(to) = then else { continue };
        let stays = from == *to && matches!(from, CallState::Pending | CallState::Executing);
        assert!(stays || GRAPH.contains(&(from, *to)), "{case}, {attempt}: {from} to {to} is not in the graph");
    }
}

/// No arrow of the graph is without a step that takes it, and no state without a case that starts there.
#[test]
fn every_arrow_of_the_graph_is_walked() {
    let walked: BTreeSet<_> = ACCEPTED
        .iter()
        .filter_map(|(case, _, then)| match then {
            Then::Now(to) => Some((World::at(case).call.state, *to)),
            Then::Replay | Then::Longer => None,
        })
        .collect();
    for arrow in GRAPH {
        assert!(walked.contains(arrow), "{} to {} is never walked", arrow.0, arrow.1);
    }
    let states: BTreeSet<_> = CASES.iter().map(|case| World::at(case).call.state).collect();
    assert_eq!(states, CallState::ALL.into_iter().collect());
}

/// B83: one byte off in the arguments, the nonce, the path or the expiry, and nothing is claimed.
#[test]
fn a_call_that_does_not_match_its_digest_is_never_claimed() {
    let changes: [fn(&mut Call); 4] = [
        |call| call.nonce = Nonce(call.nonce.0 ^ 1),
        |call| Arc::make_mut(&mut call.facts).path.session = Some("other".into()),
        |call| call.argument_digest = ArgumentDigest::of(b"other"),
        |call| Arc::make_mut(&mut call.holds)[0].expires_at = None,
    ];
    for change in changes {
        let mut world = World::at("approved");
        change(&mut world.call);
        assert!(world.take("claim").is_ok());
        assert_eq!(world.call.state, CallState::Lapsed);
        assert_eq!(world.call.refusal.map(|refusal| refusal.kind), Some(RefusalKind::Error));
    }
}
