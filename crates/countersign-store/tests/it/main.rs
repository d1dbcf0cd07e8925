//! What the durable stores promise.

mod postgres;
mod sqlite;
