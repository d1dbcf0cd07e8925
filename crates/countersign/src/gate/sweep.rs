//! The one sweeper: what time brings to calls nobody waits for, and checkpoints.

use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::audit;
use crate::gate::GateError;
use crate::gate::local::Local;
use crate::limits;
use crate::store::{Failure, Op, Store as _};

/// How often the sweeper looks.
const EVERY: Duration = Duration::from_secs(1);
/// How many calls it moves in one go.
const BATCH: usize = 500;

impl Local {
    pub(crate) async fn sweep(&self) -> Result<usize, GateError> {
        let mut moved = 0;
        loop {
            let due = self.store.due(BATCH).await?;
            for call in &due {
                match self.store.run(Op::Tick { call: *call }).await {
                    Ok(_) => moved += 1,
                    Err(Failure::Rejected(_)) => {}
                    Err(Failure::Store(error)) => return Err(error.into()),
                }
            }
            if due.len() < BATCH {
                return Ok(moved);
            }
        }
    }

    pub(crate) async fn checkpoint(&self) -> Result<(), GateError> {
        if let Some(signer) = &self.signer {
            audit::checkpoint(&*self.store, signer).await?;
            self.runs_since_checkpoint.store(0, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Sweeps for as long as the gate lives.
pub(crate) async fn sweep_while_alive(local: Weak<Local>) {
    let mut since_checkpoint = Duration::ZERO;
    loop {
        tokio::time::sleep(EVERY).await;
        since_checkpoint += EVERY;
        let Some(local) = local.upgrade() else { return };
        if let Err(error) = local.sweep().await {
            tracing::warn!(%error, "the sweep failed and will be tried again");
        }
        let many = local.runs_since_checkpoint.load(Ordering::Relaxed) >= limits::CHECKPOINT_EVENTS;
        if many || since_checkpoint >= limits::CHECKPOINT_EVERY {
            since_checkpoint = Duration::ZERO;
            if let Err(error) = local.checkpoint().await {
                tracing::warn!(%error, "the checkpoint failed and will be tried again");
            }
        }
    }
}
