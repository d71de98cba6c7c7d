//! Turns in the store.

use std::ops::ControlFlow;

use crate::changes::Area;
use crate::cursor::Cursor;
use crate::dangling::LEFT_OPEN;
use crate::db::{Row, Tx, query_one, statements};
use crate::error::{Error, Result};
use crate::id::{Address, ItemId, ItemKey, ThreadId, WriterId};
use crate::item::check_text;
use crate::log::append::Pen;
use crate::thread::{MAX_TEXT_BYTES, Page};
use crate::time::Timestamp;
use crate::turn::{Turn, TurnEnd, TurnStatus};

const MAX_PAGE: usize = 1_000;

statements! {
    INSERT_TURN = "INSERT INTO turns (thread, ordinal, status, first_item, started_at) VALUES (?1, ?2, ?3, ?4, ?5)";
    CLOSE_IMPORTED = "UPDATE turns SET last_item = ?3, ended_at = ?4 WHERE thread = ?1 AND ordinal = ?2 AND last_item IS NULL";
    INTERRUPT = "UPDATE turns SET status = 'interrupted', last_item = ?3, ended_at = ?4 WHERE thread = ?1 AND ordinal = ?2 AND status = 'running'";
    END_TURN = "UPDATE turns SET status = ?3, outcome = ?4, last_item = ?5, token_usage = ?6, ended_at = ?7 WHERE thread = ?1 AND ordinal = ?2";
    TURNS_DOWN = "SELECT t.ordinal, t.status, t.outcome, t.first_item, f.id, t.last_item, l.id, t.token_usage, t.started_at, t.ended_at
        FROM turns t JOIN branches f ON f.key = t.first_item >> 32 LEFT JOIN branches l ON l.key = t.last_item >> 32
        WHERE t.thread = ?1 AND t.ordinal < ?2 ORDER BY t.ordinal DESC LIMIT ?3";
    TURNS_UP = "SELECT t.ordinal, t.status, t.outcome, t.first_item, f.id, t.last_item, l.id, t.token_usage, t.started_at, t.ended_at
        FROM turns t JOIN branches f ON f.key = t.first_item >> 32 LEFT JOIN branches l ON l.key = t.last_item >> 32
        WHERE t.thread = ?1 AND t.ordinal > ?2 ORDER BY t.ordinal LIMIT ?3";
    OPEN_SINCE = "SELECT u.ordinal, i.epoch FROM threads t JOIN turns u ON u.thread = t.id AND u.ordinal = t.open_turn
        JOIN items i ON i.key = u.first_item WHERE t.id = ?1";
    OPEN_TURN = "SELECT open_turn FROM threads WHERE id = ?1";
}

/// Writes the row of a turn with its first item. A turn of an imported file is over unless its file says otherwise.
pub(crate) fn begin(
    tx: &mut dyn Tx,
    thread: &ThreadId,
    ordinal: i64,
    first: ItemKey,
    at: Timestamp,
    imported: bool,
) -> Result<()> {
    let status = if imported { TurnStatus::Completed } else { TurnStatus::Running };
    let args = [thread.as_str().into(), ordinal.into(), status.as_str().into(), first.0.into(), at.0.into()];
    tx.execute(INSERT_TURN, &args).map(drop)
}

/// Notes the last item of an imported turn when the next one begins.
pub(crate) fn close_imported(
    tx: &mut dyn Tx,
    thread: &ThreadId,
    ordinal: i64,
    last: ItemKey,
    at: Timestamp,
) -> Result<()> {
    tx.execute(CLOSE_IMPORTED, &[thread.as_str().into(), ordinal.into(), last.0.into(), at.0.into()]).map(drop)
}

/// Marks a turn that was never ended, when the next one begins.
pub(crate) fn interrupt(
    tx: &mut dyn Tx,
    thread: &ThreadId,
    ordinal: i64,
    last: Option<ItemKey>,
    at: Timestamp,
) -> Result<()> {
    tx.execute(INTERRUPT, &[thread.as_str().into(), ordinal.into(), last.map(|last| last.0).into(), at.0.into()])
        .map(drop)
}

/// Marks a turn whose holder ended before it did. What the row says of one that is over stays.
pub(crate) fn leave_open(
    tx: &mut dyn Tx,
    thread: &ThreadId,
    ordinal: i64,
    last: Option<ItemKey>,
    at: Timestamp,
) -> Result<()> {
    let (status, outcome) = LEFT_OPEN;
    let args = [
        thread.as_str().into(),
        ordinal.into(),
        status.as_str().into(),
        outcome.into(),
        last.map(|last| last.0).into(),
        None::<&str>.into(),
        at.0.into(),
    ];
    tx.execute(END_TURN, &args).map(drop)
}

