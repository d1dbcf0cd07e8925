//! The command as scripts and people use it: the real binary, real files, a real terminal.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

mod audit;
mod bed;
mod demo;
#[cfg(unix)]
mod demo_inbox;
mod faults;
#[cfg(unix)]
mod gateway;
#[cfg(unix)]
mod gateway_peer;
mod operate;
mod policy;
mod run;
#[cfg(unix)]
mod run_terminal;
#[cfg(unix)]
mod serve;
#[cfg(unix)]
mod terminal;
mod trust;
