//! The server that the official conformance suite wants, on standard input and output.

use countersign_testkit::mcp::ConformanceFixture;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    ConformanceFixture.serve_stdio().await
}
