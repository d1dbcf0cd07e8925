//! Tests of the durable stores.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on is a test that fails")]

mod postgres;
mod sqlite;
