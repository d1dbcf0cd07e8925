//! A small MCP server for tests: `mcp-fixture stdio FOLDER [handshake]`.

use std::env;

use anyhow::Result;
use countersign_testkit::mcp::McpFixture;

#[tokio::main]
async fn main() -> Result<()> {
    let words: Vec<String> = env::args().skip(1).collect();
    McpFixture::from_words(&words.join(" "))?.serve_stdio().await
}
