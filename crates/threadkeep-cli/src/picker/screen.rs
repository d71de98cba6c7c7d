//! How the picker looks.

use std::ops::Range;

use ratatui::Frame;
use ratatui::layout::{Position, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};
use threadkeep::Timestamp;

use super::fuzzy;
use super::state::{Candidate, Found, State};
use crate::marking::Marked;
use crate::{human, text};

const PROMPT: &str = "❯ ";
const KEYS: &str = "enter takes it · ↑↓ move · tab next hit · esc leaves";
/// From here on the preview has room beside the list.
const WIDE: u16 = 90;
/// From here on it has room below it.
const HIGH: u16 = 16;
const AGENT: usize = 12;
const WORKSPACE: usize = 16;
const AGE: usize = 10;
const HITS: usize = 9;
/// How much of a title stands over the preview.
const TITLE: usize = 200;

/// Where everything stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Places {
    pub(super) prompt: Rect,
    pub(super) list: Rect,
    pub(super) preview: Rect,
    pub(super) foot: Rect,
}

impl Places {
    /// The places in a terminal of so many columns and rows. What has no room has no size.
    pub(super) fn of((columns, rows): (u16, u16)) -> Self {
        let foot = u16::from(rows > 3);
        let body = rows.saturating_sub(1 + foot);
        let prompt = Rect::new(0, 0, columns, rows.min(1));
        let below = Rect::new(0, rows.saturating_sub(foot), columns, foot);
        let (list, preview) = if columns >= WIDE && body >= 3 {
            let list = columns / 2;
            (Rect::new(0, 1, list, body), Rect::new(list + 2, 1, columns - list - 2, body))
        } else if rows >= HIGH {
            let list = body / 2;
            (Rect::new(0, 1, columns, list), Rect::new(1, 2 + list, columns.saturating_sub(1), body - list - 1))
        } else {
            (Rect::new(0, 1, columns, body), Rect::ZERO)
        };
        Self { prompt, list, preview, foot: below }
    }
}

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, state: &State, now: Timestamp) {
    let places = Places::of(state.size());
    let seen = |place: Rect| place.intersection(frame.area());
    let (prompt, list, preview, foot) =
        (seen(places.prompt), seen(places.list), seen(places.preview), seen(places.foot));
    draw_prompt(frame, state, prompt);
    let query = state.query().text();
    let rows = state.rows().map(|(thread, found, is_selected)| {
        let row = row(thread, found, query, list.width.into(), now);
        if is_selected { row.style(Style::new().add_modifier(Modifier::REVERSED)) } else { row }
    });
    let mut rows: Vec<Line<'_>> = rows.collect();
    if state.is_empty() {
        rows.push(Line::styled("  Nothing fits.", dim()));
    }
    frame.render_widget(Paragraph::new(rows), list);
    if let Some((thread, found, hit)) = state.selected() {
        frame.render_widget(Paragraph::new(about(thread, found, hit, now)).wrap(Wrap { trim: false }), preview);
    }
    let words = match state.notice() {
        Some(notice) => Line::styled(text::one_line(notice), Style::new().fg(Color::Yellow)),
        None => Line::styled(KEYS, dim()),
    };
    frame.render_widget(words, foot);
}

fn draw_prompt(frame: &mut Frame<'_>, state: &State, place: Rect) {
    let status = state.status();
    let width = usize::from(place.width);
    let room = width.saturating_sub(text::width(PROMPT) + text::width(&status) + 1);
    let (typed, cursor) = state.query().window(room);
    let typed = cut_hard(typed, room);
    let gap = " ".repeat(room.saturating_sub(text::width(typed)) + 1);
    let line = Line::from(vec![
        Span::styled(PROMPT, Style::new().fg(Color::Cyan).add_modifier(Modifier::BOLD)),
        Span::raw(typed.to_owned()),
        Span::raw(gap),
        Span::styled(status, dim()),
    ]);
    frame.render_widget(line, place);
    if place.height > 0 {
        let column = u16::try_from(text::width(PROMPT) + cursor).unwrap_or(u16::MAX);
        frame.set_cursor_position(Position::new(column.min(place.width.saturating_sub(1)), place.y));
    }
}

