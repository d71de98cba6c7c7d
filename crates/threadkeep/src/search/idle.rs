//! The thread that brings the index up to date while nobody writes, so that a search finds little left to do.
//!
//! Only where somebody searches: a store that was never searched has no index and pays nothing for one.

use std::sync::{Arc, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::indexing::Indexer;
use crate::concurrency::thread::{self, JoinHandle};
use crate::concurrency::{Condvar, Mutex, MutexGuard};
use crate::db::index::Changed;
use crate::db::news::{Hear, Touched};
use crate::db::{Db, write_queue};
use crate::error::{Error, Result};

/// How long nothing must have been committed before it begins, and after how long it begins all the same.
const QUIET: Duration = Duration::from_millis(300);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// After each batch it rests so many times as long as that took: those who write have the machine for themselves.
const REST_FACTOR: u32 = 2;
/// How long it waits when somebody else changes the index, or something failed.
const RETRY: Duration = Duration::from_secs(2);

/// Indexes while the store is idle. Dropped, it ends after the batch that it is at.
#[derive(Debug)]
pub(crate) struct Idle {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    desk: Mutex<Desk>,
    news: Condvar,
}

#[derive(Debug, Default)]
struct Desk {
    /// When the first and the last commit were that are not followed yet.
    first: Option<Instant>,
    last: Option<Instant>,
    is_asleep: bool,
    is_closing: bool,
}

impl Hear for Shared {
    fn hear(&self, _: &Touched) {
        let mut desk = self.desk();
        let now = Instant::now();
        desk.first.get_or_insert(now);
        desk.last = Some(now);
        let is_asleep = std::mem::take(&mut desk.is_asleep);
        drop(desk);
        if is_asleep {
            self.news.notify_all();
        }
    }
}

impl Shared {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is something to do and the store is quiet; says whether it is to end.
    fn wait(&self) -> bool {
        let mut desk = self.desk();
        loop {
            if desk.is_closing {
                return true;
            }
            let Some((first, last)) = desk.first.zip(desk.last) else {
                desk.is_asleep = true;
                desk = self.news.wait(desk).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let at = (last + QUIET).min(first + LONGEST_WAIT);
            let rest = at.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                (desk.first, desk.last) = (None, None);
                return false;
            }
            desk = self.news.wait_timeout(desk, rest).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Rests, unless it is to end; says whether it is.
    fn rest(&self, rest: Duration) -> bool {
        let until = Instant::now() + rest;
        let mut desk = self.desk();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if desk.is_closing || left.is_zero() {
                return desk.is_closing;
            }
            desk = self.news.wait_timeout(desk, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Idle {
    /// Starts it; what the store lacks already is done first.
    pub(crate) fn start(indexer: Arc<Indexer>, db: Db) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let now = Instant::now();
        (shared.desk().first, shared.desk().last) = (Some(now), Some(now));
        let hears: Weak<dyn Hear> = Arc::downgrade(&(Arc::clone(&shared) as Arc<dyn Hear>));
        db.board().tell_too(hears);
        let work = Arc::clone(&shared);
        let run = move || run(&work, &indexer, &db);
        let thread = thread::Builder::new().name("threadkeep-indexer".to_owned()).spawn(run);
        let thread = thread.map_err(|error| Error::Backend { detail: format!("no thread to index with: {error}") })?;
        Ok(Self { shared, thread: Some(thread) })
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        self.shared.desk().is_closing = true;
        self.shared.news.notify_all();
        if let Some(thread) = self.thread.take() {
            write_queue::join(thread);
        }
    }
}

fn run(shared: &Shared, indexer: &Arc<Indexer>, db: &Db) {
    while !shared.wait() {
        loop {
            let began = Instant::now();
            let rest = match indexer.round(db) {
                Ok(None) => break,
                Ok(Some(Changed::Yes)) => began.elapsed() * REST_FACTOR,
                Ok(Some(Changed::Busy)) => RETRY,
                Err(trouble) => {
                    tracing::warn!(error = %trouble.into_error(), "the search index lags");
                    // A damaged one is made anew by the next search, which tells of it.
                    break;
                }
            };
            if shared.rest(rest) {
                return;
            }
        }
    }
}
