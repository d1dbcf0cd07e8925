//! The toolset against a real server: a process over pipes, and streamable HTTP.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

mod bed;
mod calls;
mod changes;
mod hostile;
mod hostile_peer;
mod losses;
mod waits;
