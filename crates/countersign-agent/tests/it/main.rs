//! Tests of the agent through its public door: one binary, a module for each part.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

mod tools;
