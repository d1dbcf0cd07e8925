//! Durable stores for Countersign.

pub mod postgres;
