//! What a handle can do with the threads that it sees.

use std::sync::Arc;

use super::{Inner, Threads, inherit, on_a_thread};
use crate::branch::Tree;
use crate::claim::{ClaimInfo, ReleaseRequest};
use crate::claims;
use crate::db::{Sync, Tx};
use crate::error::{Error, Result};
use crate::id::{Address, BranchId, ItemId, ThreadId};
use crate::item::Item;
use crate::live::LiveThread;
use crate::log::purge::{self, Purged, Step};
use crate::log::read::{self, ItemQuery};
use crate::log::{head, path};
use crate::retention::taking;
use crate::rollout;
use crate::rollout::files::Folder;
use crate::sources::{self, SourceFile};
use crate::thread::{ListQuery, NewThread, Page, Shelf, Status, Thread, ThreadPatch};
use crate::thread_list;
use crate::threads::{self, Scope};
use crate::time::Timestamp;
use crate::turn::Turn;
use crate::turns::{self, TurnQuery};

/// How often deleting is tried anew when another process claims the thread meanwhile.
const DELETE_ATTEMPTS: usize = 16;

impl Threads {
    /// Finds a thread by its id, an unambiguous prefix of it, its exact title, or `-` for the latest one.
    ///
    /// # Errors
    /// [`Error::NotFound`], or [`Error::Ambiguous`] with the candidates.
    pub async fn find(&self, name: impl Into<String>) -> Result<ThreadId> {
        let (scope, name) = (self.scope, name.into());
        self.inner.db.read(move |tx| threads::find(tx, scope, &name)).await
    }

