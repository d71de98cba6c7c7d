//! What the codecs of agents offer that keep many sessions in one database: they write such a database whole, each session with
//! its tree and with what stands beside it.

use threadkeep::{Artifact, Error, Kind, Prompt, Thread, Timestamp};

use super::{Session, Written};
use crate::companion::{Companion, Shared};
use crate::conversation::Message;

/// A thread with all that its agent's store has a place for.
#[derive(Debug, Clone)]
pub struct Whole {
    /// What is said of it; its id is the thread's own.
    pub session: Session,
    /// The thread.
    pub thread: Thread,
    /// The items of its tree: of each branch one after the other, parents before what follows them.
    pub entries: Vec<Entry>,
    /// The entry that it stands at.
    pub head: Option<usize>,
    /// Where it was imported from such a store: the rows as the last import found them.
    pub rows: Vec<Vec<u8>>,
    /// Whether nothing was added to these rows here or taken from them: every item is one of theirs, and they are as they were read.
    pub is_as_imported: bool,
    /// Whether something of these rows, or of the thread, was masked or redacted: what is said of their bytes holds no more.
    pub is_changed: bool,
    /// What stands beside it, as it is now.
    pub beside: Vec<Dated<Companion>>,
    /// The workspace whose roadmap it stands in: an id of a roadmap is one in its workspace.
    pub roadmap_home: Option<String>,
}

/// An item of a tree.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The entry that it follows.
    pub parent: Option<usize>,
    /// What it says.
    pub said: Said,
    /// What kind of item it is.
    pub kind: Kind,
    /// The id that it had where it was imported from.
    pub source_id: Option<String>,
}

/// What an item says to a writer.
#[derive(Debug, Clone)]
pub enum Said {
    /// A record of the agent's own.
    Own(Vec<u8>),
    /// Something else.
    Message(Message),
    /// A prompt that the library keeps as such.
    Prompt(Box<Prompt>),
    /// Something that came of a prompt.
    Artifact(Box<Artifact>),
    /// Nothing that could be written; what follows it follows what it follows.
    Nothing,
}

/// Something, and when it was made and changed.
#[derive(Debug, Clone)]
pub struct Dated<T> {
    /// What it is.
    pub what: T,
    /// When it was made, or begun.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
    /// When it ended, if it has.
    pub ended_at: Option<Timestamp>,
}

/// Writes a database of its agent's.
///
/// What is held in memory is the database. `thread` for each, then `shared` once, then `finish`.
pub trait StoreWriter {
    /// The database's name.
    fn name(&self) -> &'static str;

    /// Puts a thread in; gives how many of its records stand there as their agent wrote them, and how many were written anew.
    ///
    /// # Errors
    /// [`Error::Invalid`] for what no database takes.
    fn thread(&mut self, whole: Whole) -> Result<(u64, u64), Error>;

    /// Puts in what belongs to none of the threads.
    ///
    /// # Errors
    /// As above.
    fn shared(&mut self, shared: Vec<Dated<Shared>>) -> Result<(), Error>;

    /// Gives the database's bytes, and what stands beside it.
    ///
    /// # Errors
    /// As above.
    fn finish(self: Box<Self>, out: &mut Vec<u8>) -> Result<Written, Error>;
}
