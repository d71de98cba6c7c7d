//! The errors of the store, told apart by what the caller can do about them.

use std::fmt;

use crate::claim::Holder;
use crate::id::ThreadId;

/// The result of an operation on a store.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, by what the caller can do.
///
/// No decision in this crate is made on the text of a message, and none needs to be made by its users.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing of that name is visible here. Another workspace's thread reads the same as an absent one.
    #[error("no {what} `{id}`")]
    NotFound {
        /// The kind of thing that was looked for: `thread`, `item`, `workspace` …
        what: &'static str,
        /// The name it was looked for under, as given.
        id: String,
    },
    /// More than one thing begins with this prefix or has this title.
    #[error("`{given}` is ambiguous: {}", candidates.join(", "))]
    Ambiguous {
        /// The prefix or title that was given.
        given: String,
        /// Some of the ids it could mean, in a stable order.
        candidates: Vec<String>,
    },
    /// The thread is archived and the call did not ask for archived threads.
    #[error("thread `{thread}` is archived")]
    Archived {
        /// The archived thread.
        thread: ThreadId,
    },
    /// Something of that name exists already.
    #[error("{what} `{id}` exists already")]
    AlreadyExists {
        /// The kind of thing.
        what: &'static str,
        /// Its name.
        id: String,
    },
    /// The state that the call builds on is not the stored state.
    #[error("conflict on {what}: expected {expected}, found {found}")]
    Conflict {
        /// What differs: `head`, `version`, `item` …
        what: &'static str,
        /// What the caller named.
        expected: String,
        /// What is stored.
        found: String,
    },
    /// Another live writer holds the thread.
    #[error("thread `{thread}` is being written by {holder}")]
    ClaimHeld {
        /// The thread.
        thread: ThreadId,
        /// Who holds it, where, and since when.
        holder: Box<Holder>,
    },
    /// This handle's right to write was taken over; it is finished.
    #[error("this writer's claim on thread `{thread}` was taken over (its epoch {epoch} is no longer current)")]
    ClaimLost {
        /// The thread.
        thread: ThreadId,
        /// The epoch that this handle wrote under.
        epoch: i64,
    },
    /// The handle was shut down or discarded.
    #[error("this handle of thread `{thread}` is closed")]
    Closed {
        /// The thread.
        thread: ThreadId,
    },
    /// An argument can't be accepted, now or later.
    #[error("invalid {field}: {reason}")]
    Invalid {
        /// The argument.
        field: &'static str,
        /// What is wrong with it, and what would be right.
        reason: String,
    },
    /// The changes behind this cursor are not all kept any more, or the store is another copy than the one that gave it.
    #[error("the changes since {cursor} are no longer all kept: read the index of threads, and go on from there")]
    Trimmed {
        /// The cursor.
        cursor: String,
    },
    /// This store does not offer the operation.
    #[error("`{operation}` is not supported by this store")]
    Unsupported {
        /// The stable name of the operation.
        operation: &'static str,
    },
    /// Another process kept the store's write lock for longer than the busy bound. Safe to retry.
    #[error("the store is busy: {detail}")]
    Busy {
        /// What is known of the lock's holder, and how long was waited.
        detail: String,
    },
    /// No space is left. Nothing of the call is stored; it can be retried when there is space.
    #[error("no space is left for the store: {detail}")]
    StorageFull {
        /// The engine's words.
        detail: String,
    },
    /// The store can be read but not written.
    #[error("the store is read-only: {detail}")]
    ReadOnly {
        /// The engine's words.
        detail: String,
    },
    /// Stored data is damaged. Everything that is not named here is unaffected.
    #[error("damaged data in {place}: {detail}")]
    Corrupt {
        /// The row, file or page.
        place: String,
        /// What is wrong with it.
        detail: String,
    },
    /// The file is a database or a file of another program; it was not touched.
    #[error("{path} is not a Threadkeep store: {detail}")]
    ForeignStore {
        /// The file.
        path: String,
        /// How that was recognised.
        detail: String,
    },
    /// The store was written by a newer version; it was not touched.
    #[error(
        "{place} has schema {found}, this version knows up to {known}: use the newer Threadkeep that brought it forward, \
         or go back to the copy that was made before"
    )]
    SchemaTooNew {
        /// The database, or the address of the server.
        place: String,
        /// The store's schema number.
        found: i64,
        /// The newest schema that this version knows.
        known: i64,
    },
    /// The rollout was written by a newer version; nothing of it was read.
    #[error("{path} is a rollout of version {found}, this version knows up to {known}: use a newer Threadkeep")]
    RolloutTooNew {
        /// The file.
        path: String,
        /// The version that its first line names.
        found: u64,
        /// The newest version that is known here.
        known: u64,
    },
    /// The file system refused.
    #[error("{operation} {path}: {detail}")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// Where.
        path: String,
        /// The kind of refusal, for decisions.
        kind: std::io::ErrorKind,
        /// The system's words.
        detail: String,
    },
    /// The engine failed in a way that no other variant describes.
    #[error("the storage engine failed: {detail}")]
    Backend {
        /// The engine's words, with its code.
        detail: String,
    },
}

impl Error {
    /// The stable kebab-case name of this kind of error, for machine output.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "not-found",
            Self::Ambiguous { .. } => "ambiguous",
            Self::Archived { .. } => "archived",
            Self::AlreadyExists { .. } => "already-exists",
            Self::Conflict { .. } => "conflict",
            Self::ClaimHeld { .. } => "claim-held",
            Self::ClaimLost { .. } => "claim-lost",
            Self::Closed { .. } => "closed",
            Self::Invalid { .. } => "invalid",
            Self::Trimmed { .. } => "trimmed",
            Self::Unsupported { .. } => "unsupported",
            Self::Busy { .. } => "busy",
            Self::StorageFull { .. } => "storage-full",
            Self::ReadOnly { .. } => "read-only",
            Self::Corrupt { .. } => "corrupt",
            Self::ForeignStore { .. } => "foreign-store",
            Self::SchemaTooNew { .. } => "schema-too-new",
            Self::RolloutTooNew { .. } => "rollout-too-new",
            Self::Io { .. } => "io",
            Self::Backend { .. } => "backend",
        }
    }

    /// Whether the same call can succeed later without a change by the caller.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Busy { .. } | Self::StorageFull { .. } | Self::ClaimHeld { .. } | Self::Io { .. })
    }

    pub(crate) fn not_found(what: &'static str, id: impl fmt::Display) -> Self {
        Self::NotFound { what, id: id.to_string() }
    }

    pub(crate) fn invalid(field: &'static str, reason: impl Into<String>) -> Self {
        Self::Invalid { field, reason: reason.into() }
    }

    pub(crate) fn corrupt(place: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::Corrupt { place: place.into(), detail: detail.into() }
    }

    pub(crate) fn io(operation: &'static str, path: &std::path::Path, error: &std::io::Error) -> Self {
        use std::io::ErrorKind;
        let detail = || format!("{operation} {}: {error}", path.display());
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::StorageFull { detail: detail() },
            ErrorKind::ReadOnlyFilesystem => Self::ReadOnly { detail: detail() },
            kind => Self::Io { operation, path: path.display().to_string(), kind, detail: error.to_string() },
        }
    }
}
