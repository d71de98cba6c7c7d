//! Following with calls that wait, as long as they are told to.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use super::{LiveThread, Store, Threads};
use crate::changes::{ActivityPage, ActivityQuery, ChangeEntry, ChangePage, ChangeQuery};
use crate::concurrency::block_on;
use crate::concurrency::thread::{self, Thread};
use crate::error::Result;
use crate::follow::{Changed, News};
use crate::id::{Address, RequestId, ThreadId};
use crate::inbox::TakeInto;
use crate::requests::Request;

/// A [`crate::Follower`] whose calls wait.
#[derive(Debug)]
pub struct Follower(crate::Follower);

/// A [`crate::Watch`] whose calls wait.
#[derive(Debug)]
pub struct Watch(crate::Watch);

impl Threads {
    /// Waits for [`crate::Threads::follow`].
    ///
    /// # Errors
    /// As the async call.
    pub fn follow(&self, thread: &ThreadId, after: Option<Address>) -> Result<Follower> {
        block_on(self.0.follow(thread, after)).map(Follower)
    }
}

impl Follower {
    /// The thread that is followed.
    pub fn thread(&self) -> &ThreadId {
        self.0.thread()
    }

    /// The last item that was told; following from it goes on where this follower is.
    pub fn at(&self) -> Option<Address> {
        self.0.at()
    }

    /// Waits for [`crate::Follower::next`], however long that takes.
    ///
    /// # Errors
    /// As the async call.
    #[expect(clippy::should_implement_trait, reason = "it has the name of the async call, and an end of another kind")]
    pub fn next(&mut self) -> Result<News> {
        block_on(self.0.next())
    }

    /// Waits for what comes next, for this long at most; looks once in any case. `None` when nothing came.
    ///
    /// # Errors
    /// As [`crate::Follower::next`].
    pub fn next_within(&mut self, bound: Duration) -> Result<Option<News>> {
        let deadline = Instant::now().checked_add(bound);
        loop {
            let news = self.try_next()?;
            if news.is_some() || !is_done_by(deadline, self.0.ready()) {
                return Ok(news);
            }
        }
    }

    /// Looks once, without waiting for news; see [`crate::Follower::try_next`].
    ///
    /// # Errors
    /// As [`crate::Follower::next`].
    pub fn try_next(&mut self) -> Result<Option<News>> {
        block_on(self.0.try_next())
    }

    /// Waits, after [`Follower::try_next`] found nothing, until there may be something, for this long at most; says whether
    /// there may. Reads nothing, so that it may be asked often.
    pub fn ready_within(&self, bound: Duration) -> bool {
        is_done_by(Instant::now().checked_add(bound), self.0.ready())
    }
}

/// A [`crate::ChangeFollower`] whose calls wait.
#[derive(Debug)]
pub struct ChangeFollower(crate::ChangeFollower);

impl Threads {
    /// Waits for [`crate::Threads::changes`].
    ///
    /// # Errors
    /// As the async call.
    pub fn changes(&self, query: ChangeQuery) -> Result<ChangePage> {
        block_on(self.0.changes(query))
    }

    /// Waits for [`crate::Threads::latest_change`].
    ///
    /// # Errors
    /// As the async call.
    pub fn latest_change(&self) -> Result<String> {
        block_on(self.0.latest_change())
    }

    /// Waits for [`crate::Threads::activity`].
    ///
    /// # Errors
    /// As the async call.
    pub fn activity(&self, query: ActivityQuery) -> Result<ActivityPage> {
        block_on(self.0.activity(query))
    }

    /// Waits for [`crate::Threads::follow_changes`].
    ///
    /// # Errors
    /// As the async call.
    pub fn follow_changes(&self, query: ChangeQuery) -> Result<ChangeFollower> {
        block_on(self.0.follow_changes(query)).map(ChangeFollower)
    }
}

impl ChangeFollower {
    /// Behind what was told; see [`crate::ChangeFollower::cursor`].
    pub fn cursor(&self) -> Option<&str> {
        self.0.cursor()
    }

    /// Waits for [`crate::ChangeFollower::next`], however long that takes.
    ///
    /// # Errors
    /// As the async call.
    #[expect(clippy::should_implement_trait, reason = "it has the name of the async call, and an end of another kind")]
    pub fn next(&mut self) -> Result<Vec<ChangeEntry>> {
        block_on(self.0.next())
    }

    /// Waits for what comes next, for this long at most; looks once in any case. Nothing when nothing came.
    ///
    /// # Errors
    /// As [`crate::ChangeFollower::next`].
    pub fn next_within(&mut self, bound: Duration) -> Result<Vec<ChangeEntry>> {
        let deadline = Instant::now().checked_add(bound);
        loop {
            let changes = block_on(self.0.try_next())?;
            if !changes.is_empty() || !is_done_by(deadline, self.0.ready()) {
                return Ok(changes);
            }
        }
    }
}

