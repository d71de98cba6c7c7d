//! Waiting for messages and for answers, without asking again and again.

use crate::db::Tx;
use crate::db::news::Ear;
use crate::error::Result;
use crate::id::{RequestId, ThreadId};
use crate::inbox::{self, TakeInto};
use crate::jobs::clock;
use crate::requests::{Request, RequestState};
use crate::store::Threads;
use crate::threads;

/// Says when a message waits that could be taken; see [`Threads::watch_inbox`]. Dropped, it frees what it used.
#[derive(Debug)]
pub struct InboxWatch {
    /// First, so that it is gone before the store may close.
    ear: Ear,
    threads: Threads,
    thread: ThreadId,
    into: TakeInto,
}

/// Says when a request is resolved; see [`Threads::watch_request`]. Dropped, it frees what it used.
#[derive(Debug)]
pub struct RequestWatch {
    /// First, so that it is gone before the store may close.
    ear: Ear,
    threads: Threads,
    id: RequestId,
}

impl Threads {
    /// Listens for messages of a thread that could be taken in this way, through whatever program they come.
    ///
    /// # Errors
    /// [`NotFound`](crate::Error::NotFound) for the thread.
    pub async fn watch_inbox(&self, thread: &ThreadId, into: TakeInto) -> Result<InboxWatch> {
        let (scope, id) = (self.scope, thread.clone());
        self.inner.db.read(move |tx| threads::check_visible(tx, scope, &id).map(drop)).await?;
        let ear = self.inner.db.board().listen(Some(thread.to_string()))?;
        Ok(InboxWatch { ear, threads: self.clone(), thread: thread.clone(), into })
    }

    /// Listens for the answer to a request, through whatever program it comes.
    ///
    /// # Errors
    /// [`NotFound`](crate::Error::NotFound) for the request.
    pub async fn watch_request(&self, id: RequestId) -> Result<RequestWatch> {
        let request = self.request(id).await?;
        let ear = self.inner.db.board().listen(request.thread.map(|thread| thread.to_string()))?;
        Ok(RequestWatch { ear, threads: self.clone(), id })
    }
}

impl InboxWatch {
    /// Waits until a message could be taken. Whoever stops waiting loses nothing; while it waits, no transaction is open.
    ///
    /// # Errors
    /// [`NotFound`](crate::Error::NotFound) when the thread is not visible any more.
    pub async fn next(&mut self) -> Result<()> {
        while !self.try_next().await? {
            self.ready().await;
        }
        Ok(())
    }

    /// Whether a message could be taken now; looks once.
    ///
    /// # Errors
    /// As [`InboxWatch::next`].
    pub async fn try_next(&mut self) -> Result<bool> {
        // Before the store is read: what is committed meanwhile wakes.
        self.ear.take();
        let (scope, thread, into, now) =
            (self.threads.scope, self.thread.clone(), self.into, self.threads.inner.host.now());
        let look = move |tx: &mut dyn Tx| {
            threads::check_visible(tx, scope, &thread)?;
            let now = clock(tx, now)?;
            inbox::is_waiting(tx, &thread, into, now)
        };
        self.threads.inner.db.read(look).await
    }

    /// Waits, after [`InboxWatch::try_next`] found nothing, until there may be something. Reads nothing.
    pub async fn ready(&self) {
        self.ear.heard().await;
    }
}

impl RequestWatch {
    /// Waits until the request is resolved. That its time is over wakes nobody by itself: whoever waits knows
    /// [`Request::expires_at`].
    ///
    /// # Errors
    /// [`NotFound`](crate::Error::NotFound) when the request is gone.
    pub async fn next(&mut self) -> Result<Request> {
        loop {
            if let Some(request) = self.try_next().await? {
                return Ok(request);
            }
            self.ready().await;
        }
    }

    /// The request, if it is resolved or its time is over; looks once.
    ///
    /// # Errors
    /// As [`RequestWatch::next`].
    pub async fn try_next(&mut self) -> Result<Option<Request>> {
        self.ear.take();
        let request = self.threads.request(self.id).await?;
        Ok((request.state != RequestState::Pending).then_some(request))
    }

    /// Waits, after [`RequestWatch::try_next`] found nothing, until there may be something. Reads nothing.
    pub async fn ready(&self) {
        self.ear.heard().await;
    }
}
