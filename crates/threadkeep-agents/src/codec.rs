//! What every codec offers: it recognises its agent's files, places their records in a thread, and reads their content.
//!
//! A codec is pure: bytes in, decisions out. It opens no file and knows no store; [`crate::import`] does both.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use threadkeep::{Kind, Role, Timestamp, Usage, ViewCodec};

use crate::companion::{Companion, Shared};
use crate::conversation::Message;
use crate::homes;
use crate::replay::Replay;
use crate::text::Grammar;
use crate::writer::{Home, Invocation, Session, StoreWriter, Writer};

/// The number of a record among the *placed* records of its source, from 0.
pub type RecordNo = u32;

/// Whether a file is one of lines by its name, plain or compressed.
pub(crate) fn is_lines(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.ends_with(".jsonl") || name.ends_with(".jsonl.zst")
}

/// Where a record belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In the tree, as a root of its own.
    Root,
    /// In the tree, after an earlier placed record. When that record has a successor already, this begins a branch.
    After(RecordNo),
    /// Not in the tree (titles, snapshots); kept in file order beside it.
    Beside,
}

/// What a codec made of one record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Where it belongs.
    pub place: Place,
    /// What it is.
    pub kind: Kind,
    /// Who speaks.
    pub role: Option<Role>,
    /// When it says it was made.
    pub created_at: Option<Timestamp>,
    /// The id it carries in its file.
    pub source_id: Option<String>,
    /// Whether a turn begins with it: a prompt of a person.
    pub starts_turn: bool,
    /// Up to 64 bytes that [`SourceReader::known`] gets back when the file has grown, enough to place later records.
    pub note: Vec<u8>,
}

/// A record placed by an earlier run, given back so that reading can go on where it stopped.
#[derive(Debug, Clone)]
pub struct KnownRecord<'a> {
    /// The id it carries in its file.
    pub source_id: Option<&'a str>,
    /// What [`Record::note`] was.
    pub note: &'a [u8],
}

/// Why a record was left out of the tree. Its bytes are kept beside it all the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skip {
    /// For people: what is wrong with the record.
    pub reason: String,
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

/// How much of the first prompt is a thread's preview.
pub(crate) const PREVIEW_CHARS: usize = 200;
/// How much of a title is kept.
pub(crate) const TITLE_CHARS: usize = 300;

/// What a file says about its thread. `None` means: nothing was said in the part that was read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ThreadFacts {
    /// The agent's own id of the session; the thread's id where it is free.
    pub session_id: Option<String>,
    /// The best title: one that a person or the agent gave, else none (the preview serves then).
    pub title: Option<String>,
    /// The first real prompt, cut to a line of at most 200 characters; injected text is no prompt.
    pub preview: Option<String>,
    /// The working directory.
    pub cwd: Option<PathBuf>,
    /// The last model that answered.
    pub model: Option<String>,
    /// The provider of the model.
    pub provider: Option<String>,
    /// The version of the agent's program.
    pub cli_version: Option<String>,
    /// How the session was started, in the agent's words: `cli`, `exec`, `vscode`, `subagent` …
    pub source: Option<String>,
    /// Git commit.
    pub git_sha: Option<String>,
    /// Git branch.
    pub git_branch: Option<String>,
    /// Git origin.
    pub git_origin: Option<String>,
    /// The folder below the working directory that it was started for.
    pub working_path: Option<String>,
    /// Approval policy.
    pub approval_policy: Option<String>,
    /// Sandbox policy.
    pub sandbox_policy: Option<String>,
    /// Memory mode.
    pub memory_mode: Option<String>,
    /// The name or role of a sub-agent.
    pub persona: Option<String>,
    /// The session that spawned this one as a sub-agent.
    pub parent_session: Option<String>,
    /// The session that this one was forked from by copying: lineage only, nothing is shared.
    pub forked_from: Option<String>,
    /// The session whose prefix this one continues without containing it.
    pub continues: Option<Continues>,
    /// Whether the agent has put the session away; of a new thread.
    pub archived: Option<bool>,
    /// Tokens of the whole session, counted once.
    pub usage: Option<Usage>,
    /// When the first record was made.
    pub created_at: Option<Timestamp>,
    /// When the last record was made.
    pub updated_at: Option<Timestamp>,
}

