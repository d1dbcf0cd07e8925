//! Speaks to whichever node answers.

use std::time::Duration;

use countersign::testing::races::Dice;
use countersign_api::client::{Client, ClientError};
use countersign_api::wire::Code;

/// How long to wait after a node gave no answer that counts.
const AGAIN_AFTER: Duration = Duration::from_millis(50);

/// One credential on all nodes.
pub(super) struct Caller {
    nodes: Vec<Client>,
    pub(super) dice: Dice,
}

impl Caller {
    /// Speaks to these nodes.
    pub(super) fn new(nodes: Vec<Client>, dice: Dice) -> Caller {
        Caller { nodes, dice }
    }

    /// Asks one node after the other until one says yes or no.
    ///
    /// Silence and a failed store say neither: what was asked may have been done, so whatever is asked this way must bear
    /// being asked twice.
    pub(super) async fn ask<T, Fut>(&mut self, request: impl Fn(Client) -> Fut) -> Result<T, Code>
    where
        Fut: Future<Output = Result<T, ClientError>>,
    {
        loop {
            let Some(node) = self.nodes.get(self.dice.roll(self.nodes.len())) else { return Err(Code::NotFound) };
            match request(node.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(ClientError::Refused(problem)) if is_definite(problem.code) => return Err(problem.code),
                Err(_) => tokio::time::sleep(AGAIN_AFTER).await,
            }
        }
    }
}

/// Whether a refusal says that nothing was done.
fn is_definite(code: Code) -> bool {
    !matches!(code, Code::Internal | Code::Unavailable | Code::Limit | Code::Unknown)
}
