//! The prompts and artifacts of the threads that a handle sees.

use super::Threads;
use crate::artifacts::{self, Artifact, ArtifactQuery};
use crate::error::Result;
use crate::id::{Address, ArtifactId, PromptId, ThreadId};
use crate::prompts::{self, Prompt, PromptContext, PromptQuery, Receipt, ReceiptPage};

impl Threads {
    /// Reads a prompt that a thread wrote, or that stands on the path that it was forked from. What it says is compared with its item.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`], also for one of a thread that this one does not share it with; [`crate::Error::Corrupt`] names a
    /// prompt that can't be believed.
    pub async fn prompt(&self, thread: &ThreadId, id: PromptId) -> Result<Prompt> {
        self.read(thread, move |tx, thread| prompts::get(tx, thread, id)).await
    }

    /// Finds a prompt of a thread by its id, with `prompt:` before it or not, or by an unambiguous beginning of it.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`], or [`crate::Error::Ambiguous`] with the candidates.
    pub async fn find_prompt(&self, thread: &ThreadId, name: impl Into<String>) -> Result<PromptId> {
        let name = name.into();
        self.read(thread, move |tx, thread| prompts::find(tx, thread, &name)).await
    }

    /// The prompts from one up to the first one of its task, itself first: at most 256.
    ///
    /// # Errors
    /// As [`Threads::prompt`]; [`crate::Error::Corrupt`] names the prompt whose parent is missing, does not stand before it on its path,
    /// or is another one than its other pointers say.
    pub async fn prompt_lineage(&self, thread: &ThreadId, id: PromptId) -> Result<Vec<Receipt>> {
        self.read(thread, move |tx, thread| prompts::lineage(tx, thread, id)).await
    }

    /// Reads a page of the prompts on a thread's path, those of the threads that it was forked from included. A damaged one is listed,
    /// and says so.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`] for the thread or the end of the path; [`crate::Error::Invalid`] for a cursor of another query.
    pub async fn prompts(&self, thread: &ThreadId, query: PromptQuery) -> Result<ReceiptPage<Prompt>> {
        self.read(thread, move |tx, thread| prompts::page(tx, thread, &query)).await
    }

    /// What is worked at where a thread stands, or at another place of it: the last prompt, and the one that says what is to be done.
    /// `None` when no prompt on the path was stored as a receipt.
    ///
    /// # Errors
    /// As [`Threads::prompt_lineage`].
    pub async fn prompt_context(&self, thread: &ThreadId, at: Option<Address>) -> Result<Option<PromptContext>> {
        self.read(thread, move |tx, thread| prompts::context(tx, thread, at)).await
    }

    /// Reads an artifact that a thread wrote, or that stands on the path that it was forked from.
    ///
    /// # Errors
    /// As [`Threads::prompt`].
    pub async fn artifact(&self, thread: &ThreadId, id: ArtifactId) -> Result<Artifact> {
        self.read(thread, move |tx, thread| artifacts::get(tx, thread, id)).await
    }

    /// Finds an artifact of a thread by its id, with `artifact:` before it or not, or by an unambiguous beginning of it.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`], or [`crate::Error::Ambiguous`] with the candidates.
    pub async fn find_artifact(&self, thread: &ThreadId, name: impl Into<String>) -> Result<ArtifactId> {
        let name = name.into();
        self.read(thread, move |tx, thread| artifacts::find(tx, thread, &name)).await
    }

    /// Reads a page of the artifacts on a thread's path: all of them, those of a prompt, or those of a task. A damaged one is listed, and
    /// says so.
    ///
    /// # Errors
    /// As [`Threads::prompts`].
    pub async fn artifacts(&self, thread: &ThreadId, query: ArtifactQuery) -> Result<ReceiptPage<Artifact>> {
        self.read(thread, move |tx, thread| artifacts::page(tx, thread, &query)).await
    }
}
