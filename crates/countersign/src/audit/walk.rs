//! Walks every call through its states, as its events tell them: what the log says must be what a gate can do.
//!
//! This is a second statement of [`transition`](crate::transition), from the outside: where the two disagree, one of
//! them is wrong, or the log is.

use std::collections::HashMap;
use std::fmt;

use crate::audit::body::{AboutCall, Given};
use crate::audit::problem::{Problem, What};
use crate::call::Chain;
use crate::digest::CallDigest;
use crate::event::EventName;
use crate::id::{CallId, HoldId};

/// All calls that have not come to an end.
#[derive(Debug, Default)]
pub(super) struct Walk {
    calls: HashMap<CallId, Walker>,
}

/// How far one call has come.
#[derive(Debug)]
struct Walker {
    chain: Chain,
    /// Its latest event.
    seq: u64,
    stage: Stage,
    /// The bytes that may run, by their digest.
    digest: CallDigest,
    fence: u64,
    open: Vec<OpenHold>,
}

#[derive(Debug)]
struct OpenHold {
    id: HoldId,
    digest: CallDigest,
    in_run: bool,
}

/// Where a call stands. The stages that name an event cannot be the last: their transition wrote it too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Submitted,
    Pending,
    /// Its hold was denied or expired.
    Refusing,
    /// Its hold was withdrawn.
    Withdrawing,
    /// A person answered instead.
    Answering,
    /// An edit puts another hold in this one's place.
    Superseding(HoldId),
    /// The new hold is to open.
    Reopening,
    Allowed,
    Approved,
    Executing,
    /// What the attempt before asked is closed, for another attempt begins.
    Reclaiming,
    InDoubt,
    Over,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stage::Submitted => "submitted and not judged",
            Stage::Pending => "pending",
            Stage::Refusing => "about to be refused",
            Stage::Withdrawing => "about to be withdrawn",
            Stage::Answering => "about to be answered",
            Stage::Superseding(_) => "about to get another hold",
            Stage::Reopening => "without the hold that was to open",
            Stage::Allowed => "allowed",
            Stage::Approved => "approved",
            Stage::Executing => "executing",
            Stage::Reclaiming => "about to be claimed again",
            Stage::InDoubt => "in doubt",
            Stage::Over => "over",
        })
    }
}

impl Stage {
    /// Whether a call may be left like this.
    fn may_rest(self) -> bool {
        match self {
            Stage::Pending | Stage::Allowed | Stage::Approved | Stage::Executing | Stage::InDoubt | Stage::Over => true,
            Stage::Submitted
            | Stage::Refusing
            | Stage::Withdrawing
            | Stage::Answering
            | Stage::Superseding(_)
            | Stage::Reopening
            | Stage::Reclaiming => false,
        }
    }
}

impl Walk {
    /// Whether an event moves a call.
    pub(super) fn concerns(name: EventName) -> bool {
        name.as_str().starts_with("call.") || name.as_str().starts_with("hold.")
    }

    /// Takes one step, or says why no call can take it.
    pub(super) fn step(&mut self, chain: &Chain, seq: u64, name: EventName, about: &AboutCall) -> Result<(), String> {
        let id = about.call;
        if name == EventName::CallSubmitted {
            let walker = Walker {
                chain: chain.clone(),
                seq,
                stage: Stage::Submitted,
                digest: about.digest.ok_or("it was submitted without a digest")?,
                fence: 0,
                open: Vec::new(),
            };
            return match self.calls.insert(id, walker) {
                Some(_) => Err("it was submitted twice".into()),
                None => Ok(()),
            };
        }
        let walker = self.calls.get_mut(&id);
        let walker = walker.ok_or_else(|| format!("`{name}` of a call that was never submitted, or is over"))?;
        if walker.chain != *chain {
            return Err(format!("it began on chain `{}`", walker.chain.0));
        }
        walker.seq = seq;
        walker.take(name, about)?;
        if walker.stage == Stage::Over {
            self.calls.remove(&id);
        }
        Ok(())
    }

    /// No call may be left in the middle of a transition.
    pub(super) fn finish(&self) -> Result<(), Problem> {
        let halfway = self.calls.iter().filter(|(_, walker)| !walker.stage.may_rest());
        match halfway.min_by_key(|(id, _)| **id) {
            None => Ok(()),
            Some((id, walker)) => {
                let why = format!("the log ends while it is {}", walker.stage);
                Err(Problem::event(&walker.chain, walker.seq, What::Walk { call: *id, why }))
            }
        }
    }

    /// How many calls have not come to an end.
    pub(super) fn open_calls(&self) -> u64 {
        self.calls.len() as u64
    }
}

impl Walker {
    fn take(&mut self, name: EventName, about: &AboutCall) -> Result<(), String> {
        match name {
            EventName::HoldOpened => return self.open_hold(about),
            EventName::HoldDecided => return self.decide(about),
            EventName::HoldReleased => return self.close_hold(name, about, Stage::Approved),
            EventName::HoldExpired => return self.close_hold(name, about, Stage::Refusing),
            EventName::HoldCancelled => return self.close_hold(name, about, Stage::Withdrawing),
            EventName::HoldSuperseded if !self.open.is_empty() => return self.supersede_hold(about),
            EventName::CallClaimed => return self.claim(about),
            EventName::CallSucceeded | EventName::CallFailed => self.current_fence(name, about)?,
            _ => {}
        }
        self.stage = self.after(name, about).ok_or_else(|| format!("`{name}` while it was {}", self.stage))?;
        match self.open.first() {
            // What ends a run first closes what the run asked.
            Some(hold) => Err(format!("`{name}` while {} was open", hold.id)),
            None => Ok(()),
        }
    }

