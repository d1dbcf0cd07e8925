//! The agent runtime, from outside.

// Helpers of tests are tests too: a panic in them is a failed test.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod models;
