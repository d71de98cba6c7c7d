//! Searching what is stored: an index that is made behind the commits, and can be made anew at any time.

mod page;

pub use page::{FoundItem, FoundThread, Hit, SearchPage, SearchQuery, Snippet, Standing};

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
