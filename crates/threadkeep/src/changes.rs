//! The feed of changes: what changed in a store, in an order in which nothing appears behind a cursor.

use std::ops::ControlFlow;

use serde::Serialize;

use crate::cursor::Cursor;
use crate::db::{Row, Tx, Value, query_all, query_one, statements};
use crate::error::{Error, Result};
use crate::id::{ThreadId, WorkspaceId};
use crate::log::order::Top;
use crate::thread::Shelf;
use crate::threads::Scope;
use crate::time::Timestamp;

/// How many changes are kept at least, unless a store says otherwise.
const KEPT: i64 = 100_000;
const LEAST_KEPT: i64 = 1_000;
/// Where old changes are trimmed: at every so-manieth tick, or where there is none at every so-manieth millisecond.
const TRIM_AT: i64 = 128;
const MAX_PAGE: usize = 10_000;
const TAG: &str = "changes";
const INDEX_TAG: &str = "activity";

/// The columns of a change as [`read`] takes them, after a place.
macro_rules! changes_after {
    ($of:literal) => {
        concat!(
            "SELECT place, number, workspace, thread, area, verb, subject, tick, at FROM changes_settled
             WHERE place >= ?1 AND (place > ?1 OR number > ?2) AND ",
            $of,
            " ORDER BY place, number LIMIT ?4"
        )
    };
}

statements! {
    NOTE = "INSERT INTO changes (workspace, thread, area, verb, subject, tick, at)
        SELECT workspace, id, ?2, ?3, ?4, ?5, ?6 FROM threads WHERE id = ?1";
    NOTE_IN_WORKSPACE = "INSERT INTO changes (workspace, thread, area, verb, subject, tick, at) VALUES (?1, NULL, ?2, ?3, ?4, NULL, ?5)";
    ALL_AFTER = changes_after!("(CAST(?3 AS BYTEA) IS NULL OR workspace = ?3)");
    OF_THREAD_AFTER = changes_after!("(CAST(?3 AS BYTEA) IS NULL OR workspace = ?3) AND thread = ?5");
    NEWEST = "SELECT place, number, thread, at FROM changes_settled ORDER BY place DESC, number DESC LIMIT 1";
    PENDING = "SELECT 1 FROM changes_unsettled LIMIT 1";
    STANDS = "SELECT place, number, thread, at FROM changes_with_places WHERE number = ?1";
    TRIMMINGS = "SELECT value FROM counters WHERE name = 'changes-trimmed'";
    // A beginning of their order, so that where one is still there nothing behind it is gone.
    TRIM = "DELETE FROM changes WHERE number IN (SELECT number FROM changes_settled WHERE place <
        (SELECT place FROM changes_settled WHERE number <= (SELECT max(number) FROM changes_settled)
          - coalesce((SELECT value FROM counters WHERE name = 'changes-kept'), ?1) ORDER BY number DESC LIMIT 1))";
    NOTE_TRIMMED = "INSERT INTO counters (name, value) VALUES ('changes-trimmed', 1)
        ON CONFLICT (name) DO UPDATE SET value = counters.value + 1";
    KEEP = "INSERT INTO counters (name, value) VALUES ('changes-kept', ?1) ON CONFLICT (name) DO UPDATE SET value = excluded.value";
    FOLLOWED = "SELECT 1 FROM counters WHERE name = 'changes-followed'";
    SET_FOLLOWED = "INSERT INTO counters (name, value) VALUES ('changes-followed', 1) ON CONFLICT (name) DO NOTHING";
    // One for each thread, in the order by activity: what came before anybody asked.
    NOTE_WHAT_IS_THERE = "INSERT INTO changes (workspace, thread, area, verb, subject, tick, at)
        SELECT workspace, id, 'items', 'created', NULL, tick, updated_at FROM threads WHERE items > 0 AND shelf < 3 ORDER BY activity, id";
    FORGET_SUBJECTS = "UPDATE changes SET subject = NULL WHERE thread = ?1 AND subject IS NOT NULL";
    ACTIVITY = "SELECT id, tick, activity, updated_at, shelf FROM threads WHERE id > ?1 AND shelf < 3
        AND (CAST(?2 AS BYTEA) IS NULL OR workspace = ?2) ORDER BY id LIMIT ?3";
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
    /// The retention rules of a workspace.
    Retention,
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
            Self::Retention => "retention",
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
    tx.post(NOTE, &args)?;
    trim(tx, tick, now)
}

