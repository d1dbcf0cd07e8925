//! Messages over pipes: one a line.

use std::io;
use std::sync::{Arc, OnceLock};

use rmcp::RoleClient;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::Mutex;

use super::child::Running;
use super::{encode, ticket_of};
use crate::limits;

/// The pipes of a program that speaks MCP.
pub(crate) struct Pipes {
    input: Arc<Mutex<Option<ChildStdin>>>,
    output: BufReader<ChildStdout>,
    /// The line so far. Kept here because reading may be given up between two pieces.
    line: Vec<u8>,
    strays: usize,
    cut_off: Arc<OnceLock<&'static str>>,
}

impl Pipes {
    pub(crate) fn new(running: Running) -> Pipes {
        let input = Arc::new(Mutex::new(Some(running.input)));
        let output = BufReader::new(running.output);
        Pipes { input, output, line: Vec::new(), strays: 0, cut_off: running.cut_off }
    }

    /// The next line, without its end. None at the end of the output, and at a line that is too long.
    async fn line(&mut self) -> Option<Vec<u8>> {
        loop {
            let piece = self.output.fill_buf().await.ok().filter(|piece| !piece.is_empty())?;
            let end = piece.iter().position(|byte| *byte == b'\n');
            let (text, taken) = match end {
                Some(end) => (piece.get(..end)?, end + 1),
                None => (piece, piece.len()),
            };
            if self.line.len() + text.len() > limits::MESSAGE_BYTES {
                let _ = self.cut_off.set("it sent a message that is too long");
                return None;
            }
            self.line.extend_from_slice(text);
            self.output.consume(taken);
            if end.is_some() {
                return Some(std::mem::take(&mut self.line));
            }
        }
    }
}

impl Transport<RoleClient> for Pipes {
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        let input = Arc::clone(&self.input);
        async move {
            let mut text = encode(&message)?;
            text.push(b'\n');
            let mut input = input.lock().await;
            let input = input.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
            // SECURITY: asked for with the pipe in hand, so that nothing lies between the answer and the first byte.
            if ticket_of(&message).is_some_and(|ticket| !ticket.take()) {
                return Err(io::Error::other("the call was withdrawn"));
            }
            input.write_all(&text).await?;
            input.flush().await
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        while self.strays <= limits::STRAY_LINES {
            let line = self.line().await?;
            match serde_json::from_slice(&line) {
                Ok(message) => {
                    self.strays = 0;
                    return Some(message);
                }
                Err(_) => self.strays += 1,
            }
        }
        let _ = self.cut_off.set("it writes what is no MCP to its output");
        None
    }

    async fn close(&mut self) -> Result<(), io::Error> {
        // The end of its input tells a server to end.
        self.input.lock().await.take();
        Ok(())
    }
}
