//! What the testkit promises to the tests that stand on it.

mod postgres;
