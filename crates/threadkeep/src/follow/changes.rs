//! Reading and following the feed of changes, and the index of threads that it goes on from.

use std::time::Duration;

use futures_channel::oneshot;

use crate::changes::{self, ActivityPage, ActivityQuery, ChangeEntry, ChangePage, ChangeQuery};
use crate::concurrency::atomic::Ordering;
use crate::concurrency::thread;
use crate::db::Sync;
use crate::db::news::Ear;
use crate::error::Result;
use crate::store::{Store, Threads};

/// How soon is looked again whether a change that is committed can be told: no news comes of that.
const SETTLING: Duration = Duration::from_millis(20);

impl Threads {
    /// Reads a page of what changed in the store, as far as this handle sees it: items, heads, threads, claims and everything that
    /// stands beside the log, in a total order.
    ///
    /// Nothing that is committed later appears before a cursor that was given; the changes of a thread come in the order of
    /// their commits. A change is told by name: what it made is to be read. Where a server's transaction takes long, what was
    /// committed after it began is told when it has ended.
    ///
    /// In a folder the items are told one by one from the first time on that anybody asks for changes; of those that were there before
    /// each thread tells once that it has some. So nobody pays for the feed in a store that nobody follows.
    ///
    /// # Errors
    /// [`crate::Error::ReadOnly`] for the first time through a handle that only reads; [`crate::Error::Trimmed`] for a cursor behind which changes are no longer kept (a store keeps 100,000 at least, or what
    /// [`Store::keep_changes`] said), or that another copy of the store gave.
    pub async fn changes(&self, query: ChangeQuery) -> Result<ChangePage> {
        self.begin_feed().await?;
        let scope = self.scope;
        self.inner.db.read(move |tx| changes::page(tx, scope, &query)).await
    }

    /// The cursor behind everything that changed until now.
    ///
    /// # Errors
    /// [`crate::Error::ReadOnly`] as there.
    pub async fn latest_change(&self) -> Result<String> {
        self.begin_feed().await?;
        self.inner.db.read(changes::latest).await
    }

    /// Has new items noted, if they are not.
    async fn begin_feed(&self) -> Result<()> {
        let begun = &self.inner.feed_is_begun;
        if begun.load(Ordering::Relaxed) {
            return Ok(());
        }
        if !self.inner.db.read(changes::is_begun).await? {
            self.inner.db.write(Sync::Synced.free().repeatable(), changes::begin).await?;
        }
        begun.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Reads a page of the index of threads: how far each of them is. What is in no page is gone; what changed after the first page
    /// was read comes in [`Threads::changes`] behind its [`ActivityPage::since`].
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for a cursor of another query.
    pub async fn activity(&self, query: ActivityQuery) -> Result<ActivityPage> {
        self.begin_feed().await?;
        let scope = self.scope;
        self.inner.db.read(move |tx| changes::activity(tx, scope, &query)).await
    }

    /// Follows the feed of changes, through whatever program they are made, without asking again and again.
    ///
    /// # Errors
    /// As [`Threads::changes`].
    pub async fn follow_changes(&self, query: ChangeQuery) -> Result<ChangeFollower> {
        // What is of no thread may be of this one, as its jobs are.
        let ear = self.inner.db.board().listen(None)?;
        let since = match query.since {
            Some(since) => {
                let check = ChangeQuery { since: Some(since.clone()), thread: query.thread.clone(), limit: 0 };
                self.changes(check).await?;
                Some(since)
            }
            None => None,
        };
        let limit = query.limit.max(1);
        let query = ChangeQuery { since, limit, ..query };
        Ok(ChangeFollower { ear, threads: self.clone(), query, is_pending: false })
    }
}

impl Store {
    /// Says how many changes the store keeps at least, for all programs and from now on. Older ones go little by little.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for fewer than 1,000.
    pub async fn keep_changes(&self, count: u64) -> Result<()> {
        self.inner.db.write(Sync::Synced.free().repeatable(), move |tx| changes::keep(tx, count)).await
    }
}

/// Follows the feed of changes; see [`Threads::follow_changes`]. Dropped, it frees what it used.
#[derive(Debug)]
pub struct ChangeFollower {
    /// First, so that it is gone before the store may close.
    ear: Ear,
    threads: Threads,
    query: ChangeQuery,
    /// Whether something is committed that could not be told yet.
    is_pending: bool,
}

impl ChangeFollower {
    /// Behind what was told; another follower goes on from there. `None` before the oldest change.
    pub fn cursor(&self) -> Option<&str> {
        self.query.since.as_deref()
    }

    /// Waits for what comes next: never nothing, nothing twice, in the order of the feed. Who stops waiting loses nothing.
    ///
    /// # Errors
    /// As [`Threads::changes`]. The follower stays where it is.
    pub async fn next(&mut self) -> Result<Vec<ChangeEntry>> {
        loop {
            let changes = self.try_next().await?;
            if !changes.is_empty() {
                return Ok(changes);
            }
            self.ready().await;
        }
    }

    /// Looks once, without waiting; nothing when there is nothing new.
    ///
    /// # Errors
    /// As [`ChangeFollower::next`].
    pub async fn try_next(&mut self) -> Result<Vec<ChangeEntry>> {
        // Before the store is read: what is committed meanwhile wakes.
        self.ear.take();
        let page = self.threads.changes(self.query.clone()).await?;
        self.query.since = Some(page.cursor);
        self.is_pending = page.pending;
        Ok(page.changes)
    }

    /// Waits, after [`ChangeFollower::try_next`] found nothing, until there may be something. Reads nothing.
    pub async fn ready(&self) {
        match self.is_pending {
            true => pause(SETTLING).await,
            false => self.ear.heard().await,
        }
    }
}

/// Waits without a runtime's clock, which may be any. Where no thread can be started it does not wait.
async fn pause(length: Duration) {
    let (done, over) = oneshot::channel::<()>();
    let wait = move || {
        thread::sleep(length);
        drop(done);
    };
    let started = thread::Builder::new().name("threadkeep-pause".to_owned()).spawn(wait);
    if started.is_ok() {
        // It says nothing: its end is the word.
        over.await.unwrap_or(());
    }
}
