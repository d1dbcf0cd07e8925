//! Where things stand in a window.

use ratatui::layout::{Constraint, Layout, Rect};

use super::state::{Mode, State};

/// The smallest window the inbox is drawn in.
pub(super) const SMALLEST: (u16, u16) = (50, 14);
/// From this many columns on, list and hold stand side by side.
const SIDE_BY_SIDE: u16 = 100;
/// Rows below the text of a hold: what part of it is shown, the choices, what the one in focus does.
const BELOW: u16 = 3;

/// The parts of a window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Areas {
    pub(super) head: Rect,
    /// The box of the list; empty where the hold takes all there is.
    pub(super) list: Rect,
    /// The box of the hold.
    pub(super) detail: Rect,
    pub(super) status: Rect,
    pub(super) keys: Rect,
}

impl Areas {
    /// The columns of the hold's text.
    pub(super) fn columns(&self) -> usize {
        usize::from(self.detail.width.saturating_sub(4))
    }

    /// The rows of the hold's text.
    pub(super) fn rows(&self) -> usize {
        usize::from(self.detail.height.saturating_sub(2 + BELOW))
    }

    /// The rows of the list.
    pub(super) fn listed(&self) -> usize {
        usize::from(self.list.height.saturating_sub(2))
    }
}

/// Divides the window; none where it is too small.
pub(super) fn areas(state: &State) -> Option<Areas> {
    let (columns, rows) = state.size;
    if columns < SMALLEST.0 || rows < SMALLEST.1 {
        return None;
    }
    let whole = Rect::new(0, 0, columns, rows);
    let parts = [Constraint::Length(1), Constraint::Fill(1), Constraint::Length(1), Constraint::Length(1)];
    let [head, body, status, keys] = Layout::vertical(parts).areas(whole);
    let [list, detail] = if columns >= SIDE_BY_SIDE {
        let list = (columns * 2 / 5).clamp(40, 64);
        Layout::horizontal([Constraint::Length(list), Constraint::Fill(1)]).areas(body)
    } else {
        let wanted = u16::try_from(state.ids().len().max(1)).unwrap_or(u16::MAX).saturating_add(2);
        let list = match state.mode {
            // Whoever reads needs the room.
            Mode::Detail => 0,
            Mode::List | Mode::Filter(_) | Mode::Help | Mode::Gone(_) => wanted.min(body.height / 3),
        };
        Layout::vertical([Constraint::Length(list), Constraint::Fill(1)]).areas(body)
    };
    Some(Areas { head, list, detail, status, keys })
}
