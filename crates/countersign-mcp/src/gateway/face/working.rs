//! A request while it is answered.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::runtime::Handle;

use crate::gateway::Core;
use crate::gateway::caller::{Caller, Reading, Said};
use crate::gateway::inbound::Taken;

/// What is said to whoever made a request, and the call that it is, if it is one.
pub(super) struct Working {
    pub(super) reading: Reading,
    pub(super) attending: Option<Attending>,
}

impl Working {
    /// Begins to see to a call. It needs no task of its own while its client waits for the beginning of the answer.
    pub(super) fn begin(core: &Arc<Core>, taken: Option<Taken>, caller: Caller, reading: Reading) -> Working {
        let attending = taken.map(|taken| Attending::begin(core, taken, caller));
        Working { reading, attending }
    }

    /// What is said next; none where nothing more is.
    pub(super) async fn said(&mut self) -> Option<Said> {
        poll_fn(|context| {
            if self.attending.as_mut().is_some_and(|attending| attending.poll(context).is_ready()) {
                self.attending = None;
            }
            self.reading.said.poll_recv(context)
        })
        .await
    }
}

/// A call that is seen to. Dropped before it is over, it goes on by itself: whether its client is still there says the
/// caller, and what runs has an outcome.
pub(super) struct Attending(Option<BoxFuture<'static, ()>>);

impl Attending {
    fn begin(core: &Arc<Core>, taken: Taken, caller: Caller) -> Attending {
        // Tracked: whoever ends the conversation waits for it.
        Attending(Some(Box::pin(core.tasks.track_future(Arc::clone(core).attend(taken, caller)))))
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(call) = &mut self.0 else { return Poll::Ready(()) };
        let polled = call.poll_unpin(context);
        if polled.is_ready() {
            self.0 = None;
        }
        polled
    }

    /// Its answer was taken, which most of them only waited for.
    pub(super) fn finish(mut self) {
        if self.0.as_mut().is_some_and(|call| call.now_or_never().is_some()) {
            self.0 = None;
        }
    }
}

impl Drop for Attending {
    fn drop(&mut self) {
        // Without a runtime everything has ended.
        if let (Some(call), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            drop(runtime.spawn(call));
        }
    }
}
