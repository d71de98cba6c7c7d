//! Search: the words of items, what a query asks for, and an index that is made behind the commits and can be made anew at any time.
//!
//! What is decided here is decided once for every engine: `docs/search.md` tells it with examples.

pub(crate) mod asking;
pub(crate) mod document;
mod find;
pub(crate) mod idle;
pub(crate) mod indexing;
pub(crate) mod looking;
mod matching;
mod page;
mod query;
mod rank;
mod searching;
mod snippet;
pub(crate) mod tail;
mod text;

pub use find::find;
pub use matching::{Occurrence, holds, occurrences};
pub use page::{FoundItem, FoundThread, Hit, IndexStatus, SearchPage, SearchQuery, Standing};
pub use query::{Filters, Has, MAX_PHRASE_WORDS, MAX_TERMS, Node, OnPath, Query, Sides, parse, phrase};
pub use snippet::{Snippet, snippet, visible};
pub use text::{
    BREAK, Field, MAX_RESULT_HEAD, MAX_RESULT_TAIL, MAX_TERM_BYTES, MAX_WORD_CHARS, MAX_WORDS, NormalText, Section,
    Stream, Word, folded, normal, words,
};

use std::sync::Arc;
use std::time::Duration;

use crate::concurrency::thread;
use crate::db::index::Changed;
use crate::error::Result;
use crate::store::{Store, Threads, on_a_thread};
use indexing::Trouble;
use searching::Search;

impl Threads {
    /// Searches the items and titles of the threads that this handle sees.
    ///
    /// It sees everything that was acknowledged before, from other processes too: what the index lacks is read from the items.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for a cursor of another query, and as every read.
    pub async fn search(&self, query: SearchQuery) -> Result<SearchPage> {
        let search = Search {
            db: self.inner.db.clone(),
            indexer: Arc::clone(&self.inner.indexer),
            scope: self.scope,
            now: self.inner.host.now(),
            asked: query,
        };
        let page = on_a_thread("threadkeep-search", move || search.run()).await?;
        self.inner.index_when_idle()?;
        Ok(page)
    }
}

/// How long somebody else who changes the index is waited for at a time.
const STEP: Duration = Duration::from_millis(50);

impl Store {
    /// Brings the search index up to date, however long that takes, and calls `progress` with how far it is after each batch.
    /// Writers are not kept waiting. An index that is damaged is made anew.
    ///
    /// # Errors
    /// [`crate::Error::ReadOnly`], [`crate::Error::StorageFull`], [`crate::Error::Corrupt`] where the store is damaged, and as every read.
    pub async fn index_all(&self, mut progress: impl FnMut(IndexStatus) + Send + 'static) -> Result<IndexStatus> {
        let (indexer, db) = (Arc::clone(&self.inner.indexer), self.inner.db.clone());
        self.inner.check_writable()?;
        on_a_thread("threadkeep-search", move || {
            let mut was_cleared = false;
            loop {
                match indexer.round(&db) {
                    Ok(None) => return indexer.status(&db),
                    Ok(Some(Changed::Yes)) => progress(indexer.status(&db)?),
                    Ok(Some(Changed::Busy)) => thread::sleep(STEP),
                    Err(Trouble::Index(_)) if !was_cleared => {
                        indexer.index.clear()?;
                        was_cleared = true;
                    }
                    Err(trouble) => return Err(trouble.into_error()),
                }
            }
        })
        .await
    }

    /// Throws the search index away, whatever state it is in; the next search begins a new one.
    ///
    /// # Errors
    /// [`crate::Error::ReadOnly`], and as every write.
    pub async fn drop_index(&self) -> Result<()> {
        let indexer = Arc::clone(&self.inner.indexer);
        self.inner.check_writable()?;
        on_a_thread("threadkeep-search", move || indexer.index.clear()).await
    }

    /// How far the search index is. Makes none.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`] when it is damaged: the next search makes it anew.
    pub async fn index_status(&self) -> Result<IndexStatus> {
        let (indexer, db) = (Arc::clone(&self.inner.indexer), self.inner.db.clone());
        on_a_thread("threadkeep-search", move || indexer.status(&db)).await
    }
}
