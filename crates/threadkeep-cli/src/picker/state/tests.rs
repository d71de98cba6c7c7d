//! Keys in, screens out: no terminal, no store, no clock.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde_json::json;
use threadkeep::{ThreadId, Timestamp};

use super::{Answer, Candidate, Choice, Effect, Event, Found, FoundHit, PAUSE, State};
use crate::marking::Marked;
use crate::picker::screen;

/// A picker, and the time that goes by.
struct Picker {
    state: State,
    now: Duration,
}

fn id(name: &str) -> ThreadId {
    ThreadId::new(name).unwrap()
}

fn candidate(name: &str, title: &str) -> Candidate {
    Candidate {
        id: id(name),
        title: title.to_owned(),
        preview: format!("the beginning of {name}"),
        agent: "codex".to_owned(),
        workspace: "project".to_owned(),
        when: Some(Timestamp(0)),
        facts: vec![name.to_owned()],
    }
}

fn found(name: &str, title: &str, snippets: &[&str]) -> Found {
    let hit = |(depth, snippet): (usize, &&str)| FoundHit {
        name: format!("{name}@{depth}"),
        address: format!("{name}@{depth}"),
        facts: "user".to_owned(),
        snippet: Marked::new(snippet, std::slice::from_ref(&(0..3))),
        document: json!({"depth": depth}),
    };
    Found { candidate: candidate(name, title), hits: snippets.iter().enumerate().map(hit).collect(), more: 0 }
}

impl Picker {
    /// Three threads are listed.
    fn new(query: &str) -> Self {
        let state = State::new(query, (100, 12), Duration::ZERO);
        let mut picker = Self { state, now: Duration::ZERO };
        let threads = vec![candidate("a", "Fix the login"), candidate("b", "Write docs"), candidate("c", "Fix a leak")];
        picker.on(Event::Listed { threads, is_end: true });
        picker
    }

    fn on(&mut self, event: Event) -> Option<Effect> {
        self.state.on(event, self.now)
    }

    fn press(&mut self, code: KeyCode, modifiers: KeyModifiers) -> Option<Effect> {
        self.on(Event::Key(KeyEvent::new(code, modifiers)))
    }

    fn key(&mut self, code: KeyCode) -> Option<Effect> {
        self.press(code, KeyModifiers::NONE)
    }

    fn control(&mut self, letter: char) -> Option<Effect> {
        self.press(KeyCode::Char(letter), KeyModifiers::CONTROL)
    }

    fn type_in(&mut self, text: &str) {
        for c in text.chars() {
            assert_eq!(self.key(KeyCode::Char(c)), None);
        }
    }

    /// Waits until the items are searched, and gives the search's number and words.
    fn pause(&mut self) -> (u64, String) {
        self.now = self.state.due().unwrap();
        match self.on(Event::Due) {
            Some(Effect::Search { search, text }) => (search, text),
            other => panic!("{other:?}"),
        }
    }

    fn answer(&mut self, search: u64, found: Vec<Found>) {
        let answer = Ok(Answer { found, notices: Vec::new() });
        assert_eq!(self.on(Event::Found { search, answer }), None);
    }

    fn rows(&self) -> Vec<&str> {
        self.state.rows().map(|(thread, ..)| thread.id.as_str()).collect()
    }

    fn selected(&self) -> Option<&str> {
        self.state.selected().map(|(thread, ..)| thread.id.as_str())
    }

    fn chosen(&mut self) -> Option<(String, Option<String>)> {
        match self.key(KeyCode::Enter)? {
            Effect::Choose(Choice { thread, hit }) => Some((thread.to_string(), hit.map(|(address, _)| address))),
            other => panic!("{other:?}"),
        }
    }

    fn screen(&self, columns: u16, rows: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
        terminal.draw(|frame| screen::draw(frame, &self.state, Timestamp(3_600_000))).unwrap();
        if columns == 0 { String::new() } else { terminal.backend().to_string() }
    }
}

#[test]
fn titles_are_matched_at_once_and_items_after_a_pause() {
    let mut picker = Picker::new("");
    assert_eq!((picker.rows(), picker.state.due()), (vec!["a", "b", "c"], None));
    picker.type_in("fix");
    assert_eq!(picker.rows(), ["a", "c"]);
    assert_eq!(picker.state.due(), Some(PAUSE));
    assert_eq!(picker.on(Event::Due), None, "nothing is due yet");
    picker.now = PAUSE / 2;
    picker.type_in(" l");
    assert_eq!(picker.state.due(), Some(PAUSE + PAUSE / 2), "every key begins the pause anew");
    assert_eq!(picker.pause().1, "fix l");
    assert_eq!((picker.state.due(), picker.state.status().as_str()), (None, "2/3 · searching…"));
}

