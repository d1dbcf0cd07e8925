//! What the tests of Countersign stand on. Dev only; never a dependency of anything that ships.
//!
//! ```no_run
//! use countersign_testkit::TestPostgres;
//!
//! let database = TestPostgres::shared()?.create_database()?;
//! assert!(database.url().starts_with("postgres://"));
//! # anyhow::Ok(())
//! ```

pub mod bindir;
pub mod cluster;
pub mod kill;
pub mod mcp;
pub mod model;
pub mod otlp;
mod postgres;
pub mod scenario;
pub mod stores;
mod supervisor;

/// What the testkit's own traits answer with.
pub use anyhow;
pub use postgres::{Durability, TestDatabase, TestPostgres};
