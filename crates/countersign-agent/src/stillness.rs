//! Whether a run only waits: for people, for the session's client, or for nothing at all.
//!
//! A run that is left while its tool runs leaves a doubt, and one that is left while its model answers pays for the
//! answer twice. Left in between it loses nothing. So both are done inside, and leaving waits until nothing is.

use std::sync::Arc;

use tokio::sync::watch;

/// Counts what a run, or one thread of it, is in the middle of, and lets nothing more begin once somebody leaves it.
#[derive(Default)]
pub(crate) struct Stillness {
    doing: watch::Sender<Doing>,
    /// What this is a part of: whatever is done here is done there, too.
    whole: Option<Arc<Stillness>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Doing {
    count: usize,
    closed: bool,
}

/// Something that a run is in the middle of.
pub(crate) struct Busy<'a> {
    part: &'a Stillness,
    _whole: Option<Box<Busy<'a>>>,
}

impl Stillness {
    /// The stillness of a part, which can be left by itself.
    pub(crate) fn part_of(whole: &Arc<Stillness>) -> Arc<Stillness> {
        Arc::new(Stillness { whole: Some(Arc::clone(whole)), ..Stillness::default() })
    }

    /// Begins something that is not to be left in the middle. Never returns once the run is being left.
    pub(crate) async fn begin(&self) -> Busy<'_> {
        match self.begun() {
            Some(busy) => busy,
            None => std::future::pending().await,
        }
    }

    /// Lets nothing more begin if nothing is being done. Says whether that is so.
    pub(crate) fn close_if_still(&self) -> bool {
        let mut still = false;
        self.doing.send_if_modified(|doing| {
            still = doing.count == 0;
            doing.closed |= still;
            false
        });
        still
    }

    /// Lets nothing more begin, and waits until nothing is being done.
    pub(crate) async fn close(&self) {
        self.doing.send_modify(|doing| doing.closed = true);
        // The sender is ours: there is always somebody to hear from.
        let _ = self.doing.subscribe().wait_for(|doing| doing.count == 0).await;
    }

    fn begun(&self) -> Option<Busy<'_>> {
        let whole = match &self.whole {
            Some(whole) => Some(Box::new(whole.begun()?)),
            None => None,
        };
        let mut begun = false;
        self.doing.send_if_modified(|doing| {
            begun = !doing.closed;
            doing.count += usize::from(begun);
            false
        });
        begun.then(|| Busy { part: self, _whole: whole })
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.part.doing.send_if_modified(|doing| {
            doing.count = doing.count.saturating_sub(1);
            // Only who leaves waits for this, and lets nothing more begin before it does.
            doing.closed && doing.count == 0
        });
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_run_is_left_only_between_two_things() {
        let stillness = Stillness::default();
        let tool = stillness.begin().await;
        assert!(!stillness.close_if_still(), "its tool runs");
        drop(tool);
        assert!(stillness.close_if_still());
        assert!(stillness.begin().now_or_never().is_none(), "nothing begins in a run that is being left");
    }

    #[tokio::test]
    async fn leaving_waits_for_what_is_being_done() {
        let stillness = Stillness::default();
        let model = stillness.begin().await;
        let left = stillness.close();
        tokio::pin!(left);
        assert!(left.as_mut().now_or_never().is_none());
        assert!(stillness.begin().now_or_never().is_none());
        drop(model);
        left.await;
    }

    #[tokio::test]
    async fn a_part_is_left_by_itself_and_with_the_whole() {
        let run = Arc::new(Stillness::default());
        let (one, two) = (Stillness::part_of(&run), Stillness::part_of(&run));
        let inner = Stillness::part_of(&one);
        let tool = inner.begin().await;
        assert!(!one.close_if_still() && !run.close_if_still(), "a tool runs inside");
        assert!(two.close_if_still(), "but not beside it");
        assert!(two.begin().now_or_never().is_none());
        drop(tool);
        assert!(one.begin().now_or_never().is_some(), "who leaves one leaves no other");
        assert!(run.close_if_still());
        assert!(inner.begin().now_or_never().is_none(), "nothing begins in a part of what is left");
        assert!(inner.close_if_still());
    }
}
