//! The JSON of the API, as its reference page shows it.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

mod docs;