/// Notes a change in a workspace that is of no thread.
pub(crate) fn note_in(tx: &mut dyn Tx, workspace: WorkspaceId, note: Note<'_>) -> Result<()> {
    let Note { area, verb, subject, now } = note;
    let args =
        [Value::Blob(workspace.as_bytes()), area.as_str().into(), verb.as_str().into(), subject.into(), now.0.into()];
    tx.post(NOTE_IN_WORKSPACE, &args)?;
    trim(tx, None, now)
}

/// Takes from the feed what names parts of a thread that is purged. That something changed stays.
pub(crate) fn forget_subjects(tx: &mut dyn Tx, thread: &ThreadId) -> Result<()> {
    tx.execute(FORGET_SUBJECTS, &[thread.as_str().into()]).map(drop)
}

/// Says how many changes the store keeps at least.
pub(crate) fn keep(tx: &mut dyn Tx, count: u64) -> Result<()> {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    if count < LEAST_KEPT {
        return Err(Error::invalid("count", format!("a store keeps {LEAST_KEPT} changes or more")));
    }
    tx.execute(KEEP, &[count.into()])?;
    trim_now(tx)
}

/// Whether new items are noted. Where nobody has asked for the feed yet an append is the cheaper for it; where others write at the
/// same time they are always noted, since one that asks would not be seen by those who have begun.
pub(crate) fn is_begun(tx: &mut dyn Tx) -> Result<bool> {
    Ok(!tx.is_alone() || query_one(tx, FOLLOWED, &[], |_| Ok(()))?.is_some())
}

/// Has new items noted from now on, and notes of each thread that it has some.
pub(crate) fn begin(tx: &mut dyn Tx) -> Result<()> {
    if is_begun(tx)? {
        return Ok(());
    }
    // The next append of this very transaction must see it.
    Top::forget(tx);
    tx.execute(NOTE_WHAT_IS_THERE, &[])?;
    tx.execute(SET_FOLLOWED, &[]).map(drop)
}

/// Deletes the oldest changes now and then.
fn trim(tx: &mut dyn Tx, tick: Option<i64>, now: Timestamp) -> Result<()> {
    if tick.unwrap_or(now.0) % TRIM_AT == 0 { trim_now(tx) } else { Ok(()) }
}

fn trim_now(tx: &mut dyn Tx) -> Result<()> {
    match tx.execute(TRIM, &[KEPT.into()])? {
        0 => Ok(()),
        _ => tx.execute(NOTE_TRIMMED, &[]).map(drop),
    }
}

/// A change, as the feed tells it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChangeEntry {
    /// Where it stands in the feed: what comes after it is read with this.
    pub cursor: String,
    /// The workspace.
    pub workspace: WorkspaceId,
    /// The thread; `None` for what is of no thread.
    pub thread: Option<ThreadId>,
    /// What it is of: the word of an [`Area`], or one that this version does not know.
    pub area: String,
    /// What was done: the word of a [`Verb`], or one that this version does not know.
    pub verb: String,
    /// Which one of the area: a name or an id. A purge takes it out.
    pub subject: Option<String>,
    /// The tick that the thread got with it, if it got one: greater than that of any change of the thread before.
    pub tick: Option<i64>,
    /// When it was made, by the clock of whoever made it.
    pub at: Timestamp,
}

/// A page of changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChangePage {
    /// The changes, in the order of the feed.
    pub changes: Vec<ChangeEntry>,
    /// Where to go on: behind the last of them, or, when there are no more, behind all that this reader does not see too.
    pub cursor: String,
    /// Whether there are more now.
    pub more: bool,
    /// Whether something is committed that can't be told yet, since a transaction of the server runs whose changes may come before
    /// it. Never in a folder or in memory.
    pub pending: bool,
}

