//! `countersign gateway status-server`.

use countersign_mcp::status::StatusServer;

use crate::desk::{Care, Desk};
use crate::fault::Fault;
use crate::settings::Place;

/// Serve a small MCP server of our own: lets a model see which of its calls wait, and how one stands
///
/// It decides nothing and shows no arguments. Add it to a client as a server of its own.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Only calls of the server with this name in rules
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
    #[command(flatten)]
    place: Place,
}

const EXAMPLES: &str = r#"In a client's configuration:
  "countersign": { "command": "countersign", "args": ["gateway", "status-server"] }"#;

/// Serves one client on standard input and output.
pub(crate) async fn run(args: Args) -> Result<(), Fault> {
    let desk = Desk::open(&args.place, Care::Rescue).await?;
    let mut server = StatusServer::new(std::sync::Arc::clone(desk.store()));
    if let Some(name) = &args.server {
        server = server.only(name);
    }
    server.serve((tokio::io::stdin(), tokio::io::stdout())).await.map_err(Fault::failed)
}