#[test]
fn an_answer_to_an_older_question_is_not_shown() {
    let mut picker = Picker::new("one");
    let (first, _) = picker.pause();
    picker.type_in("x");
    picker.answer(first, vec![found("z", "Found", &["one"])]);
    assert!(picker.rows().is_empty());
    let (second, text) = picker.pause();
    assert_eq!(text, "onex");
    picker.answer(first, vec![found("z", "Found", &["one"])]);
    assert!(picker.rows().is_empty());
    picker.answer(second, vec![found("y", "Found", &["onex"])]);
    assert_eq!(picker.rows(), ["y"]);
    picker.answer(second, vec![]);
    assert_eq!(picker.rows(), ["y"], "an answer comes once");
}

#[test]
fn titles_with_the_words_come_first_then_what_was_found_then_scattered_letters() {
    let mut picker = Picker::new("leak");
    let (search, _) = picker.pause();
    assert_eq!(picker.rows(), ["c"]);
    picker.answer(
        search,
        vec![
            found("z", "Elsewhere", &["leak"]),
            found("c", "Fix a leak", &["leaks"]),
            found("b", "Write docs", &["leak"]),
        ],
    );
    assert_eq!(picker.rows(), ["c", "z", "b"]);
    // What extends a query keeps what was found for it until it is answered; anything else does not.
    picker.type_in("s");
    assert_eq!(picker.rows(), ["z", "c", "b"]);
    picker.key(KeyCode::Backspace);
    assert_eq!(picker.rows(), ["c"]);
}

#[test]
fn what_a_person_moved_to_stays_selected() {
    let mut picker = Picker::new("");
    picker.type_in("i");
    picker.key(KeyCode::Down);
    let kept = picker.selected().unwrap().to_owned();
    let (search, _) = picker.pause();
    picker.answer(search, vec![found("z", "Elsewhere", &["i"])]);
    assert_eq!(picker.selected(), Some(kept.as_str()));
    picker.on(Event::Listed { threads: vec![candidate("i", "i")], is_end: true });
    assert_eq!(picker.rows().len(), 5);
    assert_eq!(picker.selected(), Some(kept.as_str()));
    picker.type_in("x");
    assert_eq!(picker.selected(), picker.rows().first().copied(), "typing goes back to the best");
}

#[test]
fn every_way_to_move_stays_within_the_list() {
    let mut picker = Picker::new("");
    for (key, modifiers, selected) in [
        (KeyCode::Up, KeyModifiers::NONE, "a"),
        (KeyCode::Down, KeyModifiers::NONE, "b"),
        (KeyCode::Char('n'), KeyModifiers::CONTROL, "c"),
        (KeyCode::Down, KeyModifiers::NONE, "c"),
        (KeyCode::Char('p'), KeyModifiers::CONTROL, "b"),
        (KeyCode::PageDown, KeyModifiers::NONE, "c"),
        (KeyCode::PageUp, KeyModifiers::NONE, "a"),
        (KeyCode::End, KeyModifiers::CONTROL, "c"),
        (KeyCode::Home, KeyModifiers::CONTROL, "a"),
    ] {
        assert_eq!(picker.press(key, modifiers), None);
        assert_eq!(picker.selected(), Some(selected), "{key:?}");
    }
}

#[test]
fn the_list_scrolls_with_the_selection() {
    let mut picker = Picker::new("");
    let threads = (0..100).map(|number| candidate(&format!("t{number}"), "More")).collect();
    picker.on(Event::Listed { threads, is_end: true });
    assert_eq!(picker.rows().len(), 10);
    picker.press(KeyCode::End, KeyModifiers::CONTROL);
    assert_eq!((picker.rows().first().copied(), picker.selected()), (Some("t90"), Some("t99")));
    picker.key(KeyCode::PageUp);
    assert_eq!(picker.selected(), Some("t89"));
    assert!(picker.rows().contains(&"t89"));
    picker.on(Event::Resize(100, 5));
    assert_eq!(picker.rows().len(), 3);
    assert!(picker.rows().contains(&"t89"));
    picker.on(Event::Resize(0, 0));
    picker.on(Event::Resize(1, 1));
    assert_eq!(picker.selected(), Some("t89"));
}

#[test]
fn enter_takes_the_hit_that_is_shown() {
    let mut picker = Picker::new("");
    assert_eq!(picker.chosen(), Some(("a".to_owned(), None)));
    picker.type_in("fox");
    assert_eq!(picker.chosen(), None, "where nothing fits nothing is taken");
    let (search, _) = picker.pause();
    picker.answer(search, vec![found("z", "Elsewhere", &["fox", "foxes", "foxy"])]);
    let address = |picker: &mut Picker| picker.chosen().unwrap().1.unwrap();
    assert_eq!(address(&mut picker), "z@0");
    picker.key(KeyCode::Tab);
    assert_eq!(address(&mut picker), "z@1");
    picker.press(KeyCode::BackTab, KeyModifiers::SHIFT);
    picker.press(KeyCode::BackTab, KeyModifiers::SHIFT);
    assert_eq!(address(&mut picker), "z@2");
    picker.key(KeyCode::Tab);
    assert_eq!(address(&mut picker), "z@0");
}

