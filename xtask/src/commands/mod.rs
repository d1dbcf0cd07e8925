//! A file per command: its arguments, whose doc comment is the help, then `run`.

pub(crate) mod api;
pub(crate) mod bench;
pub(crate) mod check;
pub(crate) mod cluster;
pub(crate) mod kill;
pub(crate) mod mcp;
pub(crate) mod python;
pub(crate) mod setup;
pub(crate) mod test;
pub(crate) mod web;
