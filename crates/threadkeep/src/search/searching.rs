//! Answering a search: the index is brought up to date and asked, what it lacks is read, and the newest that fit are ranked.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use jiff::tz::TimeZone;

use super::asking::{self, Question};
use super::indexing::{Indexer, Lack, Trouble};
use super::looking::{Found, Looker};
use super::page::{FoundThread, SearchPage, SearchQuery};
use super::query::{self, Query};
use super::tail;
use crate::concurrency::block_on;
use crate::cursor::Cursor;
use crate::db::Db;
use crate::db::index::Fit;
use crate::error::{Error, Result};
use crate::id::ThreadId;
use crate::threads::Scope;
use crate::time::Timestamp;

/// How many of the newest documents that fit are ranked against each other: reading and ranking one costs some 50 µs, which is most
/// of what a search costs (`docs/benchmarks.md`).
pub(crate) const RANKED: usize = 200;
/// How many documents are looked at until so many pass what no tag says.
const MOST_LOOKED_AT: usize = 50_000;
const MOST_ON_A_PAGE: usize = 200;
const MOST_OF_A_THREAD: usize = 50;
const MOST_COLUMNS: usize = 2_000;

/// A search on its way.
#[derive(Debug)]
pub(crate) struct Search {
    pub(crate) db: Db,
    pub(crate) indexer: Arc<Indexer>,
    pub(crate) scope: Scope,
    pub(crate) now: Timestamp,
    pub(crate) asked: SearchQuery,
}

/// Where a page starts: the documents up to this number, without the first of those that were ranked.
#[derive(Debug, Clone, Copy)]
struct Start {
    upto: i64,
    skip: usize,
}

impl Search {
    /// Runs it. Blocks.
    pub(crate) fn run(mut self) -> Result<SearchPage> {
        self.asked.limit = self.asked.limit.min(MOST_ON_A_PAGE);
        self.asked.per_thread = self.asked.per_thread.min(MOST_OF_A_THREAD);
        self.asked.width = self.asked.width.clamp(8, MOST_COLUMNS);
        let mut page = SearchPage::default();
        let query = self.parse(&mut page);
        let start = self.asked.cursor.as_deref().map(|cursor| self.start(cursor)).transpose()?;
        let (question, told) = self.question(&query)?;
        page.not_understood.extend(told);
        let lack = self.catch_up(&mut page);
        let upto = start.map_or_else(|| lack.as_ref().map_or(0, |lack| lack.standing.top), |start| start.upto);
        let mut window = match &lack {
            Some(_) => self.window(&query, &question, upto, &mut page)?,
            None => Window { found: Vec::new(), next: None },
        };
        // What is not in the index yet is newer than what is, or about to be: it belongs to the first window.
        if start.is_none_or(|start| start.skip > 0 && is_first(start.upto, lack.as_ref())) {
            window.found.extend(tail::read(&self, &query, &question, lack.as_ref(), &mut page.notices)?);
        }
        self.fill(
            page,
            window,
            self.looker(&query, &question),
            Start { upto, skip: start.map_or(0, |start| start.skip) },
        )
    }

    fn parse(&self, page: &mut SearchPage) -> Query {
        let zone = self.asked.zone.as_deref().map(TimeZone::get);
        if let Some(Err(_)) = &zone {
            let words = self.asked.zone.as_deref().unwrap_or_default();
            page.not_understood.push(format!("There is no time zone called `{words}`, so days are those of UTC."));
        }
        let zone = zone.and_then(std::result::Result::ok).unwrap_or(TimeZone::UTC);
        let mut query = query::parse(&self.asked.text, self.now, &zone);
        page.not_understood.append(&mut query.not_understood);
        query
    }

    fn question(&self, query: &Query) -> Result<(Question, Vec<String>)> {
        let (scope, query) = (self.scope, query.clone());
        block_on(self.db.read(move |tx| {
            let mut told = Vec::new();
            let question = asking::question(tx, scope, &query, &mut told)?;
            Ok((question, told))
        }))
    }

    /// Brings the index up to date, or says why it can't be used.
    fn catch_up(&self, page: &mut SearchPage) -> Option<Lack> {
        let until = Instant::now() + self.asked.patience;
        match self.indexer.catch_up(&self.db, until) {
            Ok(lack) => {
                page.notices.extend(self.indexer.damage());
                Some(lack)
            }
            Err(Trouble::Index(error)) => {
                page.notices.push(self.make_anew(&error));
                None
            }
            Err(Trouble::Other(error)) => {
                page.notices.push(unusable(&error));
                None
            }
        }
    }

    /// Throws a damaged index away, and says so.
    fn make_anew(&self, error: &Error) -> String {
        match self.indexer.index.clear() {
            Ok(()) => format!(
                "the search index was damaged and is being made anew; until then the newest items are read one by one ({error})"
            ),
            Err(failed) => format!("the search index is damaged ({error}) and can't be made anew: {failed}"),
        }
    }