/// The part of another session that a delta-style fork stands on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Continues {
    /// The session.
    pub session: String,
    /// The first ordinal that is *not* shared.
    pub end_ordinal: u64,
}

/// In what form a session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// A file of JSON lines, which grows.
    Lines,
    /// One JSON document, which is written anew: the elements of the array that these keys lead to are the records.
    Document(&'static [&'static str]),
    /// A file whose conversation follows from all of it: its bytes are kept as they are, and [`Codec::replay`] makes the
    /// records from its lines, or from the elements of the array that these keys lead to.
    Replayed(Option<&'static [&'static str]>),
    /// One JSON document of which the first array holds the records, where it has elements; else the second one does. The one
    /// that is not read is no part of what stands around the records.
    FirstOf(&'static [&'static str], &'static [&'static str]),
    /// Many small files; the one that was found is the session's own, and [`Codec::below`] names the others.
    Tree,
    /// A database that holds many sessions; [`Codec::layout`] says where.
    Database,
    /// A text of sessions, one behind the other, which grows; [`Codec::grammar`] says what its lines are.
    Text,
}

impl Shape {
    /// Whether a session only grows at its end, so that it is gone on with where the last import stopped.
    pub fn grows(self) -> bool {
        matches!(self, Self::Lines | Self::Text)
    }
}

/// The tables of a database with their columns: ordinary tables only.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tables(pub BTreeMap<String, BTreeSet<String>>);

impl Tables {
    /// Whether a table is there and has all of these columns.
    pub fn has(&self, table: &str, columns: &[&str]) -> bool {
        self.0.get(table).is_some_and(|found| columns.iter().all(|column| found.contains(*column)))
    }
}

/// Where a database keeps its sessions, in statements that only read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Lists the sessions: their id as text, when they were last changed in milliseconds, and whatever else tells that
    /// something in a session has changed.
    pub sessions: String,
    /// The records of a session, in this order; `?1` is its id.
    pub records: Vec<Query>,
    /// Rows that belong to no session ([`Codec::shared`]), in an order in which none names a later one.
    pub shared: Vec<Query>,
}

/// Rows that become records: one line of JSON each, an object of the columns in their order.
///
/// A column that is named `json:NAME` holds JSON text and stands in the object as it is, under `NAME`; where it is no JSON it
/// stands there as a string.
///
/// A statement of one column that is named `elements:NAME` gives documents: JSON as text, or packed with zstd. Each becomes a record
/// of all that stands around the array that is called as the table is, under `NAME`, and then a record of each of the array's
/// elements, under `value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// The table, in the record under `table`; of rows within a row the key that their list stands under.
    pub name: &'static str,
    /// The statement.
    pub sql: String,
    /// Rows that belong into each row, by its first column as `?1`.
    pub within: Vec<Self>,
}

/// Files of a session that stand for themselves, or within the record of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Below {
    /// A file, or the JSON files of a folder in the order of their names: a record each.
    Records(PathBuf),
    /// The JSON files of a folder in the order of their names: a list within the record, under this key.
    Within(&'static str, PathBuf),
}

/// What a small file beside sessions says of them.
pub struct Aside {
    tell: Box<dyn Fn(&mut ThreadFacts)>,
    /// What else it holds that belongs to the session.
    pub companions: Vec<Companion>,
    /// What is wrong with it, for people.
    pub remarks: Vec<String>,
}

impl Aside {
    /// What it adds to what a session says itself.
    pub fn new(tell: impl Fn(&mut ThreadFacts) + 'static) -> Self {
        Self { tell: Box::new(tell), companions: Vec::new(), remarks: Vec::new() }
    }

    /// Adds it.
    pub fn tell(&self, facts: &mut ThreadFacts) {
        (self.tell)(facts);
    }
}

impl fmt::Debug for Aside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Aside").field("companions", &self.companions).finish_non_exhaustive()
    }
}

/// Reads one file, record by record, in file order.
pub trait SourceReader: Send {
    /// Takes a document without its records ([`crate::document::frame`]). Called before any record.
    fn frame(&mut self, bytes: &[u8]) {
        let _ = bytes;
    }

