//! What tests of stores and gates stand on. Behind the feature `testing`.

mod fault;

pub use fault::{Fault, FaultStore, op_name};
