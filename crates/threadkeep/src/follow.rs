//! Following: a thread's active path as it changes, and the store as a whole, without asking again and again.
//!
//! What wakes a follower is a hint (`db/news.rs`); what it says is what it reads then, in one snapshot. So it says nothing
//! that was not committed, misses nothing, and holds nothing open while it waits.

mod changes;
mod steering;

pub use changes::ChangeFollower;

use crate::db::news::{Ear, Heard};
use crate::db::{Tx, query_one, statements};
use crate::error::Result;
use crate::id::{Address, ItemId, ItemKey, ThreadId, WorkspaceId};
use crate::item::Item;
use crate::log::{head, path, read};
use crate::store::{Store, Threads};
use crate::thread::Shelf;
use crate::threads::{self, Scope};

pub use steering::{InboxWatch, RequestWatch};

/// How many items are told at a time.
const PAGE: usize = 256;

statements! {
    STANDS_AT = "SELECT t.workspace, t.shelf, t.head, b.id FROM threads t LEFT JOIN branches b ON b.key = t.head >> 32 WHERE t.id = ?1";
}

/// What became of a followed thread. Whoever does what they say, one after the other, has its active path.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum News {
    /// Items that follow on what was told before, oldest first; never none.
    Items(Vec<Item>),
    /// The head moved to another branch or back (a rewind, a clear, a branch begun elsewhere): of what was told, the part
    /// up to and with this item is still on the active path, nothing of it when `None`.
    Back {
        /// The last item that still counts.
        to: Option<Address>,
    },
    /// Nothing more will come.
    Ended(FollowEnd),
}

/// Why nothing more comes from a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FollowEnd {
    /// It was put into the trash. Restored, it can be followed again.
    Trashed,
    /// It was purged, or this handle does not see it any more.
    Gone,
}

/// Follows one thread; see [`Threads::follow`]. Dropped, it frees what it used.
#[derive(Debug)]
pub struct Follower {
    /// First, so that it is gone before the store may close.
    ear: Ear,
    threads: Threads,
    thread: ThreadId,
    /// The last item that was told.
    at: Option<Address>,
    end: Option<FollowEnd>,
}

/// What changed in a store; see [`Store::watch`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Changed {
    /// These threads may have changed.
    Threads(Vec<ThreadId>),
    /// Any thread may have changed.
    Anything,
}

/// Says when a store changes; see [`Store::watch`]. Dropped, it frees what it used.
#[derive(Debug)]
pub struct Watch {
    /// First, so that it is gone before the store may close.
    ear: Ear,
    _store: Store,
}

impl Threads {
    /// Follows a thread from an item on, or from its beginning when `None`: [`Follower::next`] tells what comes after it on
    /// the active path. To follow from now on, name the thread's head. An item that is not on the active path is told as a
    /// way back first.
    ///
    /// # Errors
    /// [`NotFound`](crate::Error::NotFound) when the thread, or the item in it, is not visible here.
    pub async fn follow(&self, thread: &ThreadId, after: Option<Address>) -> Result<Follower> {
        let (scope, id) = (self.scope, thread.clone());
        let check = move |tx: &mut dyn Tx| {
            threads::check_visible(tx, scope, &id)?;
            after.map(|after| head::resolve(tx, &id, after)).transpose().map(drop)
        };
        self.inner.db.read(check).await?;
        let ear = self.inner.db.board().listen(Some(thread.to_string()))?;
        Ok(Follower { ear, threads: self.clone(), thread: thread.clone(), at: after, end: None })
    }
}

impl Follower {
    /// The thread that is followed.
    pub fn thread(&self) -> &ThreadId {
        &self.thread
    }

    /// The last item that was told; following from it goes on where this follower is.
    pub fn at(&self) -> Option<Address> {
        self.at
    }

    /// Waits for what comes next. What was acknowledged before the call is told at once; nothing is told twice unless the
    /// path left it and came back; nothing that was not committed is told. After [`News::Ended`] it says the same again.
    ///
    /// Whoever stops waiting loses nothing. While it waits, no transaction is open and no writer waits for it.
    ///
    /// # Errors
    /// As [`Threads::items`]. The follower stays where it is, and goes on when it is asked again.
    pub async fn next(&mut self) -> Result<News> {
        loop {
            if let Some(news) = self.try_next().await? {
                return Ok(news);
            }
            self.ready().await;
        }
    }

    /// Looks once, without waiting for news; `None` when there are none.
    ///
    /// # Errors
    /// As [`Follower::next`].
    pub async fn try_next(&mut self) -> Result<Option<News>> {
        if let Some(end) = self.end {
            return Ok(Some(News::Ended(end)));
        }
        // Before the store is read: what is committed meanwhile wakes.
        self.ear.take();
        let (scope, thread, at) = (self.threads.scope, self.thread.clone(), self.at);
        let news = self.threads.inner.db.read(move |tx| look(tx, scope, &thread, at)).await?;
        match &news {
            None => {}
            Some(News::Items(items)) => self.at = items.last().map(Item::address),
            Some(News::Back { to }) => self.at = *to,
            Some(News::Ended(end)) => self.end = Some(*end),
        }
        Ok(news)
    }

