//! Tests of the library from outside: one binary, a module for each part.

// Helpers of tests are tests too: a panic in them is a failed test.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout)]

mod contract;
mod faults;
mod gate;
mod json;
mod policy;
mod races;
mod seed;
mod text;
