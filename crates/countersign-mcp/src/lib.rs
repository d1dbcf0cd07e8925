//! MCP for Countersign: the only crate that knows the protocol.
//!
//! [`gateway`] stands between an MCP client and an MCP server and puts the gate in front of `tools/call`. Everything
//! else passes byte for byte.

pub mod gateway;
pub mod limits;
