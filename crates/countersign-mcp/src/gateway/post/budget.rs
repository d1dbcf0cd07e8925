//! How much of what servers say may be in memory at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::StreamExt as _;
use futures::stream::BoxStream;
use sse_stream::{Error, Sse};

use super::address::Answer;
use crate::events::events;
use crate::limits;

/// Why a message is not read to its end that alone would not be too long.
pub(super) const TOO_MUCH: &str = "the server's answers are too much at once";

/// Bytes that all conversations of a gateway share.
#[derive(Debug)]
pub(crate) struct Budget {
    left: AtomicUsize,
}

impl Budget {
    /// A budget of so many bytes.
    pub(crate) fn new(bytes: usize) -> Arc<Budget> {
        Arc::new(Budget { left: AtomicUsize::new(bytes) })
    }

    /// A share of it that holds nothing yet.
    pub(crate) fn share(self: &Arc<Budget>) -> Share {
        Share { budget: Arc::clone(self), bytes: 0 }
    }

    /// The share of a message; none where there is too little left.
    pub(super) fn share_of(self: &Arc<Budget>, message: &str) -> Option<Share> {
        let mut share = self.share();
        share.hold(message.len()).then_some(share)
    }

    /// Reads the text of an answer; an error says why there is none.
    pub(super) async fn text(self: &Arc<Budget>, answer: Answer) -> Result<(String, Share), &'static str> {
        let (mut pieces, mut bytes, mut share) = (answer.into_body(), Vec::new(), self.share());
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(|_| "the connection was lost")?;
            let length = bytes.len() + piece.len();
            if length > limits::SERVER_MESSAGE_BYTES {
                return Err("it is too long");
            }
            if !share.hold(length) {
                return Err(TOO_MUCH);
            }
            bytes.extend_from_slice(&piece);
        }
        Ok((String::from_utf8(bytes).map_err(|_| "it is no text")?, share))
    }

    /// The events of an answer. What has come of the next one counts.
    pub(super) fn events(self: &Arc<Budget>, answer: Answer) -> BoxStream<'static, Result<Sse, Error>> {
        let mut share = self.share();
        events(answer.into_body(), move |bytes| bytes <= limits::SERVER_MESSAGE_BYTES && share.hold(bytes))
    }

    fn take(&self, bytes: usize) -> bool {
        let less = |left: usize| left.checked_sub(bytes);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }
}

/// What one message takes of a budget, until it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Share {
    /// Makes it hold so many bytes. False where there is not so much left; then it stays as it was.
    pub(crate) fn hold(&mut self, bytes: usize) -> bool {
        match bytes.checked_sub(self.bytes) {
            Some(more) if !self.budget.take(more) => return false,
            Some(_) => {}
            None => self.give_back(self.bytes - bytes),
        }
        self.bytes = bytes;
        true
    }

    fn give_back(&self, bytes: usize) {
        self.budget.left.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_never_hold_more_than_there_is_and_give_all_of_it_back() {
        let budget = Budget::new(10);
        let (mut first, mut second) = (budget.share(), budget.share());
        assert!(first.hold(7) && !second.hold(4) && second.hold(3));
        assert!(!first.hold(8) && first.hold(2) && second.hold(8));
        drop(first);
        assert!(second.hold(10) && !second.hold(11));
        drop(second);
        assert!(budget.share().hold(10));
    }
}
