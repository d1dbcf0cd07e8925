//! The agents: submit, wait, claim, act once, report; and take up what others left.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use countersign::call::CallState;
use countersign::hold::HoldState;
use countersign::{CallId, HoldId, Json};
use countersign_api::wire::{Claim, Claimed, Code, NewCall, NewHold, NewOutcome, OutcomeWord};
use serde_json::json;

use super::caller::Caller;
use super::{LEASE, World};

/// How often a tool asks whether its question was answered.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The states from which a call must still go on.
const UNENDED: [CallState; 4] = [CallState::Pending, CallState::Approved, CallState::Allowed, CallState::Executing];

/// One worker of an agent.
struct Worker {
    world: Arc<World>,
    caller: Caller,
    name: String,
}

/// Works until the world drains, then ends what is left.
pub(super) async fn work(world: Arc<World>, caller: Caller, name: String) -> Result<()> {
    let mut worker = Worker { world, caller, name };
    for number in 0_u64.. {
        if worker.world.is_draining() {
            break;
        }
        worker.one_call(number).await?;
        if number % 8 == 7 {
            worker.take_up(CallState::Executing).await?;
        }
    }
    worker.drain().await
}

impl Worker {
    async fn one_call(&mut self, number: u64) -> Result<()> {
        let (tool, repeat) = match self.caller.dice.roll(12) {
            // Nobody answers: the hold expires. Seldom, as its agent waits for it.
            0 => ("fleeting", "at_most_once"),
            1..=6 => ("asked", "at_most_once"),
            7..=9 => ("free", "at_most_once"),
            _ => ("again", "idempotent"),
        };
        let call = self.submit(tool, repeat, number, "").await?;
        // The twin waits beside it: a decision that is remembered releases it.
        let twin = if number % 4 == 1 { Some(self.submit(tool, repeat, number, "-twin").await?) } else { None };
        if self.caller.dice.roll(16) == 0 {
            // Too late is fine.
            let _ = self.caller.ask(|node| async move { node.cancel(call).await }).await;
        }
        for id in [Some(call), twin].into_iter().flatten() {
            self.carry_out(id).await?;
        }
        Ok(())
    }

    /// Submits under a key, so that asking twice is one call.
    async fn submit(&mut self, tool: &str, repeat: &str, number: u64, twin: &str) -> Result<CallId> {
        let new = json!({
            "session": format!("s{}", number % 4),
            "tool": tool,
            "definition": { "description": "Writes a line.", "repeat": repeat },
            "arguments": { "n": number, "by": self.name },
            "key": format!("{}-{number}{twin}", self.name),
        });
        // From its text: the arguments are kept as they are written.
        let new: NewCall = serde_json::from_str(&new.to_string())?;
        let new = &new;
        match self.caller.ask(|node| async move { node.submit(new).await }).await {
            Ok(call) => {
                self.world.records.submitted(call.id)?;
                Ok(call.id)
            }
            Err(code) => bail!("a submission was refused: {code}"),
        }
    }

    /// Waits for the word on a call, and runs it if it may run.
    async fn carry_out(&mut self, id: CallId) -> Result<()> {
        loop {
            match self.caller.ask(|node| async move { node.wait(id, LEASE).await }).await {
                Ok(call) if call.state == CallState::Pending => {}
                Ok(_) => return self.run(id).await,
                Err(code) => bail!("a call cannot be read: {code}"),
            }
        }
    }

    /// Claims a call and runs it. Whoever does not know that the claim is theirs does not run it.
    async fn run(&mut self, id: CallId) -> Result<()> {
        match self.caller.ask(|node| async move { node.claim(id, &Claim::default()).await }).await {
            Ok(claimed) => {
                self.world.records.claimed(&claimed)?;
                self.act(&claimed).await
            }
            Err(Code::AlreadyClaimed | Code::WrongState) => Ok(()),
            Err(code) => bail!("a claim was refused: {code}"),
        }
    }