    /// Reads a thread, in the trash or not.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub async fn get(&self, thread: &ThreadId) -> Result<Thread> {
        let (scope, id) = (self.scope, thread.clone());
        let (thread, at) = self.inner.db.read(move |tx| judged(tx, scope, &id)).await?;
        Ok(self.inner.mark_live(thread, at))
    }

    /// The newest thread that is neither ended nor archived.
    ///
    /// # Errors
    /// As every read.
    pub async fn latest(&self) -> Result<Option<ThreadId>> {
        let scope = self.scope;
        self.inner.db.read(move |tx| threads::latest(tx, scope)).await
    }

    /// Reads a page of threads.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a cursor of another query.
    pub async fn list(&self, query: ListQuery) -> Result<Page<Thread>> {
        thread_list::check(&query)?;
        let scope = self.scope;
        let read = move |tx: &mut dyn Tx| {
            let page = thread_list::page(tx, scope, &query)?;
            let at = claims::judged_at(tx, page.entries.iter().any(|thread| thread.holder.is_some()))?;
            Ok((page, at))
        };
        let (page, at) = self.inner.db.read(read).await?;
        let entries = page.entries.into_iter().map(|thread| self.inner.mark_live(thread, at)).collect();
        Ok(Page { entries, ..page })
    }

    /// Changes what the patch names. Works while a writer is live.
    ///
    /// # Errors
    /// [`Error::Conflict`] when another version is stored than the patch expects.
    pub async fn update(&self, thread: &ThreadId, mut patch: ThreadPatch) -> Result<Thread> {
        self.inner.screen.patch(&mut patch)?;
        let (scope, id, now) = (self.scope, thread.clone(), self.inner.host.now());
        let terms = Sync::Synced.within(thread.as_str());
        // A version that is expected is not found again by a second run.
        let terms = if patch.expect_version.is_none() { terms.repeatable() } else { terms };
        let change = move |tx: &mut dyn Tx| {
            let thread = threads::update(tx, scope, &id, patch.clone(), now)?;
            with_time(tx, thread)
        };
        let (thread, at) = self.inner.db.write(terms, change).await?;
        Ok(self.inner.mark_live(thread, at))
    }

    /// Takes a thread out of the default list. Its status stays, and so does a live writer.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub async fn archive(&self, thread: &ThreadId) -> Result<Thread> {
        self.shelve(thread, Shelf::Archived).await
    }

    /// Puts a thread back into the default list, with the status that it had.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub async fn unarchive(&self, thread: &ThreadId) -> Result<Thread> {
        self.shelve(thread, Shelf::Active).await
    }

    /// Puts a thread into the trash. It can be restored until it is purged.
    ///
    /// # Errors
    /// [`Error::ClaimHeld`] while a live writer holds it.
    pub async fn delete(&self, thread: &ThreadId) -> Result<Thread> {
        for _ in 0..DELETE_ATTEMPTS {
            let dead = self.refuse_live(thread).await?;
            let (scope, id, now) = (self.scope, thread.clone(), self.inner.host.now());
            let change = move |tx: &mut dyn Tx| {
                // Whoever claims it locks it first.
                threads::lock(tx, &id)?;
                if claims::holder_id(tx, &id)? != dead {
                    return Ok(None);
                }
                let thread = threads::shelve(tx, scope, &id, Shelf::Trashed, now)?;
                with_time(tx, thread).map(Some)
            };
            let terms = Sync::Synced.within(thread.as_str()).repeatable();
            if let Some((thread, at)) = self.inner.db.write(terms, change).await? {
                return Ok(self.inner.mark_live(thread, at));
            }
        }
        Err(Error::Busy { detail: format!("others took and gave up the claim on {thread} {DELETE_ATTEMPTS} times") })
    }

    /// Takes a thread out of the trash, to where it was.
    ///
    /// # Errors
    /// [`Error::NotFound`] when it is not in the trash.
    pub async fn restore(&self, thread: &ThreadId) -> Result<Thread> {
        if self.get(thread).await?.shelf != Shelf::Trashed {
            return Err(Error::not_found("thread in the trash", thread));
        }
        self.shelve(thread, Shelf::Active).await
    }

    /// Removes a thread that is in the trash for good. What other threads share stays, and so does their reading. Once begun it
    /// can't be undone; when it is cut short, the next purge of any thread finishes it. A rollout in the store's folder goes too.
    ///
    /// # Errors
    /// [`Error::Conflict`] when the thread is not in the trash, [`Error::ClaimHeld`] while a live writer holds it,
    /// [`Error::Busy`] while a program mirrors.
    pub async fn purge(&self, thread: &ThreadId) -> Result<Purged> {
        let dead = self.refuse_live(thread).await?;
        let created_at = self.get(thread).await.ok().map(|thread| thread.created_at);
        // Taken before anything is gone: nobody may write a rollout of it meanwhile.
        let rollouts = rollout::own_folders(&self.inner).await?;
        let (id, store, now) = (thread.clone(), self.inner.id, self.inner.host.now());
        let begin = move |tx: &mut dyn Tx| purge::begin(tx, store, &id, dead.as_deref(), now);
        self.inner.db.write(Sync::Synced.within(thread.as_str()), begin).await?;
        let purged = self.inner.finish_purges(vec![(thread.clone(), created_at)], rollouts).await?;
        self.inner.forget_words().await;
        Ok(purged)
    }

    /// Marks a thread as ended, with a reason; it is no longer the latest one. An append opens it again: the reason is gone then, and the
    /// status stays what its agent last said.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub async fn end(&self, thread: &ThreadId, status: Status, reason: impl Into<String>) -> Result<Thread> {
        let (scope, id, now, reason) = (self.scope, thread.clone(), self.inner.host.now(), reason.into());
        crate::item::check_text("end_reason", &reason, crate::thread::MAX_TEXT_BYTES)?;
        let terms = Sync::Synced.within(thread.as_str()).repeatable();
        let change = move |tx: &mut dyn Tx| {
            let thread = threads::end(tx, scope, &id, &reason, &status, now)?;
            with_time(tx, thread)
        };
        let (thread, at) = self.inner.db.write(terms, change).await?;
        Ok(self.inner.mark_live(thread, at))
    }

    /// A new thread that starts at an item of `parent` (its head when `None`) and shares everything up to it. Costs the same
    /// at any depth, needs no claim, and survives the parent.
    ///
    /// # Errors
    /// [`Error::NotFound`] when the parent or the item is not visible here.
    pub async fn fork(&self, parent: &ThreadId, at: Option<Address>, thread: NewThread) -> Result<Thread> {
        let source = self.get(parent).await?;
        let point = at.or(source.head).ok_or_else(|| Error::not_found("item to fork at", parent))?;
        let mut creation = self.inner.creation(source.workspace, thread)?;
        inherit(&mut creation, &source);
        let (id, parent, scope) = (creation.id.clone(), parent.clone(), self.scope);
        let fork = move |tx: &mut dyn Tx| {
            threads::check_visible(tx, scope, &parent)?;
            threads::fork(tx, &creation, &parent, point)
        };
        self.inner.db.write(Sync::Synced.within(id.as_str()), fork).await?;
        self.get(&id).await
    }

    /// Reads a page of a thread's path.
    ///
    /// # Errors
    /// [`Error::Corrupt`] names an item that can't be read, when a page would begin with it: a page ends before such an item,
    /// and one that begins after it can be read.
    pub async fn items(&self, thread: &ThreadId, query: ItemQuery) -> Result<Page<Item>> {
        self.read(thread, move |tx, id| read::page(tx, id, &query)).await
    }

    /// Reads one item.
    ///
    /// # Errors
    /// [`Error::NotFound`] when the thread does not reach such an item.
    pub async fn item(&self, thread: &ThreadId, address: Address) -> Result<Item> {
        self.read(thread, move |tx, id| read::item(tx, id, address)).await
    }

    /// The address of the item at a depth of the active path: what `THREAD@depth` means.
    ///
    /// # Errors
    /// [`Error::NotFound`] when the path is not that long.
    pub async fn address_at(&self, thread: &ThreadId, depth: u32) -> Result<Address> {
        self.read(thread, move |tx, id| {
            let missing = || Error::not_found("item", format!("{id}@{depth}"));
            let end = head::head_of(tx, id)?.0.ok_or_else(missing)?;
            let key = path::at_depth(tx, end, depth)?.ok_or_else(missing)?;
            path::address_of(tx, key)
        })
        .await
    }

    /// The address of an item that the thread reaches.
    ///
    /// # Errors
    /// [`Error::NotFound`] when the thread does not reach it.
    pub async fn address_of(&self, thread: &ThreadId, item: ItemId) -> Result<Address> {
        self.read(thread, move |tx, id| {
            let key = path::key_by_id(tx, item)?.ok_or_else(|| Error::not_found("item", item))?;
            let address = path::address_of(tx, key)?;
            // Another thread's item reads the same as an absent one.
            let reached = head::resolve(tx, id, address).map(|_| address);
            reached.map_err(|error| match error {
                Error::NotFound { .. } => Error::not_found("item", item),
                other => other,
            })
        })
        .await
    }

    /// Reads a page of what a model is given to go on: the latest compaction on the path and what follows it.
    ///
    /// # Errors
    /// As [`Threads::items`].
    pub async fn model_context(&self, thread: &ThreadId, query: ItemQuery) -> Result<Page<Item>> {
        self.read(thread, move |tx, id| match read::model_context(tx, id)? {
            None => Ok(Page { entries: Vec::new(), next_cursor: None }),
            Some(from) => read::page(tx, id, &ItemQuery { from: from.max(query.from), ..query.clone() }),
        })
        .await
    }

    /// Reads a page of the turns that a thread wrote itself.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a cursor of another query.
    pub async fn turns(&self, thread: &ThreadId, query: TurnQuery) -> Result<Page<Turn>> {
        self.read(thread, move |tx, id| turns::page(tx, id, &query)).await
    }

    /// The turn that is open, by its ordinal.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub async fn open_turn(&self, thread: &ThreadId) -> Result<Option<i64>> {
        self.read(thread, turns::open).await
    }

    /// The tree: the thread's own branches and the ancestors that it shares.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub async fn tree(&self, thread: &ThreadId) -> Result<Tree> {
        self.read(thread, head::tree).await
    }

    /// Names a branch, or takes its name away.
    ///
    /// # Errors
    /// [`Error::NotFound`] when the thread wrote no such branch.
    pub async fn label(&self, thread: &ThreadId, branch: BranchId, mut label: Option<String>) -> Result<()> {
        self.inner.screen.text("label", &mut label)?;
        let (scope, id, now) = (self.scope, thread.clone(), self.inner.host.now());
        let change = move |tx: &mut dyn Tx| {
            threads::check_visible(tx, scope, &id)?;
            head::label(tx, &id, branch, label.as_deref(), now)
        };
        self.inner.db.write(Sync::Synced.within(thread.as_str()).repeatable(), change).await
    }

    /// The files that a thread was imported from.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub async fn sources(&self, thread: &ThreadId) -> Result<Vec<SourceFile>> {
        self.read(thread, sources::of_thread).await
    }

    /// Takes the claim on a thread and reads its head, to write on.
    ///
    /// # Errors
    /// [`Error::ClaimHeld`] names a live holder; [`Error::Archived`] unless `include_archived`.
    pub async fn resume(&self, thread: &ThreadId, include_archived: bool) -> Result<LiveThread> {
        self.check_writable(thread, include_archived).await?;
        LiveThread::resume(Arc::clone(&self.inner), thread.clone()).await
    }

    /// Takes the claim on a thread from whoever holds it, alive or not: its next write is refused with [`Error::ClaimLost`].
    /// That this happened, and why, is appended to the thread.
    ///
    /// # Errors
    /// [`Error::Invalid`] without a reason; [`Error::Archived`] unless `include_archived`.
    pub async fn take_over(
        &self,
        thread: &ThreadId,
        reason: impl Into<String>,
        include_archived: bool,
    ) -> Result<LiveThread> {
        self.check_writable(thread, include_archived).await?;
        LiveThread::take_over(Arc::clone(&self.inner), thread.clone(), reason.into()).await
    }

    /// Asks the live holder of a thread to hand it over: its handle closes at the end of its turn, or when it chooses to.
    ///
    /// # Errors
    /// [`Error::NotFound`] when nobody holds the thread.
    pub async fn request_release(&self, thread: &ThreadId) -> Result<ReleaseRequest> {
        let request = ReleaseRequest { by: self.inner.holder.label.clone(), at: self.inner.host.now() };
        let (scope, id, asked) = (self.scope, thread.clone(), request.clone());
        let ask = move |tx: &mut dyn Tx| {
            threads::check_visible(tx, scope, &id)?;
            claims::ask(tx, &id, &asked)
        };
        self.inner.db.write(Sync::Written.within(thread.as_str()).repeatable(), ask).await?;
        Ok(request)
    }

    /// All claims on the threads that this handle sees, the oldest first, those of dead holders included.
    ///
    /// # Errors
    /// As every read.
    pub async fn claims(&self) -> Result<Vec<ClaimInfo>> {
        let scope = self.scope;
        let read = move |tx: &mut dyn Tx| {
            let claims = claims::list(tx, scope)?;
            let at = claims::judged_at(tx, !claims.is_empty())?;
            Ok((claims, at))
        };
        let (mut claims, at) = self.inner.db.read(read).await?;
        for claim in &mut claims {
            claim.live = self.inner.is_alive(&claim.holder, at);
        }
        Ok(claims)
    }

    /// Takes the claims on several threads, all or none.
    ///
    /// # Errors
    /// [`Error::ClaimHeld`] names the first that a live holder has; then none is taken.
    pub async fn reserve(&self, threads: &[ThreadId], include_archived: bool) -> Result<Vec<LiveThread>> {
        let mut ids: Vec<ThreadId> = threads.to_vec();
        // Two who reserve the same threads in different orders must not refuse each other.
        ids.sort_unstable();
        ids.dedup();
        let mut reserved: Vec<LiveThread> = Vec::with_capacity(ids.len());
        for id in &ids {
            match self.resume(id, include_archived).await {
                Ok(live) => reserved.push(live),
                Err(error) => {
                    // Whoever is told that none is taken finds them free. If one can't be given up, it ends with its handle.
                    for live in reserved {
                        drop(live.discard().await);
                    }
                    return Err(error);
                }
            }
        }
        Ok(reserved)
    }

    /// Reads one snapshot of a thread that this handle sees.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        thread: &ThreadId,
        mut run: impl FnMut(&mut dyn Tx, &ThreadId) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (scope, id) = (self.scope, thread.clone());
        let checked = move |tx: &mut dyn Tx| {
            threads::check_visible(tx, scope, &id)?;
            run(tx, &id)
        };
        self.inner.db.read(checked).await
    }

    async fn check_writable(&self, thread: &ThreadId, include_archived: bool) -> Result<()> {
        match self.get(thread).await?.shelf {
            Shelf::Active => Ok(()),
            Shelf::Archived if include_archived => Ok(()),
            Shelf::Archived => Err(Error::Archived { thread: thread.clone() }),
            Shelf::Trashed | Shelf::Stub => Err(Error::not_found("thread", thread)),
        }
    }

    async fn shelve(&self, thread: &ThreadId, to: Shelf) -> Result<Thread> {
        let (scope, id, now) = (self.scope, thread.clone(), self.inner.host.now());
        let terms = Sync::Synced.within(thread.as_str()).repeatable();
        let change = move |tx: &mut dyn Tx| {
            let thread = threads::shelve(tx, scope, &id, to, now)?;
            if to != Shelf::Trashed {
                taking::note_restored(tx, &thread, now)?;
            }
            with_time(tx, thread)
        };
        let (thread, at) = self.inner.db.write(terms, change).await?;
        Ok(self.inner.mark_live(thread, at))
    }

    /// Refuses to go on beside a live writer; gives the id of a dead one, if one left its claim.
    async fn refuse_live(&self, thread: &ThreadId) -> Result<Option<String>> {
        let found = self.get(thread).await?;
        match found.holder {
            Some(holder) if found.live => Err(Error::ClaimHeld { thread: thread.clone(), holder: Box::new(holder) }),
            dead => Ok(dead.map(|holder| holder.id)),
        }
    }
}

