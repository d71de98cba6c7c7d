//! Workflow runs: what a workflow does once, in parts, and what came of each.
//!
//! A run has branches, leaves (each a task of a model or a program, on a branch or on none), control nodes, and the candidates that a
//! control node chooses from. Whoever ends a run or a part twice with the same answer finds it ended; another answer is a conflict.
//! What is begun and ended goes through the row of the run, which is locked, so the parts of a run have a total order.

pub(crate) mod candidates;
pub(crate) mod parts;
pub(crate) mod score;
pub(crate) mod texts;
pub(crate) mod tree;

use std::ops::ControlFlow;

use serde::Serialize;

use crate::changes::{self, Area, Note, Verb};
use crate::cursor::Cursor;
use crate::db::{Row, Statement, Tx, Value, query_all, query_one, statements};
use crate::error::{Error, Result};
use crate::id::{RunId, ThreadId, WorkspaceId};
use crate::item::{check_json, check_tag, check_text, open_words};
use crate::thread::{Change, MAX_TEXT_BYTES, Page};
use crate::threads::{self, Scope};
use crate::time::Timestamp;

const MAX_PAGE: usize = 1_000;
/// After so many bytes of text a page of them ends.
const PAGE_BYTES: usize = 4 << 20;
const CANDIDATES: i64 = 8;
/// The largest metadata, result, output, list or rationale.
const MAX_JSON_BYTES: usize = 16 << 20;
const MAX_NAME_BYTES: usize = 256;

/// The columns of a run as [`read`] takes them.
macro_rules! run_columns {
    () => {
        "SELECT id, workspace, thread, workflow, goal, status, reason, input_hash, metadata, started_at, completed_at, place, tick
         FROM runs "
    };
}

/// A page of runs by what it begins with, and behind that by everything else that is asked for.
macro_rules! page_of_runs {
    ($first:literal, $beyond:literal, $order:literal) => {
        concat!(
            run_columns!(),
            "WHERE ",
            $first,
            "(CAST(?1 AS BYTEA) IS NULL OR workspace = ?1) AND (CAST(?2 AS TEXT) IS NULL OR status = ?2)
              AND (CAST(?3 AS TEXT) IS NULL OR workflow = ?3) AND (CAST(?4 AS TEXT) IS NULL OR thread = ?4) AND ",
            $beyond,
            $order
        )
    };
}
macro_rules! runs_down {
    ($first:literal) => {
        page_of_runs!($first, "(place < ?5 OR (place = ?5 AND id < ?6)) ", "ORDER BY place DESC, id DESC LIMIT ?7")
    };
}
macro_rules! runs_up {
    ($first:literal) => {
        page_of_runs!($first, "(place > ?5 OR (place = ?5 AND id > ?6)) ", "ORDER BY place, id LIMIT ?7")
    };
}

statements! {
    RUN = concat!(run_columns!(), "WHERE id = ?1");
    LOCK_RUN = concat!(run_columns!(), "WHERE id = ?1 /* FOR UPDATE */");
    RUN_IDS_FROM = "SELECT id FROM runs WHERE id >= ?1 AND id < ?2 AND (CAST(?3 AS BYTEA) IS NULL OR workspace = ?3) ORDER BY id LIMIT ?4";
    WORKSPACE_OF_THREAD = "SELECT workspace FROM threads WHERE id = ?1";
    NEXT_RUN_TICK = "SELECT coalesce(max(tick), 0) + 1 FROM runs";
    NEXT_RUN_PLACE = "SELECT coalesce(max(place), 0) + 1 FROM runs";
    PUT_RUN = "INSERT INTO runs (id, workspace, thread, workflow, goal, status, reason, input_hash, metadata, started_at, completed_at,
        place, tick) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13) ON CONFLICT (id) DO NOTHING";
    SET_RUN = "UPDATE runs SET status = ?2, reason = ?3, metadata = ?4, started_at = ?5, completed_at = ?6, tick = ?7 WHERE id = ?1";
    TOUCH_RUN = "UPDATE runs SET tick = ?2 WHERE id = ?1";
    DELETE_RUN = "DELETE FROM runs WHERE id = ?1";
    RUNS_DOWN = runs_down!("");
    RUNS_UP = runs_up!("");
    RUNS_OF_WORKSPACE_DOWN = runs_down!("workspace = ?1 AND ");
    RUNS_OF_WORKSPACE_UP = runs_up!("workspace = ?1 AND ");
    RUNS_OF_STATUS_DOWN = runs_down!("status = ?2 AND ");
    RUNS_OF_STATUS_UP = runs_up!("status = ?2 AND ");
    RUNS_OF_WORKFLOW_DOWN = runs_down!("workflow = ?3 AND ");
    RUNS_OF_WORKFLOW_UP = runs_up!("workflow = ?3 AND ");
    RUNS_OF_THREAD_DOWN = runs_down!("thread = ?4 AND ");
    RUNS_OF_THREAD_UP = runs_up!("thread = ?4 AND ");
}

