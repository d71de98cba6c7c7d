//! What goes on behind the picker: keys and signals are waited for, threads are listed, items are searched.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use crossterm::event::{self, Event as Input};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use threadkeep::{Item, ItemQuery, ListQuery, Role, SearchQuery, SortKey, Thread, View};

use super::Scope;
use super::state::{Answer, Candidate, Event, Found, FoundHit};
use crate::commands::{self, list, search};
use crate::errors::{Code, Failure, Report};
use crate::views;
use crate::{human, json, text};

/// How many threads are listed at most. Search finds the others.
pub(super) const LISTED: usize = 10_000;
const PAGE: usize = 200;
/// How many threads a search shows.
const FOUND: usize = 50;
/// The width of a snippet: a few lines of the preview.
const SNIPPET: usize = 320;
/// How much of a thread's beginning is matched and shown, in characters.
const PREVIEW: usize = 400;
/// How many items are looked through for it where a thread says nothing of itself.
const LOOK: usize = 8;
/// How long the index may be brought up to date before an answer is given.
const PATIENCE: Duration = Duration::from_millis(500);

/// What is told to the picker.
pub(super) enum News {
    Event(Event),
    Signal(i32),
    Failed(Failure),
    /// Somebody panicked, and said so.
    Broken,
}

/// Tells that the thread broke, if it does.
struct Tells(Sender<News>);

impl Drop for Tells {
    fn drop(&mut self) {
        if thread::panicking() {
            let _ = self.0.send(News::Broken);
        }
    }
}

fn spawn(tell: Sender<News>, run: impl FnOnce(&Sender<News>) + Send + 'static) {
    thread::spawn(move || {
        let tells = Tells(tell);
        run(&tells.0);
    });
}

/// Waits for signals that end a program.
pub(super) fn watch_signals(tell: Sender<News>) -> Result<(), Failure> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGQUIT])?;
    spawn(tell, move |tell| {
        for signal in signals.forever() {
            if tell.send(News::Signal(signal)).is_err() {
                return;
            }
        }
    });
    Ok(())
}

/// Waits for keys. The thread ends with the process: nothing wakes it but a key.
pub(super) fn read_keys(tell: Sender<News>) {
    spawn(tell, |tell| {
        loop {
            let event = match event::read() {
                Ok(Input::Key(key)) => Event::Key(key),
                Ok(Input::Paste(text)) => Event::Paste(text),
                Ok(Input::Resize(columns, rows)) => Event::Resize(columns, rows),
                Ok(_) => continue,
                Err(error) => {
                    let report = Report::new(Code::NotDone, "io", format!("reading keys: {error}"));
                    let _ = tell.send(News::Failed(report.into()));
                    return;
                }
            };
            if tell.send(News::Event(event)).is_err() {
                return;
            }
        }
    });
}

/// Lists the threads, the newest first, page by page.
pub(super) fn list(scope: Scope, tell: Sender<News>) {
    spawn(tell, move |tell| {
        let mut query = ListQuery { sort: SortKey::Activity, limit: PAGE, ..ListQuery::default() };
        let mut count = 0;
        loop {
            let page = match scope.threads.list(query.clone()) {
                Ok(page) => page,
                Err(error) => {
                    let _ = tell.send(News::Failed(error.into()));
                    return;
                }
            };
            count += page.entries.len();
            let is_end = page.next_cursor.is_none() || count >= LISTED;
            let threads = page.entries.iter().map(|thread| candidate(&scope, thread)).collect();
            if tell.send(News::Event(Event::Listed { threads, is_end })).is_err() || is_end {
                return;
            }
            query.cursor = page.next_cursor;
        }
    });
}