/// Ends the open turn.
pub(crate) fn end(
    tx: &mut dyn Tx,
    thread: &ThreadId,
    epoch: i64,
    writer: (i64, WriterId),
    now: Timestamp,
    end: &TurnEnd,
) -> Result<i64> {
    if end.status == TurnStatus::Running {
        return Err(Error::invalid("status", "a turn can't end as running"));
    }
    if let Some(outcome) = &end.outcome {
        check_text("outcome", outcome, MAX_TEXT_BYTES)?;
    }
    let mut pen = Pen::take(tx, thread, epoch, writer, now)?;
    let ordinal = pen.close_turn().ok_or_else(|| Error::not_found("open turn", thread))?;
    let last = pen.head().map(|key| key.0);
    pen.put_down(tx, Area::Turn)?;
    let usage = end.usage.and_then(|usage| serde_json::to_string(&usage).ok());
    let args = [
        thread.as_str().into(),
        ordinal.into(),
        end.status.as_str().into(),
        end.outcome.as_deref().into(),
        last.into(),
        usage.as_deref().into(),
        now.0.into(),
    ];
    tx.execute(END_TURN, &args)?;
    Ok(ordinal)
}

/// The turn that is open, if one is, and the epoch of whoever began it.
pub(crate) fn open_since(tx: &mut dyn Tx, thread: &ThreadId) -> Result<Option<(i64, i64)>> {
    query_one(tx, OPEN_SINCE, &[thread.as_str().into()], |row| Ok((row.int(0)?, row.int(1)?)))
}

/// The turn that is open, if one is.
pub(crate) fn open(tx: &mut dyn Tx, thread: &ThreadId) -> Result<Option<i64>> {
    Ok(query_one(tx, OPEN_TURN, &[thread.as_str().into()], |row| row.opt_int(0))?.flatten())
}

/// A question for a page of a thread's turns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnQuery {
    /// Newest first.
    pub newest_first: bool,
    /// The page's size; 0 gives an empty page, more than 1,000 is 1,000.
    pub limit: usize,
    /// Where the page starts.
    pub cursor: Option<String>,
}

impl Default for TurnQuery {
    fn default() -> Self {
        Self { newest_first: false, limit: 100, cursor: None }
    }
}

/// Reads a page of the turns that a thread wrote itself.
pub(crate) fn page(tx: &mut dyn Tx, thread: &ThreadId, query: &TurnQuery) -> Result<Page<Turn>> {
    let tag = format!("turns {thread} {}", query.newest_first);
    let start = match &query.cursor {
        Some(cursor) => Cursor::decode(cursor, &tag)?.value,
        None if query.newest_first => i64::MAX,
        None => 0,
    };
    let limit = query.limit.min(MAX_PAGE);
    let statement = if query.newest_first { TURNS_DOWN } else { TURNS_UP };
    let one_more = i64::try_from(limit).unwrap_or(0) + 1;
    let mut entries = Vec::new();
    let mut more = false;
    tx.query(statement, &[thread.as_str().into(), start.into(), one_more.into()], &mut |row| {
        more = entries.len() == limit;
        if more {
            return Ok(ControlFlow::Break(()));
        }
        entries.push(read_turn(row)?);
        Ok(ControlFlow::Continue(()))
    })?;
    let last = entries.last().filter(|_| more);
    let next_cursor = last.map(|last: &Turn| Cursor { value: last.ordinal, id: String::new() }.encode(&tag));
    Ok(Page { entries, next_cursor })
}

fn read_turn(row: &Row<'_>) -> Result<Turn> {
    let address = |key: i64, branch: Option<&[u8]>| {
        let branch = branch.and_then(ItemId::from_slice)?;
        Some(Address { branch, depth: ItemKey(key).depth() })
    };
    let last = row.opt_int(5)?.zip(row.opt_blob(6)?).and_then(|(key, branch)| address(key, Some(branch)));
    let usage = match row.opt_text(7)? {
        None => None,
        Some(text) => Some(row.parse(7, serde_json::from_str(text).ok(), "token counts")?),
    };
    Ok(Turn {
        ordinal: row.int(0)?,
        status: TurnStatus::from_word(row.text(1)?),
        outcome: row.opt_text(2)?.map(str::to_owned),
        first: row.parse(4, address(row.int(3)?, row.opt_blob(4)?), "16 bytes of an id")?,
        last,
        usage,
        started_at: Timestamp(row.int(8)?),
        ended_at: row.opt_int(9)?.map(Timestamp),
    })
}