open_words! {
    /// How far a run is, or a part of one. A word that is not known is neither begun nor ended.
    RunStatus {
        /// It is planned.
        Pending = "pending",
        /// It is being worked on.
        Running = "running",
        /// It waits until somebody goes on.
        Paused = "paused",
        /// It is done.
        Completed = "completed",
        /// It failed.
        Failed = "failed",
        /// It is not wanted any more.
        Cancelled = "cancelled",
        /// Whoever worked on it went away without an answer; it may be taken up again.
        Interrupted = "interrupted",
    }
}

impl RunStatus {
    /// Whether nobody works on it any more. An unknown word never says so.
    pub fn has_ended(&self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled | Self::Interrupted)
    }

    /// Whether it is an answer of whoever worked on it.
    fn is_answer(&self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }

    fn is_open(&self) -> bool {
        matches!(self, Self::Pending | Self::Running | Self::Paused)
    }
}

/// A stored run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Run {
    /// Its name.
    pub id: RunId,
    /// The workspace that it belongs to.
    pub workspace: WorkspaceId,
    /// The thread that it works for; it goes when that is purged.
    pub thread: Option<ThreadId>,
    /// Which workflow it is a run of.
    pub workflow: String,
    /// What is to be reached.
    pub goal: Option<String>,
    /// How far it is.
    pub status: RunStatus,
    /// Why it failed, was cancelled or was interrupted.
    pub reason: Option<String>,
    /// Tells what it was given from what other runs were.
    pub input_hash: Option<String>,
    /// What else there is to say of it: JSON, as it was given.
    pub metadata: Option<String>,
    /// When it was begun; while it is pending, when it was added.
    pub started_at: Timestamp,
    /// When it ended; never before it was begun.
    pub completed_at: Option<Timestamp>,
    /// Its place in the order in which runs were added.
    pub place: i64,
    /// Rises with each change of the run or of what belongs to it.
    pub tick: i64,
    /// In a list: what of it can't be read, and stands here as if it were nothing.
    pub damage: Option<String>,
}

/// A run to be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRun {
    /// Chosen by the caller to make a retry safe; minted when `None`.
    pub id: Option<RunId>,
    /// The thread that it works for.
    pub thread: Option<ThreadId>,
    /// Which workflow it is a run of: 1 to 256 bytes.
    pub workflow: String,
    /// What is to be reached.
    pub goal: Option<String>,
    /// [`RunStatus::Running`] when `None`; one that has not ended.
    pub status: Option<RunStatus>,
    /// Tells what it is given from what other runs are.
    pub input_hash: Option<String>,
    /// What else there is to say of it: JSON.
    pub metadata: Option<String>,
}

impl NewRun {
    /// A run of a workflow that runs.
    pub fn new(workflow: impl Into<String>) -> Self {
        let workflow = workflow.into();
        Self { id: None, thread: None, workflow, goal: None, status: None, input_hash: None, metadata: None }
    }
}

/// A partial change of a run. What is not named stays.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunPatch {
    /// [`RunStatus::Pending`], [`RunStatus::Running`] or [`RunStatus::Paused`]. An interrupted run is taken up again; one that has
    /// another end keeps it.
    pub status: Option<RunStatus>,
    /// What else there is to say of it: JSON.
    pub metadata: Change<String>,
}

/// How a run ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunEnd {
    /// [`RunStatus::Completed`], [`RunStatus::Failed`] or [`RunStatus::Cancelled`].
    pub status: RunStatus,
    /// Why.
    pub reason: Option<String>,
}