    /// Waits, after [`Follower::try_next`] found nothing, until there may be something. Reads nothing.
    pub async fn ready(&self) {
        self.ear.heard().await;
    }
}

impl Store {
    /// Says from now on when something changes in the store, through whatever program: to read again what is shown of it.
    ///
    /// # Errors
    /// [`Backend`](crate::Error::Backend) when nothing can be started that listens.
    pub fn watch(&self) -> Result<Watch> {
        Ok(Watch { ear: self.inner.db.board().listen(None)?, _store: self.clone() })
    }
}

impl Watch {
    /// Waits for a change. Whatever is acknowledged after [`Store::watch`] is followed by a signal; one signal may stand for
    /// many changes, and may come for nothing. The threads are named where they are known.
    pub async fn next(&mut self) -> Changed {
        loop {
            if let Some(changed) = self.try_next() {
                return changed;
            }
            self.ear.heard().await;
        }
    }

    /// What changed since it was last asked, without waiting.
    pub fn try_next(&mut self) -> Option<Changed> {
        match self.ear.take() {
            Heard::Nothing => None,
            Heard::Anything => Some(Changed::Anything),
            Heard::Threads(names) => {
                // What others send may be anything.
                let threads: Result<Vec<ThreadId>> = names.into_iter().map(ThreadId::new).collect();
                Some(threads.map_or(Changed::Anything, Changed::Threads))
            }
        }
    }

    /// Waits until there is something.
    pub(crate) async fn heard(&self) {
        self.ear.heard().await;
    }
}

/// Where a thread stands.
struct Stand {
    shelf: Shelf,
    /// Its head, by its key and by its address.
    head: Option<(ItemKey, Address)>,
}

/// Compares where the follower is with where the thread stands.
fn look(tx: &mut dyn Tx, scope: Scope, thread: &ThreadId, at: Option<Address>) -> Result<Option<News>> {
    let Some(stand) = stand_of(tx, scope, thread)? else {
        return Ok(Some(News::Ended(FollowEnd::Gone)));
    };
    if let Some(news) = compare(tx, at, stand.head)? {
        return Ok(Some(news));
    }
    Ok((stand.shelf == Shelf::Trashed).then_some(News::Ended(FollowEnd::Trashed)))
}

/// Where a thread stands; `None` when it is not visible.
fn stand_of(tx: &mut dyn Tx, scope: Scope, thread: &ThreadId) -> Result<Option<Stand>> {
    let found = query_one(tx, STANDS_AT, &[thread.as_str().into()], |row| {
        let workspace = row.parse(0, WorkspaceId::from_slice(row.blob(0)?), "16 bytes of an id")?;
        let shelf = row.parse(1, Shelf::from_int(row.int(1)?), "a shelf")?;
        let head = match row.opt_int(2)?.map(ItemKey) {
            None => None,
            Some(key) => {
                let branch = row.parse(3, ItemId::from_slice(row.blob(3)?), "16 bytes of an id")?;
                Some((key, Address { branch, depth: key.depth() }))
            }
        };
        Ok((workspace, Stand { shelf, head }))
    })?;
    let is_seen = |workspace| scope == Scope::All || scope == Scope::Workspace(workspace);
    let seen = found.filter(|(workspace, stand)| stand.shelf != Shelf::Stub && is_seen(*workspace));
    Ok(seen.map(|(_, stand)| stand))
}

fn compare(tx: &mut dyn Tx, at: Option<Address>, head: Option<(ItemKey, Address)>) -> Result<Option<News>> {
    let (end, address) = match (at, head) {
        (None, None) => return Ok(None),
        (Some(_), None) => return Ok(Some(News::Back { to: None })),
        (_, Some(head)) => head,
    };
    if at == Some(address) {
        return Ok(None);
    }
    let shared = match at {
        None => None,
        // Most of the time the branch has grown.
        Some(at) if at.branch == address.branch => Some(Address { depth: at.depth.min(address.depth), ..at }),
        Some(at) => shared(tx, at, end)?,
    };
    if shared != at {
        return Ok(Some(News::Back { to: shared }));
    }
    let from = at.map_or(0, |at| at.depth + 1);
    Ok(Some(News::Items(read::run(tx, end, from, PAGE)?)))
}

/// The last item of the path to `at` that is also on the path to `end`.
fn shared(tx: &mut dyn Tx, at: Address, end: ItemKey) -> Result<Option<Address>> {
    // A branch that is there no more was purged with its thread, and another has taken its name.
    let Some((key, _)) = path::key_of(tx, at)? else { return Ok(None) };
    path::meet(tx, key, end)?.map(|meet| path::address_of(tx, meet)).transpose()
}
