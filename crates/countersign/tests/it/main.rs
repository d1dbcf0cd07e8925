//! Tests of the library through its public door.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout, reason = "tests fail by panicking")]

mod gate;
mod json;
mod seed;
mod text;
