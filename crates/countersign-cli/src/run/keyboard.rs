//! Lines from standard input as they come, read only while one is wanted.
//!
//! A reader that waits on a thread of its own would take the keys that a question is waiting for. This one waits for
//! the input to be readable and can be dropped at any moment.

use std::io;
use std::os::fd::AsFd as _;

use countersign_agent::limits::USER_BYTES;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Standard input, line by line.
#[derive(Default)]
pub(crate) struct Keyboard {
    bytes: Vec<u8>,
    ended: bool,
}

impl Keyboard {
    /// The next line without its end; none once there is no more. Dropping the future loses nothing that was read.
    pub(crate) async fn line(&mut self) -> io::Result<Option<String>> {
        loop {
            if let Some(end) = self.bytes.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.bytes.drain(..=end).collect();
                return Ok(Some(text(&line)));
            }
            if self.ended {
                let rest = std::mem::take(&mut self.bytes);
                return Ok((!rest.is_empty()).then(|| text(&rest)));
            }
            self.more().await?;
        }
    }

    /// Everything there is until the end.
    pub(crate) async fn rest(&mut self) -> io::Result<String> {
        while !self.ended {
            self.more().await?;
        }
        Ok(text(&std::mem::take(&mut self.bytes)))
    }

    /// Forgets a line that was begun, and lines that were typed ahead of a question.
    pub(crate) fn forget(&mut self) {
        self.bytes.clear();
    }

    async fn more(&mut self) -> io::Result<()> {
        if self.bytes.len() > USER_BYTES {
            return Err(io::Error::other(format!("more than {USER_BYTES} bytes were typed at once")));
        }
        let stdin = io::stdin();
        // A plain file cannot be waited for, and need not be.
        #[expect(deprecated, reason = "its successor is unsafe code; standard input outlives this borrow")]
        if let Ok(input) = AsyncFd::with_interest(stdin.as_fd(), Interest::READABLE) {
            let _ready = input.readable().await?;
        }
        let mut piece = [0; 4096];
        match rustix::io::read(&stdin, &mut piece) {
            Ok(0) => self.ended = true,
            Ok(length) => self.bytes.extend(piece.iter().take(length)),
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            // What a terminal says once its window is gone.
            Err(rustix::io::Errno::IO) => self.ended = true,
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end_matches(['\n', '\r']).to_owned()
}
