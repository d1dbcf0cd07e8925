//! The locks our own waiting is built on. Tests put another implementation in this place to try every schedule.

pub(crate) use std::sync::{Arc, Mutex};
