//! What the picker knows, and what follows from a key or an answer. Nothing here waits, reads or draws.

use std::collections::HashMap;
use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use serde_json::Value;
use threadkeep::{ThreadId, Timestamp};

use super::fuzzy::{self, Haystack};
use super::line::Line;
use super::screen::Places;
use crate::marking::Marked;

/// How long nothing must be typed before the items are searched.
pub(super) const PAUSE: Duration = Duration::from_millis(120);

/// A thread that can be picked. Its texts are safe to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) id: ThreadId,
    /// What it is called, on one line.
    pub(super) title: String,
    /// The beginning of what was said in it.
    pub(super) preview: String,
    pub(super) agent: String,
    pub(super) workspace: String,
    /// When its last item was made.
    pub(super) when: Option<Timestamp>,
    /// Lines about it.
    pub(super) facts: Vec<String>,
}

/// A thread in which something was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) candidate: Candidate,
    pub(super) hits: Vec<FoundHit>,
    /// How many more there are.
    pub(super) more: usize,
}

/// Something that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FoundHit {
    /// How it is called, for people.
    pub(super) name: String,
    /// The same with whole ids, for programs.
    pub(super) address: String,
    /// Who speaks, when, and on which branch.
    pub(super) facts: String,
    pub(super) snippet: Marked,
    /// What programs get of it.
    pub(super) document: Value,
}

/// What a search answered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) found: Vec<Found>,
    /// What people should know of it, on one line each.
    pub(super) notices: Vec<String>,
}

/// What happens to the picker.
#[derive(Debug)]
pub(super) enum Event {
    Key(KeyEvent),
    Paste(String),
    Resize(u16, u16),
    /// More threads of the list, which may be the last.
    Listed {
        threads: Vec<Candidate>,
        is_end: bool,
    },
    /// The answer to a search, or what was in its way.
    Found {
        search: u64,
        answer: Result<Answer, String>,
    },
    /// The time that was waited for has come.
    Due,
}

/// What is to be done then.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Search {
        search: u64,
        text: String,
    },
    Choose(Choice),
    Leave,
    /// Steps behind the shell until it is called again.
    Suspend,
    /// Draws everything anew.
    Redraw,
}

/// What was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Choice {
    /// The thread.
    pub(crate) thread: ThreadId,
    /// The hit that was shown: its address and its document.
    pub(crate) hit: Option<(String, Value)>,
}

/// A line of the list: a thread of the list, one that was found, or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Row {
    listed: Option<usize>,
    found: Option<usize>,
}

/// All that the picker knows.
#[derive(Debug)]
pub(super) struct State {
    query: Line,
    listed: Vec<Candidate>,
    haystacks: Vec<Haystack>,
    is_listed: bool,
    answer: Answer,
    failure: Option<String>,
    rows: Vec<Row>,
    selected: usize,
    /// Whether a person moved to the selected row, so that it stays selected whatever comes.
    moved: bool,
    /// The hit of the selected row that is shown.
    hit: usize,
    /// The first row in sight.
    top: usize,
    size: (u16, u16),
    /// The number of the last search that was begun, and of the last one that is answered.
    searches: (u64, u64),
    due: Option<Duration>,
}

impl State {
    /// A picker in a terminal of this size, with something typed already, at a time.
    pub(super) fn new(query: &str, size: (u16, u16), now: Duration) -> Self {
        let mut state = Self {
            query: Line::new(query),
            listed: Vec::new(),
            haystacks: Vec::new(),
            is_listed: false,
            answer: Answer::default(),
            failure: None,
            rows: Vec::new(),
            selected: 0,
            moved: false,
            hit: 0,
            top: 0,
            size,
            searches: (0, 0),
            due: None,
        };
        state.typed(now);
        state
    }

    /// When [`Event::Due`] is to come.
    pub(super) fn due(&self) -> Option<Duration> {
        self.due
    }

    /// What follows from an event at a time.
    pub(super) fn on(&mut self, event: Event, now: Duration) -> Option<Effect> {
        let effect = match event {
            Event::Key(key) if key.kind == KeyEventKind::Release => None,
            Event::Key(key) => self.key(key, now),
            Event::Paste(text) => {
                self.edit(now, |line| line.insert(&text));
                None
            }
            Event::Resize(columns, rows) => {
                self.size = (columns, rows);
                None
            }
            Event::Listed { threads, is_end } => {
                self.is_listed = is_end;
                let text = |thread: &Candidate| format!("{}  {}", thread.title, thread.preview);
                self.haystacks.extend(threads.iter().map(|thread| Haystack::new(text(thread))));
                self.listed.extend(threads);
                self.arrange();
                None
            }
            Event::Found { search, answer } => {
                self.answered(search, answer);
                None
            }
            Event::Due => self.search(now),
        };
        self.keep_in_sight();
        effect
    }

