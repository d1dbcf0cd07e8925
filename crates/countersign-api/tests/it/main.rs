//! The JSON of the API, as its reference page shows it, and a remote gate at a server that speaks it otherwise.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

mod docs;
mod peer;
