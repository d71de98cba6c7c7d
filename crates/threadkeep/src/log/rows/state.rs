//! What stands beside a thread's log, taken from one store and put into another: its goal with its history and usage, its
//! checkpoints, its documents with their history, its link to a roadmap and its tools; its runs come behind
//! (`crate::log::rows::work`), and so does what is settled of its inbox and requests (`crate::log::rows::steering`). Jobs stay where
//! their workers are.

use std::ops::ControlFlow;

use crate::checkpoints::{self, Place};
use crate::content::Blob;
use crate::db::{Owned, Row, Tx, Value, query_all, query_one, statements};
use crate::error::Result;
use crate::id::{Address, ItemKey, ThreadId};
use crate::item::Hash;
use crate::log::path;
use crate::log::rows::documents::{self, LinkRow};
use crate::log::rows::steering;
use crate::log::rows::work;
use crate::time::Timestamp;

const PAGE_USAGE: i64 = 1_000;
/// The columns of a goal but its thread, and of usage but its thread.
const GOAL_COLUMNS: usize = 17;
const USAGE_COLUMNS: usize = 6;

statements! {
    GOALS = "SELECT ordinal, id, objective, status, pause_reason, token_budget, seconds_budget, tokens_used, seconds_used,
        continuations, gap, gap_repeats, gap_pass, created_at, updated_at, ended_at, tick FROM goals WHERE thread = ?1 ORDER BY ordinal";
    PUT_GOAL = "INSERT INTO goals (thread, ordinal, id, objective, status, pause_reason, token_budget, seconds_budget, tokens_used,
        seconds_used, continuations, gap, gap_repeats, gap_pass, created_at, updated_at, ended_at, tick)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)";
    DROP_GOALS = "DELETE FROM goals WHERE thread = ?1";
    USAGE_COUNT = "SELECT count(*) FROM goal_usage WHERE thread = ?1";
    USAGE = "SELECT id, goal, tokens, seconds, continuations, accrued_at FROM goal_usage WHERE thread = ?1 AND id > ?2 ORDER BY id LIMIT ?3";
    PUT_USAGE = "INSERT INTO goal_usage (thread, id, goal, tokens, seconds, continuations, accrued_at)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (thread, id) DO NOTHING";
    CHECKPOINTS = "SELECT name, item, digest, created_at, tick FROM checkpoints WHERE thread = ?1 ORDER BY tick";
    CHECKPOINT_STATE = "SELECT size, encoding, data FROM checkpoint_states WHERE thread = ?1 AND digest = ?2";
    DOCUMENT_MARKS = "SELECT name, version, kind, is_current, change, digest, created_at, tick FROM document_versions
        WHERE thread = ?1 ORDER BY name, version";
    LINK_MARKS = "SELECT roadmap, node, linked_at, tick FROM roadmap_links WHERE thread = ?1";
    DROP_CHECKPOINTS = "DELETE FROM checkpoints WHERE thread = ?1";
    DROP_UNUSED_STATES = "DELETE FROM checkpoint_states WHERE thread = ?1
        AND digest NOT IN (SELECT digest FROM checkpoints WHERE thread = ?1)";
    RAISE_TICK = "UPDATE threads SET tick = ?2 WHERE id = ?1 AND tick < ?2";
}

/// Tells one state of what stands beside a thread's log from another, cheaply: by rows, and not by what checkpoints, documents and runs
/// hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StateStamp {
    hash: Hash,
    /// Nothing stands beside the log.
    pub(crate) is_empty: bool,
}

impl StateStamp {
    /// Of a thread of which no more than its log is known.
    pub(crate) const NONE: Self = Self { hash: Hash([0; 32]), is_empty: true };
}

/// Reads the stamp of a thread.
pub(crate) fn stamp(tx: &mut dyn Tx, thread: &ThreadId) -> Result<StateStamp> {
    let mut hasher = blake3::Hasher::new();
    let mut rows = 0_u64;
    let id = [thread.as_str().into()];
    // The items of checkpoints have other keys in another store.
    let own = [
        (GOALS, 0..GOAL_COLUMNS),
        (CHECKPOINTS, 2..4),
        (CHECKPOINTS, 0..1),
        (DOCUMENT_MARKS, 0..8),
        (LINK_MARKS, 0..4),
    ];
    for (statement, columns) in own.into_iter().chain(work::STAMPS) {
        tx.query(statement, &id, &mut |row| {
            for column in columns.clone() {
                hasher.update(format!("{:?};", row.owned(column)?).as_bytes());
            }
            hasher.update(b"\n");
            rows += 1;
            Ok(ControlFlow::Continue(()))
        })?;
        hasher.update(b"\n");
    }
    rows += steering::stamp(tx, thread, &mut hasher)?;
    let usage = query_one(tx, USAGE_COUNT, &id, |row| row.int(0))?.unwrap_or(0);
    if rows == 0 && usage == 0 {
        return Ok(StateStamp::NONE);
    }
    hasher.update(&usage.to_le_bytes());
    Ok(StateStamp { hash: Hash(*hasher.finalize().as_bytes()), is_empty: false })
}

/// A checkpoint on its way, its state apart.
#[derive(Debug)]
pub(crate) struct CheckpointRow {
    name: String,
    at: Option<Address>,
    pub(crate) digest: Hash,
    created_at: Timestamp,
    tick: i64,
}