/// A question for changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeQuery {
    /// The cursor of a change, of a page or of an index; `None` begins with the oldest change that is kept.
    pub since: Option<String>,
    /// The changes of this thread alone.
    pub thread: Option<ThreadId>,
    /// The page's size; 0 gives an empty page, more than 10,000 is 10,000.
    pub limit: usize,
}

impl Default for ChangeQuery {
    fn default() -> Self {
        Self { since: None, thread: None, limit: 1_000 }
    }
}

/// How far a thread is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ThreadActivity {
    /// The thread.
    pub thread: ThreadId,
    /// The tick of its last change of any kind.
    pub tick: i64,
    /// Its place in the order by activity: it rises when items come, unless no other thread was written since.
    pub activity: i64,
    /// When it was changed last.
    pub updated_at: Timestamp,
    /// Whether it is listed, archived or in the trash.
    pub shelf: Shelf,
}

/// A page of the index of all threads: how far each of them is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ActivityPage {
    /// The threads, by their ids. One that was in an earlier index and is not in this one is gone.
    pub threads: Vec<ThreadActivity>,
    /// Where the next page starts, if there is one.
    pub next_cursor: Option<String>,
    /// What changes after this page was read comes behind this in the feed: that of the first page goes with the index.
    pub since: String,
}

/// A question for a page of the index of threads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActivityQuery {
    /// The page's size; 0 gives an empty page, more than 10,000 is 10,000.
    pub limit: usize,
    /// Where the page starts.
    pub cursor: Option<String>,
}

impl Default for ActivityQuery {
    fn default() -> Self {
        Self { limit: 1_000, cursor: None }
    }
}

/// Reads a page of the feed.
pub(crate) fn page(tx: &mut dyn Tx, scope: Scope, query: &ChangeQuery) -> Result<ChangePage> {
    let since = query.since.as_deref().map(Place::decode).transpose()?;
    if let Some(since) = &since {
        since.check(tx)?;
    }
    let from = match since {
        Some(since) => since,
        None => Place::beginning(tx)?,
    };
    let limit = query.limit.min(MAX_PAGE);
    let one_more = i64::try_from(limit).unwrap_or(0) + 1;
    let mut args = vec![from.place.into(), from.number.into(), scope.arg(), one_more.into()];
    let statement = match &query.thread {
        Some(thread) => {
            args.push(thread.as_str().into());
            OF_THREAD_AFTER
        }
        None => ALL_AFTER,
    };
    let (mut changes, mut more) = (Vec::new(), false);
    tx.query(statement, &args, &mut |row| {
        more = changes.len() == limit;
        if more {
            return Ok(ControlFlow::Break(()));
        }
        changes.push(read(row)?);
        Ok(ControlFlow::Continue(()))
    })?;
    let cursor = match changes.last() {
        Some(last) if more => last.cursor.clone(),
        None if more => from.encode(),
        // Behind the changes of others too, so that they are not passed over again.
        _ => newest(tx)?.encode(),
    };
    let pending = is_pending(tx)?;
    Ok(ChangePage { changes, cursor, more, pending })
}

/// The cursor behind everything that can be told now.
pub(crate) fn latest(tx: &mut dyn Tx) -> Result<String> {
    Ok(newest(tx)?.encode())
}