    /// What is typed.
    pub(super) fn query(&self) -> &Line {
        &self.query
    }

    /// The rows in sight: each with its thread, what was found in it, and whether it is the selected one.
    pub(super) fn rows(&self) -> impl Iterator<Item = (&Candidate, Option<&Found>, bool)> {
        let height = Places::of(self.size).list.height as usize;
        let rows = self.rows.iter().enumerate().skip(self.top).take(height);
        rows.filter_map(|(index, row)| Some((self.candidate(*row)?, self.found(*row), index == self.selected)))
    }

    /// The selected thread, what was found in it, and which hit is shown.
    pub(super) fn selected(&self) -> Option<(&Candidate, Option<&Found>, usize)> {
        let row = self.rows.get(self.selected)?;
        Some((self.candidate(*row)?, self.found(*row), self.hit))
    }

    /// How many threads fit, how many there are, and what is still going on.
    pub(super) fn status(&self) -> String {
        let going_on = if self.due.is_some() || self.searches.0 != self.searches.1 {
            " · searching…"
        } else if !self.is_listed {
            " · reading…"
        } else {
            ""
        };
        format!("{}/{}{going_on}", self.rows.len(), self.listed.len())
    }

    /// What should be known: what was in the way of the last search, or what it could not do.
    pub(super) fn notice(&self) -> Option<&str> {
        self.failure.as_deref().or(self.answer.notices.first().map(String::as_str))
    }

