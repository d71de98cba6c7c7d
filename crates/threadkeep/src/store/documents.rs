//! The documents of the threads that a handle sees.

use super::{Inner, Threads};
use crate::db::{Sync, Tx};
use crate::documents::schema::{PlanSnapshot, PreferencePin, Scratchpad};
use crate::documents::{self, Call, Document, DocumentInfo, DocumentQuery, NewDocument, Ready};
use crate::error::Result;
use crate::id::ThreadId;
use crate::log::append::mint_uuid;
use crate::thread::Page;
use crate::threads::{By, Hold};

impl Threads {
    /// Reads a document of a thread, or a former version of it; nothing when there is none, or when the version deleted it.
    ///
    /// A thread that is resumed has its documents as they stand: reading them needs no claim and nothing else.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`] for the thread; [`crate::Error::Corrupt`] names a document that can't be read, or that says what
    /// its kind does not allow: a pin with any other field than those of [`PreferencePin`] is such a one.
    pub async fn document(
        &self,
        thread: &ThreadId,
        name: impl Into<String>,
        version: Option<u64>,
    ) -> Result<Option<Document>> {
        let name = name.into();
        self.read(thread, move |tx, id| documents::load(tx, id, &name, version)).await
    }

    /// Reads a page of a thread's documents without their texts, in the order of their names.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for a cursor of another query.
    pub async fn documents(&self, thread: &ThreadId, query: DocumentQuery) -> Result<Page<DocumentInfo>> {
        self.read(thread, move |tx, id| documents::page(tx, id, &query)).await
    }

    /// Reads a page of the versions of a document without their texts, the newest first; deletions are among them. Empty when the
    /// thread never had one.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for a cursor of another query.
    pub async fn document_history(
        &self,
        thread: &ThreadId,
        name: impl Into<String>,
        query: DocumentQuery,
    ) -> Result<Page<DocumentInfo>> {
        let name = name.into();
        self.read(thread, move |tx, id| documents::history(tx, id, &name, &query)).await
    }

    /// Writes the next version of a document. Needs no claim; a holder writes through its own handle
    /// ([`crate::LiveThread::put_document`]), where it is fenced.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`] for the thread; [`crate::Error::Invalid`] for a text that its kind does not allow, or of more
    /// than [`crate::MAX_DOCUMENT_BYTES`]; [`crate::Error::Conflict`] when another version is the current one than was expected;
    /// [`crate::Error::AlreadyExists`] when the id is that of a change of another document.
    pub async fn put_document(&self, thread: &ThreadId, document: NewDocument) -> Result<DocumentInfo> {
        let ready = self.inner.new_document(document)?;
        let hold = Hold { thread: thread.clone(), by: By::Anyone(self.scope), now: self.inner.host.now() };
        let place = self.inner.db.place(ready.bytes()).await;
        let terms = Sync::Synced.within(thread.as_str()).repeatable();
        self.inner.db.write_in(place, terms, move |tx: &mut dyn Tx| documents::put(tx, &hold, &ready)).await
    }

    /// Writes the version that a JSON merge patch (RFC 7386) makes of a document: members that it names are put in the place of
    /// those that are there, `null` removes one, what it does not name keeps its bytes. Without a document it makes one.
    ///
    /// # Errors
    /// As [`Threads::put_document`].
    pub async fn patch_document(&self, thread: &ThreadId, patch: NewDocument) -> Result<DocumentInfo> {
        let (call, patch) = self.inner.document_patch(patch)?;
        let run = move |tx: &mut dyn Tx, hold: &Hold| documents::patch(tx, hold, &call, &patch);
        self.change(thread, Sync::Synced.free().repeatable(), run).await
    }

    /// Deletes a document, if the expected version is the current one; says whether there was one. The deletion is a version, and
    /// former ones stay in the history until that is trimmed.
    ///
    /// # Errors
    /// [`crate::Error::Conflict`] when another version is the current one.
    pub async fn delete_document(
        &self,
        thread: &ThreadId,
        name: impl Into<String>,
        expect: Option<u64>,
    ) -> Result<bool> {
        let call = self.inner.document_call(&name.into(), expect)?;
        self.change(thread, Sync::Synced.free().repeatable(), move |tx, hold| documents::delete(tx, hold, &call)).await
    }

    /// Removes the former versions of a document but the newest `keep` ones, and gives how many went. Nothing else bounds a history.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`] when the thread never had such a document.
    pub async fn trim_document(&self, thread: &ThreadId, name: impl Into<String>, keep: u64) -> Result<u64> {
        let name = name.into();
        self.change(thread, Sync::Synced.free(), move |tx, hold| documents::trim(tx, hold, &name, keep)).await
    }

    /// Reads the scratchpad of a thread.
    ///
    /// # Errors
    /// As [`Threads::document`].
    pub async fn scratchpad(&self, thread: &ThreadId) -> Result<Option<Scratchpad>> {
        self.read(thread, documents::scratchpad).await
    }

    /// Reads the plan of a thread.
    ///
    /// # Errors
    /// As [`Threads::document`].
    pub async fn plan(&self, thread: &ThreadId) -> Result<Option<PlanSnapshot>> {
        self.read(thread, documents::plan).await
    }

    /// Reads what a person prefers in a thread; nothing when that was never said.
    ///
    /// # Errors
    /// As [`Threads::document`]: a stored pin with a field that is none of [`PreferencePin`]'s is [`crate::Error::Corrupt`], and
    /// names the field.
    pub async fn preferences(&self, thread: &ThreadId) -> Result<Option<PreferencePin>> {
        self.read(thread, documents::pin).await
    }
}

impl Inner {
    /// Screens a document and prepares it.
    pub(crate) fn new_document(&self, mut new: NewDocument) -> Result<Ready> {
        self.screen_document(&mut new)?;
        Ready::new(&new, new.id.unwrap_or_else(|| self.mint_change()))
    }

    /// Screens a merge patch; gives it with what its change goes by.
    pub(crate) fn document_patch(&self, mut patch: NewDocument) -> Result<(Call, String)> {
        self.screen_document(&mut patch)?;
        documents::check_patch(&patch.text)?;
        let call = Call::new(&patch.name, patch.expect, patch.id.unwrap_or_else(|| self.mint_change()))?;
        Ok((call, patch.text))
    }

    /// What a change of a document goes by that has no text.
    pub(crate) fn document_call(&self, name: &str, expect: Option<u64>) -> Result<Call> {
        Call::new(name, expect, self.mint_change())
    }

    fn screen_document(&self, new: &mut NewDocument) -> Result<()> {
        let mut text = Some(std::mem::take(&mut new.text));
        self.screen.json("document", &mut text)?;
        new.text = text.unwrap_or_default();
        Ok(())
    }

    pub(crate) fn mint_change(&self) -> uuid::Uuid {
        mint_uuid(&*self.host, self.host.now())
    }
}