/// What an interruption found that still ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Interrupted {
    /// The run.
    pub run: Run,
    /// Whether the run itself still ran.
    pub was_running: bool,
    /// How many of its parts still ran.
    pub parts: u64,
}

/// A question for a page of runs, in the order in which they were added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunQuery {
    /// Only those of this status.
    pub status: Option<RunStatus>,
    /// Only those of this workflow.
    pub workflow: Option<String>,
    /// Only those that work for this thread.
    pub thread: Option<ThreadId>,
    /// Those that were added first at the beginning.
    pub ascending: bool,
    /// The page's size; 0 gives an empty page, more than 1,000 is 1,000. A page also ends after a few megabytes of text.
    pub limit: usize,
    /// Where the page starts.
    pub cursor: Option<String>,
}

impl Default for RunQuery {
    fn default() -> Self {
        Self { status: None, workflow: None, thread: None, ascending: false, limit: 100, cursor: None }
    }
}

/// Adds a run. A repeated call with the same id finds it, whatever has become of it.
pub(crate) fn start(tx: &mut dyn Tx, scope: Scope, new: &NewRun, id: &RunId, now: Timestamp) -> Result<Run> {
    check_new(new)?;
    let workspace = workspace_for(tx, scope, new.thread.as_ref())?;
    if let Some(known) = started(tx, workspace, new, id)? {
        return Ok(known);
    }
    let run = Run {
        id: id.clone(),
        workspace,
        thread: new.thread.clone(),
        workflow: new.workflow.clone(),
        goal: new.goal.clone(),
        status: new.status.clone().unwrap_or(RunStatus::Running),
        reason: None,
        input_hash: new.input_hash.clone(),
        metadata: new.metadata.clone(),
        started_at: now,
        completed_at: None,
        place: next(tx, NEXT_RUN_PLACE)?,
        tick: next(tx, NEXT_RUN_TICK)?,
        damage: None,
    };
    if !insert(tx, &run)? {
        // Somebody else started it just now.
        return started(tx, workspace, new, id)?.ok_or_else(|| Error::not_found("run", id));
    }
    note(tx, &run, Verb::Created, now)?;
    Ok(run)
}

/// The run of this id, if there is one; refuses another one than is to be started.
fn started(tx: &mut dyn Tx, workspace: WorkspaceId, new: &NewRun, id: &RunId) -> Result<Option<Run>> {
    let Some(known) = query_one(tx, RUN, &[id.as_str().into()], read_listed)? else { return Ok(None) };
    let same = known.workspace == workspace
        && (&known.thread, &known.workflow, &known.goal, &known.input_hash)
            == (&new.thread, &new.workflow, &new.goal, &new.input_hash);
    if same { whole(known).map(Some) } else { Err(Error::AlreadyExists { what: "run", id: id.to_string() }) }
}

/// Writes the row of a run; says whether there was none of its id.
fn insert(tx: &mut dyn Tx, run: &Run) -> Result<bool> {
    let args = [
        run.id.as_str().into(),
        Value::Blob(run.workspace.as_bytes()),
        run.thread.as_ref().map(ThreadId::as_str).into(),
        run.workflow.as_str().into(),
        run.goal.as_deref().into(),
        run.status.as_str().into(),
        run.reason.as_deref().into(),
        run.input_hash.as_deref().into(),
        run.metadata.as_deref().into(),
        run.started_at.0.into(),
        run.completed_at.map(|at| at.0).into(),
        run.place.into(),
        run.tick.into(),
    ];
    Ok(tx.execute(PUT_RUN, &args)? == 1)
}

/// Reads a run.
pub(crate) fn get(tx: &mut dyn Tx, scope: Scope, id: &RunId) -> Result<Run> {
    whole(get_listed(tx, scope, id)?)
}

/// The same for a list, or for what has nothing to do with what of the run can't be read.
fn get_listed(tx: &mut dyn Tx, scope: Scope, id: &RunId) -> Result<Run> {
    let found = query_one(tx, RUN, &[id.as_str().into()], read_listed)?;
    seen(found, scope, id)
}

/// Finds a run by its id, or by an unambiguous beginning of it.
pub(crate) fn find(tx: &mut dyn Tx, scope: Scope, name: &str) -> Result<RunId> {
    let id = RunId::new(name).map_err(|_| Error::not_found("run", name))?;
    if is_seen(tx, scope, &id)? {
        return Ok(id);
    }
    let found = the_only(tx, RUN_IDS_FROM, scope, "run", name)?;
    RunId::new(found).map_err(|_| Error::not_found("run", name))
}