/// Answers searches. Of several that wait only the last is searched for.
pub(super) fn search(scope: Scope, tell: Sender<News>) -> Sender<(u64, String)> {
    let (ask, asked): (_, Receiver<(u64, String)>) = channel();
    spawn(tell, move |tell| {
        while let Ok(mut wanted) = asked.recv() {
            while let Ok(newer) = asked.try_recv() {
                wanted = newer;
            }
            let (search, text) = wanted;
            let answer = answer(&scope, text);
            if tell.send(News::Event(Event::Found { search, answer })).is_err() {
                return;
            }
        }
    });
    ask
}

fn answer(scope: &Scope, text: String) -> Result<Answer, String> {
    let query = SearchQuery {
        limit: FOUND,
        width: SNIPPET,
        trashed: scope.trashed,
        zone: commands::time_zone(),
        patience: PATIENCE,
        ..SearchQuery::new(text)
    };
    let page = scope.threads.search(query).map_err(|error| text::one_line(&error.to_string()))?;
    let addresses = search::Addresses::new(&scope.threads);
    let mut found: Vec<Found> = Vec::new();
    for thread in &page.threads {
        // It can be purged meanwhile.
        let Ok(whole) = scope.threads.get(&thread.id) else { continue };
        let hits = thread.hits.iter().filter(|hit| hit.item.is_some()).map(|hit| FoundHit {
            name: addresses.hit(&thread.id, hit),
            address: search::full_address(&thread.id, hit),
            facts: search::facts(hit),
            snippet: search::snippet(hit),
            document: search::hit_document(thread, hit),
        });
        found.push(Found { candidate: candidate(scope, &whole), hits: hits.collect(), more: thread.more });
    }
    let notices = page.not_understood.iter().chain(&page.notices).map(|notice| text::one_line(notice)).collect();
    Ok(Answer { found, notices })
}

fn candidate(scope: &Scope, thread: &Thread) -> Candidate {
    let preview = thread.details.preview.clone().or_else(|| beginning(scope, thread)).unwrap_or_default();
    let preview: String = preview.chars().take(PREVIEW).collect();
    let items = thread.items + json::shared_items(thread);
    let facts = [
        Some(thread.id.as_str().to_owned()),
        thread.details.cwd.clone(),
        Some(format!("{}, begun {}", human::counted(items, "item", "items"), human::moment(thread.created_at))),
        thread.archived_at.map(|_| "archived".to_owned()),
        thread.trashed_at.map(|_| "in the trash".to_owned()),
    ];
    Candidate {
        id: thread.id.clone(),
        title: text::one_line(thread.name()),
        preview: text::clean(&preview).into_owned(),
        agent: text::one_line(thread.details.agent.as_deref().unwrap_or_default()),
        workspace: text::one_line(&thread.workspace_name),
        when: Some(list::last_word(&scope.threads, thread)),
        facts: facts.into_iter().flatten().map(|fact| text::one_line(&fact)).collect(),
    }
}

/// The first prompt of a thread that says nothing of itself.
fn beginning(scope: &Scope, thread: &Thread) -> Option<String> {
    let query = ItemQuery { limit: LOOK, ..ItemQuery::default() };
    // A thread is worth picking though its items can't be read.
    let items = scope.threads.items(&thread.id, query).ok()?.entries;
    let views = items.iter().map(|item| (item, scope.views.read(item)));
    let mut spoken = views.filter(|(item, view)| views::is_conversation(item, view));
    let is_users = |view: &View, item: &Item| view.role.as_ref().or(item.role.as_ref()) == Some(&Role::User);
    let first = spoken.next()?;
    let prompt = match is_users(&first.1, first.0) {
        true => first,
        false => spoken.find(|(item, view)| is_users(view, item)).unwrap_or(first),
    };
    Some(prompt.1.to_text())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::{News, spawn};

    #[test]
    fn who_breaks_says_so() {
        let (tell, news) = channel();
        spawn(tell.clone(), |_| panic!("on purpose"));
        assert!(matches!(news.recv(), Ok(News::Broken)));
        spawn(tell, |_| {});
        assert!(news.recv().is_err(), "who ends says nothing");
    }
}
