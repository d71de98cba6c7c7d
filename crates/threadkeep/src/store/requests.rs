//! The requests that a handle sees, and the answers to them.

use super::{Inner, Threads};
use crate::claims;
use crate::db::{Sync, Terms, Tx};
use crate::error::Result;
use crate::id::{RequestId, ThreadId};
use crate::jobs::clock;
use crate::log::append::mint_uuid;
use crate::requests::{self, Answer, Asker, NewRequest, Principal, Request, RequestQuery, UseAnswer, UsedAnswer};
use crate::thread::Page;
use crate::time::Timestamp;

impl Threads {
    /// Asks for an approval or an enrolment, in the workspace that this handle is opened on or in that of the thread that it is
    /// about. This store owns the request as long as it is open. A repeated call with the same id finds it, whatever has become of it.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for a request that can't be kept (one that would let a remote answer grant what lasts), and
    /// through a handle of the whole store for one without a thread; [`crate::Error::AlreadyExists`] when the id is another's.
    pub async fn ask_request(&self, mut request: NewRequest) -> Result<Request> {
        let id = self.inner.new_request(&mut request)?;
        let asker = Asker { holder: self.inner.holder()?, epoch: None };
        let (scope, now) = (self.scope, self.inner.host.now());
        let terms = request_terms(request.thread.as_ref());
        let ask = move |tx: &mut dyn Tx| requests::ask(tx, scope, &request, id, &asker, now);
        let request = self.inner.db.write(terms, ask).await?;
        Ok(Request { owned: true, ..request })
    }

    /// Reads a request. One that is damaged says so, and grants nothing.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`].
    pub async fn request(&self, id: RequestId) -> Result<Request> {
        let (scope, now) = (self.scope, self.inner.host.now());
        let read = move |tx: &mut dyn Tx| {
            let now = clock(tx, now)?;
            Ok((requests::get(tx, scope, id, now)?, claims::judged_at(tx, true)?))
        };
        let (request, at) = self.inner.db.read(read).await?;
        Ok(self.inner.judge_request(request, at))
    }

    /// Finds a request by its id, or by an unambiguous beginning of it.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`], or [`crate::Error::Ambiguous`] with the candidates.
    pub async fn find_request(&self, name: impl Into<String>) -> Result<RequestId> {
        let (scope, name) = (self.scope, name.into());
        self.inner.db.read(move |tx| requests::find(tx, scope, &name)).await
    }

    /// Reads a page of requests, those that were asked last at the beginning.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for a cursor of another query.
    pub async fn requests(&self, query: RequestQuery) -> Result<Page<Request>> {
        let (scope, now) = (self.scope, self.inner.host.now());
        let read = move |tx: &mut dyn Tx| {
            let now = clock(tx, now)?;
            let page = requests::page(tx, scope, &query, now)?;
            let at = claims::judged_at(tx, !page.entries.is_empty())?;
            Ok((page, at))
        };
        let (page, at) = self.inner.db.read(read).await?;
        let entries = page.entries.into_iter().map(|request| self.inner.judge_request(request, at)).collect();
        Ok(Page { entries, ..page })
    }

    /// Answers a request that waits. Of all answers, cancellations and the end of its time one decides; the same answer by the same
    /// principal again finds its own. What lasts, and an enrolment, is granted from this machine alone, whatever the request says.
    ///
    /// # Errors
    /// [`crate::Error::Conflict`] when it does not wait any more, or is owned by nobody and not to be answered then;
    /// [`crate::Error::Invalid`] for an option that is not there or not for this principal; [`crate::Error::Corrupt`] for a request
    /// whose options can't be read.
    pub async fn answer_request(&self, id: RequestId, mut answer: Answer) -> Result<Request> {
        self.inner.screen.text("note", &mut answer.note)?;
        let (scope, now) = (self.scope, self.inner.host.now());
        let (terms, dead) = self.whose(id).await?;
        let run = move |tx: &mut dyn Tx| requests::answer(tx, scope, id, &answer, dead.as_deref(), now);
        self.judged_request(self.inner.db.write(terms, run).await?).await
    }