/// The one id that begins with a name.
fn the_only(tx: &mut dyn Tx, statement: Statement, scope: Scope, what: &'static str, name: &str) -> Result<String> {
    // `~` comes after every character that an id may hold.
    let bound = format!("{name}~");
    let args = [name.into(), bound.as_str().into(), scope.arg(), CANDIDATES.into()];
    let mut matches = query_all(tx, statement, &args, |row| Ok(row.text(0)?.to_owned()))?;
    match matches.pop() {
        Some(found) if matches.is_empty() => Ok(found),
        Some(last) => {
            matches.push(last);
            Err(Error::Ambiguous { given: name.to_owned(), candidates: matches })
        }
        None => Err(Error::not_found(what, name)),
    }
}

/// Changes what the patch names.
pub(crate) fn update(tx: &mut dyn Tx, scope: Scope, id: &RunId, patch: &RunPatch, now: Timestamp) -> Result<Run> {
    check_open(patch.status.as_ref())?;
    let before = lock(tx, scope, id)?;
    let mut after = before.clone();
    if let Some(status) = &patch.status {
        let turned = turned(&before.status, status, now).map_err(|found| conflict("run", id, status, &found))?;
        if let Some(started_at) = turned {
            after.status = status.clone();
            (after.reason, after.completed_at) = (None, None);
            after.started_at = started_at.unwrap_or(after.started_at);
        }
    }
    match &patch.metadata {
        Change::Keep => {}
        Change::Clear => after.metadata = None,
        Change::Set(metadata) => {
            check_json("metadata", metadata, MAX_JSON_BYTES)?;
            after.metadata = Some(metadata.clone());
        }
    }
    put(tx, &before, after, now)
}

/// Ends a run. A repeated call with the same end finds it.
pub(crate) fn end(tx: &mut dyn Tx, scope: Scope, id: &RunId, end: &RunEnd, now: Timestamp) -> Result<Run> {
    check_end(&end.status, end.reason.as_deref())?;
    let before = lock(tx, scope, id)?;
    if before.status.has_ended() {
        return match (&before.status, &before.reason) == (&end.status, &end.reason) {
            true => Ok(before),
            false => Err(conflict("run", id, &end.status, &told(&before.status, before.reason.as_deref()))),
        };
    }
    if !before.status.is_open() {
        return Err(conflict("run", id, &end.status, before.status.as_str()));
    }
    let mut after = before.clone();
    (after.status, after.reason) = (end.status.clone(), end.reason.clone());
    after.completed_at = Some(now.max(before.started_at));
    put(tx, &before, after, now)
}

/// Marks what still runs in a run, and the run itself if it does, as interrupted. A repeated call finds nothing left.
pub(crate) fn interrupt(
    tx: &mut dyn Tx,
    scope: Scope,
    id: &RunId,
    reason: &str,
    now: Timestamp,
) -> Result<Interrupted> {
    check_text("reason", reason, MAX_TEXT_BYTES)?;
    let before = lock(tx, scope, id)?;
    let parts = parts::interrupt(tx, id, reason, now)?;
    let mut after = before.clone();
    let was_running = before.status == RunStatus::Running;
    if was_running {
        (after.status, after.reason) = (RunStatus::Interrupted, Some(reason.to_owned()));
        after.completed_at = Some(now.max(before.started_at));
    }
    let run = match was_running {
        false if parts > 0 => touched(tx, after, now)?,
        _ => put(tx, &before, after, now)?,
    };
    Ok(Interrupted { run, was_running, parts })
}

/// Deletes a run that does not run, also one that can't be read, with everything that belongs to it.
pub(crate) fn delete(tx: &mut dyn Tx, scope: Scope, id: &RunId, now: Timestamp) -> Result<()> {
    let run = lock_listed(tx, scope, id)?;
    if run.status == RunStatus::Running {
        let found = "running".to_owned();
        return Err(Error::Conflict { what: "run", expected: "one that does not run".to_owned(), found });
    }
    tx.execute(DELETE_RUN, &[id.as_str().into()])?;
    note(tx, &run, Verb::Deleted, now)
}