/// Reads a page of the index of threads.
pub(crate) fn activity(tx: &mut dyn Tx, scope: Scope, query: &ActivityQuery) -> Result<ActivityPage> {
    let start = match &query.cursor {
        Some(cursor) => Cursor::decode(cursor, INDEX_TAG)?.id,
        None => String::new(),
    };
    // Before the threads: what changes meanwhile is told rather twice than never.
    let since = latest(tx)?;
    let limit = query.limit.min(MAX_PAGE);
    let one_more = i64::try_from(limit).unwrap_or(0) + 1;
    let mut threads = query_all(tx, ACTIVITY, &[start.as_str().into(), scope.arg(), one_more.into()], |row| {
        Ok(ThreadActivity {
            thread: row.parse(0, ThreadId::new(row.text(0)?).ok(), "a thread id")?,
            tick: row.int(1)?,
            activity: row.int(2)?,
            updated_at: Timestamp(row.int(3)?),
            shelf: row.parse(4, Shelf::from_int(row.int(4)?), "a shelf")?,
        })
    })?;
    let more = threads.len() > limit;
    threads.truncate(limit);
    let end = threads.last().map_or(start, |last| last.thread.to_string());
    let next_cursor = more.then(|| Cursor { value: 0, id: end }.encode(INDEX_TAG));
    Ok(ActivityPage { threads, next_cursor, since })
}

/// Where a change stands, and what tells it from another one that got its number in an older copy of the store.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Place {
    place: i64,
    /// 0 stands before all changes.
    number: i64,
    thread: Option<String>,
    at: i64,
}

impl Place {
    fn encode(&self) -> String {
        let id = format!("{} {} {}", self.place, self.at, self.thread.as_deref().unwrap_or_default());
        Cursor { value: self.number, id }.encode(TAG)
    }

    fn decode(cursor: &str) -> Result<Self> {
        let Cursor { value, id } = Cursor::decode(cursor, TAG)?;
        let mut parts = id.splitn(3, ' ');
        let mut number = || parts.next().and_then(|part| part.parse().ok());
        let damaged = || Error::invalid("cursor", "it is damaged");
        let (place, at) = (number().ok_or_else(damaged)?, number().ok_or_else(damaged)?);
        let thread = parts.next().filter(|thread| !thread.is_empty()).map(str::to_owned);
        Ok(Self { place, number: value, thread, at })
    }

    /// The place before all changes that are there. How often some were taken away says whether they still are.
    fn beginning(tx: &mut dyn Tx) -> Result<Self> {
        let trimmings = query_one(tx, TRIMMINGS, &[], |row| row.int(0))?;
        Ok(Self { at: trimmings.unwrap_or(0), ..Self::default() })
    }

    /// Refuses a place of which it can't be said any more what came behind it.
    fn check(&self, tx: &mut dyn Tx) -> Result<()> {
        let is_there = match self.number {
            0 => Self::beginning(tx)? == *self,
            number => query_one(tx, STANDS, &[number.into()], Self::read)?.as_ref() == Some(self),
        };
        if is_there { Ok(()) } else { Err(Error::Trimmed { cursor: self.encode() }) }
    }

    fn read(row: &Row<'_>) -> Result<Self> {
        Ok(Self {
            place: row.int(0)?,
            number: row.int(1)?,
            thread: row.opt_text(2)?.map(str::to_owned),
            at: row.int(3)?,
        })
    }
}

fn is_pending(tx: &mut dyn Tx) -> Result<bool> {
    Ok(query_one(tx, PENDING, &[], |_| Ok(()))?.is_some())
}

fn newest(tx: &mut dyn Tx) -> Result<Place> {
    match query_one(tx, NEWEST, &[], Place::read)? {
        Some(newest) => Ok(newest),
        None => Place::beginning(tx),
    }
}

/// Reads the columns of `changes_after!`.
fn read(row: &Row<'_>) -> Result<ChangeEntry> {
    let thread = row.opt_text(3)?;
    let place = Place { place: row.int(0)?, number: row.int(1)?, thread: thread.map(str::to_owned), at: row.int(8)? };
    Ok(ChangeEntry {
        cursor: place.encode(),
        workspace: row.parse(2, WorkspaceId::from_slice(row.blob(2)?), "16 bytes of an id")?,
        thread: thread.map(|thread| row.parse(3, ThreadId::new(thread).ok(), "a thread id")).transpose()?,
        area: row.text(4)?.to_owned(),
        verb: row.text(5)?.to_owned(),
        subject: row.opt_text(6)?.map(str::to_owned),
        tick: row.opt_int(7)?,
        at: Timestamp(row.int(8)?),
    })
}
