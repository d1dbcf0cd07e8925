//! Draws the hold that is shown: its text, the choices, and what the one in focus does.

use countersign::show::escape;
use countersign_api::wire;
use ratatui::Frame;
use ratatui::layout::{Position, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph};
use unicode_width::UnicodeWidthStr as _;

use super::layout::Areas;
use super::source::Terms;
use super::state::{Mode, Shown, State, Tab};
use super::view::Look;
use crate::out::{fit, safe_piece};
use crate::prompt::{self, Input, Stage, countdown};

/// Draws the box of the hold.
pub(super) fn draw(frame: &mut Frame<'_>, state: &State, look: Look, areas: &Areas) {
    let has_keys = matches!(state.mode, Mode::Detail);
    let mut block = Block::bordered().border_style(look.border(has_keys));
    let Some(shown) = &state.shown else {
        let words = if state.selected.is_some() { " Reading…" } else { idle(state) };
        return frame.render_widget(Paragraph::new(Line::styled(words, look.dim())).block(block), areas.detail);
    };
    let clock = clock(state, shown);
    let room = areas.columns().saturating_sub(clock.width() + 4);
    let times = if shown.others.is_empty() { String::new() } else { format!(" ×{}", shown.others.len() + 1) };
    let name = fit(&safe_piece(&shown.hold.title), room.saturating_sub(times.width()));
    block = block.title(Span::styled(format!(" {name}{times} "), look.bold()));
    block = block.title_top(Line::styled(format!(" {clock} "), look.colour(Color::Yellow)).right_aligned());
    let inner = block.inner(areas.detail);
    frame.render_widget(block, areas.detail);
    let text = Rect { x: inner.x + 1, width: inner.width.saturating_sub(2), ..inner };
    let text = Rect { height: u16::try_from(areas.rows()).unwrap_or_default(), ..text };
    match shown.dialog.stage() {
        Stage::Denying(input) => {
            writing(frame, look, text, "Why not? The agent will read this. Empty is allowed.", input);
        }
        Stage::Responding(input) => {
            writing(frame, look, text, "Your answer in place of the tool's: plain words, or JSON.", input);
        }
        Stage::Editing(input) => writing(frame, look, text, "The arguments, as JSON:", input),
        Stage::Naming(input) => writing(frame, look, text, &shown.dialog.naming(), input),
        Stage::Adding(input) => writing(frame, look, text, prompt::ADDING, input),
        Stage::Choosing | Stage::Checking | Stage::Remembering(_) => {
            let rows: Vec<Line<'_>> =
                shown.dialog.visible().map(|row| Line::styled(row.text.clone(), paint(row.look, look))).collect();
            frame.render_widget(Paragraph::new(rows), text);
        }
    }
    let below = Rect { y: text.y + text.height, height: inner.height.saturating_sub(text.height), ..text };
    let rows =
        vec![rule(shown, look), bar(state, shown, look, areas.columns()), explanation(state, shown, look, areas)];
    frame.render_widget(Paragraph::new(rows), below);
}

fn idle(state: &State) -> &'static str {
    match state.tab {
        Tab::Waiting => " New calls show up here by themselves.",
        Tab::Closed => "",
    }
}

/// The countdown of a hold that waits, or how it ended.
fn clock(state: &State, shown: &Shown) -> String {
    match shown.hold.state.as_str() {
        "pending" => state.left(shown.hold.expires_at).map_or("waits for ever".to_owned(), countdown),
        ended => ended.to_owned(),
    }
}

fn rule(shown: &Shown, look: Look) -> Line<'static> {
    let coverage =
        shown.coverages.get(shown.coverage).filter(|_| matches!(shown.dialog.stage(), Stage::Remembering(_)));
    let words = match (coverage, shown.dialog.part()) {
        (Some(coverage), _) => {
            let place = format!("{} of {}", shown.coverage + 1, shown.coverages.len());
            format!("─ covers {} ({place}){} ", coverage.words, terms(&shown.terms))
        }
        (None, Some(part)) => format!("─{part}"),
        (None, None) => String::new(),
    };
    Line::styled(words, look.colour(Color::Yellow))
}