/// Reads a page of runs.
pub(crate) fn page(tx: &mut dyn Tx, scope: Scope, query: &RunQuery) -> Result<Page<Run>> {
    let RunQuery { status, workflow, thread, ascending, .. } = query;
    let tag = format!("runs {scope:?} {status:?} {workflow:?} {thread:?} {ascending}");
    let start = match &query.cursor {
        Some(cursor) => Cursor::decode(cursor, &tag)?,
        None if query.ascending => Cursor { value: i64::MIN, id: String::new() },
        None => Cursor { value: i64::MAX, id: String::new() },
    };
    let limit = query.limit.min(MAX_PAGE);
    let args = [
        scope.arg(),
        query.status.as_ref().map(RunStatus::as_str).into(),
        query.workflow.as_deref().into(),
        query.thread.as_ref().map(ThreadId::as_str).into(),
        start.value.into(),
        start.id.as_str().into(),
        (i64::try_from(limit).unwrap_or(0) + 1).into(),
    ];
    let (mut entries, mut more, mut bytes): (Vec<Run>, bool, usize) = (Vec::new(), false, 0);
    tx.query(page_statement(scope, query), &args, &mut |row| {
        more = entries.len() == limit || bytes >= PAGE_BYTES;
        if more {
            return Ok(ControlFlow::Break(()));
        }
        let run = read_listed(row)?;
        bytes += [&run.goal, &run.reason, &run.metadata].into_iter().flatten().map(String::len).sum::<usize>();
        entries.push(run);
        Ok(ControlFlow::Continue(()))
    })?;
    let last = entries.last().filter(|_| more);
    let next_cursor = last.map(|last| Cursor { value: last.place, id: last.id.to_string() }.encode(&tag));
    Ok(Page { entries, next_cursor })
}

/// The statement whose index fits best: few runs are of a thread, more of a workflow or a status.
fn page_statement(scope: Scope, query: &RunQuery) -> Statement {
    let [down, up] = match (&query.thread, &query.workflow, &query.status, scope) {
        (Some(_), ..) => [RUNS_OF_THREAD_DOWN, RUNS_OF_THREAD_UP],
        (_, Some(_), ..) => [RUNS_OF_WORKFLOW_DOWN, RUNS_OF_WORKFLOW_UP],
        (_, _, Some(_), _) => [RUNS_OF_STATUS_DOWN, RUNS_OF_STATUS_UP],
        (.., Scope::Workspace(_)) => [RUNS_OF_WORKSPACE_DOWN, RUNS_OF_WORKSPACE_UP],
        _ => [RUNS_DOWN, RUNS_UP],
    };
    if query.ascending { up } else { down }
}

/// Reads a run and locks it until the transaction ends.
fn lock(tx: &mut dyn Tx, scope: Scope, id: &RunId) -> Result<Run> {
    whole(lock_listed(tx, scope, id)?)
}

/// The same for what belongs to the run, and has nothing to do with what of the run can't be read.
fn lock_listed(tx: &mut dyn Tx, scope: Scope, id: &RunId) -> Result<Run> {
    let found = query_one(tx, LOCK_RUN, &[id.as_str().into()], read_listed)?;
    seen(found, scope, id)
}

fn is_seen(tx: &mut dyn Tx, scope: Scope, id: &RunId) -> Result<bool> {
    match get_listed(tx, scope, id) {
        Err(Error::NotFound { .. }) => Ok(false),
        found => found.map(|_| true),
    }
}

fn seen(found: Option<Run>, scope: Scope, id: &RunId) -> Result<Run> {
    let is_seen = |run: &Run| scope == Scope::All || scope == Scope::Workspace(run.workspace);
    found.filter(is_seen).ok_or_else(|| Error::not_found("run", id))
}

/// The run, unless something of it can't be read.
fn whole(run: Run) -> Result<Run> {
    match run.damage {
        None => Ok(run),
        Some(damage) => Err(Error::corrupt(format!("run {}", run.id), damage)),
    }
}

