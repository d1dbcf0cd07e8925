//! Calls one tool with the Rust SDK: `mcp-client TOOL ARGUMENTS -- COMMAND…`. Prints what came of it as a line of JSON.
#![allow(clippy::print_stdout, reason = "what it prints is what it is for")]

use std::process::Stdio;

use anyhow::{Context as _, Result};
use rmcp::ServiceExt as _;
use rmcp::model::CallToolRequestParams;
use serde_json::json;
use tokio::process::Command;

#[tokio::main]
async fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [tool, arguments, _, program, rest @ ..] = words.as_slice() else {
        anyhow::bail!("usage: mcp-client TOOL ARGUMENTS -- COMMAND…");
    };
    let mut command = Command::new(program);
    let mut child = command.args(rest).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let pipes = (child.stdout.take().context("no output")?, child.stdin.take().context("no input")?);
    let client = ().serve(pipes).await.context("the handshake failed")?;
    let tools = client.list_all_tools().await?;
    let params = CallToolRequestParams::new(tool.clone()).with_arguments(serde_json::from_str(arguments)?);
    let result = client.call_tool(params).await?;
    let names: Vec<&str> = tools.iter().map(|tool| &*tool.name).collect();
    println!("{}", json!({ "tools": names, "result": result }));
    client.cancel().await?;
    child.wait().await?;
    Ok(())
}