/// A line of the list: the title, and what there is room for of where, who and when.
fn row(thread: &Candidate, found: Option<&Found>, query: &str, columns: usize, now: Timestamp) -> Line<'static> {
    let age = thread.when.map(|when| human::ago(when, now)).unwrap_or_default();
    let hits = found.map(|found| found.hits.len() + found.more).filter(|hits| *hits > 0);
    let hits = hits.map(|hits| human::counted(hits as i128, "hit", "hits")).unwrap_or_default();
    let mut columns_behind: Vec<(String, usize)> = vec![(age, AGE)];
    if columns >= 70 {
        columns_behind.insert(0, (thread.agent.clone(), AGENT));
    }
    if columns >= 90 {
        columns_behind.insert(0, (thread.workspace.clone(), WORKSPACE));
    }
    if columns >= 44 {
        columns_behind.insert(0, (hits, HITS));
    }
    let taken: usize = columns_behind.iter().map(|(_, width)| width + 1).sum();
    let room = columns.saturating_sub(taken + 2).max(columns.min(8));
    let marks = fuzzy::marks(query, &thread.title);
    let title = fitted(&thread.title, &marks, room);
    let mut spans = vec![Span::raw(" ")];
    let width: usize = title.iter().map(|span| text::width(&span.content)).sum();
    spans.extend(title);
    spans.push(Span::raw(" ".repeat(room.saturating_sub(width) + 1)));
    for (words, width) in columns_behind {
        let words = text::cut(&words, width).into_owned();
        let padding = " ".repeat(width.saturating_sub(text::width(&words)));
        spans.push(Span::styled(format!("{words}{padding} "), dim()));
    }
    Line::from(spans)
}

/// The beginning of a line in at most so many columns, with what fits marked in it.
fn fitted(line: &str, marks: &[Range<usize>], columns: usize) -> Vec<Span<'static>> {
    let cut = text::cut(line, columns);
    let kept = cut.len().min(line.len());
    let marks: Vec<_> =
        marks.iter().filter(|mark| mark.end <= kept && cut.get(..mark.end) == line.get(..mark.end)).cloned().collect();
    spans(&Marked::new(&cut, &marks), Style::new())
}

fn spans(line: &Marked, style: Style) -> Vec<Span<'static>> {
    let found = Style::new().fg(Color::Yellow).add_modifier(Modifier::BOLD);
    let span = |(piece, is_marked): (&str, bool)| Span::styled(piece.to_owned(), if is_marked { found } else { style });
    line.pieces().into_iter().map(span).collect()
}

/// What is told of the selected thread: its facts, and what was found in it or how it begins.
fn about(thread: &Candidate, found: Option<&Found>, hit: usize, now: Timestamp) -> Vec<Line<'static>> {
    let mut lines =
        vec![Line::styled(text::cut(&thread.title, TITLE).into_owned(), Style::new().add_modifier(Modifier::BOLD))];
    let age = thread.when.map(|when| human::ago(when, now)).unwrap_or_default();
    let facts = [thread.workspace.as_str(), &thread.agent, &age].map(str::to_owned);
    let facts: Vec<String> = facts.into_iter().filter(|fact| !fact.is_empty()).collect();
    lines.push(Line::styled(facts.join(" · "), dim()));
    lines.extend(thread.facts.iter().map(|fact| Line::styled(fact.clone(), dim())));
    lines.push(Line::default());
    let Some(found) = found.filter(|found| !found.hits.is_empty()) else {
        lines.extend(thread.preview.lines().map(|line| Line::raw(line.to_owned())));
        return lines;
    };
    // The hit that is taken stands first, and the others follow it around.
    for index in (hit..found.hits.len()).chain(0..hit.min(found.hits.len())) {
        let Some(shown) = found.hits.get(index) else { continue };
        let mark = if index == hit { "▶ " } else { "  " };
        lines.push(Line::from(vec![
            Span::styled(format!("{mark}{}", shown.name), Style::new().fg(Color::Cyan)),
            Span::styled(format!("  {}", shown.facts), dim()),
        ]));
        lines.push(Line::from(spans(&shown.snippet, Style::new())));
        lines.push(Line::default());
    }
    if found.more > 0 {
        lines.push(Line::styled(format!("and {}", human::counted(found.more as i128, "more hit", "more hits")), dim()));
    }
    lines
}

/// The beginning of a line that has room, without a word on the rest.
fn cut_hard(line: &str, columns: usize) -> &str {
    let mut end = line.len();
    while text::width(line.get(..end).unwrap_or_default()) > columns {
        end = line.floor_char_boundary(end.saturating_sub(1));
    }
    line.get(..end).unwrap_or_default()
}

fn dim() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}
