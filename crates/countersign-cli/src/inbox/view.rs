//! Draws the inbox. Every text is safe and no wider than its place before a widget sees it: widgets drop what they
//! cannot draw, and cut without a sign.

use countersign::show::{escape, wrap};
use countersign::verdict::Risk;
use ratatui::Frame;
use ratatui::layout::{Position, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph};
use unicode_width::UnicodeWidthStr as _;

use super::detail;
use super::follow::Link;
use super::layout::{Areas, SMALLEST, areas};
use super::source::{Closed, LISTED};
use super::state::{Group, Mode, State, Tab};
use crate::out::{fit, safe_piece};
use crate::prompt::{Stage, countdown, on_one_line};

/// Columns of a hold's name in the list, where there is room.
const NAME: usize = 22;

/// Draws everything.
pub(crate) fn view(frame: &mut Frame<'_>, state: &State) {
    let Some(areas) = areas(state) else { return too_small(frame) };
    let look = Look { colour: state.colour };
    frame.render_widget(head(state, look, areas.head.width), areas.head);
    if areas.list.height > 0 {
        list(frame, state, look, &areas);
    }
    detail::draw(frame, state, look, &areas);
    frame.render_widget(status(state, look, areas.status.width), areas.status);
    frame.render_widget(Line::styled(fit(keys(state), usize::from(areas.keys.width)), look.dim()), areas.keys);
    match &state.mode {
        Mode::Help => overlay(frame, look, " Keys ", HELP),
        Mode::Gone(words) => gone(frame, look, words),
        Mode::Filter(input) => {
            let (rows, (row, column)) = input.rows(usize::from(areas.status.width).saturating_sub(FILTER.width()));
            let text = rows.get(row).map(String::as_str).unwrap_or_default();
            frame.render_widget(Clear, areas.status);
            frame.render_widget(Line::raw(format!("{FILTER}{text}")), areas.status);
            let column = u16::try_from(FILTER.width() + column).unwrap_or_default();
            frame.set_cursor_position(Position::new(areas.status.x + column, areas.status.y));
        }
        Mode::List | Mode::Detail => {}
    }
}

const FILTER: &str = " Filter: ";

/// Columns of what is said about a hold that is gone, where there is room.
const GONE: usize = 90;

const HELP: &[&str] = &[
    "j k ↑ ↓      another hold; in the hold, a row",
    "Enter Tab    into the hold and back",
    "Space PgUp   turn the hold's page",
    "a            approve: asks once more, with Deny in focus",
    "d            deny, with a reason for the agent to read",
    "e            edit the arguments, look at the change, approve it;",
    "             Ctrl-O there opens them in your $EDITOR",
    "p            approve, and give the tool something along with it",
    "r            answer instead of the tool",
    "m            approve and remember; c, l, u and digits change how",
    "×3           identical calls in one row, decided one by one;",
    "g            shows what differs between them, and decides all",
    "h            closed holds, and who decided them",
    "/            filter by tool, agent, session or arguments",
    "q            quit; what waits goes on waiting",
    "",
    "Approve sleeps until all of a hold was on the screen, and for",
    "a moment after each change of it, so that no stray key approves.",
    "",
    "Esc or ? closes this.",
];

/// How things look. Colour is never the only sign.
#[derive(Clone, Copy)]
pub(super) struct Look {
    colour: bool,
}