    /// Takes back a record that an earlier run placed. Called in placement order, before any new record.
    fn known(&mut self, record: &KnownRecord<'_>);

    /// Takes note that the next record is not as it stands in the file: secrets are masked in it.
    fn masked(&mut self) {}

    /// Places one record.
    ///
    /// # Errors
    /// [`Skip`] when the bytes are a JSON value but no record of this format.
    fn record(&mut self, bytes: &[u8]) -> Result<Record, Skip>;

    /// What is known of the thread so far, earlier runs included.
    fn facts(&self) -> ThreadFacts;

    /// The few facts that a later run needs beside the notes: small JSON.
    fn state(&self) -> Vec<u8>;

    /// The ordinal that a placed record's note carries, for formats that number their lines.
    fn ordinal(&self, note: &[u8]) -> Option<u64> {
        let _ = note;
        None
    }

    /// The placed record that the file's own agent would continue from, when that is not the last placed one.
    fn head(&self) -> Option<RecordNo> {
        None
    }

    /// What the record that was placed last is recognised by, where its agent changes records in place; its bytes, where
    /// this is nothing. A record that is recognised and has other bytes is no other item: its new bytes are kept beside it.
    fn key(&self) -> Option<Vec<u8>> {
        None
    }

    /// The first of the placed records that the agent is still at work on, if the session ended here. It and what follows are
    /// taken by the import that finds them settled; their bytes are kept beside the tree until then. Only for sessions that
    /// are read as a whole: of what grows none waits.
    fn unsettled(&self) -> Option<RecordNo> {
        None
    }

    /// What stands beside the conversation and is no part of it. Asked once, behind the last record.
    fn companions(&self) -> Vec<Companion> {
        Vec::new()
    }

    /// What is to be said of the session as a whole. Asked once, behind the last record.
    fn findings(&self) -> Findings {
        Findings::default()
    }
}

/// What was found of a session as a whole.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Findings {
    /// What is wrong with it, for people.
    pub remarks: Vec<String>,
    /// What the thread's metadata says of it, by name.
    pub marks: Vec<(&'static str, serde_json::Value)>,
}

/// One agent's format.
pub trait Codec: ViewCodec {
    /// The agent's short name: `codex`, `claude-code`.
    fn agent(&self) -> &'static str;

    /// Whether the file is one of this agent's sessions, by its name and its first bytes (at most 64 KiB, decompressed).
    fn detect(&self, path: &Path, head: &[u8]) -> bool;

    /// The environment variable that names another folder for what the agent keeps, if it knows one.
    ///
    /// [`crate::homes`] knows it of every agent that is listed there.
    fn variable(&self) -> Option<&'static str> {
        homes::variable(self.agent())
    }

