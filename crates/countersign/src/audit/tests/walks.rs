//! The walk of a call: what a store writes is a walk, and what is no walk is found though every hash is right.

use std::collections::{BTreeMap, HashSet};

use super::world::World;
use crate::audit::{Problem, Verifier, VerifyOptions, What, verify};
use crate::call::Chain;
use crate::digest::CallDigest;
use crate::event::{Draft, Event, EventName, Head};
use crate::id::{CallId, HoldId};
use crate::json::Json;
use crate::time::Time;

/// I13: whatever the gate can do to calls, its log says so in a way the verifier follows.
#[test]
fn every_log_a_store_writes_is_a_walk() {
    let mut states = HashSet::new();
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    for seed in 0..250 {
        let world = World::lived(seed, 120);
        let file = world.export();
        let report = verify(file.as_slice(), &VerifyOptions::default());
        let report = report.unwrap_or_else(|problem| panic!("seed {seed}: {problem}"));
        let open = world.states().into_iter().filter(|state| !state.is_final()).count() as u64;
        assert!(report.open_calls >= open, "seed {seed}: {} calls are open, and {open} should be", report.open_calls);
        states.extend(world.states());
        for line in String::from_utf8(file).unwrap().lines() {
            let value: serde_json::Value = serde_json::from_str(line).unwrap();
            if let Some(name) = value["body"]["event"].as_str() {
                *names.entry(name.to_owned()).or_default() += 1;
            }
        }
    }
    assert_eq!(states.len(), crate::CallState::ALL.len(), "the random lives reach every state: {states:?}");
    let unreached: Vec<_> = EventName::ALL.iter().filter(|name| !names.contains_key(name.as_str())).collect();
    use EventName::{AccessChanged, GrantRevoked, PolicyLoaded, PolicyRejected, ToolAccepted, ToolChanged, ToolPinned};
    let elsewhere = [GrantRevoked, PolicyLoaded, PolicyRejected, AccessChanged, ToolPinned, ToolChanged, ToolAccepted];
    assert_eq!(unreached, elsewhere.iter().collect::<Vec<_>>(), "and write every event of a call: {names:?}");
}

/// A log somebody made up, with every hash right.
struct Forged {
    head: Head,
    events: Vec<Event>,
    call: CallId,
    hold: HoldId,
}

impl Forged {
    fn new() -> Forged {
        Forged { head: Head::default(), events: Vec::new(), call: CallId::new(), hold: HoldId::new() }
    }

    fn write(&mut self, word: &str) {
        let (name, how) = word.split_once(' ').unwrap_or((word, ""));
        let name: EventName = name.parse().unwrap();
        let digest = CallDigest::of(if how == "other" { b"other" } else { b"shown" });
        let draft = Draft::new(name).call(self.call).plain("digest", digest);
        let draft = if name.as_str().starts_with("hold.") { draft.hold(self.hold) } else { draft };
        let draft = match name {
            EventName::HoldOpened => draft.flag("in_run", how == "in_run"),
            EventName::HoldDecided => {
                let answer = if ["deny", "respond"].contains(&how) { how } else { "approve" };
                let draft = draft.text("answer", answer).flag("closes", how != "first");
                if how == "edit" { draft.json("after", &Json::empty()) } else { draft }
            }
            EventName::CallClaimed | EventName::CallSucceeded | EventName::CallFailed => {
                draft.number("fence", if how == "late" { 2 } else { 1 })
            }
            _ => draft,
        };
        self.events.push(self.head.seal(&Chain("local/s".into()), Time(1), draft));
    }
}

fn check_story(story: &str) -> Result<(), Problem> {
    let mut forged = Forged::new();
    for word in story.split(", ") {
        forged.write(word);
    }
    let mut verifier = Verifier::new(&VerifyOptions::default());
    for event in &forged.events {
        verifier.event(&event.hash, &event.body)?;
    }
    verifier.finish().map(drop)
}

#[track_caller]
fn holds_together(story: &str) {
    check_story(story).unwrap_or_else(|problem| panic!("{story}: {problem}"));
}

#[track_caller]
fn is_no_walk(story: &str, why: &str) {
    let problem = check_story(story).expect_err(story);
    let What::Walk { why: found, .. } = &problem.what else { panic!("{story}: {problem}") };
    assert!(found.contains(why), "{story}: {found}");
    assert_eq!(problem.seq, Some(story.split(", ").count() as u64), "{story}: the last event is the wrong one");
}