    /// Whether everything was read and nothing fits.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.is_listed && self.due.is_none() && self.searches.0 == self.searches.1
    }

    /// The size of the terminal.
    pub(super) fn size(&self) -> (u16, u16) {
        self.size
    }

    fn key(&mut self, key: KeyEvent, now: Duration) -> Option<Effect> {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let alt = key.modifiers.contains(KeyModifiers::ALT);
        let page = isize::from(Places::of(self.size).list.height.max(1).cast_signed());
        match key.code {
            KeyCode::Esc => return Some(Effect::Leave),
            KeyCode::Char('c' | 'g') if control => return Some(Effect::Leave),
            KeyCode::Char('z') if control => return Some(Effect::Suspend),
            KeyCode::Char('l') if control => return Some(Effect::Redraw),
            KeyCode::Enter => return self.choice().map(Effect::Choose),
            KeyCode::Char('m' | 'j') if control => return self.choice().map(Effect::Choose),
            KeyCode::Up => self.step(-1),
            KeyCode::Down => self.step(1),
            KeyCode::Char('p') if control => self.step(-1),
            KeyCode::Char('n') if control => self.step(1),
            KeyCode::PageUp => self.step(-page),
            KeyCode::PageDown => self.step(page),
            KeyCode::Home if control => self.step(isize::MIN),
            KeyCode::End if control => self.step(isize::MAX),
            KeyCode::Tab => self.step_hit(true),
            KeyCode::BackTab => self.step_hit(false),
            KeyCode::Left => self.query.left(),
            KeyCode::Right => self.query.right(),
            KeyCode::Home => self.query.home(),
            KeyCode::End => self.query.end(),
            KeyCode::Char('b') if control => self.query.left(),
            KeyCode::Char('f') if control => self.query.right(),
            KeyCode::Char('a') if control => self.query.home(),
            KeyCode::Char('e') if control => self.query.end(),
            KeyCode::Backspace if control || alt => self.edit(now, Line::delete_word),
            KeyCode::Char('w') if control => self.edit(now, Line::delete_word),
            KeyCode::Char('u') if control => self.edit(now, Line::delete_to_start),
            KeyCode::Char('h') if control => self.edit(now, Line::backspace),
            KeyCode::Char('k') if control => self.edit(now, Line::delete_to_end),
            KeyCode::Char('d') if control => self.edit(now, Line::delete),
            KeyCode::Backspace => self.edit(now, Line::backspace),
            KeyCode::Delete => self.edit(now, Line::delete),
            KeyCode::Char(c) if !control && !alt => self.edit(now, |line| line.insert(c.encode_utf8(&mut [0; 4]))),
            _ => {}
        }
        None
    }

    fn edit(&mut self, now: Duration, edit: impl FnOnce(&mut Line)) {
        let before = self.query.text().to_owned();
        edit(&mut self.query);
        if self.query.text() == before {
            return;
        }
        // What fits the beginning of a query may well fit the whole; anything else is not left standing.
        if !self.query.text().starts_with(&before) {
            self.answer = Answer::default();
        }
        self.typed(now);
    }

    /// Something else is looked for: titles at once, items when nothing is typed for a while.
    fn typed(&mut self, now: Duration) {
        (self.moved, self.selected, self.hit, self.top) = (false, 0, 0, 0);
        // An answer that is still to come is to another question.
        self.searches = (self.searches.0 + 1, self.searches.0 + 1);
        self.failure = None;
        self.due = (!self.query.text().trim().is_empty()).then_some(now + PAUSE);
        if self.due.is_none() {
            self.answer = Answer::default();
        }
        self.arrange();
    }

    fn search(&mut self, now: Duration) -> Option<Effect> {
        self.due.filter(|due| *due <= now)?;
        self.due = None;
        self.searches.0 += 1;
        Some(Effect::Search { search: self.searches.0, text: self.query.text().trim().to_owned() })
    }

    fn answered(&mut self, search: u64, answer: Result<Answer, String>) {
        if search != self.searches.0 || self.searches.1 == search {
            return;
        }
        self.searches.1 = search;
        match answer {
            Ok(answer) => self.answer = answer,
            Err(failure) => (self.answer, self.failure) = (Answer::default(), Some(failure)),
        }
        self.arrange();
    }

    /// Puts the rows in their order: threads that hold the words in their titles, threads in which they were found, and
    /// threads that hold their letters. What a person moved to stays selected.
    fn arrange(&mut self) {
        let kept = self.rows.get(self.selected).and_then(|row| self.candidate(*row)).map(|thread| thread.id.clone());
        let fits = fuzzy::fits(self.query.text(), &self.haystacks);
        let places = self.answer.found.iter().enumerate().map(|(at, found)| (&found.candidate.id, at));
        let found: HashMap<&ThreadId, usize> = places.collect();
        let listed = |index: usize| {
            let thread = self.listed.get(index)?;
            Some(Row { listed: Some(index), found: found.get(&thread.id).copied() })
        };
        let mut rows: Vec<Row> = fits.whole.into_iter().filter_map(listed).collect();
        let mut is_shown = vec![false; self.answer.found.len()];
        let mut show = |row: &Row| {
            let shown = row.found.and_then(|found| is_shown.get_mut(found));
            shown.is_none_or(|shown| !std::mem::replace(shown, true))
        };
        rows.retain(&mut show);
        let by_id: HashMap<&ThreadId, usize> = match self.answer.found.is_empty() {
            true => HashMap::new(),
            false => self.listed.iter().enumerate().map(|(at, thread)| (&thread.id, at)).collect(),
        };
        let others = self.answer.found.iter().enumerate();
        let others = others.map(|(at, found)| Row { listed: by_id.get(&found.candidate.id).copied(), found: Some(at) });
        rows.extend(others.filter(&mut show));
        rows.extend(fits.scattered.into_iter().filter_map(listed).filter(&mut show));
        self.rows = rows;
        let place =
            |id: &ThreadId| self.rows.iter().position(|row| self.candidate(*row).is_some_and(|it| it.id == *id));
        let place = kept.as_ref().filter(|_| self.moved).and_then(place);
        self.moved = place.is_some();
        self.selected = place.unwrap_or(0);
        self.hit = self.hit.min(self.hits().saturating_sub(1));
    }

    fn step(&mut self, by: isize) {
        let last = self.rows.len().saturating_sub(1);
        self.selected = self.selected.saturating_add_signed(by).min(last);
        (self.moved, self.hit) = (true, 0);
    }

    fn step_hit(&mut self, forward: bool) {
        let Some(last) = self.hits().checked_sub(1) else { return };
        self.moved = true;
        self.hit = match forward {
            true => {
                if self.hit >= last {
                    0
                } else {
                    self.hit + 1
                }
            }
            false => self.hit.checked_sub(1).unwrap_or(last),
        };
    }

    fn hits(&self) -> usize {
        self.selected().and_then(|(_, found, _)| found).map_or(0, |found| found.hits.len())
    }

    fn choice(&self) -> Option<Choice> {
        let (thread, found, hit) = self.selected()?;
        let hit = found.and_then(|found| found.hits.get(hit));
        Some(Choice { thread: thread.id.clone(), hit: hit.map(|hit| (hit.address.clone(), hit.document.clone())) })
    }

    fn keep_in_sight(&mut self) {
        let height = usize::from(Places::of(self.size).list.height).max(1);
        self.top = self.top.min(self.selected).max((self.selected + 1).saturating_sub(height));
    }

    fn candidate(&self, row: Row) -> Option<&Candidate> {
        let listed = row.listed.and_then(|index| self.listed.get(index));
        listed.or_else(|| self.found(row).map(|found| &found.candidate))
    }

    fn found(&self, row: Row) -> Option<&Found> {
        row.found.and_then(|index| self.answer.found.get(index))
    }
}

#[cfg(test)]
mod tests;
