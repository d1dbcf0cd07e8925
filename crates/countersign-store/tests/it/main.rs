//! Tests of the durable stores.

mod sqlite;
