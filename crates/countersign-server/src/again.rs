//! A future that wakes itself is polled again at once.
//!
//! A connection that reads a request's body while it answers the request wakes the task that it runs in. A task that is
//! woken while it runs goes to the end of the queue, and another thread is woken to look for it there: for nothing, where
//! one more look would do.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures::task::AtomicWaker;

/// Looks at a time. Whoever always wakes itself gives way to others after so many.
const LOOKS: usize = 4;

/// Nobody looks, and nothing happened since somebody did.
const QUIET: u8 = 0;
/// Somebody looks.
const LOOKING: u8 = 1;
/// Something happened. If nobody looks, the task knows.
const WOKEN: u8 = 2;

/// A future that is polled again at once where it woke itself.
pub(crate) struct Again<F> {
    future: Pin<Box<F>>,
    bell: Arc<Bell>,
    waker: Waker,
}

struct Bell {
    state: AtomicU8,
    task: AtomicWaker,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // INVARIANT: whoever looks takes leave only from LOOKING, so what happens meanwhile is looked at.
        if self.state.swap(WOKEN, Ordering::AcqRel) == QUIET {
            self.task.wake();
        }
    }
}

impl<F: Future> Again<F> {
    pub(crate) fn new(future: F) -> Again<F> {
        let bell = Arc::new(Bell { state: AtomicU8::new(QUIET), task: AtomicWaker::new() });
        Again { future: Box::pin(future), waker: Arc::clone(&bell).into(), bell }
    }
}

impl<F: Future> Future for Again<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let Again { future, bell, waker } = &mut *self;
        bell.task.register(context.waker());
        for _ in 0..LOOKS {
            bell.state.swap(LOOKING, Ordering::AcqRel);
            if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(waker)) {
                return Poll::Ready(done);
            }
            let left = bell.state.compare_exchange(LOOKING, QUIET, Ordering::AcqRel, Ordering::Acquire);
            if left.is_ok() {
                return Poll::Pending;
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Task(AtomicUsize);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Polls a future that wakes itself so many times, once: how often it was looked at, and how often its task was woken
    /// by then, and after somebody else woke it, too.
    fn poll(wakes: usize) -> (usize, usize, usize) {
        let (task, mut looks, mut waker) = (Arc::new(Task::default()), 0, Waker::noop().clone());
        let mut future = Again::new(poll_fn(|context| {
            looks += 1;
            waker = context.waker().clone();
            if looks <= wakes {
                context.waker().wake_by_ref();
            }
            Poll::<()>::Pending
        }));
        let polled = Pin::new(&mut future).poll(&mut Context::from_waker(&Arc::clone(&task).into()));
        assert!(polled.is_pending());
        drop(future);
        let by_itself = task.0.load(Ordering::Relaxed);
        waker.wake();
        (looks, by_itself, task.0.load(Ordering::Relaxed))
    }

    #[test]
    fn who_wakes_itself_is_looked_at_again_and_in_the_end_gives_way() {
        assert_eq!(poll(0), (1, 0, 1));
        assert_eq!(poll(1), (2, 0, 1));
        assert_eq!(poll(LOOKS - 1), (LOOKS, 0, 1));
        assert_eq!(poll(1_000), (LOOKS, 1, 1), "a task that is woken already is not woken twice");
    }
}