    /// Cancels a request that waits: whoever asked does not need the answer any more. An answer that came first stays.
    ///
    /// # Errors
    /// [`crate::Error::Conflict`] when it does not wait any more.
    pub async fn cancel_request(&self, id: RequestId, by: Principal, mut reason: Option<String>) -> Result<Request> {
        self.inner.screen.text("note", &mut reason)?;
        let (scope, now) = (self.scope, self.inner.host.now());
        let (terms, _) = self.whose(id).await?;
        let run = move |tx: &mut dyn Tx| requests::cancel(tx, scope, id, (&by, reason.as_deref()), now);
        self.judged_request(self.inner.db.write(terms, run).await?).await
    }

    /// Uses the answer to a request, once, for the call that was asked about. See [`crate::LiveThread::use_answer`], which also
    /// writes it into the thread.
    ///
    /// # Errors
    /// [`crate::Error::Conflict`] when the request has no answer, when this is another call, and when the answer was used already.
    pub async fn use_answer(&self, id: RequestId, using: UseAnswer) -> Result<UsedAnswer> {
        let (scope, now) = (self.scope, self.inner.host.now());
        let token = using.token.unwrap_or_else(|| mint_uuid(&*self.inner.host, now));
        let (terms, _) = self.whose(id).await?;
        let run = move |tx: &mut dyn Tx| requests::consume(tx, scope, id, (using.fingerprint, token), now);
        self.inner.db.write(terms, run).await
    }

    /// Makes this store the owner of a request that waits and whose owner is dead.
    ///
    /// # Errors
    /// [`crate::Error::Conflict`] when its owner is alive, or when it does not wait any more.
    pub async fn adopt_request(&self, id: RequestId) -> Result<Request> {
        let asker = Asker { holder: self.inner.holder()?, epoch: None };
        let (scope, now) = (self.scope, self.inner.host.now());
        let (terms, dead) = self.whose(id).await?;
        let run = move |tx: &mut dyn Tx| requests::adopt(tx, scope, id, &asker, dead.as_deref(), now);
        let request = self.inner.db.write(terms, run).await?;
        Ok(Request { owned: true, ..request })
    }

    /// Puts on record of the requests whose time is over that they have expired; says how many those were. Nothing depends on that:
    /// whoever answers one too late is refused in any case.
    ///
    /// # Errors
    /// As every write.
    pub async fn expire_requests(&self) -> Result<u64> {
        self.inner.check_writable()?;
        let (scope, mut all) = (self.scope, 0);
        loop {
            let now = self.inner.host.now();
            let terms = Terms::from(Sync::Synced).repeatable();
            let expired = self.inner.db.write(terms, move |tx| requests::expire(tx, scope, now)).await?;
            all += expired;
            if expired == 0 {
                return Ok(all);
            }
        }
    }

    /// The terms of a change of a request, and its owner, if that is known to be dead.
    async fn whose(&self, id: RequestId) -> Result<(Terms, Option<String>)> {
        let request = self.request(id).await?;
        let dead = (!request.owned && !request.lost_its_claim).then_some(request.owner.id);
        Ok((request_terms(request.thread.as_ref()), dead))
    }

    async fn judged_request(&self, resolved: requests::Resolved) -> Result<Request> {
        let request = resolved?;
        let at = self.inner.db.read(|tx| claims::judged_at(tx, true)).await?;
        Ok(self.inner.judge_request(request, at))
    }
}

impl Inner {
    /// Screens a request to be; gives its id.
    pub(crate) fn new_request(&self, request: &mut NewRequest) -> Result<RequestId> {
        let mut subject = Some(std::mem::take(&mut request.subject));
        self.screen.text("subject", &mut subject)?;
        request.subject = subject.unwrap_or_default();
        self.screen.json("detail", &mut request.detail)?;
        for option in &mut request.options {
            let mut label = Some(std::mem::take(&mut option.label));
            self.screen.text("label", &mut label)?;
            option.label = label.unwrap_or_default();
        }
        let mint = || RequestId::from_uuid(mint_uuid(&*self.host, self.host.now()));
        Ok(request.id.unwrap_or_else(mint))
    }

    /// Says of a request whether its owner is alive.
    pub(crate) fn judge_request(&self, request: Request, at: Option<Timestamp>) -> Request {
        let owned = !request.lost_its_claim && self.is_alive(&request.owner, at);
        Request { owned, ..request }
    }
}

/// A second run of each finds what the first one did. Those who watch hear of it, also of a request that is about no thread.
pub(crate) fn request_terms(thread: Option<&ThreadId>) -> Terms {
    match thread {
        Some(thread) => Sync::Synced.within(thread.as_str()),
        None => Sync::Synced.free().told(),
    }
    .repeatable()
}
