//! Ten thousand readers, in a process of their own: one process may not have both ends of so many connections open.

use std::io::{BufRead as _, Write as _};
use std::net::SocketAddr;
use std::process::Stdio;

use anyhow::{Context as _, Result};
use countersign_api::wire::Role;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use super::http::Http;
use super::{Serving, runtime};

/// Readers that must be connected at once.
pub(super) const CROWD: usize = 10_000;
/// Streams that one credential may have.
const PER_TOKEN: usize = 100;

/// Has a crowd connect to a server. How many of it got in.
pub(super) async fn gather(serving: &Serving) -> Result<usize> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("crowd").arg("--only").arg(serving.address.to_string());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
    let mut stdin = child.stdin.take().context("no pipe to the crowd")?;
    let mut lines = BufReader::new(child.stdout.take().context("no pipe from the crowd")?).lines();
    let mut tokens = String::new();
    for index in 0..CROWD / PER_TOKEN {
        tokens.push_str(&serving.token(Role::Auditor, &format!("crowd-{index}")).await?);
        tokens.push('\n');
    }
    tokio::io::AsyncWriteExt::write_all(&mut stdin, tokens.as_bytes()).await?;
    let connected = lines.next_line().await?.context("the crowd went away")?.parse()?;
    drop(stdin);
    child.wait().await?;
    Ok(connected)
}

/// The crowd: reads its credentials, connects, says how many did, and stays until its input ends.
pub(crate) fn stand(address: &str) -> Result<()> {
    let address: SocketAddr = address.parse()?;
    let mut tokens = std::io::stdin().lock().lines();
    runtime()?.block_on(async {
        let mut readers = Vec::with_capacity(CROWD);
        for token in tokens.by_ref().take(CROWD / PER_TOKEN) {
            let token = token?;
            for _ in 0..PER_TOKEN {
                let Ok(mut http) = Http::connect(address, &token).await else { continue };
                if http.begin_get("/v1/events").await.is_ok() && http.begun().await.is_ok() {
                    readers.push(http);
                }
            }
        }
        let mut stdout = std::io::stdout().lock();
        writeln!(stdout, "{}", readers.len())?;
        stdout.flush()?;
        for line in tokens {
            line?;
        }
        Ok(())
    })
}
