//! The agent runtime, from outside.

// Helpers of tests are tests too: a panic in them is a failed test.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod bed;
mod compared;
mod kill;
mod loop_agents;
mod loop_basics;
mod loop_batches;
mod loop_client;
mod loop_durable;
mod loop_limits;
mod loop_offers;
mod loop_restart;
mod loop_stream;
mod loop_team;
mod loop_time;
mod models;
mod tools;
