//! An agent in the terminal: what `countersign run` does once it knows what to run.

mod elsewhere;
mod history;
mod keyboard;
mod line;
mod past;
mod scene;
mod talk;
mod teller;
mod typist;

pub(crate) use elsewhere::{There, settle};
pub(crate) use history::show as show_history;
pub(crate) use keyboard::Keyboard;
pub(crate) use past::Past;
pub(crate) use scene::{Scene, all_sessions, open_store};
pub(crate) use talk::{Asking, Talk};
pub(crate) use typist::Typist;

/// Whether somebody sits at the terminal who can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attended {
    /// Yes: holds are put to them.
    Yes,
    /// No: the policy's `unattended` decides.
    No,
}
