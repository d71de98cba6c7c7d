//! The feed of changes: what changed in a store, in an order in which nothing appears behind a cursor.

use crate::db::{Tx, Value, statements};
use crate::error::Result;
use crate::id::{ThreadId, WorkspaceId};
use crate::time::Timestamp;

statements! {
    NOTE = "INSERT INTO changes (workspace, thread, area, verb, subject, tick, at)
        SELECT workspace, id, ?2, ?3, ?4, ?5, ?6 FROM threads WHERE id = ?1";
    NOTE_IN_WORKSPACE = "INSERT INTO changes (workspace, thread, area, verb, subject, tick, at) VALUES (?1, NULL, ?2, ?3, ?4, NULL, ?5)";
}

/// What a change is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Area {
    /// Items came to a thread, or were redacted.
    Items,
    /// The head of a thread moved without an item.
    Head,
    /// A thread itself: its metadata and its shelf.
    Thread,
    /// A turn of a thread.
    Turn,
    /// The claim on a thread.
    Claim,
    /// A label of a branch.
    Label,
    /// The goal of a thread.
    Goal,
    /// A job.
    Job,
    /// A checkpoint.
    Checkpoint,
    /// The tools of a thread.
    Tools,
    /// A workflow run.
    Run,
    /// A document.
    Document,
    /// A roadmap, or a thread's link to one.
    Roadmap,
    /// A message in a thread's inbox.
    Message,
    /// A request for an approval or an enrolment.
    Request,
}

impl Area {
    /// The word for it, as it is stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Items => "items",
            Self::Head => "head",
            Self::Thread => "thread",
            Self::Turn => "turn",
            Self::Claim => "claim",
            Self::Label => "label",
            Self::Goal => "goal",
            Self::Job => "job",
            Self::Checkpoint => "checkpoint",
            Self::Tools => "tools",
            Self::Run => "run",
            Self::Document => "document",
            Self::Roadmap => "roadmap",
            Self::Message => "message",
            Self::Request => "request",
        }
    }
}

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verb {
    /// It is new.
    Created,
    /// It is another than before.
    Changed,
    /// It is gone.
    Deleted,
}

impl Verb {
    /// The word for it, as it is stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Changed => "changed",
            Self::Deleted => "deleted",
        }
    }
}

/// A change to be noted, in the transaction that makes it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Note<'a> {
    pub(crate) area: Area,
    pub(crate) verb: Verb,
    /// Which one of the area: a name or an id, no content.
    pub(crate) subject: Option<&'a str>,
    pub(crate) now: Timestamp,
}

/// Notes a change of a thread, and the tick that the thread got with it, if it got one.
pub(crate) fn note(tx: &mut dyn Tx, thread: &ThreadId, tick: Option<i64>, note: Note<'_>) -> Result<()> {
    let Note { area, verb, subject, now } = note;
    let args =
        [thread.as_str().into(), area.as_str().into(), verb.as_str().into(), subject.into(), tick.into(), now.0.into()];
    tx.execute(NOTE, &args).map(drop)
}

/// Notes a change in a workspace that is of no thread.
pub(crate) fn note_in(tx: &mut dyn Tx, workspace: WorkspaceId, note: Note<'_>) -> Result<()> {
    let Note { area, verb, subject, now } = note;
    let args =
        [Value::Blob(workspace.as_bytes()), area.as_str().into(), verb.as_str().into(), subject.into(), now.0.into()];
    tx.execute(NOTE_IN_WORKSPACE, &args).map(drop)
}
