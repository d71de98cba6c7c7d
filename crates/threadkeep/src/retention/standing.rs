//! Where threads stand for retention: what is read of all of them.

use crate::db::{Row, Tx, query_all, query_one, statements};
use crate::error::{Error, Result};
use crate::id::{ThreadId, WorkspaceId};
use crate::retention::clock::Seen;
use crate::retention::{RetentionStep, saturated};
use crate::thread::Shelf;
use crate::time::Timestamp;

/// How many threads are read at once.
pub(crate) const PAGE: usize = 1_000;

statements! {
    // The last receipt says whether a run put it into the trash, and when somebody took it out.
    RETENTION_STANDINGS = "SELECT t.activity, t.id, t.shelf, t.pinned, t.tick, t.updated_at, t.trashed_at, r.step, r.tick, t.workspace, r.made_at
        FROM threads t LEFT JOIN retention_receipts r
          ON r.number = (SELECT max(l.number) FROM retention_receipts l WHERE l.thread = t.id)
        WHERE t.workspace = ?1 AND (t.activity, t.id) > (?2, ?3) AND t.shelf < 3 ORDER BY t.activity, t.id LIMIT ?4";
    RETENTION_WORKSPACES = "SELECT id FROM workspaces ORDER BY id";
    RETENTION_TIMES = "SELECT updated, id, updated_at FROM threads WHERE (updated, id) < (?1, ?2) AND shelf < 3
        ORDER BY updated DESC, id DESC LIMIT ?3";
    RETENTION_SEEN = "SELECT value FROM counters WHERE name = ?1";
    PUT_RETENTION_SEEN = "INSERT INTO counters (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = excluded.value";
}

const SEEN_FROM: &str = "retention-seen-from";
const SEEN_TO: &str = "retention-seen-to";

/// A thread, as far as rules judge it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) thread: ThreadId,
    pub(crate) workspace: WorkspaceId,
    pub(crate) archived: bool,
    pub(crate) pinned: bool,
    /// Its place in the order by activity; that of its return when it came out of the trash after that.
    pub(crate) place: i64,
    pub(crate) tick: i64,
    pub(crate) changed_at: Timestamp,
    /// Bytes that go with it, once they are measured.
    pub(crate) bytes: i64,
    /// Set when it is in the trash.
    pub(crate) in_trash: Option<InTrash>,
}

/// Since when a thread is in the trash, and by whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InTrash {
    pub(crate) since: Timestamp,
    pub(crate) by_retention: bool,
}

/// A page of the threads of a workspace in the order by activity.
#[derive(Debug)]
pub(crate) struct StandingPage {
    pub(crate) standings: Vec<Standing>,
    /// What can't be read, and why.
    pub(crate) damaged: Vec<String>,
    /// Where the next page starts, if there is one.
    pub(crate) next: Option<(i64, String)>,
}

/// Reads a page. A row that can't be read is left out, and said.
pub(crate) fn page(tx: &mut dyn Tx, workspace: WorkspaceId, after: &(i64, String)) -> Result<StandingPage> {
    let args = [
        workspace.as_bytes().as_slice().into(),
        after.0.into(),
        after.1.as_str().into(),
        saturated(PAGE as u64).into(),
    ];
    let mut page = StandingPage { standings: Vec::new(), damaged: Vec::new(), next: None };
    let rows = query_all(tx, RETENTION_STANDINGS, &args, |row| {
        let key = (row.int(0)?, row.text(1)?.to_owned());
        match read(row, workspace) {
            Ok(standing) => Ok((key, Ok(standing))),
            Err(Error::Corrupt { place, detail }) => Ok((key, Err(format!("{place}: {detail}")))),
            Err(error) => Err(error),
        }
    })?;
    if rows.len() == PAGE {
        page.next = rows.last().map(|(key, _)| key.clone());
    }
    for ((_, id), row) in rows {
        match row {
            Ok(standing) => page.standings.push(standing),
            Err(detail) => page.damaged.push(format!("thread {id} is left alone: {detail}")),
        }
    }
    Ok(page)
}

/// All workspaces.
pub(crate) fn workspaces(tx: &mut dyn Tx) -> Result<Vec<WorkspaceId>> {
    query_all(tx, RETENTION_WORKSPACES, &[], |row| {
        row.parse(0, WorkspaceId::from_slice(row.blob(0)?), "16 bytes of an id")
    })
}

/// A page of the times at which threads were changed last, by their places in the order by update, downwards.
pub(crate) fn times(tx: &mut dyn Tx, before: &(i64, String)) -> Result<Vec<(i64, String, Timestamp)>> {
    let args = [before.0.into(), before.1.as_str().into(), saturated(PAGE as u64).into()];
    query_all(tx, RETENTION_TIMES, &args, |row| Ok((row.int(0)?, row.text(1)?.to_owned(), Timestamp(row.int(2)?))))
}

/// What runs have seen of the clock.
pub(crate) fn seen(tx: &mut dyn Tx) -> Result<Option<Seen>> {
    let mut read = |name: &str| query_one(tx, RETENTION_SEEN, &[name.into()], |row| Ok(Timestamp(row.int(0)?)));
    Ok(read(SEEN_FROM)?.zip(read(SEEN_TO)?).map(|(from, to)| Seen { from, to }).filter(|seen| seen.from <= seen.to))
}

/// Notes that a run sees this time.
pub(crate) fn see(tx: &mut dyn Tx, now: Timestamp) -> Result<()> {
    let seen = Seen::with(seen(tx)?, now);
    for (name, time) in [(SEEN_FROM, seen.from), (SEEN_TO, seen.to)] {
        tx.execute(PUT_RETENTION_SEEN, &[name.into(), time.0.into()])?;
    }
    Ok(())
}

fn read(row: &Row<'_>, workspace: WorkspaceId) -> Result<Standing> {
    let shelf = row.parse(2, Shelf::from_int(row.int(2)?), "a shelf")?;
    let changed_at = Timestamp(row.int(5)?);
    let last = row.opt_text(7)?.map(RetentionStep::from_word);
    let returned = match last {
        Some(RetentionStep::Restored) => row.opt_int(8)?.unwrap_or(0),
        _ => 0,
    };
    let in_trash = (shelf == Shelf::Trashed).then(|| {
        // Without a time it came there just now: nothing is purged for what is not known.
        let since = row.opt_int(6).ok().flatten().map_or(Timestamp(i64::MAX), Timestamp);
        // Whoever put it there later did so by hand.
        let by_retention = last == Some(RetentionStep::Trashed) && row.opt_int(10).ok().flatten() == Some(since.0);
        InTrash { since, by_retention }
    });
    Ok(Standing {
        thread: row.parse(1, ThreadId::new(row.text(1)?).ok(), "a thread id")?,
        workspace,
        archived: shelf == Shelf::Archived,
        pinned: row.int(3)? != 0,
        place: row.int(0)?.max(returned),
        tick: row.int(4)?,
        changed_at,
        bytes: 0,
        in_trash,
    })
}
