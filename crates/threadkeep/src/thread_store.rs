//! The object-safe contract of a thread store, for programs that choose their store at run time.

use std::path::Path;
use std::pin::Pin;
use std::sync::PoisonError;

use crate::error::{Error, Result};
use crate::follow::{Follower, News};
use crate::id::{Address, ThreadId, WorkspaceId};
use crate::item::{Appended, Item, NewItem};
use crate::live::{AppendOptions, LiveThread};
use crate::log::read::ItemQuery;
use crate::search::{SearchPage, SearchQuery};
use crate::store::Store;
use crate::thread::{ListQuery, NewThread, Page, Shelf, Thread, ThreadPatch};
use crate::turn::Turn;
use crate::turns::TurnQuery;

/// A boxed future that borrows its store.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What every thread store offers. Threads are named by their ids; a path is never a handle.
///
/// Writing needs a live writer, which [`ThreadStore::create_thread`] and [`ThreadStore::resume_thread`] register; without one
/// the writing operations answer [`Error::NotFound`]. Operations that a store does not offer answer
/// [`Error::Unsupported`] with their name.
pub trait ThreadStore: Send + Sync + std::fmt::Debug {
    /// Registers a live writer for a new thread; stores nothing yet. Answers [`Error::AlreadyExists`] when a writer for the id is registered.
    fn create_thread(&self, workspace: WorkspaceId, thread: NewThread) -> BoxFuture<'_, Result<ThreadId>>;

    /// Takes the claim on a stored thread and registers its live writer. Answers [`Error::ClaimHeld`] while another writer, here or elsewhere, is live.
    fn resume_thread<'a>(&'a self, thread: &'a ThreadId, include_archived: bool) -> BoxFuture<'a, Result<()>>;

    /// Appends items, all or none; see [`LiveThread::append_with`].
    fn append_items<'a>(
        &'a self,
        thread: &'a ThreadId,
        items: Vec<NewItem>,
        options: AppendOptions,
    ) -> BoxFuture<'a, Result<Appended>>;

    /// Stores the thread, if it is not stored yet; see [`LiveThread::persist`].
    fn persist_thread<'a>(&'a self, thread: &'a ThreadId) -> BoxFuture<'a, Result<()>>;

    /// A barrier; see [`LiveThread::flush`].
    fn flush_thread<'a>(&'a self, thread: &'a ThreadId) -> BoxFuture<'a, Result<()>>;

    /// Flushes, gives up the claim and unregisters the writer. When flushing fails the writer stays registered, to be tried again.
    fn shutdown_thread<'a>(&'a self, thread: &'a ThreadId) -> BoxFuture<'a, Result<()>>;

    /// Unregisters the writer without flushing and fences off its handles. What is stored stays. Repeating it changes nothing.
    fn discard_thread<'a>(&'a self, thread: &'a ThreadId) -> BoxFuture<'a, Result<()>>;

    /// Reads a page of a thread's active path. A thread that is live here can be read though it is archived.
    fn load_history<'a>(
        &'a self,
        thread: &'a ThreadId,
        include_archived: bool,
        query: ItemQuery,
    ) -> BoxFuture<'a, Result<Page<Item>>>;

    /// Follows a thread from an item on, or from its beginning; see [`crate::Threads::follow`].
    fn follow_thread<'a>(
        &'a self,
        thread: &'a ThreadId,
        after: Option<Address>,
    ) -> BoxFuture<'a, Result<Box<dyn Following>>> {
        let _ = (thread, after);
        unsupported("follow_thread")
    }

    /// Reads a thread's metadata. A thread that is live here can be read though it is archived.
    fn read_thread<'a>(&'a self, thread: &'a ThreadId, include_archived: bool) -> BoxFuture<'a, Result<Thread>>;

    /// Reads a thread by the path of its rollout file.
    fn read_thread_by_rollout_path<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<Thread>> {
        let _ = path;
        unsupported("read_thread_by_rollout_path")
    }

    /// Reads a page of threads.
    fn list_threads(&self, query: ListQuery) -> BoxFuture<'_, Result<Page<Thread>>>;

    /// Changes what the patch names and nothing else. Works while a writer is live.
    fn update_thread_metadata<'a>(&'a self, thread: &'a ThreadId, patch: ThreadPatch) -> BoxFuture<'a, Result<Thread>>;

    /// Takes a thread out of the default list; its status and its live writer stay.
    fn archive_thread<'a>(&'a self, thread: &'a ThreadId) -> BoxFuture<'a, Result<Thread>>;

    /// Puts a thread back into the default list.
    fn unarchive_thread<'a>(&'a self, thread: &'a ThreadId) -> BoxFuture<'a, Result<Thread>>;

    /// Puts a thread into the trash. Answers [`Error::ClaimHeld`] while it is live.
    fn delete_thread<'a>(&'a self, thread: &'a ThreadId) -> BoxFuture<'a, Result<()>>;

    /// A new thread that shares its parent's path up to an item, without copying.
    fn fork_thread<'a>(
        &'a self,
        parent: &'a ThreadId,
        at: Option<Address>,
        thread: NewThread,
    ) -> BoxFuture<'a, Result<Thread>> {
        let _ = (parent, at, thread);
        unsupported("fork_thread")
    }

    /// Reads a page of a thread's turns.
    fn list_turns<'a>(&'a self, thread: &'a ThreadId, query: TurnQuery) -> BoxFuture<'a, Result<Page<Turn>>> {
        let _ = (thread, query);
        unsupported("list_turns")
    }

    /// Reads a page of what a model is given to go on.
    fn load_latest_model_context<'a>(
        &'a self,
        thread: &'a ThreadId,
        query: ItemQuery,
    ) -> BoxFuture<'a, Result<Page<Item>>> {
        let _ = (thread, query);
        unsupported("load_latest_model_context")
    }

    /// Finds threads by their content.
    fn search_threads(&self, query: SearchQuery) -> BoxFuture<'_, Result<SearchPage>> {
        let _ = query;
        unsupported("search_threads")
    }
}

