//! The approval server.
