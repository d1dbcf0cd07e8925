//! Every bound of the gateway, in one place.

use std::time::Duration;

/// Bytes of one message of the client's.
pub const CLIENT_MESSAGE_BYTES: usize = 4 * 1024 * 1024;
/// Bytes of one message of the server's; results may carry pictures. A server that sends more is stopped.
pub const SERVER_MESSAGE_BYTES: usize = 32 * 1024 * 1024;
/// Bytes of one line of the server's standard error that are told; the rest of the line is left out.
pub const TOLD_BYTES: usize = 4 * 1024;
/// Calls of one client that may be in hand at once.
pub const CALLS: usize = 4_096;
/// Tools of one server that are known.
pub const TOOLS: usize = 10_000;
/// Pages of a listing that are asked for.
pub const PAGES: usize = 200;
/// How long the gateway's own listing of tools may take; a call waits for it.
pub const LIST_WITHIN: Duration = Duration::from_secs(20);
/// How long a held call keeps its client waiting: just under the 60 seconds at which common clients give up.
pub const WAIT: Duration = Duration::from_secs(50);
/// How often a waiting client is told that its call still waits.
pub const HEARTBEAT: Duration = Duration::from_secs(5);
/// How long a server may take to answer a call.
pub const RUN_WITHIN: Duration = Duration::from_secs(15 * 60);
/// How long a hold without a caller stays open, and an outcome that nobody got is kept.
pub const LINGER: Duration = Duration::from_secs(10 * 60);
/// How long a server may still answer a call that its client cancelled.
pub const CANCEL_WITHIN: Duration = Duration::from_secs(5);
/// How long running calls may go on once the client has left, and then how long the server may take to end.
pub const LEAVE_WITHIN: Duration = Duration::from_secs(5);
