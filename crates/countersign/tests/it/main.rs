//! Tests of the library through its public door: one binary, a module for each part.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout, reason = "tests fail by panicking")]

mod contract;
mod faults;
mod gate;
mod json;
mod policy;
mod races;
mod seed;
mod text;