impl Inner {
    /// Takes all that is marked as being purged, and the rollouts of it. Says what became of the first that was begun.
    pub(super) async fn finish_purges(
        &self,
        mut done: Vec<(ThreadId, Option<Timestamp>)>,
        rollouts: Vec<Folder>,
    ) -> Result<Purged> {
        let mut purged = Purged::default();
        let first = done.first().map(|(thread, _)| thread.clone());
        let order = first.as_ref().map_or_else(|| Sync::Synced.free(), |thread| Sync::Synced.within(thread.as_str()));
        let terms = order.repeatable();
        loop {
            // Run again after a commit that was not answered, it counts too few items; none is left.
            match self.db.write(terms.clone(), purge::step).await? {
                Step::More { items } => purged.items += items,
                Step::Done { thread, shared } if Some(&thread) == first.as_ref() => {
                    purged.shared = shared;
                    purged.stub = shared > 0;
                }
                Step::Done { thread, .. } => done.push((thread, None)),
                Step::Nothing => break,
            }
        }
        for folder in rollouts {
            rollout::forget(&self.source(), &folder, done.clone()).await?;
        }
        Ok(purged)
    }

    /// Takes the words of what was purged out of the search index. What is left in it is taken out by whoever uses it next.
    pub(super) async fn forget_words(&self) {
        let (indexer, db) = (Arc::clone(&self.indexer), self.db.clone());
        if let Err(error) = on_a_thread("threadkeep-search", move || indexer.erase(&db)).await {
            tracing::warn!(%error, "the search index still holds words of what was purged");
        }
    }
}

/// Reads a thread, with the time by which its holder is judged.
fn judged(tx: &mut dyn Tx, scope: Scope, thread: &ThreadId) -> Result<(Thread, Option<Timestamp>)> {
    let thread = threads::get(tx, scope, thread)?;
    with_time(tx, thread)
}

fn with_time(tx: &mut dyn Tx, thread: Thread) -> Result<(Thread, Option<Timestamp>)> {
    let at = claims::judged_at(tx, thread.holder.is_some())?;
    Ok((thread, at))
}