/// The workspace of a run to be: that of its thread, which must be seen, or the one that the handle is opened on.
fn workspace_for(tx: &mut dyn Tx, scope: Scope, thread: Option<&ThreadId>) -> Result<WorkspaceId> {
    let Some(thread) = thread else {
        return match scope {
            Scope::Workspace(workspace) => Ok(workspace),
            Scope::All => {
                Err(Error::invalid("thread", "a run belongs to a workspace: name a thread, or start it there"))
            }
        };
    };
    threads::check_visible(tx, scope, thread)?;
    let found = query_one(tx, WORKSPACE_OF_THREAD, &[thread.as_str().into()], |row| {
        row.parse(0, WorkspaceId::from_slice(row.blob(0)?), "16 bytes of an id")
    })?;
    found.ok_or_else(|| Error::not_found("thread", thread))
}

/// Whether something of one status may be given another one that is no end: nothing when it has it already, else when it is begun if
/// that is now. Refuses with what it is.
fn turned(from: &RunStatus, to: &RunStatus, now: Timestamp) -> Result<Option<Option<Timestamp>>, String> {
    match from {
        from if from == to => Ok(None),
        RunStatus::Pending | RunStatus::Interrupted => Ok(Some((*to == RunStatus::Running).then_some(now))),
        RunStatus::Running | RunStatus::Paused => Ok(Some(None)),
        from => Err(from.to_string()),
    }
}

fn conflict(what: &'static str, id: impl std::fmt::Display, wanted: &RunStatus, found: &str) -> Error {
    Error::Conflict { what, expected: format!("`{id}` to become {wanted}"), found: found.to_owned() }
}

fn told(status: &RunStatus, reason: Option<&str>) -> String {
    match reason {
        None => format!("it is {status} already, with another answer"),
        Some(reason) => format!("it is {status} already: {reason}"),
    }
}

/// Writes what became of a run, if anything did.
fn put(tx: &mut dyn Tx, before: &Run, mut after: Run, now: Timestamp) -> Result<Run> {
    if *before == after {
        return Ok(after);
    }
    after.tick = next(tx, NEXT_RUN_TICK)?;
    let args = [
        after.id.as_str().into(),
        after.status.as_str().into(),
        after.reason.as_deref().into(),
        after.metadata.as_deref().into(),
        after.started_at.0.into(),
        after.completed_at.map(|at| at.0).into(),
        after.tick.into(),
    ];
    tx.execute(SET_RUN, &args)?;
    note(tx, &after, Verb::Changed, now)?;
    Ok(after)
}

/// Notes that something that belongs to a run was changed.
fn touched(tx: &mut dyn Tx, mut run: Run, now: Timestamp) -> Result<Run> {
    run.tick = next(tx, NEXT_RUN_TICK)?;
    tx.execute(TOUCH_RUN, &[run.id.as_str().into(), run.tick.into()])?;
    note(tx, &run, Verb::Changed, now)?;
    Ok(run)
}

fn next(tx: &mut dyn Tx, statement: Statement) -> Result<i64> {
    Ok(query_one(tx, statement, &[], |row| row.int(0))?.unwrap_or(1))
}

/// Notes for those who follow what became of a run.
fn note(tx: &mut dyn Tx, run: &Run, verb: Verb, now: Timestamp) -> Result<()> {
    let note = Note { area: Area::Run, verb, subject: Some(run.id.as_str()), now };
    match &run.thread {
        Some(thread) => changes::note(tx, thread, None, note),
        None => changes::note_in(tx, run.workspace, note),
    }
}

fn check_new(new: &NewRun) -> Result<()> {
    check_name("workflow", &new.workflow)?;
    new.goal.as_ref().map_or(Ok(()), |goal| check_text("goal", goal, MAX_TEXT_BYTES))?;
    check_begin(new.status.as_ref())?;
    new.input_hash.as_ref().map_or(Ok(()), |hash| check_name("input_hash", hash))?;
    new.metadata.as_ref().map_or(Ok(()), |metadata| check_json("metadata", metadata, MAX_JSON_BYTES))
}

fn check_name(field: &'static str, name: &str) -> Result<()> {
    if name.trim().is_empty() {
        return Err(Error::invalid(field, "it is empty"));
    }
    check_text(field, name, MAX_NAME_BYTES)
}

/// Refuses a status that nothing begins with.
fn check_begin(status: Option<&RunStatus>) -> Result<()> {
    match status {
        Some(status) if status.has_ended() => {
            Err(Error::invalid("status", format!("nothing begins as {status}: start it, and end it then")))
        }
        Some(status) => check_tag("status", status.as_str()),
        None => Ok(()),
    }
}

