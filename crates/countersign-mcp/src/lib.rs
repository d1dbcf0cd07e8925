//! The tools of MCP servers, behind the gate of Countersign.
//!
//! A [toolset](toolset::McpToolset) connects to a server, over pipes or HTTP, and offers its tools to an agent. What a
//! server says about its tools is a claim: rules and people decide what runs.
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

pub mod limits;
pub mod toolset;

pub use toolset::{ConnectError, LeftOut, McpServer, McpToolset, http, stdio};