/// I13: the ways a call can go.
#[test]
fn stories_that_can_happen_hold_together() {
    holds_together("call.submitted, call.refused");
    holds_together("call.submitted, call.allowed, call.claimed, call.succeeded");
    holds_together("call.submitted, call.allowed, call.claimed, call.in_doubt, call.resolved");
    holds_together("call.submitted, hold.opened, hold.decided first, hold.decided, call.claimed, call.failed");
    holds_together("call.submitted, hold.opened, hold.decided deny, call.refused");
    holds_together("call.submitted, hold.opened, hold.decided respond, call.answered");
    holds_together("call.submitted, hold.opened, hold.decided edit, hold.superseded, hold.opened, hold.released");
    holds_together("call.submitted, hold.opened, hold.expired, call.refused");
    holds_together("call.submitted, hold.opened, hold.cancelled, call.cancelled");
    holds_together("call.submitted, call.allowed, call.claimed, hold.opened in_run, hold.decided deny, call.failed");
    holds_together(
        "call.submitted, call.allowed, call.claimed, hold.opened in_run, hold.superseded, call.claimed late",
    );
}

/// I13, B136: a run that nobody allowed, a second close, a step out of turn: found though every hash is right.
#[test]
fn stories_that_cannot_happen_are_found() {
    is_no_walk("call.allowed", "never submitted");
    is_no_walk("call.submitted, call.submitted", "twice");
    is_no_walk("call.submitted, call.claimed", "claimed while it was submitted");
    is_no_walk("call.submitted, hold.opened, call.claimed", "claimed while it was pending");
    is_no_walk("call.submitted, hold.opened, call.allowed", "while it was pending");
    is_no_walk("call.submitted, hold.opened, hold.decided first, call.claimed", "claimed while it was pending");
    is_no_walk("call.submitted, hold.opened, hold.decided deny, call.claimed", "about to be refused");
    is_no_walk("call.submitted, hold.decided", "never opened");
    is_no_walk("call.submitted, hold.opened, hold.opened", "opened twice");
    is_no_walk("call.submitted, hold.opened, hold.decided, hold.decided", "is closed");
    is_no_walk("call.submitted, hold.opened, hold.decided, hold.expired", "is closed");
    is_no_walk("call.submitted, hold.opened, hold.released, hold.cancelled", "is closed");
    is_no_walk("call.submitted, hold.opened, hold.decided other", "another digest");
    is_no_walk("call.submitted, hold.opened, hold.decided, call.claimed other", "another digest");
    is_no_walk("call.submitted, hold.opened, hold.decided edit, call.claimed", "about to get another hold");
    is_no_walk("call.submitted, call.allowed, hold.opened in_run", "opened while it was allowed");
    is_no_walk("call.submitted, call.allowed, call.succeeded", "another claim");
    is_no_walk("call.submitted, call.allowed, call.claimed late", "numbered one by one");
    is_no_walk("call.submitted, call.allowed, call.claimed, call.failed late", "another claim");
    is_no_walk("call.submitted, call.allowed, call.claimed, call.claimed", "numbered one by one");
    is_no_walk("call.submitted, call.allowed, call.claimed, call.lapsed", "while it was executing");
    is_no_walk("call.submitted, hold.opened, hold.superseded", "while it was pending");
    let reclaimed = "call.submitted, call.allowed, call.claimed, hold.opened in_run, hold.superseded";
    is_no_walk(&format!("{reclaimed}, call.succeeded"), "about to be claimed again");
    is_no_walk("call.submitted, call.allowed, call.claimed, hold.opened in_run, call.succeeded", "was open");
    is_no_walk("call.submitted, call.allowed, call.claimed, call.succeeded, call.failed", "is over");
    is_no_walk("call.submitted, call.allowed, call.claimed, call.resolved", "while it was executing");
    is_no_walk("call.submitted, call.refused, call.claimed", "is over");
}

/// I13: every transition has all of its events; the last of them cannot be missing.
#[test]
fn a_log_that_ends_in_the_middle_of_a_transition_is_found() {
    is_no_walk("call.submitted", "submitted and not judged");
    is_no_walk("call.submitted, hold.opened, hold.decided deny", "about to be refused");
    is_no_walk("call.submitted, hold.opened, hold.decided respond", "about to be answered");
    is_no_walk("call.submitted, hold.opened, hold.expired", "about to be refused");
    is_no_walk("call.submitted, hold.opened, hold.cancelled", "about to be withdrawn");
    is_no_walk("call.submitted, hold.opened, hold.decided edit, hold.superseded", "without the hold");
    is_no_walk(
        "call.submitted, call.allowed, call.claimed, hold.opened in_run, hold.superseded",
        "about to be claimed again",
    );
}