    /// What the agent's environment says for it to keep its sessions in this home: a variable and its value.
    ///
    /// # Errors
    /// What its home has to be, in words for people, where no variable can name this one.
    fn environment(&self, home: &Path) -> Result<(&'static str, PathBuf), &'static str> {
        let name = self.variable().ok_or("no variable names another home")?;
        Ok((name, home.to_owned()))
    }

    /// Whether a file that was found in a folder may be a session, by its name alone: whatever may be is opened.
    fn may_be_session(&self, path: &Path) -> bool {
        is_lines(path)
    }

    /// In what form a file of this agent is, by its name and its first bytes.
    fn shape(&self, path: &Path, head: &[u8]) -> Shape {
        let _ = (path, head);
        Shape::Lines
    }

    /// What makes the records of a file of [`Shape::Replayed`].
    fn replay(&self, shape: Shape) -> Option<Box<dyn Replay>> {
        let _ = shape;
        None
    }

    /// Small files that say something of a session and are no part of it, the most telling one last; those that are not there are
    /// passed over.
    fn beside(&self, path: &Path) -> Vec<PathBuf> {
        let _ = path;
        Vec::new()
    }

    /// The file that this one only stands in for, where an agent keeps the same conversation twice: of files that nobody named,
    /// that one is read in this one's place where it is there and holds anything. For a session of a database, `PATH#ID`: the file is
    /// left out where the database lists it.
    fn stands_in_for(&self, path: &Path) -> Option<PathBuf> {
        let _ = path;
        None
    }

    /// The files that only stand in for this one ([`Codec::stands_in_for`]): where one of them was imported before this one was there,
    /// its thread is the one that this one goes on with.
    fn stood_in_by(&self, path: &Path) -> Vec<PathBuf> {
        let _ = path;
        Vec::new()
    }

    /// What follows a file of a [`Shape::Tree`], or belongs into its record. Asked of the session's own file, then of each file
    /// that became a record.
    fn below(&self, session: &Path, file: &Path) -> Vec<Below> {
        let _ = (session, file);
        Vec::new()
    }

    /// What the lines of a [`Shape::Text`] are. `state` is what [`SourceReader::state`] gave behind the line before the first.
    fn grammar(&self, state: Option<&[u8]>) -> Option<Box<dyn Grammar>> {
        let _ = state;
        None
    }

    /// Where a database keeps its sessions; nothing when it is not this agent's.
    fn layout(&self, tables: &Tables) -> Option<Layout> {
        let _ = tables;
        None
    }

    /// What a row of [`Layout::shared`] is in the library's words, if it has some.
    ///
    /// # Errors
    /// [`Skip`] names the row and what is wrong with it.
    fn shared(&self, row: &[u8]) -> Result<Option<Shared>, Skip> {
        let _ = row;
        Ok(None)
    }

    /// Where the agent keeps its sessions below a home directory, most likely first.
    ///
    /// [`crate::homes`] knows it of every agent that is listed there, for each system; only a codec of another one says it itself.
    fn homes(&self, home: &Path) -> Vec<PathBuf> {
        homes::below(self.agent(), home)
    }

    /// Starts reading a file. `state` is what [`SourceReader::state`] gave at the end of an earlier run.
    fn reader(&self, path: &Path, state: Option<&[u8]>) -> Box<dyn SourceReader>;

    /// Another file that the agent may have written the same session to, record by record, when it gave it another form. What differs
    /// in space alone is one record then, in either file; the one that goes further goes on with the thread.
    fn other_form(&self, path: &Path) -> Option<PathBuf> {
        let _ = path;
        None
    }

    /// Whether a file that [`Codec::beside`] names is a list of many sessions, which tells each of them by what the session says
    /// of itself: then it is read once for all of them.
    fn is_list(&self, path: &Path) -> bool {
        let _ = path;
        false
    }

    /// Reads a file that [`Codec::beside`] names for a session; gives what adds its words to what is known of a thread.
    ///
    /// Asked once for each session, of a list as long as it stays the same, and of a database once for all of its sessions, with
    /// the path of the database.
    fn aside(&self, session: &Path, path: &Path, bytes: &[u8]) -> Option<Aside> {
        let _ = (session, path, bytes);
        None
    }

    /// What a record says to another agent; nothing for settings, telemetry and what is damaged.
    fn message(&self, kind: &Kind, content: &[u8]) -> Option<Message> {
        Message::of_view(kind, self.view(kind, content))
    }

    /// The agent's home below a person's home directory, where [`Codec::variable`] does not name another: what [`Codec::place`]
    /// and companions lie below.
    fn root(&self, home: &Path) -> Option<PathBuf> {
        let _ = home;
        None
    }

    /// Where a session's file belongs below the agent's home, for agents that find it there by themselves.
    fn place(&self, session: &Session) -> Option<PathBuf> {
        let _ = session;
        None
    }

    /// What the agent calls the session's folder, where that depends on the other folders that it knows. It becomes
    /// [`Session::project`] of a session that is put into this home.
    fn project(&self, session: &Session, home: &dyn Home) -> Option<String> {
        let _ = (session, home);
        None
    }

    /// The id that the session has in the agent.
    fn session_id(&self, session: &Session) -> String {
        session.uuid().to_string()
    }

    /// Begins a file of this agent, if sessions can be written for it.
    fn writer(&self, session: &Session) -> Option<Box<dyn Writer>> {
        let _ = session;
        None
    }

    /// Begins a database of this agent, if it keeps its sessions in one and whole threads can be written into it.
    fn store_writer(&self) -> Option<Box<dyn StoreWriter>> {
        None
    }

    /// How the agent takes in a file that lies anywhere, for agents whose sessions have no place of their own ([`Codec::place`]).
    fn taking_in(&self, file: &Path) -> Option<Invocation> {
        let _ = file;
        None
    }

    /// How the agent goes on with a session that lies where [`Codec::place`] says, or that it took in; to be run in the
    /// session's folder.
    fn resuming(&self, session: &Session) -> Option<Invocation> {
        let _ = session;
        None
    }
}