fn check_end(status: &RunStatus, reason: Option<&str>) -> Result<()> {
    if !status.is_answer() {
        return Err(Error::invalid("status", format!("it ends as completed, failed or cancelled, not as {status}")));
    }
    reason.map_or(Ok(()), |reason| check_text("reason", reason, MAX_TEXT_BYTES))
}

/// Refuses a status that is an end where one is to go on.
fn check_open(status: Option<&RunStatus>) -> Result<()> {
    match status {
        Some(status) if !status.is_open() => {
            let reason = format!("it becomes pending, running or paused, not {status}: ending it says what came of it");
            Err(Error::invalid("status", reason))
        }
        _ => Ok(()),
    }
}

/// Reads a run for a list: what of it can't be read is left out, and said. Damage that leaves no row names the run.
fn read_listed(row: &Row<'_>) -> Result<Run> {
    let id = row.parse(0, RunId::new(row.text(0)?).ok(), "a run id")?;
    let place = format!("run {id}");
    read_columns(row, id).map_err(|error| within(place, error))
}

/// The same damage, with what it is of.
fn within(place: String, error: Error) -> Error {
    match error {
        Error::Corrupt { place: column, detail } => Error::corrupt(place, format!("{column}: {detail}")),
        Error::Invalid { field, reason } => Error::corrupt(place, format!("{field}: {reason}")),
        other => other,
    }
}

fn read_columns(row: &Row<'_>, id: RunId) -> Result<Run> {
    let mut damage = None;
    let [goal, reason, input_hash] = [4, 6, 7].map(|column| keep(row.opt_text(column), &mut damage).map(str::to_owned));
    let thread = match keep(row.opt_text(2), &mut damage) {
        None => None,
        Some(thread) => keep(row.parse(2, ThreadId::new(thread).ok(), "a thread id").map(Some), &mut damage),
    };
    Ok(Run {
        id,
        workspace: row.parse(1, WorkspaceId::from_slice(row.blob(1)?), "16 bytes of an id")?,
        thread,
        workflow: row.text(3)?.to_owned(),
        goal,
        status: RunStatus::from_word(row.text(5)?),
        reason,
        input_hash,
        metadata: keep(read_json(row, 8, "metadata"), &mut damage),
        started_at: Timestamp(row.int(9)?),
        completed_at: row.opt_int(10)?.map(Timestamp),
        place: row.int(11)?,
        tick: row.int(12)?,
        damage,
    })
}

/// Reads a text that has to be JSON.
fn read_json(row: &Row<'_>, column: usize, field: &'static str) -> Result<Option<String>> {
    let Some(text) = row.opt_text(column)? else { return Ok(None) };
    let read = serde_json::from_str::<serde::de::IgnoredAny>(text);
    read.map_err(|error| Error::invalid(field, format!("it is no JSON: {error}")))?;
    Ok(Some(text.to_owned()))
}

/// What was read; notes the first thing that could not be.
fn keep<T>(read: Result<Option<T>>, damage: &mut Option<String>) -> Option<T> {
    read.unwrap_or_else(|error| {
        damage.get_or_insert_with(|| error.to_string());
        None
    })
}

#[cfg(test)]
mod tests {
    use super::{RunStatus, turned};
    use crate::time::Timestamp;

    #[test]
    fn only_what_is_open_or_interrupted_goes_on() {
        let now = Timestamp(7);
        let to = |from, to| turned(&from, &to, now);
        assert_eq!(to(RunStatus::Pending, RunStatus::Running), Ok(Some(Some(now))));
        assert_eq!(to(RunStatus::Interrupted, RunStatus::Running), Ok(Some(Some(now))));
        assert_eq!(to(RunStatus::Interrupted, RunStatus::Paused), Ok(Some(None)));
        assert_eq!(to(RunStatus::Running, RunStatus::Paused), Ok(Some(None)));
        assert_eq!(to(RunStatus::Paused, RunStatus::Running), Ok(Some(None)));
        assert_eq!(to(RunStatus::Running, RunStatus::Running), Ok(None));
        for from in [RunStatus::Completed, RunStatus::Failed, RunStatus::Cancelled, RunStatus::Unknown("odd".into())] {
            assert_eq!(to(from.clone(), RunStatus::Running), Err(from.to_string()));
        }
    }
}