#[test]
fn leaving_and_other_ways_out() {
    let mut picker = Picker::new("x");
    assert_eq!(picker.key(KeyCode::Esc), Some(Effect::Leave));
    assert_eq!(picker.control('c'), Some(Effect::Leave));
    assert_eq!(picker.control('g'), Some(Effect::Leave));
    assert_eq!(picker.control('z'), Some(Effect::Suspend));
    assert_eq!(picker.control('l'), Some(Effect::Redraw));
    assert_eq!(picker.control('x'), None);
    assert_eq!(picker.key(KeyCode::F(1)), None);
    let released = KeyEvent { kind: KeyEventKind::Release, ..KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE) };
    assert_eq!(picker.on(Event::Key(released)), None);
    assert_eq!(picker.state.query().text(), "x", "none of these is typed");
}

#[test]
fn the_line_is_edited() {
    let mut picker = Picker::new("fix the leak");
    picker.control('w');
    assert_eq!(picker.state.query().text(), "fix the ");
    picker.control('a');
    picker.control('d');
    picker.key(KeyCode::Delete);
    picker.control('e');
    picker.key(KeyCode::Left);
    picker.control('h');
    assert_eq!(picker.state.query().text(), "x th ");
    picker.on(Event::Paste("\x1b[2J\nx".to_owned()));
    assert_eq!(picker.state.query().text(), "x th[2J x ");
    picker.control('u');
    assert_eq!(picker.state.query().text(), " ");
    assert_eq!(picker.state.due(), None, "nothing is searched for");
    assert_eq!(picker.rows().len(), 3);
}

#[test]
fn what_was_in_the_way_is_told() {
    let mut picker = Picker::new("x");
    let (search, _) = picker.pause();
    picker.on(Event::Found { search, answer: Err("the store is busy".to_owned()) });
    assert!(picker.screen(100, 12).contains("the store is busy"));
    picker.type_in("y");
    assert_eq!(picker.state.notice(), None);
    let (search, _) = picker.pause();
    let answer = Answer { found: Vec::new(), notices: vec!["`role:x` is no role".to_owned()] };
    picker.on(Event::Found { search, answer: Ok(answer) });
    let screen = picker.screen(100, 12);
    assert!(screen.contains("`role:x` is no role") && screen.contains("Nothing fits."), "{screen}");
}

#[test]
fn a_wide_terminal_shows_the_preview_beside_the_list() {
    let mut picker = Picker::new("leak");
    let (search, _) = picker.pause();
    picker.answer(search, vec![found("c", "Fix a leak", &["leaks were found", "leak"])]);
    let screen = picker.screen(100, 12);
    let lines: Vec<&str> = screen.lines().collect();
    assert!(lines[0].contains("❯ leak") && lines[0].trim_end_matches('"').ends_with("1/3"), "{screen}");
    assert!(
        lines[1].contains(" Fix a leak") && lines[1].contains("2 hits") && lines[1].contains("1 h ago"),
        "{screen}"
    );
    for words in ["project · codex · 1 h ago", "▶ c@0  user", "leaks were found", "  c@1  user", "enter takes it"] {
        assert!(screen.contains(words), "{words}:\n{screen}");
    }
    picker.key(KeyCode::Tab);
    assert!(picker.screen(100, 12).contains("▶ c@1"));
}

#[test]
fn every_size_is_drawn() {
    let mut picker = Picker::new("日本語");
    let family = "👨\u{200d}👩\u{200d}👧";
    let titles = ["日本語の題名がとても長い", &family.repeat(30), "e\u{301}e\u{301}", "", "\u{fffd}␛[31m"];
    let threads = titles.iter().enumerate().map(|(at, title)| candidate(&format!("w{at}"), title)).collect();
    picker.on(Event::Listed { threads, is_end: false });
    for (columns, rows) in (0..30).flat_map(|columns| (0..8).map(move |rows| (columns * 7, rows * 4))) {
        picker.on(Event::Resize(columns, rows));
        picker.screen(columns, rows);
        // The terminal can be another one already than the one that was told.
        picker.screen(columns / 2, rows / 2);
    }
    picker.on(Event::Resize(60, 20));
    let screen = picker.screen(60, 20);
    assert!(screen.contains("日") && screen.contains("the beginning of w0"), "the preview stands below:\n{screen}");
}
