//! How far a long reading is: a line on the terminal beside the output, and nothing anywhere else.

use std::io::{self, IsTerminal as _, Read, Write};
use std::time::Duration;

use async_trait::async_trait;
use countersign::Time;
use countersign::audit::Readable;
use countersign::event::{Cursor, Event};
use countersign::store::{EventFilter, StoreError};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How often the line is drawn, whether or not anything moved.
const EVERY: Duration = Duration::from_millis(200);

/// A line on stderr that counts. It is gone when this is dropped.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// Counts events, however many there will be.
    pub(crate) fn of_events() -> Progress {
        Progress::drawn(ProgressBar::no_length(), "{spinner} {human_pos} events, {elapsed}")
    }

    /// Counts events beside output of their own: on a terminal that output is progress enough.
    pub(crate) fn beside_output() -> Progress {
        match io::stdout().is_terminal() {
            true => Progress(ProgressBar::hidden()),
            false => Progress::of_events(),
        }
    }

    /// Counts the bytes of a file.
    pub(crate) fn of_bytes(all: u64) -> Progress {
        Progress::drawn(ProgressBar::new(all), "{wide_bar} {bytes} of {total_bytes}, {eta} left")
    }

    fn drawn(bar: ProgressBar, template: &str) -> Progress {
        // Where stderr is no terminal nothing is drawn.
        bar.set_draw_target(ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.enable_steady_tick(EVERY);
        Progress(bar)
    }

    /// Says that so many more were read.
    pub(crate) fn add(&self, more: usize) {
        self.0.inc(more as u64);
    }

    /// The same bytes, counted as they are read.
    pub(crate) fn reading<R: Read>(&self, reader: R) -> impl Read {
        self.0.wrap_read(reader)
    }

    /// The same bytes, their lines counted as they are written.
    pub(crate) fn writing<W: Write>(&self, writer: W) -> Lines<'_, W> {
        Lines { writer, progress: self }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Counts lines on their way out.
pub(crate) struct Lines<'a, W> {
    writer: W,
    progress: &'a Progress,
}

impl<W: Write> Write for Lines<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.writer.write(bytes)?;
        let lines = bytes.iter().take(written).filter(|byte| **byte == b'\n').count();
        self.progress.add(lines);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

/// A log whose events are counted as they are read.
pub(crate) struct Counted<'a, L> {
    pub(crate) log: L,
    pub(crate) progress: &'a Progress,
}

#[async_trait]
impl<L: Readable> Readable for Counted<'_, L> {
    async fn events(&self, after: Cursor, filter: EventFilter) -> Result<Vec<Event>, StoreError> {
        let page = self.log.events(after, filter).await?;
        self.progress.add(page.len());
        Ok(page)
    }

    async fn now(&self) -> Result<Time, StoreError> {
        self.log.now().await
    }

    fn is_shared(&self) -> bool {
        self.log.is_shared()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_drawn_where_stderr_is_no_terminal() {
        for progress in [Progress::of_events(), Progress::of_bytes(9), Progress::beside_output()] {
            assert_eq!(progress.0.is_hidden(), !io::stderr().is_terminal());
        }
    }

    #[test]
    fn lines_and_bytes_are_counted_on_their_way() {
        let progress = Progress::of_events();
        let mut out = Vec::new();
        progress.writing(&mut out).write_all(b"one\ntwo\nthr").unwrap();
        assert_eq!((progress.0.position(), out.as_slice()), (2, &b"one\ntwo\nthr"[..]));
        let progress = Progress::of_bytes(5);
        let mut text = String::new();
        progress.reading(&b"hello"[..]).read_to_string(&mut text).unwrap();
        assert_eq!((progress.0.position(), text.as_str()), (5, "hello"));
    }
}
