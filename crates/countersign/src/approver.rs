//! Approvers: whoever decides. In blocking style a function is asked and its answer is the decision.

use std::collections::VecDeque;
use std::future::Future;
use std::ops::Deref;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;

use crate::call::Call;
use crate::hold::{Answer, Decision, HoldRow, Who};
use crate::id::HoldId;

/// An open hold together with its call: everything an approver is shown.
#[derive(Clone, Debug)]
pub struct Hold {
    /// The call that waits.
    pub call: Arc<Call>,
    hold: HoldRow,
}

impl Hold {
    /// The hold of a call, by its id.
    pub fn of(call: &Arc<Call>, hold: HoldId) -> Option<Hold> {
        let found = call.holds.iter().find(|found| found.id == hold)?;
        Some(Hold { call: Arc::clone(call), hold: found.clone() })
    }

    /// A decision on exactly what this hold shows.
    pub fn decision(&self, by: Who, channel: &str, answer: Answer) -> Decision {
        Decision::new(by, channel, self.hold.digest, answer)
    }
}

impl Deref for Hold {
    type Target = HoldRow;
    fn deref(&self) -> &HoldRow {
        &self.hold
    }
}

/// Whoever is asked when a hold opens.
///
/// An error, a panic or a dropped future never lets a call run and never counts as a person's denial. Code that blocks
/// cannot defeat expiry or cancellation: each question is put on a thread of its own.
#[async_trait]
pub trait Approver: Send + Sync {
    /// Answers one hold.
    async fn ask(&self, hold: Hold) -> Result<Answer, String>;

    /// As whom the answers are recorded.
    fn who(&self) -> Who {
        Who::program("program:approver")
    }
}

/// An approver made from a function, answering as somebody.
pub struct FnApprover<F> {
    who: Who,
    ask: F,
}

impl<F> FnApprover<F> {
    /// Answers are recorded as this person's or program's.
    pub fn new(who: Who, ask: F) -> FnApprover<F> {
        FnApprover { who, ask }
    }
}

#[async_trait]
impl<F, Fut> Approver for FnApprover<F>
where
    F: Fn(Hold) -> Fut + Send + Sync,
    Fut: Future<Output = Result<Answer, String>> + Send,
{
    async fn ask(&self, hold: Hold) -> Result<Answer, String> {
        (self.ask)(hold).await
    }

    fn who(&self) -> Who {
        self.who.clone()
    }
}

/// Answers from a prepared list, in order; for tests and scripts. When the list is empty it errs.
pub struct ScriptedApprover {
    who: Who,
    answers: Mutex<VecDeque<Answer>>,
}

impl ScriptedApprover {
    /// Will give these answers as this person or program.
    pub fn new(who: Who, answers: impl IntoIterator<Item = Answer>) -> ScriptedApprover {
        ScriptedApprover { who, answers: Mutex::new(answers.into_iter().collect()) }
    }
}

#[async_trait]
impl Approver for ScriptedApprover {
    async fn ask(&self, _hold: Hold) -> Result<Answer, String> {
        let next = self.answers.lock().map_err(|error| error.to_string())?.pop_front();
        next.ok_or_else(|| "the script has no more answers".to_owned())
    }

    fn who(&self) -> Who {
        self.who.clone()
    }
}