/// Follows a thread of any store.
pub trait Following: Send + std::fmt::Debug {
    /// Waits for what comes next; see [`Follower::next`].
    fn next(&mut self) -> BoxFuture<'_, Result<News>>;
}

impl Following for Follower {
    fn next(&mut self) -> BoxFuture<'_, Result<News>> {
        Box::pin(Self::next(self))
    }
}

fn unsupported<'a, T: Send + 'a>(operation: &'static str) -> BoxFuture<'a, Result<T>> {
    Box::pin(std::future::ready(Err(Error::Unsupported { operation })))
}

impl Store {
    fn registered(&self, thread: &ThreadId) -> Result<LiveThread> {
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        registry.get(thread).cloned().ok_or_else(|| Error::not_found("live writer of thread", thread))
    }

    fn register(&self, live: LiveThread) -> Result<()> {
        let mut registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        if registry.contains_key(live.id()) {
            return Err(Error::AlreadyExists { what: "live writer of thread", id: live.id().to_string() });
        }
        registry.insert(live.id().clone(), live);
        Ok(())
    }

    fn unregister(&self, thread: &ThreadId) -> Option<LiveThread> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner).remove(thread)
    }

    /// Unregisters this very writer: when it has ended, another may have taken its place.
    fn unregister_this(&self, live: &LiveThread) {
        let mut registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        if registry.get(live.id()).is_some_and(|registered| registered.is_same(live)) {
            registry.remove(live.id());
        }
    }

    /// Waits for what this store's own writer of the thread has on its way, so that it is read too.
    async fn settled(&self, thread: &ThreadId) {
        if let Ok(live) = self.registered(thread) {
            // What fails here is kept, and told to whoever writes next; what is stored can be read all the same.
            drop(live.settled().await);
        }
    }

    /// Refuses an archived thread, unless it is live here.
    async fn readable(&self, thread: &ThreadId, include_archived: bool) -> Result<Thread> {
        let found = self.get(thread).await?;
        match found.shelf {
            Shelf::Archived if !include_archived && self.registered(thread).is_err() => {
                Err(Error::Archived { thread: thread.clone() })
            }
            Shelf::Trashed | Shelf::Stub => Err(Error::not_found("thread", thread)),
            Shelf::Active | Shelf::Archived => Ok(found),
        }
    }
}

