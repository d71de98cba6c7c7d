//! The checkpoints of the threads that a handle sees.

use super::Threads;
use crate::checkpoints::{self, Checkpoint, CheckpointDiff, CheckpointInfo, CheckpointQuery};
use crate::db::{Sync, Tx};
use crate::error::{Error, Result};
use crate::id::ThreadId;
use crate::thread::Page;

impl Threads {
    /// Reads the checkpoint of a name, or without one the checkpoint that was saved last; nothing when there is none.
    ///
    /// # Errors
    /// [`Error::NotFound`] for the thread; [`Error::Corrupt`] names a checkpoint that can't be read.
    pub async fn checkpoint(&self, thread: &ThreadId, name: Option<String>) -> Result<Option<Checkpoint>> {
        self.read(thread, move |tx, id| checkpoints::load(tx, id, name.as_deref())).await
    }

    /// Reads a page of a thread's checkpoints without their states, those that were saved last at the beginning.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a cursor of another query.
    pub async fn checkpoints(&self, thread: &ThreadId, query: CheckpointQuery) -> Result<Page<CheckpointInfo>> {
        self.read(thread, move |tx, id| checkpoints::page(tx, id, &query)).await
    }

    /// What makes the state of the checkpoint `to` of that of the checkpoint `from`, read in one snapshot.
    ///
    /// # Errors
    /// [`Error::NotFound`] names the one that is not there.
    pub async fn diff_checkpoints(
        &self,
        thread: &ThreadId,
        from: impl Into<String>,
        to: impl Into<String>,
    ) -> Result<CheckpointDiff> {
        let (from, to) = (from.into(), to.into());
        let read = move |tx: &mut dyn Tx, id: &ThreadId| {
            let mut load =
                |name: &str| checkpoints::load(tx, id, Some(name))?.ok_or_else(|| Error::not_found("checkpoint", name));
            Ok((load(&from)?, load(&to)?))
        };
        let (from, to) = self.read(thread, read).await?;
        checkpoints::diff(from, to)
    }

    /// Deletes a checkpoint; says whether there was one. Needs no claim.
    ///
    /// # Errors
    /// [`Error::NotFound`] for the thread.
    pub async fn delete_checkpoint(&self, thread: &ThreadId, name: impl Into<String>) -> Result<bool> {
        let name = name.into();
        self.change(thread, Sync::Synced.free(), move |tx, hold| checkpoints::delete(tx, hold, &name)).await
    }
}