impl Look {
    pub(super) fn dim(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    pub(super) fn bold(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub(super) fn focus(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD | Modifier::REVERSED)
    }

    pub(super) fn colour(self, colour: Color) -> Style {
        if self.colour { Style::new().fg(colour) } else { Style::new() }
    }

    /// The border of a box, and of the one that has the keys.
    pub(super) fn border(self, has_keys: bool) -> Style {
        if has_keys { self.bold() } else { self.dim() }
    }
}

fn too_small(frame: &mut Frame<'_>) {
    let area = frame.area();
    let words = format!("Make the window larger: {} by {} at least. q quits.", SMALLEST.0, SMALLEST.1);
    let rows = wrap(&words, usize::from(area.width).max(1)).into_iter().map(Line::raw);
    frame.render_widget(Paragraph::new(rows.collect::<Vec<_>>()), area);
}

fn head(state: &State, look: Look, width: u16) -> Line<'static> {
    let width = usize::from(width);
    let waiting = match (state.listing.holds.len(), state.listing.more) {
        (_, true) => format!("more than {LISTED} calls wait"),
        (0, false) => "nothing waits".to_owned(),
        (1, false) => "1 call waits".to_owned(),
        (count, false) => format!("{count} calls wait"),
    };
    let halted = if state.listing.halted { " · HALTED: nothing runs" } else { "" };
    let left = format!(" Countersign · {waiting}{halted}");
    let (sign, style) = match &state.link {
        Link::Live => ("● live", look.colour(Color::Green)),
        Link::Lost(_) => ("○ no connection, trying again", look.colour(Color::Red)),
        Link::Refused(_) => ("× not let in any more", look.colour(Color::Red)),
    };
    let room = width.saturating_sub(left.width() + sign.width() + 6);
    let place = if room >= 12 { format!("{} · ", fit(&state.place, room)) } else { String::new() };
    let gap = width.saturating_sub(left.width() + place.width() + sign.width() + 1);
    Line::from(vec![
        Span::styled(left, look.bold()),
        Span::raw(" ".repeat(gap)),
        Span::styled(place, look.dim()),
        Span::styled(sign, style),
    ])
}

fn list(frame: &mut Frame<'_>, state: &State, look: Look, areas: &Areas) {
    let (count, total) = match state.tab {
        Tab::Waiting => (state.waiting().count(), state.listing.holds.len()),
        Tab::Closed => (state.closed().count(), state.closed.as_ref().map_or(0, Vec::len)),
    };
    let name = match state.tab {
        Tab::Waiting => "Waiting",
        Tab::Closed => "Closed, newest first",
    };
    let title = match state.filter.is_empty() {
        true => format!(" {name} "),
        false => format!(" {name}: {count} of {total} with `{}` ", fit(&state.filter, 20)),
    };
    let has_keys = matches!(state.mode, Mode::List | Mode::Filter(_));
    let block = Block::bordered().border_style(look.border(has_keys)).title(Span::styled(title, look.bold()));
    let inner = block.inner(areas.list);
    frame.render_widget(block, areas.list);
    let width = usize::from(inner.width);
    let rows: Vec<Line<'_>> = match state.tab {
        Tab::Waiting => {
            let page = state.groups().into_iter().skip(state.top).take(areas.listed());
            page.map(|group| waiting_row(state, look, group, width)).collect()
        }
        Tab::Closed => {
            let page = state.closed().skip(state.top).take(areas.listed());
            page.map(|hold| closed_row(state, look, hold, width)).collect()
        }
    };
    let rows = if rows.is_empty() { vec![Line::styled(nothing(state), look.dim())] } else { rows };
    frame.render_widget(Paragraph::new(rows), inner);
}

fn nothing(state: &State) -> &'static str {
    match (state.tab, &state.closed) {
        _ if !state.filter.is_empty() => " Nothing passes the filter; Esc clears it.",
        (Tab::Waiting, _) => " Nothing waits for a decision.",
        (Tab::Closed, None) => " Reading…",
        (Tab::Closed, Some(_)) => " Nothing was decided yet.",
    }
}

fn waiting_row(state: &State, look: Look, Group { lead: hold, count }: Group<'_>, width: usize) -> Line<'static> {
    let is_selected = state.selected == Some(hold.id);
    let sign = if is_selected { '›' } else { ' ' };
    let left = state.left(hold.expires_at);
    let clock = left.map_or("-".to_owned(), |left| countdown(left).trim_end_matches(" left").to_owned());
    // A word, not only a colour.
    let risk = match hold.risk {
        Risk::Low | Risk::Medium => " ",
        Risk::High | Risk::Critical => "!",
    };
    let columns = NAME.min(width * 2 / 5);
    let times = if count > 1 { format!(" ×{count}") } else { String::new() };
    let name = format!("{}{times}", fit(&safe_piece(&hold.title), columns.saturating_sub(times.width())));
    let who = escape(hold.agent.last().unwrap_or(&hold.principal));
    let alone = if hold.no_caller { "no caller  " } else { "" };
    let rest = format!("{alone}{who}  {}", on_one_line(hold.arguments.as_str()));
    let gap = " ".repeat(columns.saturating_sub(name.width()));
    let text = fit(&format!("{sign}{clock:>8} {risk}{name}{gap} {rest}"), width);
    let style = match left {
        _ if is_selected => look.focus(),
        Some(left) if left.as_secs() < 30 => look.colour(Color::Red),
        _ => Style::new(),
    };
    padded(text, width, style)
}

fn closed_row(state: &State, look: Look, hold: &Closed, width: usize) -> Line<'static> {
    let is_selected = state.selected == Some(hold.id);
    let sign = if is_selected { '›' } else { ' ' };
    let columns = NAME.min(width * 2 / 5);
    let name = fit(&escape(&hold.tool), columns);
    let gap = " ".repeat(columns.saturating_sub(name.width()));
    let by = hold.by.as_deref().map(escape).unwrap_or_default();
    let at = hold.at.strftime("%m-%d %H:%M");
    let text = fit(&format!("{sign} {at} {:<10} {name}{gap} {by}", hold.state), width);
    let style = match hold.state {
        _ if is_selected => look.focus(),
        "approved" | "released" => look.colour(Color::Green),
        "denied" => look.colour(Color::Red),
        _ => Style::new(),
    };
    padded(text, width, style)
}

