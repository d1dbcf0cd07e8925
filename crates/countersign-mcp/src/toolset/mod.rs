//! The tools of an MCP server, as a toolset for agents.
//!
//! Start at [`McpServer`]: how a server is reached and what the operator says about it. Connected, it is an
//! [`McpToolset`]: `link` keeps the connection, `catalogue` knows the tools, `line` carries calls, `wire` the bytes.

mod catalogue;
mod error;
mod line;
mod link;
mod result;
mod server;
pub(crate) mod tool;
mod wire;

use std::fmt;
use std::sync::Arc;

use countersign::{Tool, Toolset};

pub use error::ConnectError;
pub use server::{McpServer, http, stdio};

use catalogue::Catalogue;
use link::Link;

/// The tools of a connected server. Cheap to clone; the server is let go, and a program ended, with the last clone.
///
/// The tools are those the server lists now. One that appears later is offered and judged like any other. One whose
/// definition changes, now or while nobody looked, loses its holds and grants and is not offered until somebody accepts it;
/// one that changed before our eyes is asked about even then, whatever rules allow.
#[derive(Clone)]
pub struct McpToolset {
    catalogue: Arc<Catalogue>,
    link: Arc<Link>,
}

/// A tool that a server lists and nobody is offered, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeftOut {
    /// The operator's name for the server.
    pub server: Arc<str>,
    /// The tool's name, as the server spells it.
    pub tool: Arc<str>,
    /// Why.
    pub why: String,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the tool `{}` of the MCP server `{}` is not offered: {}", self.tool, self.server, self.why)
    }
}

impl McpToolset {
    /// The tools that the server lists and nobody is offered.
    pub fn left_out(&self) -> Vec<LeftOut> {
        self.catalogue.left_out()
    }

    /// Ends when the server has listed its tools once more after this call. For programs that show what is on offer.
    pub fn changed(&self) -> impl Future<Output = ()> + Send + use<> {
        self.link.listed_anew()
    }
}

impl Toolset for McpToolset {
    fn name(&self) -> Arc<str> {
        Arc::clone(self.catalogue.server())
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        self.catalogue.tools()
    }
}

impl fmt::Debug for McpToolset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpToolset").field("server", self.catalogue.server()).finish_non_exhaustive()
    }
}
