//! The server, over real connections.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

mod calls;
mod crowd;
mod docs;
mod events;
mod holds;
mod hostile;
mod many;
mod matrix;
mod notify;
mod operate;
mod pages;
mod people;
mod receivers;
mod remote;
mod revoked;
mod saiki;
mod scenarios;
mod sessions;
mod sessions_durable;
mod sessions_stream;
mod stage;
mod stores;
mod tls;
mod tools;