impl ThreadStore for Store {
    fn create_thread(&self, workspace: WorkspaceId, thread: NewThread) -> BoxFuture<'_, Result<ThreadId>> {
        Box::pin(async move {
            let live = self.workspace_by_id(workspace).await?.create(thread)?;
            let id = live.id().clone();
            self.register(live)?;
            Ok(id)
        })
    }

    fn resume_thread<'a>(&'a self, thread: &'a ThreadId, include_archived: bool) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.register(self.resume(thread, include_archived).await?) })
    }

    fn append_items<'a>(
        &'a self,
        thread: &'a ThreadId,
        items: Vec<NewItem>,
        options: AppendOptions,
    ) -> BoxFuture<'a, Result<Appended>> {
        Box::pin(async move { self.registered(thread)?.append_with(items, options).await })
    }

    fn persist_thread<'a>(&'a self, thread: &'a ThreadId) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.registered(thread)?.persist().await })
    }

    fn flush_thread<'a>(&'a self, thread: &'a ThreadId) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.registered(thread)?.flush().await })
    }

    fn shutdown_thread<'a>(&'a self, thread: &'a ThreadId) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let live = self.registered(thread)?;
            live.shutdown().await?;
            self.unregister_this(&live);
            Ok(())
        })
    }

    fn discard_thread<'a>(&'a self, thread: &'a ThreadId) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            match self.unregister(thread) {
                Some(live) => live.discard().await,
                None => Ok(()),
            }
        })
    }

    fn load_history<'a>(
        &'a self,
        thread: &'a ThreadId,
        include_archived: bool,
        query: ItemQuery,
    ) -> BoxFuture<'a, Result<Page<Item>>> {
        Box::pin(async move {
            self.settled(thread).await;
            self.readable(thread, include_archived).await?;
            self.items(thread, query).await
        })
    }

    fn follow_thread<'a>(
        &'a self,
        thread: &'a ThreadId,
        after: Option<Address>,
    ) -> BoxFuture<'a, Result<Box<dyn Following>>> {
        Box::pin(async move { Ok(Box::new(self.follow(thread, after).await?) as Box<dyn Following>) })
    }

    fn read_thread<'a>(&'a self, thread: &'a ThreadId, include_archived: bool) -> BoxFuture<'a, Result<Thread>> {
        Box::pin(async move {
            self.settled(thread).await;
            self.readable(thread, include_archived).await
        })
    }

    fn read_thread_by_rollout_path<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<Thread>> {
        Box::pin(self.thread_of_rollout(path))
    }

    fn list_threads(&self, query: ListQuery) -> BoxFuture<'_, Result<Page<Thread>>> {
        Box::pin(self.list(query))
    }

    fn update_thread_metadata<'a>(&'a self, thread: &'a ThreadId, patch: ThreadPatch) -> BoxFuture<'a, Result<Thread>> {
        Box::pin(self.update(thread, patch))
    }

    fn archive_thread<'a>(&'a self, thread: &'a ThreadId) -> BoxFuture<'a, Result<Thread>> {
        Box::pin(self.archive(thread))
    }

    fn unarchive_thread<'a>(&'a self, thread: &'a ThreadId) -> BoxFuture<'a, Result<Thread>> {
        Box::pin(self.unarchive(thread))
    }

    fn delete_thread<'a>(&'a self, thread: &'a ThreadId) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.delete(thread).await.map(drop) })
    }

    fn fork_thread<'a>(
        &'a self,
        parent: &'a ThreadId,
        at: Option<Address>,
        thread: NewThread,
    ) -> BoxFuture<'a, Result<Thread>> {
        Box::pin(self.fork(parent, at, thread))
    }

    fn list_turns<'a>(&'a self, thread: &'a ThreadId, query: TurnQuery) -> BoxFuture<'a, Result<Page<Turn>>> {
        Box::pin(self.turns(thread, query))
    }

    fn load_latest_model_context<'a>(
        &'a self,
        thread: &'a ThreadId,
        query: ItemQuery,
    ) -> BoxFuture<'a, Result<Page<Item>>> {
        Box::pin(self.model_context(thread, query))
    }

    fn search_threads(&self, query: SearchQuery) -> BoxFuture<'_, Result<SearchPage>> {
        Box::pin(self.search(query))
    }
}
