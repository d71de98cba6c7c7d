//! Receipts of a live thread: prompts and artifacts are stored under its claim.

use std::sync::Arc;

use super::LiveThread;
use super::under_claim::UnderClaim;
use crate::artifacts::{self, NewArtifact, StoredArtifact};
use crate::db::{Sync, Tx};
use crate::error::Result;
use crate::id::{ArtifactId, ItemId};
use crate::log::append::mint_id;
use crate::prompts::{self, NewPrompt, Scribe, StoredPrompt};
use crate::receipt;

impl LiveThread {
    /// Stores a prompt as a receipt and begins its turn, in one transaction and synced before this returns, whatever the thread's
    /// appends promise: so whoever dies while it is worked at, it is known what was asked.
    ///
    /// A fresh prompt of the operator is a task of its own. One that continues another, and a retry, leave that one's task in force.
    /// A call may be repeated with the same id when its answer was lost. What is refused is not kept for a later try, as appends are.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`] for a parent that the thread does not reach, and when there is no open turn that it could come into;
    /// [`crate::Error::Conflict`] for a parent that is not on its path; [`crate::Error::Invalid`] for a retry of nothing, for the 257th
    /// prompt of a lineage, and for more than [`crate::MAX_PROMPT_BYTES`]; [`crate::Error::AlreadyExists`] when the id is that of another
    /// one; [`crate::Error::ClaimLost`] when the claim was taken over; [`crate::Error::Corrupt`] when the parent's receipt is damaged.
    pub async fn begin_prompt(&self, mut prompt: NewPrompt) -> Result<StoredPrompt> {
        prompts::check(&prompt)?;
        prompts::screen(&self.live.inner.screen, &mut prompt)?;
        let id = prompts::id_of(prompt.id, &*self.live.inner.host);
        let bytes = prompt.raw.len() + prompt.text.len();
        let is_new = |stored: &StoredPrompt| !stored.repeated;
        self.scribble((bytes, id.item()), is_new, move |tx, by| prompts::begin(tx, by, id, &prompt)).await
    }

    /// Stores an artifact of a prompt on the thread's path, synced before this returns. Whose task it belongs to follows from the prompt.
    /// A call may be repeated with the same id when its answer was lost.
    ///
    /// # Errors
    /// As [`LiveThread::begin_prompt`]; [`crate::Error::Invalid`] for a word that is not known, for more than may be kept, and for
    /// metadata that is no JSON object.
    pub async fn add_artifact(&self, mut artifact: NewArtifact) -> Result<StoredArtifact> {
        artifacts::check(&artifact)?;
        let mut texts = artifact.texts();
        receipt::screen_artifact(&self.live.inner.screen, &mut texts)?;
        (artifact.locator, artifact.body, artifact.metadata) = (texts.locator, texts.body, texts.metadata);
        artifacts::check(&artifact)?;
        let host = &*self.live.inner.host;
        let id = artifact.id.unwrap_or_else(|| ArtifactId::from_item(mint_id(host, host.now())));
        let bytes = artifact.metadata.len() + artifact.body.as_ref().map_or(0, String::len);
        let is_new = |stored: &StoredArtifact| !stored.repeated;
        self.scribble((bytes, id.item()), is_new, move |tx, by| artifacts::add(tx, by, id, &artifact)).await
    }

    /// Writes a receipt, whose item is the last one that this handle is told is stored and synced.
    async fn scribble<T, F>(&self, (bytes, item): (usize, ItemId), is_new: fn(&T) -> bool, mut write: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut dyn Tx, &Scribe<'_>) -> Result<T> + Send + 'static,
    {
        let mut state = self.live.state.lock().await;
        let (host, builds_on) = (Arc::clone(&self.live.inner.host), state.acknowledged);
        let run = move |tx: &mut dyn Tx, claim: &UnderClaim<'_>| {
            let UnderClaim { thread, epoch, writer, now } = *claim;
            write(tx, &Scribe { thread, epoch, writer, now, builds_on, host: &*host })
        };
        let terms = self.terms(Sync::Synced).repeatable();
        let written = self.send_under_claim(&mut state, bytes, terms, run).await?.await?;
        if is_new(&written) {
            state.acknowledged = Some(item);
        }
        Ok(written)
    }
}
