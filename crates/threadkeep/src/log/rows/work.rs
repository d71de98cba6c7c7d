//! The tools of a thread and the runs of workflows, taken from one store and put into another.
//!
//! A run that is on its way has a tick that no run has; it gets its own when all of it is there. So a run that was cut off comes whole
//! with the next copy.

use std::ops::ControlFlow;

use super::state::columns;
use crate::db::{Owned, Statement, Tx, Value, query_all, query_one, statements};
use crate::error::{Error, Result};
use crate::id::{ThreadId, WorkspaceId};

const TOOL_COLUMNS: usize = 5;
const RUN_COLUMNS: usize = 13;
const PAGE_ROWS: i64 = 1_000;
/// After so many bytes a page of rows ends.
const PAGE_BYTES: usize = 4 << 20;
/// The tick of a run that is not whole.
const UNFINISHED: i64 = -1;

statements! {
    TOOL_ROWS = "SELECT position, name, description, input_schema, extra FROM tools WHERE thread = ?1 ORDER BY position";
    CLEAR_TOOLS = "DELETE FROM tools WHERE thread = ?1";
    PUT_TOOL_ROW = "INSERT INTO tools (thread, position, name, description, input_schema, extra) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    RUN_STAMPS = "SELECT id, tick FROM runs WHERE thread = ?1 ORDER BY id";
    STAMPS_OF_NO_THREAD = "SELECT id, tick, workspace FROM runs WHERE thread IS NULL AND id > ?1 ORDER BY id LIMIT ?2";
    STAMP_OF_RUN = "SELECT tick, thread, workspace FROM runs WHERE id = ?1";
    RUN_ROW = "SELECT id, workspace, thread, workflow, goal, status, reason, input_hash, metadata, started_at, completed_at, place, tick
        FROM runs WHERE id = ?1";
    PUT_RUN_ROW = "INSERT INTO runs (id, workspace, thread, workflow, goal, status, reason, input_hash, metadata, started_at, completed_at,
        place, tick) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";
    FINISH_RUN = "UPDATE runs SET tick = ?2 WHERE id = ?1";
    MOVE_RUNS_OF = "UPDATE runs SET workspace = ?2 WHERE thread = ?1";
    DROP_RUN = "DELETE FROM runs WHERE id = ?1";
    PART_ROWS = "SELECT place, id, run, kind, branch, name, about, input_hash, status, reason, result, list, started_at, completed_at
        FROM run_parts WHERE run = ?1 AND place > ?2 ORDER BY place LIMIT ?3";
    PUT_PART_ROW = "INSERT INTO run_parts (place, id, run, kind, branch, name, about, input_hash, status, reason, result, list,
        started_at, completed_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)";
    CANDIDATE_ROWS = "SELECT place, id, run, control, branch, name, score, score_order, passed, rationale, created_at
        FROM run_candidates WHERE run = ?1 AND place > ?2 ORDER BY place LIMIT ?3";
    PUT_CANDIDATE_ROW = "INSERT INTO run_candidates (place, id, run, control, branch, name, score, score_order, passed, rationale,
        created_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
}

/// What tells one state of a thread's tools and runs from another: the rows of the tools, and the ticks of the runs.
pub(super) const STAMPS: [(Statement, std::ops::Range<usize>); 2] = [(TOOL_ROWS, 0..TOOL_COLUMNS), (RUN_STAMPS, 0..2)];

/// A row as it is stored.
pub(crate) type Row = Vec<Owned>;

/// Reads the tools of a thread.
pub(super) fn tools(tx: &mut dyn Tx, thread: &ThreadId) -> Result<Vec<Row>> {
    query_all(tx, TOOL_ROWS, &[thread.as_str().into()], |row| columns(row, TOOL_COLUMNS))
}

/// Puts tools in the place of those that a thread has.
pub(super) fn put_tools(tx: &mut dyn Tx, thread: &ThreadId, tools: &[Row]) -> Result<()> {
    let id: Value<'_> = thread.as_str().into();
    tx.execute(CLEAR_TOOLS, &[id])?;
    for tool in tools {
        let mut values = vec![id];
        values.extend(tool.iter().map(Owned::value));
        tx.execute(PUT_TOOL_ROW, &values)?;
    }
    Ok(())
}

/// A run, and the state that it is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunStamp {
    pub(crate) id: String,
    tick: i64,
}

/// The runs of a thread.
pub(crate) fn runs(tx: &mut dyn Tx, thread: &ThreadId) -> Result<Vec<RunStamp>> {
    query_all(tx, RUN_STAMPS, &[thread.as_str().into()], |row| {
        Ok(RunStamp { id: row.text(0)?.to_owned(), tick: row.int(1)? })
    })
}

/// A page of the runs of no thread, after an id, each with its workspace.
pub(crate) fn runs_of_no_thread(tx: &mut dyn Tx, after: &str) -> Result<Vec<(RunStamp, WorkspaceId)>> {
    query_all(tx, STAMPS_OF_NO_THREAD, &[after.into(), PAGE_ROWS.into()], |row| {
        let workspace = row.parse(2, WorkspaceId::from_slice(row.blob(2)?), "16 bytes of an id")?;
        Ok((RunStamp { id: row.text(0)?.to_owned(), tick: row.int(1)? }, workspace))
    })
}

