//! Whether a run only waits: for people, for the session's client, or for nothing at all.
//!
//! A run that is left while its tool runs leaves a doubt, and one that is left while its model answers pays for the
//! answer twice. Left in between it loses nothing. So both are done inside, and leaving waits until nothing is.

use tokio::sync::watch;

/// Counts what a run is in the middle of, and lets nothing more begin once somebody leaves it.
pub(crate) struct Stillness(watch::Sender<Doing>);

#[derive(Clone, Copy, Default)]
struct Doing {
    count: usize,
    closed: bool,
}

/// Something that a run is in the middle of.
pub(crate) struct Busy<'a>(&'a Stillness);

impl Default for Stillness {
    fn default() -> Self {
        Stillness(watch::Sender::new(Doing::default()))
    }
}

impl Stillness {
    /// Begins something that is not to be left in the middle. Never returns once the run is being left.
    pub(crate) async fn begin(&self) -> Busy<'_> {
        let mut begun = false;
        self.0.send_if_modified(|doing| {
            begun = !doing.closed;
            doing.count += usize::from(begun);
            false
        });
        match begun {
            true => Busy(self),
            false => std::future::pending().await,
        }
    }

    /// Lets nothing more begin if nothing is being done. Says whether that is so.
    pub(crate) fn close_if_still(&self) -> bool {
        let mut still = false;
        self.0.send_if_modified(|doing| {
            still = doing.count == 0;
            doing.closed |= still;
            false
        });
        still
    }

    /// Lets nothing more begin, and waits until nothing is being done.
    pub(crate) async fn close(&self) {
        self.0.send_modify(|doing| doing.closed = true);
        // The sender is ours: there is always somebody to hear from.
        let _ = self.0.subscribe().wait_for(|doing| doing.count == 0).await;
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.0.send_modify(|doing| doing.count = doing.count.saturating_sub(1));
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
}