/// What stands beside a thread's log, but for usage, for documents and for what checkpoints hold.
#[derive(Debug)]
pub(crate) struct StateRows {
    goals: Vec<Vec<Owned>>,
    link: LinkRow,
    tools: Vec<work::Row>,
    pub(crate) checkpoints: Vec<CheckpointRow>,
}

/// Reads what stands beside a thread's log.
pub(crate) fn read(tx: &mut dyn Tx, thread: &ThreadId) -> Result<StateRows> {
    let id = [thread.as_str().into()];
    let goals = query_all(tx, GOALS, &id, |row| columns(row, GOAL_COLUMNS))?;
    let rows = query_all(tx, CHECKPOINTS, &id, |row| {
        let digest = row.parse(2, Hash::from_slice(row.blob(2)?), "a hash")?;
        let created_at = Timestamp(row.int(3)?);
        Ok((
            row.opt_int(1)?.map(ItemKey),
            CheckpointRow { name: row.text(0)?.to_owned(), at: None, digest, created_at, tick: row.int(4)? },
        ))
    })?;
    let place = |(item, row): (Option<ItemKey>, CheckpointRow)| {
        Ok(CheckpointRow { at: item.map(|item| path::address_of(tx, item)).transpose()?, ..row })
    };
    let checkpoints = rows.into_iter().map(place).collect::<Result<_>>()?;
    let (link, tools) = (documents::link(tx, thread)?, work::tools(tx, thread)?);
    Ok(StateRows { goals, link, tools, checkpoints })
}

/// Reads a page of usage, after an id; the id of the last one goes with it.
pub(crate) fn usage(tx: &mut dyn Tx, thread: &ThreadId, after: &[u8]) -> Result<Vec<Vec<Owned>>> {
    query_all(tx, USAGE, &[thread.as_str().into(), Value::Blob(after), PAGE_USAGE.into()], |row| {
        columns(row, USAGE_COLUMNS)
    })
}

/// Where the page after this one begins.
pub(crate) fn last_usage(page: &[Vec<Owned>]) -> Option<Vec<u8>> {
    match page.last()?.first()? {
        Owned::Blob(id) => Some(id.clone()),
        _ => None,
    }
}

/// Reads what a checkpoint holds, as it is stored, and checks it; nothing when the checkpoint was replaced meanwhile.
pub(crate) fn checkpoint_state(tx: &mut dyn Tx, thread: &ThreadId, digest: Hash) -> Result<Option<Blob>> {
    let found = query_one(tx, CHECKPOINT_STATE, &[thread.as_str().into(), Value::Blob(&digest.0)], |row| {
        let size = row.parse(0, usize::try_from(row.int(0)?).ok(), "a size")?;
        Ok(Blob { digest, size, encoding: row.int(1)?, data: row.blob(2)?.to_vec() })
    })?;
    if found.is_some() {
        checkpoints::state_of(tx, thread, digest)?;
    }
    Ok(found)
}

/// Puts goals, the link and tools in the place of those that a thread has, and takes its checkpoints away, whose rows come after this; what they hold
/// stays until [`end`].
pub(crate) fn begin(tx: &mut dyn Tx, thread: &ThreadId, rows: &StateRows) -> Result<()> {
    let id: Value<'_> = thread.as_str().into();
    tx.execute(DROP_GOALS, &[id])?;
    for goal in &rows.goals {
        let mut values = vec![id];
        values.extend(goal.iter().map(Owned::value));
        tx.execute(PUT_GOAL, &values)?;
    }
    work::put_tools(tx, thread, &rows.tools)?;
    tx.execute(DROP_CHECKPOINTS, &[id])?;
    documents::put_link(tx, thread, &rows.link)?;
    let ticks = rows.goals.iter().filter_map(|goal| match goal.last() {
        Some(Owned::Int(tick)) => Some(*tick),
        _ => None,
    });
    // What is changed here later gets ticks beyond those that came.
    let tick = ticks.chain(rows.checkpoints.iter().map(|row| row.tick)).max().unwrap_or(0).max(rows.link.tick);
    tx.execute(RAISE_TICK, &[id, tick.into()]).map(drop)
}

/// Writes a page of usage.
pub(crate) fn put_usage(tx: &mut dyn Tx, thread: &ThreadId, page: &[Vec<Owned>]) -> Result<()> {
    for usage in page {
        let mut values: Vec<Value<'_>> = vec![thread.as_str().into()];
        values.extend(usage.iter().map(Owned::value));
        tx.execute(PUT_USAGE, &values)?;
    }
    Ok(())
}

/// Writes a checkpoint; one whose item came after the copy began is tied to nothing until the next time.
pub(crate) fn put_checkpoint(tx: &mut dyn Tx, thread: &ThreadId, row: &CheckpointRow, state: &Blob) -> Result<()> {
    let item = match row.at {
        None => None,
        Some(at) => super::found_here(tx, at, None).ok(),
    };
    let place = Place { name: &row.name, item, created_at: row.created_at, tick: row.tick };
    checkpoints::put(tx, thread, &place, state).map(drop)
}

/// Drops what no checkpoint holds any more.
pub(crate) fn end(tx: &mut dyn Tx, thread: &ThreadId) -> Result<()> {
    tx.execute(DROP_UNUSED_STATES, &[thread.as_str().into()]).map(drop)
}

pub(super) fn columns(row: &Row<'_>, count: usize) -> Result<Vec<Owned>> {
    (0..count).map(|column| row.owned(column)).collect()
}
