//! The documents of a live thread: written under its claim.

use super::LiveThread;
use super::under_claim::UnderClaim;
use crate::db::{Sync, Tx};
use crate::documents::{self, Document, DocumentInfo, NewDocument};
use crate::error::Result;
use crate::threads::{By, Hold};

impl LiveThread {
    /// Reads a document of the thread, or a former version of it, as [`crate::Threads::document`].
    ///
    /// # Errors
    /// As there.
    pub async fn document(&self, name: impl Into<String>, version: Option<u64>) -> Result<Option<Document>> {
        self.settled().await?;
        self.threads().document(&self.live.id, name, version).await
    }

    /// Writes the next version of a document, as [`crate::Threads::put_document`], under the claim and after everything that was
    /// appended.
    ///
    /// # Errors
    /// As there; [`crate::Error::ClaimLost`] when the claim was taken over.
    pub async fn put_document(&self, document: NewDocument) -> Result<DocumentInfo> {
        let ready = self.live.inner.new_document(document)?;
        let bytes = ready.bytes();
        let put = move |tx: &mut dyn Tx, claim: &UnderClaim<'_>| {
            let hold = Hold { thread: claim.thread.clone(), by: By::Holder(claim.epoch), now: claim.now };
            documents::put(tx, &hold, &ready)
        };
        self.under_claim_with(bytes, self.terms(Sync::Synced).repeatable(), put).await
    }

    /// Writes the version that a JSON merge patch makes of a document, as [`crate::Threads::patch_document`], under the claim.
    ///
    /// # Errors
    /// As there; [`crate::Error::ClaimLost`] when the claim was taken over.
    pub async fn patch_document(&self, patch: NewDocument) -> Result<DocumentInfo> {
        let (call, patch) = self.live.inner.document_patch(patch)?;
        self.change(Sync::Synced.free().repeatable(), move |tx, hold| documents::patch(tx, hold, &call, &patch)).await
    }

    /// Deletes a document, as [`crate::Threads::delete_document`], under the claim.
    ///
    /// # Errors
    /// As there; [`crate::Error::ClaimLost`] when the claim was taken over.
    pub async fn delete_document(&self, name: impl Into<String>, expect: Option<u64>) -> Result<bool> {
        let call = self.live.inner.document_call(&name.into(), expect)?;
        self.change(Sync::Synced.free().repeatable(), move |tx, hold| documents::delete(tx, hold, &call)).await
    }
}