    /// The tool: some ask first, some need a longer lease, some forget it and answer late.
    async fn act(&mut self, claimed: &Claimed) -> Result<()> {
        let number: u64 = claimed.arguments.field("n").and_then(|n| n.read().ok()).unwrap_or_default();
        if number % 5 == 3 {
            match self.confirm(claimed).await? {
                Some(true) => {}
                Some(false) => return self.report(claimed, OutcomeWord::Failed).await,
                None => return Ok(()),
            }
        }
        self.world.records.act(claimed)?;
        match number % 11 {
            2 => {
                tokio::time::sleep(LEASE / 2).await;
                self.renew(claimed).await;
            }
            // Not for ever: workers who all forget would take the call from each other without end.
            5 if !self.world.is_draining() => tokio::time::sleep(LEASE * 2).await,
            _ => {}
        }
        self.report(claimed, OutcomeWord::Succeeded).await
    }

    /// Asks people from inside the run. None where the run is no longer ours.
    async fn confirm(&mut self, claimed: &Claimed) -> Result<Option<bool>> {
        let hold = NewHold { hint: "go on?".to_owned(), payload: None, fence: claimed.fence, key: None };
        let id = claimed.call;
        let hold = &hold;
        let Ok(opened) = self.caller.ask(|node| async move { node.ask(id, hold).await }).await else { return Ok(None) };
        while self.renew(claimed).await {
            match self.answer(id, opened.id).await? {
                HoldState::Pending => tokio::time::sleep(LOOK_EVERY).await,
                state => return Ok(Some(state == HoldState::Approved)),
            }
        }
        Ok(None)
    }

    async fn answer(&mut self, id: CallId, hold: HoldId) -> Result<HoldState> {
        match self.caller.ask(|node| async move { node.call(id).await }).await {
            Ok(call) => {
                let hold = call.holds.iter().find(|row| row.id == hold);
                Ok(hold.map_or(HoldState::Cancelled, |hold| hold.state))
            }
            Err(code) => bail!("a call cannot be read: {code}"),
        }
    }

    /// Whether the run is still ours.
    async fn renew(&mut self, claimed: &Claimed) -> bool {
        let (id, fence) = (claimed.call, claimed.fence);
        self.caller.ask(|node| async move { node.renew(id, fence).await }).await.is_ok()
    }

    /// Reports how the run ended. A run that others took over is refused.
    async fn report(&mut self, claimed: &Claimed, outcome: OutcomeWord) -> Result<()> {
        let outcome = NewOutcome { outcome, output: Some(Json::string("done")), refusal: None, fence: claimed.fence };
        let (id, said) = (claimed.call, &outcome);
        match self.caller.ask(|node| async move { node.report(id, said).await }).await {
            Ok(_) => self.world.records.reported(id, &outcome),
            Err(Code::StaleFence | Code::WrongState) => Ok(()),
            Err(code) => bail!("an outcome was refused: {code}"),
        }
    }

    /// Tries to run every call of the agent's that is in a state. How many there were.
    async fn take_up(&mut self, state: CallState) -> Result<usize> {
        let word = state.to_string();
        let query: &[(&str, &str)] = &[("state", &word), ("limit", "1000")];
        let Ok(page) = self.caller.ask(|node| async move { node.calls(query).await }).await else {
            bail!("the calls cannot be listed");
        };
        for call in &page.items {
            match state {
                CallState::Pending => {}
                _ => self.run(call.id).await?,
            }
        }
        Ok(page.items.len())
    }

    /// Goes on until every call of the agent's has ended, or is in doubt.
    async fn drain(&mut self) -> Result<()> {
        loop {
            let mut left = 0;
            for state in UNENDED {
                left += self.take_up(state).await?;
            }
            if left == 0 {
                return Ok(());
            }
            tokio::time::sleep(LEASE / 4).await;
        }
    }
}