/// On which terms something is remembered, where the person said so.
fn terms(terms: &Terms) -> String {
    let life = terms.expires_after.map(|life| format!(", for {}", wire::Span(life))).unwrap_or_default();
    let uses = terms.uses.map(|uses| format!(", at most {uses} more")).unwrap_or_default();
    format!("{life}{uses}")
}

/// The choices, as they may be taken now. What sleeps is in brackets. Where they do not fit they stand closer.
fn bar(state: &State, shown: &Shown, look: Look, width: usize) -> Line<'static> {
    let has_keys = matches!(state.mode, Mode::Detail);
    let items: Vec<(String, bool, Style)> = shown
        .dialog
        .bar()
        .into_iter()
        .enumerate()
        .map(|(index, choice)| {
            let asleep = shown.dialog.asleep(choice, state.now);
            let name = match asleep {
                true => format!("{} ({})", choice.letter(), choice.label()),
                false => format!("{} {}", choice.letter(), choice.label()),
            };
            let in_focus = has_keys && index == shown.dialog.focus();
            let style = match (in_focus, asleep) {
                (true, _) => look.focus(),
                (false, true) => look.dim(),
                (false, false) => Style::new(),
            };
            (name, in_focus, style)
        })
        .collect();
    let (wide, close) = (spaced(&items, " "), spaced(&items, ""));
    match (wide.width() <= width, close.width() <= width) {
        (true, _) => wide,
        (false, true) => close,
        (false, false) => Line::raw(fit(&close.to_string(), width)),
    }
}

/// The choices on one line, with this around each that has not the focus.
fn spaced(items: &[(String, bool, Style)], around: &str) -> Line<'static> {
    let mut spans = Vec::new();
    for (name, in_focus, style) in items {
        if !spans.is_empty() {
            spans.push(Span::raw(" "));
        }
        let item = if *in_focus { format!("[{name}]") } else { format!("{around}{name}{around}") };
        spans.push(Span::styled(item, *style));
    }
    Line::from(spans)
}

fn explanation(state: &State, shown: &Shown, look: Look, areas: &Areas) -> Line<'static> {
    let words = match state.mode {
        Mode::Detail => shown.dialog.explanation(state.now),
        Mode::List | Mode::Filter(_) | Mode::Help | Mode::Gone(_) => String::new(),
    };
    Line::styled(fit(&escape(&words), areas.columns()), look.colour(Color::Yellow))
}

fn writing(frame: &mut Frame<'_>, look: Look, area: Rect, heading: &str, input: &Input) {
    let width = usize::from(area.width);
    let (rows, (row, column)) = input.rows(width);
    let height = usize::from(area.height).saturating_sub(1).max(1);
    let top = row.saturating_sub(height - 1);
    let mut lines = vec![Line::styled(fit(heading, width), look.bold())];
    lines.extend(rows.iter().skip(top).take(height).map(|row| Line::raw(row.clone())));
    frame.render_widget(Paragraph::new(lines), area);
    let at = |value: usize| u16::try_from(value).unwrap_or_default();
    frame.set_cursor_position(Position::new(area.x + at(column), area.y + 1 + at(row - top)));
}

fn paint(row: prompt::Look, look: Look) -> Style {
    match row {
        prompt::Look::Heading => look.bold(),
        prompt::Look::Fact => Style::new(),
        prompt::Look::Warning => look.colour(Color::Red).add_modifier(Modifier::BOLD),
        prompt::Look::Argument => look.colour(Color::Cyan),
        prompt::Look::Add => look.colour(Color::Green),
        prompt::Look::Remove => look.colour(Color::Red),
        prompt::Look::Note => look.dim(),
    }
}