    /// Where an event that is about no hold leads.
    fn after(&self, name: EventName, about: &AboutCall) -> Option<Stage> {
        use EventName as E;
        match (self.stage, name) {
            (Stage::Submitted, E::CallAllowed) => Some(Stage::Allowed),
            (Stage::Submitted | Stage::Refusing | Stage::Withdrawing, E::CallRefused) => Some(Stage::Over),
            (Stage::Withdrawing | Stage::Allowed | Stage::Approved, E::CallCancelled) => Some(Stage::Over),
            (Stage::Answering, E::CallAnswered) => Some(Stage::Over),
            (Stage::Superseding(hold), E::HoldSuperseded) if about.hold == Some(hold) => Some(Stage::Reopening),
            (Stage::Allowed | Stage::Approved, E::CallLapsed) => Some(Stage::Over),
            (Stage::Executing, E::CallSucceeded | E::CallFailed) => Some(Stage::Over),
            (Stage::Executing, E::CallInDoubt) => Some(Stage::InDoubt),
            (Stage::InDoubt, E::CallResolved) => Some(Stage::Over),
            _ => None,
        }
    }

    fn open_hold(&mut self, about: &AboutCall) -> Result<(), String> {
        let (Some(id), Some(digest)) = (about.hold, about.digest) else {
            return Err("a hold opened without id or digest".into());
        };
        let in_run = about.in_run == Some(true);
        if self.open.iter().any(|hold| hold.id == id) {
            return Err(format!("{id} opened twice"));
        }
        match (self.stage, in_run) {
            (Stage::Executing, true) => {}
            (Stage::Submitted | Stage::Reopening, false) => {
                self.stage = Stage::Pending;
                self.digest = digest;
            }
            (stage, _) => return Err(format!("{id} opened while it was {stage}")),
        }
        self.open.push(OpenHold { id, digest, in_run });
        Ok(())
    }

    fn decide(&mut self, about: &AboutCall) -> Result<(), String> {
        let (Some(answer), Some(closes)) = (about.answer, about.closes) else {
            return Err("a decision without an answer".into());
        };
        let hold = self.find(EventName::HoldDecided, about)?;
        let (id, in_run) = (hold.id, hold.in_run);
        // SECURITY: a decision counts for exactly the bytes that were shown.
        if about.digest != Some(hold.digest) {
            return Err(format!("the decision about {id} names another digest than the hold"));
        }
        if !closes {
            return if answer == Given::Approve { Ok(()) } else { Err(format!("{id} was decided and stayed open")) };
        }
        self.open.retain(|hold| hold.id != id);
        if in_run {
            return Ok(());
        }
        self.stage = match answer {
            Given::Deny => Stage::Refusing,
            Given::Respond => Stage::Answering,
            Given::Approve if about.after.is_some() && about.runs.is_none() => Stage::Superseding(id),
            Given::Approve => Stage::Approved,
        };
        self.digest = about.runs.unwrap_or(self.digest);
        Ok(())
    }

    /// Closes a hold without a decision. One from inside a run leaves the call where it is.
    fn close_hold(&mut self, name: EventName, about: &AboutCall, then: Stage) -> Result<(), String> {
        let hold = self.find(name, about)?;
        let (id, in_run) = (hold.id, hold.in_run);
        self.open.retain(|hold| hold.id != id);
        if !in_run {
            self.stage = then;
        }
        Ok(())
    }

    /// Closes what the attempt before asked. Only another attempt does so, and it comes at once.
    fn supersede_hold(&mut self, about: &AboutCall) -> Result<(), String> {
        if !matches!(self.stage, Stage::Executing | Stage::Reclaiming) {
            return Err(format!("`{}` while it was {}", EventName::HoldSuperseded, self.stage));
        }
        self.close_hold(EventName::HoldSuperseded, about, Stage::Reclaiming)?;
        self.stage = Stage::Reclaiming;
        Ok(())
    }

    fn find(&self, name: EventName, about: &AboutCall) -> Result<&OpenHold, String> {
        let open = self.open.iter().find(|hold| Some(hold.id) == about.hold);
        let open = open.ok_or_else(|| format!("`{name}` of a hold that never opened, or is closed"))?;
        // A hold before the run is open exactly while the call is pending.
        if open.in_run || self.stage == Stage::Pending {
            return Ok(open);
        }
        Err(format!("`{name}` while it was {}", self.stage))
    }

    fn claim(&mut self, about: &AboutCall) -> Result<(), String> {
        match self.stage {
            Stage::Allowed | Stage::Approved | Stage::Executing | Stage::Reclaiming if self.open.is_empty() => {}
            stage => return Err(format!("it was claimed while it was {stage}")),
        }
        // SECURITY: what runs is what was allowed or approved.
        if about.digest != Some(self.digest) {
            return Err("it was claimed with another digest than was allowed or approved".into());
        }
        if about.fence != Some(self.fence + 1) {
            return Err("its claims are not numbered one by one".into());
        }
        self.fence += 1;
        self.stage = Stage::Executing;
        Ok(())
    }

    fn current_fence(&self, name: EventName, about: &AboutCall) -> Result<(), String> {
        let current = about.fence == Some(self.fence);
        if current { Ok(()) } else { Err(format!("`{name}` of another claim than the current one")) }
    }
}
