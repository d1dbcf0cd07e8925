//! What takes more than one crate to prove: stories and races on every store, kills, and schedules of the bell; and the
//! throw-away PostgreSQL that all of them use.

// Helpers of tests are tests too: a panic in them is a failed test.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout)]

/// The library's bell, built on locks that try every schedule.
#[allow(dead_code, missing_docs, unreachable_pub, reason = "the library's own file, seen from here")]
#[path = "../../../countersign/src/bell.rs"]
mod bell;
mod kill;
mod postgres;
mod races;
mod scenarios;
mod schedules;

/// What the bell is built on here.
mod sync {
    pub(crate) use shuttle::sync::{Arc, Mutex};
}
