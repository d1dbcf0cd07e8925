//! MCP for Countersign: the only crate that knows the protocol.
//!
//! A [toolset](toolset::McpToolset) connects to a server, over pipes or HTTP, and offers its tools to an agent. What a
//! server says about its tools is a claim: rules and people decide what runs. [`gateway`] stands between an MCP client and
//! an MCP server and puts the gate in front of `tools/call`; everything else passes byte for byte. [`status`] lets a model
//! look at what waits.
//!
//! ```no_run
//! # async fn connect(gate: &countersign::Gate) -> Result<(), countersign_mcp::ConnectError> {
//! let files = countersign_mcp::stdio("files", ["npx", "-y", "@modelcontextprotocol/server-filesystem", "."])
//!     .asks_first()
//!     .connect(gate)
//!     .await?;
//! for left_out in files.left_out() {
//!     eprintln!("{left_out}");
//! }
//! # Ok(()) }
//! ```

mod events;
pub mod gateway;
pub mod limits;
pub mod status;
pub mod toolset;

pub use toolset::{ConnectError, LeftOut, McpServer, McpToolset, http, stdio};
