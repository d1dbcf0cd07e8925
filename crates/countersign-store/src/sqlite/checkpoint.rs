//! Moves what was committed from the log to the file, so that the log can begin anew.
//!
//! A short log is quick to sync, because its file does not grow; a long one is seldom moved, and many changes of one page
//! are moved once. So the writer keeps the log short while it serves one caller at a time, between two of them. While it
//! serves many, a thread beside it moves the log, and the writer finishes what is left where the log became too long.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, Thread};

use rusqlite::Connection;

use super::migrate::open_beside;

/// After so many operations of many callers the log is long enough to be worth it.
const EVERY: usize = 8_192;
/// After so many commits of one operation each.
const EVERY_LONE: usize = 128;

/// The thread that does it.
pub(super) struct Checkpointer {
    thread: Option<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
}

/// The writer's hand on it.
pub(super) struct Nudge {
    thread: Thread,
    operations: usize,
    commits: usize,
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
        let nudge = Nudge { thread: thread.thread().clone(), operations: 0, commits: 0 };
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
        self.commits += 1;
        if self.operations >= EVERY {
            self.operations = 0;
            self.thread.unpark();
        }
    }

    /// The writer serves one caller at a time, and is between two of them.
    pub(super) fn alone(&mut self, connection: &Connection) {
        if self.commits >= EVERY_LONE {
            self.commits = 0;
            move_log(connection);
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
