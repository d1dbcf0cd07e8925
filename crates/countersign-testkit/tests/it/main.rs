//! What the stories say, on every store.

mod races;
mod scenarios;