    /// The newest documents that fit, ranked.
    fn window(&self, query: &Query, question: &Question, upto: i64, page: &mut SearchPage) -> Result<Window> {
        let mut window = Window { found: Vec::new(), next: None };
        let (mut next, mut looked_at) = (upto, 0);
        loop {
            let fits = match self.indexer.index.find(&question.expr, next, RANKED) {
                Ok(fits) => fits,
                Err(error) => {
                    let is_damaged = matches!(error, Error::Corrupt { .. });
                    page.notices.push(if is_damaged { self.make_anew(&error) } else { unusable(&error) });
                    return Ok(window);
                }
            };
            let (count, last) = (fits.len(), fits.last().map(|fit| fit.number));
            looked_at += count;
            window.found.extend(self.look(query, question, fits)?);
            let Some(last) = last.filter(|_| count == RANKED) else { return Ok(window) };
            next = last - 1;
            if window.found.len() >= RANKED || looked_at >= MOST_LOOKED_AT {
                window.next = Some(next);
                return Ok(window);
            }
        }
    }

    /// Of these documents those that pass every check, ranked.
    fn look(&self, query: &Query, question: &Question, fits: Vec<Fit>) -> Result<Vec<Found>> {
        let looker = self.looker(query, question);
        block_on(self.db.read(move |tx| looker.clone().look(tx, &fits)))
    }

    pub(super) fn looker(&self, query: &Query, question: &Question) -> Looker {
        let readers = self.indexer.readers.clone();
        Looker::new(self.scope, self.asked.trashed, self.now, readers, query.clone(), question.clone())
    }

    /// Chooses what stands on the page, and reads what is shown of it.
    fn fill(&self, mut page: SearchPage, mut window: Window, looker: Looker, start: Start) -> Result<SearchPage> {
        window.found.sort_by(Found::order);
        window.found.dedup_by(|one, other| one.subject == other.subject);
        page.matches = window.found.len();
        let mut groups = match self.asked.per_thread {
            0 => window.found.into_iter().map(|found| vec![found]).collect(),
            _ => grouped(window.found),
        };
        let after = groups.len().min(start.skip);
        groups.drain(..after);
        let is_cut = groups.len() > self.asked.limit;
        groups.truncate(self.asked.limit);
        let next = match (is_cut, window.next) {
            (true, _) => Some(Start { upto: start.upto, skip: start.skip + groups.len() }),
            (false, Some(upto)) => Some(Start { upto, skip: 0 }),
            (false, None) => None,
        };
        page.is_all = window.next.is_none();
        page.next_cursor = next.map(|next| self.cursor(next));
        let (shown, width) = (self.asked.per_thread.max(1), self.asked.width);
        page.threads = block_on(self.db.read(move |tx| {
            let mut looker = looker.clone();
            let threads = groups.iter().map(|group| looker.show(tx, group, shown, width));
            threads.filter_map(Result::transpose).collect::<Result<Vec<FoundThread>>>()
        }))?;
        Ok(page)
    }

    fn tag(&self) -> String {
        let asked = &self.asked;
        format!("search {:?} {} {} {:?} {:?}", asked.text, asked.trashed, asked.per_thread, asked.zone, self.scope)
    }

    fn cursor(&self, start: Start) -> String {
        Cursor { value: start.upto, id: start.skip.to_string() }.encode(&self.tag())
    }

    fn start(&self, cursor: &str) -> Result<Start> {
        let cursor = Cursor::decode(cursor, &self.tag())?;
        let skip = cursor.id.parse().map_err(|_| Error::invalid("cursor", "it is damaged"))?;
        Ok(Start { upto: cursor.value, skip })
    }
}

fn unusable(error: &Error) -> String {
    format!("the search index can't be used, so the newest items were read one by one: {error}")
}

/// Whether a window that begins at this number is the newest one.
fn is_first(upto: i64, lack: Option<&Lack>) -> bool {
    lack.is_none_or(|lack| lack.standing.top == upto)
}

/// What is ranked against each other.
#[derive(Debug)]
pub(crate) struct Window {
    found: Vec<Found>,
    /// The number from which the next window goes down; `None` when this is the last one.
    next: Option<i64>,
}

/// The hits of each thread together, in the order of the first of each.
fn grouped(found: Vec<Found>) -> Vec<Vec<Found>> {
    let mut groups: Vec<(ThreadId, Vec<Found>)> = Vec::new();
    let mut places = HashMap::new();
    for found in found {
        let place = *places.entry(found.thread.clone()).or_insert_with(|| {
            groups.push((found.thread.clone(), Vec::new()));
            groups.len() - 1
        });
        if let Some((_, group)) = groups.get_mut(place) {
            group.push(found);
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}
