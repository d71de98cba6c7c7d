//! Connections that are lent to whoever asks the index. They are not those of the store's own requests, since a request may ask the
//! index while it holds one of these.

use std::sync::{Arc, PoisonError};
use std::time::Instant;

use crate::concurrency::{Condvar, Mutex, MutexGuard};
use crate::db::postgres::Place;
use crate::db::postgres::session::{Purpose, Session};
use crate::error::{Error, Result};

/// How many connections the index opens at most. Who gets none waits for one.
pub(crate) const CONNECTIONS: usize = 2;

/// What the server is not to choose: it knows nothing of how often a term stands anywhere, and every search is bounded by itself.
const SETTINGS: &str = "SET enable_seqscan = off; SET max_parallel_workers_per_gather = 0";

#[derive(Debug)]
pub(super) struct Lender {
    place: Arc<Place>,
    kept: Mutex<Kept>,
    news: Condvar,
}

#[derive(Debug, Default)]
struct Kept {
    idle: Vec<Session>,
    lent: usize,
}

/// A connection that is given back when this is dropped; it is closed then, unless it is to be kept.
#[derive(Debug)]
pub(super) struct Lent<'a> {
    lender: &'a Lender,
    session: Option<Session>,
    is_kept: bool,
}

impl Lender {
    pub(super) fn new(place: Arc<Place>) -> Self {
        Self { place, kept: Mutex::default(), news: Condvar::new() }
    }

    /// A connection, when there is one to be had; a server that can't be reached is waited for until then.
    pub(super) fn lend(&self, deadline: Instant) -> Result<Lent<'_>> {
        let mut kept = self.kept();
        while kept.lent >= CONNECTIONS {
            kept = self.news.wait(kept).unwrap_or_else(PoisonError::into_inner);
        }
        kept.lent += 1;
        let mut lent = Lent { lender: self, session: kept.idle.pop(), is_kept: false };
        drop(kept);
        if lent.session.is_none() {
            let session = self.place.connect_until(Purpose::Read, deadline)?;
            session.batch(SETTINGS).map_err(|refusal| refusal.error)?;
            lent.session = Some(session);
        }
        Ok(lent)
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lent<'_> {
    pub(super) fn session(&mut self) -> Result<&mut Session> {
        self.session.as_mut().ok_or_else(|| Error::Backend { detail: "no connection".to_owned() })
    }

    /// Says that the connection is good for the next one.
    pub(super) fn keep(&mut self) {
        self.is_kept = true;
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let session = self.session.take().filter(|_| self.is_kept);
        let mut kept = self.lender.kept();
        kept.idle.extend(session);
        kept.lent -= 1;
        drop(kept);
        self.lender.news.notify_one();
    }
}