impl Store {
    /// Waits for [`crate::Store::keep_changes`].
    ///
    /// # Errors
    /// As the async call.
    pub fn keep_changes(&self, count: u64) -> Result<()> {
        block_on(self.0.keep_changes(count))
    }

    /// Says from now on when something changes in the store; see [`crate::Store::watch`].
    ///
    /// # Errors
    /// As the async handle's call.
    pub fn watch(&self) -> Result<Watch> {
        self.0.watch().map(Watch)
    }
}

impl Watch {
    /// Waits for [`crate::Watch::next`], however long that takes.
    #[expect(clippy::should_implement_trait, reason = "it has the name of the async call, and an end of another kind")]
    pub fn next(&mut self) -> Changed {
        block_on(self.0.next())
    }

    /// Waits for a change, for this long at most. `None` when there was none.
    pub fn next_within(&mut self, bound: Duration) -> Option<Changed> {
        let deadline = Instant::now().checked_add(bound);
        loop {
            let changed = self.0.try_next();
            if changed.is_some() || !is_done_by(deadline, self.0.heard()) {
                return changed;
            }
        }
    }
}

/// A [`crate::InboxWatch`] whose calls wait.
#[derive(Debug)]
pub struct InboxWatch(crate::InboxWatch);

/// A [`crate::RequestWatch`] whose calls wait.
#[derive(Debug)]
pub struct RequestWatch(crate::RequestWatch);

impl Threads {
    /// Waits for [`crate::Threads::watch_inbox`].
    ///
    /// # Errors
    /// As the async call.
    pub fn watch_inbox(&self, thread: &ThreadId, into: TakeInto) -> Result<InboxWatch> {
        block_on(self.0.watch_inbox(thread, into)).map(InboxWatch)
    }

    /// Waits for [`crate::Threads::watch_request`].
    ///
    /// # Errors
    /// As the async call.
    pub fn watch_request(&self, id: RequestId) -> Result<RequestWatch> {
        block_on(self.0.watch_request(id)).map(RequestWatch)
    }
}

impl LiveThread {
    /// Waits for [`crate::LiveThread::watch_inbox`].
    ///
    /// # Errors
    /// As the async call.
    pub fn watch_inbox(&self, into: TakeInto) -> Result<InboxWatch> {
        block_on(self.0.watch_inbox(into)).map(InboxWatch)
    }
}

impl InboxWatch {
    /// Waits for [`crate::InboxWatch::next`], however long that takes.
    ///
    /// # Errors
    /// As the async call.
    #[expect(clippy::should_implement_trait, reason = "it has the name of the async call, and an end of another kind")]
    pub fn next(&mut self) -> Result<()> {
        block_on(self.0.next())
    }

    /// Waits until a message could be taken, for this long at most; looks once in any case. Says whether one could.
    ///
    /// # Errors
    /// As [`crate::InboxWatch::next`].
    pub fn next_within(&mut self, bound: Duration) -> Result<bool> {
        let deadline = Instant::now().checked_add(bound);
        loop {
            let waits = block_on(self.0.try_next())?;
            if waits || !is_done_by(deadline, self.0.ready()) {
                return Ok(waits);
            }
        }
    }
}

impl RequestWatch {
    /// Waits for [`crate::RequestWatch::next`], however long that takes.
    ///
    /// # Errors
    /// As the async call.
    #[expect(clippy::should_implement_trait, reason = "it has the name of the async call, and an end of another kind")]
    pub fn next(&mut self) -> Result<Request> {
        block_on(self.0.next())
    }

    /// Waits until the request is resolved, for this long at most; looks once in any case. `None` when it still waits.
    ///
    /// # Errors
    /// As [`crate::RequestWatch::next`].
    pub fn next_within(&mut self, bound: Duration) -> Result<Option<Request>> {
        let deadline = Instant::now().checked_add(bound);
        loop {
            let resolved = block_on(self.0.try_next())?;
            if resolved.is_some() || !is_done_by(deadline, self.0.ready()) {
                return Ok(resolved);
            }
        }
    }
}

/// Wakes a thread that waits for a future.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future until a moment, for ever without one; says whether it was done by then.
fn is_done_by(deadline: Option<Instant>, future: impl Future<Output = ()>) -> bool {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    while future.as_mut().poll(&mut context).is_pending() {
        match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
            Some(Duration::ZERO) => return false,
            Some(left) => thread::park_timeout(left),
            None => thread::park(),
        }
    }
    true
}