/// Takes the runs of a thread away that are not these, in this state; the others are in the thread's workspace.
pub(crate) fn keep_runs(
    tx: &mut dyn Tx,
    thread: &ThreadId,
    runs_there: &[RunStamp],
    workspace: WorkspaceId,
) -> Result<()> {
    tx.execute(MOVE_RUNS_OF, &[thread.as_str().into(), Value::Blob(workspace.as_bytes())])?;
    for here in runs(tx, thread)? {
        if !runs_there.contains(&here) {
            tx.execute(DROP_RUN, &[here.id.as_str().into()])?;
        }
    }
    Ok(())
}

/// What a store has of a run that is to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// Nothing, or an earlier state.
    Earlier,
    /// The same state.
    Same,
    /// A later state, or another run of this id.
    Other,
}

/// Compares a run of no thread with what is here of its id.
pub(crate) fn known(tx: &mut dyn Tx, run: &RunStamp, workspace: WorkspaceId) -> Result<Known> {
    let found = query_one(tx, STAMP_OF_RUN, &[run.id.as_str().into()], |row| {
        let is_it = row.opt_text(1)?.is_none() && row.blob(2)? == workspace.as_bytes();
        Ok((row.int(0)?, is_it))
    })?;
    Ok(match found {
        Some((tick, true)) if tick == run.tick => Known::Same,
        Some((tick, true)) if tick < run.tick => Known::Earlier,
        Some(_) => Known::Other,
        None => Known::Earlier,
    })
}

/// Reads the row of a run; nothing when it is gone.
pub(crate) fn run(tx: &mut dyn Tx, run: &RunStamp) -> Result<Option<Row>> {
    query_one(tx, RUN_ROW, &[run.id.as_str().into()], |row| columns(row, RUN_COLUMNS))
}

/// Begins a run that is not whole yet, in the place of an earlier state of it.
pub(crate) fn begin_run(tx: &mut dyn Tx, row: &Row, workspace: WorkspaceId) -> Result<()> {
    let mut values: Vec<Value<'_>> = row.iter().map(Owned::value).collect();
    let ([id, of, ..], Some(tick)) = (values.as_mut_slice(), row.len().checked_sub(1)) else { return Ok(()) };
    let id = *id;
    *of = Value::Blob(workspace.as_bytes());
    if let Some(tick) = values.get_mut(tick) {
        *tick = UNFINISHED.into();
    }
    if let Some(Owned::Null) = row.get(2) {
        tx.execute(DROP_RUN, &[id])?;
    }
    tx.execute(PUT_RUN_ROW, &values).map(drop).map_err(|error| match (error, id) {
        (Error::AlreadyExists { .. }, Value::Text(id)) => Error::AlreadyExists { what: "run", id: id.to_owned() },
        (other, _) => other,
    })
}

/// Says that a run is whole.
pub(crate) fn finish_run(tx: &mut dyn Tx, run: &RunStamp) -> Result<()> {
    tx.execute(FINISH_RUN, &[run.id.as_str().into(), run.tick.into()]).map(drop)
}

/// What belongs to a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Belonging {
    /// Its branches, leaves and control nodes.
    Parts,
    /// Its candidates, which come behind them.
    Candidates,
}

/// Rows that belong to a run, and how much they are.
#[derive(Debug)]
pub(crate) struct Page {
    rows: Vec<Row>,
    /// The place behind which the next page begins.
    pub(crate) last: i64,
    pub(crate) bytes: usize,
}

/// Reads a page of what belongs to a run, after a place; nothing when there is no more.
pub(crate) fn belonging(tx: &mut dyn Tx, run: &str, what: Belonging, after: i64) -> Result<Option<Page>> {
    let (statement, count) = match what {
        Belonging::Parts => (PART_ROWS, 14),
        Belonging::Candidates => (CANDIDATE_ROWS, 11),
    };
    let mut page = Page { rows: Vec::new(), last: after, bytes: 0 };
    tx.query(statement, &[run.into(), after.into(), PAGE_ROWS.into()], &mut |row| {
        let values = columns(row, count)?;
        page.last = row.int(0)?;
        page.bytes += values.iter().map(size).sum::<usize>();
        page.rows.push(values);
        Ok(if page.bytes < PAGE_BYTES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    Ok((!page.rows.is_empty()).then_some(page))
}

/// Writes a page of what belongs to a run.
pub(crate) fn put_belonging(tx: &mut dyn Tx, what: Belonging, page: &Page) -> Result<()> {
    let statement = match what {
        Belonging::Parts => PUT_PART_ROW,
        Belonging::Candidates => PUT_CANDIDATE_ROW,
    };
    for row in &page.rows {
        let values: Vec<Value<'_>> = row.iter().map(Owned::value).collect();
        tx.execute(statement, &values)?;
    }
    Ok(())
}

fn size(value: &Owned) -> usize {
    match value {
        Owned::Text(text) => text.len(),
        Owned::Blob(bytes) => bytes.len(),
        Owned::Int(_) | Owned::Null => 8,
    }
}
