//! The checkpoints of a live thread: saved and restored under its claim.

use super::LiveThread;
use super::under_claim::UnderClaim;
use crate::checkpoints::{self, Checkpoint, CheckpointInfo, NewCheckpoint, Ready};
use crate::db::{Sync, Tx};
use crate::error::{Error, Result};
use crate::log::head;
use crate::threads::{By, Hold};

impl LiveThread {
    /// Saves a checkpoint at the head, or at the item that it names, after everything that was appended. One of the same name is
    /// replaced. It is the latest one then.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a state that is no JSON; [`Error::NotFound`] when the thread does not reach the item;
    /// [`Error::ClaimLost`] when the claim was taken over.
    pub async fn save_checkpoint(&self, mut checkpoint: NewCheckpoint) -> Result<CheckpointInfo> {
        let mut state = Some(std::mem::take(&mut checkpoint.state));
        self.live.inner.screen.json("state", &mut state)?;
        checkpoint.state = state.unwrap_or_default();
        let ready = Ready::new(&checkpoint)?;
        let bytes = ready.bytes();
        let save = move |tx: &mut dyn Tx, claim: &UnderClaim<'_>| {
            let hold = Hold { thread: claim.thread.clone(), by: By::Holder(claim.epoch), now: claim.now };
            checkpoints::save(tx, &hold, &ready)
        };
        self.under_claim_with(bytes, self.terms(Sync::Synced).repeatable(), save).await
    }

    /// Reads the checkpoint of a name, or without one the checkpoint that was saved last, as [`crate::Threads::checkpoint`].
    ///
    /// # Errors
    /// As there.
    pub async fn checkpoint(&self, name: Option<String>) -> Result<Option<Checkpoint>> {
        self.settled().await?;
        self.threads().checkpoint(&self.live.id, name).await
    }

    /// Moves the head to the item of a checkpoint (the latest one when none is named) and gives its state, in one transaction. As with
    /// [`LiveThread::rewind`] what came after the item stays; a checkpoint of an empty thread restores as
    /// [`LiveThread::clear`] does.
    ///
    /// # Errors
    /// [`Error::NotFound`] when there is no such checkpoint; [`Error::ClaimLost`] when the claim was taken over.
    pub async fn restore_checkpoint(&self, name: Option<String>) -> Result<Checkpoint> {
        let restore = move |tx: &mut dyn Tx, claim: &UnderClaim<'_>| {
            let found = checkpoints::load(tx, claim.thread, name.as_deref())?;
            let missing = || Error::not_found("checkpoint", name.as_deref().unwrap_or("the latest"));
            let checkpoint = found.ok_or_else(missing)?;
            match checkpoint.info.at {
                Some(at) => head::set_head(tx, claim.thread, claim.epoch, claim.writer, claim.now, at)?,
                None => head::clear(tx, claim.thread, claim.epoch, claim.writer, claim.now).map(drop)?,
            }
            Ok(checkpoint)
        };
        self.under_claim(self.terms(Sync::Synced).repeatable(), restore).await
    }
}
