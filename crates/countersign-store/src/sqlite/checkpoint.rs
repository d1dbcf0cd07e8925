//! Moves what was committed from the log to the file, beside the writer, so that it need not do that itself.
//!
//! Should this fall behind, the writer's own automatic checkpoint finishes what is left.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, Thread};

use rusqlite::Connection;

use super::migrate::open_beside;

/// After so many operations the log is long enough to be worth it.
const EVERY: usize = 1_024;

/// The thread that does it.
pub(super) struct Checkpointer {
    thread: Option<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
}

/// The writer's hand on it.
pub(super) struct Nudge {
    thread: Thread,
    operations: usize,
}

impl Checkpointer {
    pub(super) fn start(path: &Path) -> std::io::Result<(Checkpointer, Nudge)> {
        let connection = open_beside(path).map_err(std::io::Error::other)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("countersign-move".into()).spawn(move || {
            loop {
                std::thread::park();
                if stopped.load(Ordering::Acquire) {
                    return;
                }
                move_log(&connection);
            }
        })?;
        let nudge = Nudge { thread: thread.thread().clone(), operations: 0 };
        Ok((Checkpointer { thread: Some(thread), stop }, nudge))
    }

    pub(super) fn stop(&mut self) {
        self.stop.store(true, Ordering::Release);
        let Some(thread) = self.thread.take() else { return };
        thread.thread().unpark();
        let _ = thread.join();
    }
}

impl Nudge {
    /// So many operations were committed.
    pub(super) fn committed(&mut self, operations: usize) {
        self.operations += operations;
        if self.operations >= EVERY {
            self.operations = 0;
            self.thread.unpark();
        }
    }
}

/// Waits for nobody: what a reader still needs stays in the log.
fn move_log(connection: &Connection) {
    let moved = connection
        .prepare_cached("PRAGMA wal_checkpoint(PASSIVE)")
        .and_then(|mut statement| statement.query_row([], |_| Ok(())));
    if let Err(error) = moved {
        tracing::warn!(%error, "the log could not be moved to the file");
    }
}