/// A row that is as wide as its place, so that its look is.
fn padded(text: String, width: usize, style: Style) -> Line<'static> {
    let gap = " ".repeat(width.saturating_sub(text.width()));
    Line::styled(format!("{text}{gap}"), style)
}

fn status(state: &State, look: Look, width: u16) -> Line<'static> {
    let (words, style) = match &state.link {
        _ if !state.status.is_empty() => (state.status.as_str(), look.colour(Color::Yellow)),
        Link::Live => ("", Style::new()),
        Link::Lost(words) | Link::Refused(words) => (words.as_str(), look.colour(Color::Red)),
    };
    Line::styled(fit(&format!(" {words}"), usize::from(width)), style)
}

fn keys(state: &State) -> &'static str {
    let stage = state.shown.as_ref().map(|shown| shown.dialog.stage());
    match (&state.mode, stage) {
        (Mode::List, _) if state.tab == Tab::Closed => {
            " jk choose · Enter read · h back to what waits · / filter · q quit"
        }
        (Mode::List, _) => " jk choose · Enter read · a approve · d deny · e edit · m remember · ? all keys",
        (Mode::Detail, Some(Stage::Denying(_) | Stage::Responding(_))) => " Enter send it · Esc back",
        (Mode::Detail, Some(Stage::Editing(_) | Stage::Adding(_))) => {
            " Ctrl-S or F2 look at the change · Ctrl-O in your $EDITOR · Esc back"
        }
        (Mode::Detail, Some(Stage::Remembering(_))) => " ←→ choose · Enter take it · c cover more or less · Esc back",
        (Mode::Detail, _) => " ←→ choose · Enter take it · jk scroll · Space page · Esc back to the list",
        (Mode::Filter(_), _) => " Enter keep it · Esc clear it",
        (Mode::Help, _) => " Esc close",
        (Mode::Gone(_), _) => " Enter go on",
    }
}

fn gone(frame: &mut Frame<'_>, look: Look, words: &str) {
    let rows = wrap(words, usize::from(frame.area().width.saturating_sub(6)).min(GONE));
    let mut rows: Vec<&str> = rows.iter().map(String::as_str).collect();
    rows.extend(["", "Nothing you typed was sent. Press Enter to go on."]);
    overlay(frame, look, " Closed without you ", &rows);
}

/// A box in the middle of everything.
fn overlay(frame: &mut Frame<'_>, look: Look, title: &str, rows: &[&str]) {
    let whole = frame.area();
    let widest = rows.iter().map(|row| row.width()).max().unwrap_or_default();
    let width = u16::try_from(widest + 4).unwrap_or(u16::MAX).min(whole.width);
    let height = u16::try_from(rows.len() + 2).unwrap_or(u16::MAX).min(whole.height);
    let area = Rect::new((whole.width - width) / 2, (whole.height - height) / 2, width, height);
    let block = Block::bordered().border_style(look.bold()).title(title.to_owned());
    let room = usize::from(width.saturating_sub(4));
    let rows: Vec<Line<'_>> = rows.iter().map(|row| Line::raw(format!(" {}", fit(row, room)))).collect();
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(rows).block(block), area);
}
