//! The dynamic tools of the threads that a handle sees.

use super::{Inner, Threads};
use crate::db::{Sync, Terms};
use crate::error::Result;
use crate::id::ThreadId;
use crate::item::Hash;
use crate::tools::{self, Tool, Toolset};

impl Threads {
    /// Reads the tools of a thread, in their order.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`] for the thread; [`crate::Error::Corrupt`] names a tool that can't be read.
    pub async fn tools(&self, thread: &ThreadId) -> Result<Toolset> {
        self.read(thread, tools::get).await
    }

    /// Puts tools in the place of all that a thread has, in one transaction; an empty list takes them away. The same list again
    /// changes nothing. Needs no claim; a holder sets them through its own handle ([`crate::LiveThread::set_tools`]), where it is
    /// fenced.
    ///
    /// With `expect`, the digest of the list that the caller has seen, another program's list is not overwritten blindly.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`] for the thread; [`crate::Error::AlreadyExists`] names a tool that is in the list twice;
    /// [`crate::Error::Invalid`] names one that can't be kept; [`crate::Error::Conflict`] when the thread has another list than is
    /// expected.
    pub async fn set_tools(&self, thread: &ThreadId, mut tools: Vec<Tool>, expect: Option<Hash>) -> Result<Toolset> {
        let terms = self.inner.new_tools(&mut tools)?;
        self.change(thread, terms, move |tx, hold| tools::set(tx, hold, &tools, expect)).await
    }
}

impl Inner {
    /// Screens and checks tools that are to be set; gives what their write asks of the driver.
    pub(crate) fn new_tools(&self, tools: &mut [Tool]) -> Result<Terms> {
        for tool in tools.iter_mut() {
            self.screen.text("description", &mut tool.description)?;
            let mut schema = Some(std::mem::take(&mut tool.input_schema));
            self.screen.json("input_schema", &mut schema)?;
            tool.input_schema = schema.unwrap_or_default();
            self.screen.json("extra", &mut tool.extra)?;
        }
        tools::check(tools)?;
        Ok(Sync::Synced.free().repeatable())
    }
}
