//! Tests of the audit trail, on logs that a store really wrote.

mod hostile;
mod promises;
mod stores;
mod tampering;
mod walks;
mod world;
