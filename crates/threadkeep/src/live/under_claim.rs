//! Changes of a thread under its claim.

use super::{LiveThread, State};
use crate::db::{Pending, Sync, Terms, Tx};
use crate::error::Result;
use crate::id::{ThreadId, WriterId};
use crate::time::Timestamp;

/// What a change of a thread under its claim goes by.
pub(super) struct UnderClaim<'a> {
    pub(super) thread: &'a ThreadId,
    pub(super) epoch: i64,
    pub(super) writer: (i64, WriterId),
    pub(super) now: Timestamp,
}

impl LiveThread {
    /// Runs a change of the thread under the claim, after everything that was appended.
    pub(super) async fn under_claim<T, F>(&self, terms: Terms, run: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut dyn Tx, &UnderClaim<'_>) -> Result<T> + Send + 'static,
    {
        self.under_claim_with(0, terms, run).await
    }

    /// The same for a change that carries this many bytes.
    pub(super) async fn under_claim_with<T, F>(&self, bytes: usize, terms: Terms, run: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut dyn Tx, &UnderClaim<'_>) -> Result<T> + Send + 'static,
    {
        let mut state = self.live.state.lock().await;
        self.send_under_claim(&mut state, bytes, terms, run).await?.await
    }

    pub(super) async fn send_under_claim<T, F>(
        &self,
        state: &mut State,
        bytes: usize,
        terms: Terms,
        mut run: F,
    ) -> Result<Pending<T>>
    where
        T: Send + 'static,
        F: FnMut(&mut dyn Tx, &UnderClaim<'_>) -> Result<T> + Send + 'static,
    {
        self.check_open(state).await?;
        let epoch = self.materialise(state, Sync::Synced).await?;
        self.settle(state).await?;
        let (thread, writer) = (self.live.id.clone(), self.live.inner.writer().await?);
        let now = self.live.inner.host.now();
        let change = move |tx: &mut dyn Tx| run(tx, &UnderClaim { thread: &thread, epoch, writer, now });
        let place = self.live.inner.db.place(bytes).await;
        Ok(self.live.inner.db.write_in(place, terms, change))
    }
}
