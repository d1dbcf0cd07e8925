//! How much a run may take, and asking people for more.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use countersign::call::{Declared, Repeat};
use countersign::{CallState, Definition, Json, Proposal, Running, Tool, ToolError};

use super::Thread;
use super::call::run_to_end;
use crate::agent::RunLimits;
use crate::error::RunError;
use crate::transcript::Spent;

/// Counts what a run takes, all its threads together.
pub(super) struct Meter {
    limits: RunLimits,
    counted: Mutex<Counted>,
    /// One thread asks for more at a time; the others then look again.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Clone, Copy, Default)]
struct Counted {
    spent: Spent,
    extended: [u32; Limit::ALL.len()],
}

#[derive(Clone, Copy)]
enum Limit {
    Turns,
    Tokens,
    MicroDollars,
}

impl Limit {
    const ALL: [Limit; 3] = [Limit::Turns, Limit::Tokens, Limit::MicroDollars];

    fn as_str(self) -> &'static str {
        match self {
            Limit::Turns => "turns",
            Limit::Tokens => "tokens",
            Limit::MicroDollars => "micro_dollars",
        }
    }

    fn of(self, limits: &RunLimits) -> Option<u64> {
        match self {
            Limit::Turns => Some(limits.turns),
            Limit::Tokens => limits.tokens,
            Limit::MicroDollars => limits.micro_dollars,
        }
    }

    fn used(self, spent: &Spent) -> u64 {
        match self {
            Limit::Turns => spent.turns,
            Limit::Tokens => spent.usage.input.saturating_add(spent.usage.output),
            Limit::MicroDollars => spent.usage.micro_dollars,
        }
    }
}

/// A limit that is reached.
struct Reached {
    limit: Limit,
    used: u64,
    step: u64,
    allowed: u64,
    extended: u32,
}

impl Meter {
    pub(super) fn new(limits: RunLimits) -> Meter {
        Meter { limits, counted: Mutex::default(), asking: tokio::sync::Mutex::default() }
    }

    pub(super) fn add(&self, spent: Spent) {
        self.counted().spent += spent;
    }

    pub(super) fn reset(&self) {
        *self.counted() = Counted::default();
    }

    fn reached(&self) -> Option<Reached> {
        let counted = *self.counted();
        Limit::ALL.into_iter().zip(counted.extended).find_map(|(limit, extended)| {
            let step = limit.of(&self.limits)?;
            let allowed = step.saturating_mul(u64::from(extended) + 1);
            let used = limit.used(&counted.spent);
            (used >= allowed).then_some(Reached { limit, used, step, allowed, extended })
        })
    }

    fn extend(&self, limit: Limit) {
        if let Some(extended) = self.counted().extended.get_mut(limit as usize) {
            *extended += 1;
        }
    }

    fn counted(&self) -> std::sync::MutexGuard<'_, Counted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Thread {
    /// Asks people for more where a limit is reached. Without a yes the run ends.
    pub(super) async fn stay_within_limits(&self) -> Result<(), RunError> {
        let meter = &self.run.meter;
        if meter.reached().is_none() {
            return Ok(());
        }
        let _one_at_a_time = meter.asking.lock().await;
        while let Some(reached) = meter.reached() {
            if reached.extended >= meter.limits.extensions || !self.extended(&reached).await? {
                return Err(RunError::Limit { limit: reached.limit.as_str().into(), allowed: reached.allowed });
            }
            meter.extend(reached.limit);
        }
        Ok(())
    }

    /// Whether people let the run go on. The name of the place makes it one question per extension, restart or not.
    async fn extended(&self, reached: &Reached) -> Result<bool, RunError> {
        let name = reached.limit.as_str();
        let tool = ContinueRun::new();
        let arguments = serde_json::json!({"limit": name, "allowed": reached.allowed, "more": reached.step});
        let mut proposal = Proposal::new("continue_run", arguments.to_string())
            .path(self.path())
            .key(format!("more.{name}.{}", reached.extended + 1));
        // What was used by now is no part of the question: after a restart it may be another number.
        proposal.payload = Json::of(&serde_json::json!({"used": reached.used})).ok();
        let call = self.gate.submit(&tool, proposal).await?;
        let call = run_to_end(&self.gate, &tool, call, &self.stillness).await?;
        Ok(call.state == CallState::Succeeded)
    }
}

/// The question whether a run may take more. Only people say yes.
struct ContinueRun(Arc<Definition>);

impl ContinueRun {
    fn new() -> ContinueRun {
        let mut definition = Definition::new("continue_run", "Lets a run go on that has reached one of its limits.");
        definition.hint = Some("The run has reached a limit. Let it go on?".into());
        definition.repeat = Repeat::Idempotent;
        ContinueRun(Arc::new(definition))
    }
}

#[async_trait]
impl Tool for ContinueRun {
    fn definition(&self) -> Arc<Definition> {
        Arc::clone(&self.0)
    }

    fn declares(&self, _arguments: &Json) -> Result<Declared, String> {
        Ok(Declared::MustAsk)
    }

    async fn run(&self, _running: Running) -> Result<Json, ToolError> {
        Ok(Json::string("the run goes on"))
    }
}
