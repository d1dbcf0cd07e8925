//! The line to a server: who is at the other end now, and how a call is made.

use std::sync::Arc;
use std::time::Duration;

use countersign::{Json, ToolError};
use rmcp::model::{CallToolRequest, CallToolRequestParams, ClientRequest, ServerResult};
use rmcp::service::{Peer, PeerRequestOptions};
use rmcp::{RoleClient, ServiceError};
use tokio::sync::watch;

use super::error::{causes, clipped, words};
use super::result;
use super::wire::{Failure, Ticket};
use crate::limits;

/// Who is at the other end of the line.
#[derive(Clone)]
pub(super) enum Other {
    /// A server, and how many there were before it.
    There { peer: Peer<RoleClient>, round: u64 },
    /// Nobody, for this reason.
    Nobody(Arc<str>),
}

/// Carries calls to a server.
pub(super) struct Line {
    other: watch::Receiver<Other>,
    broken: watch::Sender<u64>,
    call_within: Duration,
    result_bytes: usize,
}

impl Line {
    pub(super) fn new(
        other: watch::Receiver<Other>,
        broken: watch::Sender<u64>,
        call_within: Duration,
        result_bytes: usize,
    ) -> Line {
        Line { other, broken, call_within, result_bytes }
    }

    /// Calls a tool with exactly these bytes.
    ///
    /// A call that never left us is tried once more after the server was connected to anew; one that may have arrived
    /// is never sent again: without an answer it is in doubt.
    pub(super) async fn call(&self, tool: &Arc<str>, arguments: &Json) -> Result<Json, ToolError> {
        let (round, peer) = self.other_end(0).await?;
        match self.attempt(&peer, tool, arguments).await {
            Ok(answer) => result::of(answer, self.result_bytes),
            Err(Missed::Answered(error)) => Err(error),
            Err(Missed::NeverSent(_)) => {
                self.broken.send_replace(round);
                let (_, peer) = self.other_end(round).await?;
                match self.attempt(&peer, tool, arguments).await {
                    Ok(answer) => result::of(answer, self.result_bytes),
                    Err(Missed::Answered(error)) => Err(error),
                    Err(Missed::NeverSent(why)) => Err(never_sent(&why)),
                }
            }
        }
    }

    /// Who is there, later than the given round.
    async fn other_end(&self, after: u64) -> Result<(u64, Peer<RoleClient>), ToolError> {
        let mut other = self.other.clone();
        let there = |other: &Other| matches!(other, Other::There { round, .. } if *round > after);
        let found = tokio::time::timeout(limits::BACK_WITHIN, other.wait_for(there)).await;
        match found {
            Ok(Ok(found)) => match &*found {
                Other::There { peer, round } => Ok((*round, peer.clone())),
                Other::Nobody(why) => Err(never_sent(why)),
            },
            Ok(Err(_)) => Err(never_sent("the toolset was closed")),
            Err(_) => match &*self.other.borrow() {
                Other::There { .. } => Err(never_sent("it does not take calls")),
                Other::Nobody(why) => Err(never_sent(why)),
            },
        }
    }

    async fn attempt(
        &self,
        peer: &Peer<RoleClient>,
        tool: &Arc<str>,
        arguments: &Json,
    ) -> Result<ServerResult, Missed> {
        let typed = arguments.read().map_err(|error| Missed::Answered(ToolError::Failed(error.to_string())))?;
        let ticket = Held(Ticket::new(arguments.clone()));
        let mut request = CallToolRequest::new(CallToolRequestParams::new(tool.to_string()).with_arguments(typed));
        request.extensions.insert(ticket.0.clone());
        let options = PeerRequestOptions::with_timeout(self.call_within);
        let asked = async {
            let request = peer.send_request_with_option(ClientRequest::CallToolRequest(request), options).await?;
            request.await_response().await
        };
        // The inner time limit tells the server; the outer one is for a line that is stuck before that.
        let answer = tokio::time::timeout(self.call_within + limits::END_WITHIN, asked).await;
        let answer = answer.unwrap_or(Err(ServiceError::Timeout { timeout: self.call_within }));
        answer.map_err(|error| missed(&error, &ticket.0))
    }
}

/// Withdraws a call when whoever made it goes away before it is sent.
struct Held(Ticket);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.withdraw();
    }
}

/// Why there is no result.
enum Missed {
    /// The server has not seen the call and never will.
    NeverSent(String),
    /// It answered, or it may have seen the call and did not.
    Answered(ToolError),
}

fn missed(error: &ServiceError, ticket: &Ticket) -> Missed {
    if let ServiceError::McpError(error) = error {
        let said = countersign::show::escape(&error.message);
        return Missed::Answered(ToolError::Failed(clipped(&format!("the server refused the call: {said}"))));
    }
    let why = match error {
        ServiceError::TransportClosed => "the server went away".to_owned(),
        ServiceError::Timeout { timeout } => format!("the server did not answer within {} s", timeout.as_secs_f64()),
        ServiceError::UnexpectedResponse => "the server answered with something that is no result".to_owned(),
        error => words(error),
    };
    match ticket.withdraw() {
        true if refused(error) => Missed::Answered(never_sent(&why)),
        true => Missed::NeverSent(why),
        false => Missed::Answered(ToolError::NoAnswer(why)),
    }
}

/// Whether the server is there and would not take the call. Connecting anew would only disturb the calls of others.
fn refused(error: &ServiceError) -> bool {
    causes(error).any(|cause| matches!(cause.downcast_ref(), Some(Failure::HttpStatus(_))))
}

fn never_sent(why: &str) -> ToolError {
    ToolError::Failed(format!("the server was not reached, so nothing was done: {why}"))
}
