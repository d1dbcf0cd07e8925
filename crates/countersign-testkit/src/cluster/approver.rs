//! The approvers: look at what waits, and decide it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use countersign::grant::{RememberCovers, RememberScope};
use countersign_api::wire::{Code, Hold, NewDecision, Remember};

use super::World;
use super::caller::Caller;

/// How often an approver looks when nothing waits.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Decides whatever waits, for ever.
pub(super) async fn decide_all(world: Arc<World>, mut caller: Caller) -> Result<()> {
    loop {
        let holds = match caller.ask(|node| async move { node.all_holds(None).await }).await {
            Ok(holds) => holds,
            Err(code) => bail!("the holds cannot be listed: {code}"),
        };
        for hold in &holds {
            decide(&world, &mut caller, hold).await?;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Decides one hold. Asked twice, the same decision is the same one; somebody else may have been faster.
async fn decide(world: &World, caller: &mut Caller, hold: &Hold) -> Result<()> {
    let Some(decision) = decision(hold) else { return Ok(()) };
    let (id, said) = (hold.id, &decision);
    match caller.ask(|node| async move { node.decide(id, said).await }).await {
        Ok(_) => world.records.decided(hold.call, id, &decision),
        Err(Code::HoldClosed | Code::AlreadyDecided | Code::WrongState | Code::Conflict) => Ok(()),
        Err(code) => bail!("a decision was refused: {code}"),
    }
}

/// Three of four are approved, some with memory; the fourth is denied. Some get no answer and expire.
fn decision(hold: &Hold) -> Option<NewDecision> {
    if hold.tool == "fleeting" {
        return None;
    }
    let number: u64 = hold.arguments.field("n").and_then(|n| n.read().ok()).unwrap_or_default();
    Some(match number % 4 {
        0 => NewDecision::deny(hold.digest, Some("no".to_owned())),
        1 if !hold.in_run => {
            let (scope, covers) = (RememberScope::Session, RememberCovers::default());
            let remember = Some(Remember { scope, covers, expires_after: None, uses: Some(1) });
            NewDecision { remember, ..NewDecision::approve(hold.digest) }
        }
        _ => NewDecision::approve(hold.digest),
    })
}
