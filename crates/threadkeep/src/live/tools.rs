//! The dynamic tools of a live thread: set under its claim.

use super::LiveThread;
use crate::error::Result;
use crate::item::Hash;
use crate::tools::{self, Tool, Toolset};

impl LiveThread {
    /// Reads the thread's tools, in their order.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`] when nothing is stored yet.
    pub async fn tools(&self) -> Result<Toolset> {
        self.settled().await?;
        self.threads().tools(&self.live.id).await
    }

    /// Puts tools in the place of all that the thread has, as [`crate::Threads::set_tools`], under the claim.
    ///
    /// # Errors
    /// As there; [`crate::Error::ClaimLost`] when the claim was taken over.
    pub async fn set_tools(&self, mut tools: Vec<Tool>, expect: Option<Hash>) -> Result<Toolset> {
        let terms = self.live.inner.new_tools(&mut tools)?;
        self.change(terms, move |tx, hold| tools::set(tx, hold, &tools, expect)).await
    }
}
