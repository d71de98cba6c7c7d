//! Jobs: work that waits in queues, is claimed by one worker at a time, and is tried again when that fails or dies.
//!
//! A job that runs is held under a lease, which is new with every claim; whatever a worker says of a job is taken from the
//! lease's holder alone. Times are the store's own: the engine's clock where it has one. The order of a queue is by priority and
//! then by when a job was put into it, which the job's tick says, not a clock.

use std::ops::ControlFlow;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::changes::{self, Area, Note, Verb};
use crate::claim::Holder;
use crate::cursor::Cursor;
use crate::db::{Row, Tx, Value, query_all, query_one, statements};
use crate::error::{Error, Result};
use crate::id::{JobId, ThreadId, WorkspaceId};
use crate::item::{check_tag, check_text, open_words};
use crate::thread::{Change, MAX_TEXT_BYTES, Page};
use crate::threads::{self, Scope};
use crate::time::Timestamp;

const MAX_PAGE: usize = 1_000;
/// After so many bytes of text a page of them ends.
const PAGE_BYTES: usize = 4 << 20;
const CANDIDATES: i64 = 8;
/// The largest payload or result.
const MAX_JSON_BYTES: usize = 16 << 20;
/// However often it failed, a job waits no longer than this before it is tried again.
const LONGEST_BACKOFF_MILLIS: u64 = 24 * 60 * 60 * 1_000;
/// How often claiming is tried anew when others hold the rows of the jobs that could be claimed.
const CLAIM_ATTEMPTS: usize = 64;

/// The columns of a job as [`read`] takes them.
macro_rules! job_columns {
    () => {
        "id, workspace, thread, queue, name, status, priority, place, due_at, attempts, max_attempts, backoff, progress, detail,
         payload, result, error, lease, holder, machine, hostname, pid, label, boot, namespace, start_ticks, claimed_at,
         heartbeat_at, created_at, updated_at, ended_at, tick, last_lease"
    };
}

/// Which jobs a question is about, behind the condition on their workspace.
macro_rules! that_are_asked_for {
    () => {
        "(CAST(?2 AS TEXT) IS NULL OR queue = ?2) AND (CAST(?3 AS TEXT) IS NULL OR status = ?3)
          AND (CAST(?4 AS TEXT) IS NULL OR thread = ?4) "
    };
}

statements! {
    NEXT_TICK = "SELECT coalesce(max(tick), 0) + 1 FROM jobs";
    BY_ID = concat!("SELECT ", job_columns!(), " FROM jobs WHERE id = ?1");
    LOCKED = concat!("SELECT ", job_columns!(), " FROM jobs WHERE id = ?1 /* FOR UPDATE */");
    BY_LEASE = concat!("SELECT ", job_columns!(), " FROM jobs WHERE lease = ?1");
    IDS_FROM = "SELECT id FROM jobs WHERE id >= ?1 AND id < ?2 AND (CAST(?3 AS BYTEA) IS NULL OR workspace = ?3) ORDER BY id LIMIT ?4";
    WORKSPACE_OF = "SELECT workspace FROM threads WHERE id = ?1";
    INSERT = "INSERT INTO jobs (id, workspace, thread, queue, name, status, priority, place, due_at, attempts, max_attempts, backoff,
        progress, detail, payload, created_at, updated_at, ended_at, tick)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?16, ?17, ?8)";
    // Compares and sets: a job that somebody else took meanwhile is not queued any more. Where several transactions run at once, each
    // takes the first that no other one has in hand.
    CLAIM = concat!("UPDATE jobs SET status = 'running', lease = ?3, last_lease = ?3, holder = ?4, machine = ?5, hostname = ?6, pid = ?7, label = ?8, boot = ?9,
          namespace = ?10, start_ticks = ?11, claimed_at = ?2, heartbeat_at = ?2, attempts = attempts + 1,
          updated_at = CASE WHEN updated_at < ?2 THEN ?2 ELSE updated_at END, tick = (SELECT coalesce(max(tick), 0) + 1 FROM jobs)
        WHERE status = 'queued' AND id = (SELECT id FROM jobs WHERE queue = ?1 AND status = 'queued' AND due_at <= ?2
          ORDER BY priority DESC, place, id LIMIT 1 /* FOR UPDATE SKIP LOCKED */)
        RETURNING ", job_columns!());
    CLAIM_IN = concat!("UPDATE jobs SET status = 'running', lease = ?3, last_lease = ?3, holder = ?4, machine = ?5, hostname = ?6, pid = ?7, label = ?8,
          boot = ?9, namespace = ?10, start_ticks = ?11, claimed_at = ?2, heartbeat_at = ?2, attempts = attempts + 1,
          updated_at = CASE WHEN updated_at < ?2 THEN ?2 ELSE updated_at END, tick = (SELECT coalesce(max(tick), 0) + 1 FROM jobs)
        WHERE status = 'queued' AND id = (SELECT id FROM jobs WHERE workspace = ?12 AND queue = ?1 AND status = 'queued' AND due_at <= ?2
          ORDER BY priority DESC, place, id LIMIT 1 /* FOR UPDATE SKIP LOCKED */)
        RETURNING ", job_columns!());
    // Waits for whoever has it in hand.
    CLAIMABLE = "SELECT id FROM jobs WHERE queue = ?1 AND status = 'queued' AND due_at <= ?2
        AND (CAST(?3 AS BYTEA) IS NULL OR workspace = ?3) ORDER BY priority DESC, place, id LIMIT 1 /* FOR UPDATE */";
    HEARTBEAT = "UPDATE jobs SET heartbeat_at = ?2 WHERE holder = ?1 AND status = 'running'";
    RUNNING = concat!("SELECT ", job_columns!(), " FROM jobs WHERE status = 'running' AND (CAST(?1 AS BYTEA) IS NULL OR workspace = ?1)
        AND (CAST(?2 AS TEXT) IS NULL OR queue = ?2) ORDER BY tick, id");
    PUT = "UPDATE jobs SET status = ?2, priority = ?3, place = ?4, due_at = ?5, attempts = ?6, max_attempts = ?7, progress = ?8, detail = ?9,
        result = ?10, error = ?11, lease = ?12, heartbeat_at = ?13, ended_at = ?14,
        updated_at = CASE WHEN updated_at < ?15 THEN ?15 ELSE updated_at END, tick = ?16 WHERE id = ?1";
    DELETE = "DELETE FROM jobs WHERE id = ?1";
    TEXTS_OF = "SELECT id, name, detail, payload, result, error FROM jobs WHERE thread = ?1 AND id > ?2 ORDER BY id LIMIT ?3";
    TEXTS_OF_NO_THREAD = "SELECT id, name, detail, payload, result, error FROM jobs WHERE thread IS NULL AND id > ?1
        AND (CAST(?2 AS BYTEA) IS NULL OR workspace = ?2) ORDER BY id LIMIT ?3";
    PUT_TEXTS = "UPDATE jobs SET name = ?2, detail = ?3, payload = ?4, result = ?5, error = ?6, tick = ?7 WHERE id = ?1";
    DOWN = concat!("SELECT ", job_columns!(), " FROM jobs WHERE CAST(?1 AS BYTEA) IS NULL AND ", that_are_asked_for!(),
        "AND (tick < ?5 OR (tick = ?5 AND id < ?6)) ORDER BY tick DESC, id DESC LIMIT ?7");
    DOWN_IN = concat!("SELECT ", job_columns!(), " FROM jobs WHERE workspace = ?1 AND ", that_are_asked_for!(),
        "AND (tick < ?5 OR (tick = ?5 AND id < ?6)) ORDER BY tick DESC, id DESC LIMIT ?7");
    UP = concat!("SELECT ", job_columns!(), " FROM jobs WHERE CAST(?1 AS BYTEA) IS NULL AND ", that_are_asked_for!(),
        "AND (tick > ?5 OR (tick = ?5 AND id > ?6)) ORDER BY tick, id LIMIT ?7");
    UP_IN = concat!("SELECT ", job_columns!(), " FROM jobs WHERE workspace = ?1 AND ", that_are_asked_for!(),
        "AND (tick > ?5 OR (tick = ?5 AND id > ?6)) ORDER BY tick, id LIMIT ?7");
}

open_words! {
    /// How far a job is. A word that is not known is never run.
    JobStatus {
        /// It waits to be claimed.
        Queued = "queued",
        /// A worker has it.
        Running = "running",
        /// It waits until somebody queues it again.
        Paused = "paused",
        /// It is done.
        Completed = "completed",
        /// It failed, and is not tried again by itself.
        Failed = "failed",
        /// It is not wanted any more.
        Cancelled = "cancelled",
    }
}

/// A stored job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Job {
    /// Its name.
    pub id: JobId,
    /// The workspace that it belongs to.
    pub workspace: WorkspaceId,
    /// The thread that it works for; it goes when that is purged.
    pub thread: Option<ThreadId>,
    /// The queue that it waits in.
    pub queue: String,
    /// What it is, in the words of who runs it.
    pub name: String,
    /// How far it is.
    pub status: JobStatus,
    /// Greater ones are claimed first.
    pub priority: i64,
    /// Before this time, by the store's clock, it is not claimed.
    pub due_at: Timestamp,
    /// How often it was claimed since it was added, or queued again by hand after its end.
    pub attempts: u64,
    /// After so many attempts a failure is the end.
    pub max_attempts: u64,
    /// Milliseconds before the second attempt; each further one waits twice as long, a day at most.
    pub backoff_millis: u64,
    /// How much of it is done, in percent.
    pub progress: Option<u8>,
    /// What there is to say of it.
    pub detail: Option<String>,
    /// What it is to work on: JSON, as it was given.
    pub payload: Option<String>,
    /// What came of it: JSON, as it was given.
    pub result: Option<String>,
    /// Why the last attempt failed.
    pub error: Option<String>,
    /// Who has it, or had it last.
    pub worker: Option<Holder>,
    /// Whether it runs and its worker is alive.
    pub live: bool,
    /// When it was added.
    pub created_at: Timestamp,
    /// When it was last changed; never falls.
    pub updated_at: Timestamp,
    /// When it was completed, failed or cancelled.
    pub ended_at: Option<Timestamp>,
    /// The tick of its last change: jobs are listed by it.
    pub tick: i64,
    /// In a list: what of it can't be read, and stands here as if it were nothing.
    pub damage: Option<String>,
    #[serde(skip)]
    pub(crate) place: i64,
    #[serde(skip)]
    pub(crate) lease: Option<Uuid>,
    #[serde(skip)]
    pub(crate) last_lease: Option<Uuid>,
}

/// The right to run a job, until it is ended, taken away, or its holder dies.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JobLease {
    /// The job.
    pub job: JobId,
    /// The lease; another claim of the same job has another one.
    pub lease: Uuid,
}

/// A job that was claimed, and the right to run it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClaimedJob {
    /// The job.
    pub job: Job,
    /// What the worker says of it goes with this.
    pub lease: JobLease,
}

/// A job to be added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewJob {
    /// Chosen by the caller to make a retry safe; minted when `None`.
    pub id: Option<JobId>,
    /// The thread that it works for.
    pub thread: Option<ThreadId>,
    /// The queue that it waits in.
    pub queue: String,
    /// What it is.
    pub name: String,
    /// What it is to work on: JSON.
    pub payload: Option<String>,
    /// Greater ones are claimed first.
    pub priority: i64,
    /// How long it is not claimed, from now on by the store's clock.
    pub delay: Duration,
    /// After so many attempts a failure is the end; at least 1.
    pub max_attempts: u64,
    /// How long the second attempt waits; each further one waits twice as long, a day at most.
    pub backoff: Duration,
    /// [`JobStatus::Queued`] when `None`; anything but [`JobStatus::Running`].
    pub status: Option<JobStatus>,
    /// How much of it is done, in percent.
    pub progress: Option<u8>,
    /// What there is to say of it.
    pub detail: Option<String>,
}

impl NewJob {
    /// A job that is claimed as soon as a worker asks for one, and tried three times, half a second and a second apart.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            id: None,
            thread: None,
            queue: Self::QUEUE.to_owned(),
            name: name.into(),
            payload: None,
            priority: 0,
            delay: Duration::ZERO,
            max_attempts: 3,
            backoff: Duration::from_millis(500),
            status: None,
            progress: None,
            detail: None,
        }
    }

    /// The queue of jobs that name no other.
    pub const QUEUE: &'static str = "default";
}

/// What a worker says of a job that it runs; also a sign of life.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobReport {
    /// How much of it is done, in percent; stays when `None`.
    pub progress: Option<u8>,
    /// What there is to say of it; stays when `None`.
    pub detail: Option<String>,
}

/// How a worker ends its work on a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobEnd {
    /// It is done.
    Completed {
        /// What came of it: JSON.
        result: Option<String>,
    },
    /// This attempt failed.
    Failed {
        /// Why.
        error: String,
        /// Whether it is worth another attempt, if there is one left.
        retry: bool,
    },
    /// It is not wanted any more.
    Cancelled,
    /// The worker gives it back untouched: it keeps its place in the queue, and the attempt is not counted.
    Released,
}

/// A partial change of a job by somebody who does not run it. What is not named stays.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobPatch {
    /// Anything but [`JobStatus::Running`], which only a claim gives. Takes a running job away from its worker. A job that has ended
    /// and is queued again begins with no attempts.
    pub status: Option<JobStatus>,
    /// Greater ones are claimed first.
    pub priority: Option<i64>,
    /// After so many attempts a failure is the end.
    pub max_attempts: Option<u64>,
    /// How much of it is done, in percent.
    pub progress: Change<u8>,
    /// What there is to say of it.
    pub detail: Change<String>,
}

/// A question for a page of jobs, in the order of their last change. One that changes while pages are read moves to the end of the
/// order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobQuery {
    /// Only those of this queue.
    pub queue: Option<String>,
    /// Only those of this status.
    pub status: Option<JobStatus>,
    /// Only those that work for this thread.
    pub thread: Option<ThreadId>,
    /// Those that were changed first at the beginning.
    pub ascending: bool,
    /// The page's size; 0 gives an empty page, more than 1,000 is 1,000.
    pub limit: usize,
    /// Where the page starts.
    pub cursor: Option<String>,
}

impl Default for JobQuery {
    fn default() -> Self {
        Self { queue: None, status: None, thread: None, ascending: false, limit: 100, cursor: None }
    }
}

/// Adds a job. A repeated call with the same id finds it, whatever has become of it.
pub(crate) fn add(tx: &mut dyn Tx, scope: Scope, new: &NewJob, id: &JobId, now: Timestamp) -> Result<Job> {
    check_new(new)?;
    let workspace = workspace_for(tx, scope, new.thread.as_ref())?;
    if let Some(known) = query_one(tx, BY_ID, &[id.as_str().into()], read)? {
        let same = known.workspace == workspace
            && (&known.thread, &known.queue, &known.name, &known.payload)
                == (&new.thread, &new.queue, &new.name, &new.payload);
        return if same { Ok(known) } else { Err(Error::AlreadyExists { what: "job", id: id.to_string() }) };
    }
    let now = clock(tx, now)?;
    let tick = next_tick(tx)?;
    let status = new.status.as_ref().unwrap_or(&JobStatus::Queued);
    let args = [
        id.as_str().into(),
        Value::Blob(workspace.as_bytes()),
        new.thread.as_ref().map(ThreadId::as_str).into(),
        new.queue.as_str().into(),
        new.name.as_str().into(),
        status.as_str().into(),
        new.priority.into(),
        tick.into(),
        later(now, millis(new.delay)).0.into(),
        0.into(),
        number(new.max_attempts).into(),
        number(millis(new.backoff)).into(),
        new.progress.map(i64::from).into(),
        new.detail.as_deref().into(),
        new.payload.as_deref().into(),
        now.0.into(),
        has_ended(status).then_some(now.0).into(),
    ];
    tx.execute(INSERT, &args).map_err(|error| match error {
        Error::AlreadyExists { .. } => Error::AlreadyExists { what: "job", id: id.to_string() },
        other => other,
    })?;
    let job = get(tx, scope, id)?;
    note(tx, &job, Verb::Created, now)?;
    Ok(job)
}

/// Reads a job.
pub(crate) fn get(tx: &mut dyn Tx, scope: Scope, id: &JobId) -> Result<Job> {
    let found = query_one(tx, BY_ID, &[id.as_str().into()], read)?;
    found.filter(|job| is_seen(scope, job)).ok_or_else(|| Error::not_found("job", id))
}

/// Finds a job by its id, or by an unambiguous beginning of it.
pub(crate) fn find(tx: &mut dyn Tx, scope: Scope, name: &str) -> Result<JobId> {
    let missing = || Error::not_found("job", name);
    let id = JobId::new(name).map_err(|_| missing())?;
    if get(tx, scope, &id).is_ok() {
        return Ok(id);
    }
    // `~` comes after every character that an id may hold.
    let bound = format!("{name}~");
    let args = [name.into(), bound.as_str().into(), scope.arg(), CANDIDATES.into()];
    let mut matches = query_all(tx, IDS_FROM, &args, |row| Ok(row.text(0)?.to_owned()))?;
    match matches.pop() {
        Some(found) if matches.is_empty() => JobId::new(found).map_err(|_| missing()),
        Some(last) => {
            matches.push(last);
            Err(Error::Ambiguous { given: name.to_owned(), candidates: matches })
        }
        None => Err(missing()),
    }
}

/// Claims the first job of a queue that is due, if there is one. A repeated call finds what it claimed.
pub(crate) fn claim(
    tx: &mut dyn Tx,
    scope: Scope,
    queue: &str,
    (holder, lease): (&Holder, Uuid),
    now: Timestamp,
) -> Result<Option<Job>> {
    if let Some(claimed) = query_one(tx, BY_LEASE, &[Value::Blob(lease.as_bytes())], read)? {
        return Ok(Some(claimed));
    }
    let now = clock(tx, now)?;
    let mut args = vec![
        queue.into(),
        now.0.into(),
        Value::Blob(lease.as_bytes()),
        holder.id.as_str().into(),
        holder.machine.as_str().into(),
        holder.hostname.as_str().into(),
        holder.pid.into(),
        holder.label.as_str().into(),
        holder.boot.as_str().into(),
        holder.namespace.as_str().into(),
        holder.start_ticks.into(),
    ];
    let statement = match scope {
        Scope::All => CLAIM,
        Scope::Workspace(_) => {
            args.push(scope.arg());
            CLAIM_IN
        }
    };
    for _ in 0..CLAIM_ATTEMPTS {
        if let Some(claimed) = query_one(tx, statement, &args, read)? {
            note(tx, &claimed, Verb::Changed, now)?;
            return Ok(Some(claimed));
        }
        // Every one that is due may have been in somebody's hand, who then did not take it.
        if query_one(tx, CLAIMABLE, &[queue.into(), now.0.into(), scope.arg()], |_| Ok(()))?.is_none() {
            return Ok(None);
        }
    }
    Err(Error::Busy { detail: format!("others changed the jobs of the queue `{queue}` {CLAIM_ATTEMPTS} times") })
}

/// Notes what the holder of a lease says of its job, which is also a sign of life.
pub(crate) fn report(tx: &mut dyn Tx, lease: &JobLease, report: &JobReport, now: Timestamp) -> Result<Job> {
    let mut job = leased(tx, lease)?;
    check_facts(job.max_attempts, report.progress, report.detail.as_deref())?;
    job.progress = report.progress.or(job.progress);
    job.detail = report.detail.clone().or(job.detail);
    let now = clock(tx, now)?;
    if let Some(worker) = &mut job.worker {
        worker.heartbeat_at = now;
    }
    put(tx, job, now, false)
}

/// Ends the work of the holder of a lease on its job. A repeated call finds it ended.
pub(crate) fn end(tx: &mut dyn Tx, lease: &JobLease, end: &JobEnd, now: Timestamp) -> Result<Job> {
    let job = match leased(tx, lease) {
        Err(refused @ Error::Conflict { .. }) => {
            let found = query_one(tx, BY_ID, &[lease.job.as_str().into()], read)?;
            return found.filter(|job| is_ended_so(job, lease, end)).ok_or(refused);
        }
        job => job?,
    };
    let now = clock(tx, now)?;
    let (job, requeued) = ended(job, end, now)?;
    put(tx, job, now, requeued)
}

/// Changes what the patch names.
pub(crate) fn update(tx: &mut dyn Tx, scope: Scope, id: &JobId, patch: &JobPatch, now: Timestamp) -> Result<Job> {
    let found = query_one(tx, LOCKED, &[id.as_str().into()], read)?;
    let job = found.filter(|job| is_seen(scope, job)).ok_or_else(|| Error::not_found("job", id))?;
    let now = clock(tx, now)?;
    let (job, requeued) = patched(job, patch, now)?;
    put(tx, job, now, requeued)
}

/// Deletes a job that does not run, damaged or not.
pub(crate) fn delete(tx: &mut dyn Tx, scope: Scope, id: &JobId, now: Timestamp) -> Result<()> {
    let found = query_one(tx, LOCKED, &[id.as_str().into()], read_listed)?;
    let job = found.filter(|job| is_seen(scope, job)).ok_or_else(|| Error::not_found("job", id))?;
    if job.status == JobStatus::Running {
        let found = "running".to_owned();
        return Err(Error::Conflict { what: "job", expected: "one that does not run".to_owned(), found });
    }
    tx.execute(DELETE, &[id.as_str().into()])?;
    note(tx, &job, Verb::Deleted, now)
}

/// The jobs that run, whether their workers are alive or not; the order of their last change.
pub(crate) fn running(tx: &mut dyn Tx, scope: Scope, queue: Option<&str>) -> Result<Vec<Job>> {
    query_all(tx, RUNNING, &[scope.arg(), queue.into()], read_listed)
}

/// Takes jobs away from workers that died: each is queued again, or has failed when it has no attempt left. One that was ended or
/// claimed anew meanwhile is left alone.
pub(crate) fn requeue(tx: &mut dyn Tx, dead: &[JobLease], now: Timestamp) -> Result<Vec<Job>> {
    let now = clock(tx, now)?;
    let mut requeued = Vec::new();
    for lease in dead {
        let Ok(job) = leased(tx, lease) else { continue };
        let worker = job.worker.as_ref().map_or_else(|| "its worker".to_owned(), Holder::to_string);
        let (job, queued) = ended(job, &JobEnd::Failed { error: format!("{worker} died"), retry: true }, now)?;
        requeued.push(put(tx, job, now, queued)?);
    }
    Ok(requeued)
}

/// Gives a sign of life for every job that a holder runs.
pub(crate) fn heartbeat(tx: &mut dyn Tx, holder: &str, now: Timestamp) -> Result<()> {
    tx.execute(HEARTBEAT, &[holder.into(), now.0.into()]).map(drop)
}

/// Reads a page of jobs.
pub(crate) fn page(tx: &mut dyn Tx, scope: Scope, query: &JobQuery) -> Result<Page<Job>> {
    let tag = format!("jobs {scope:?} {:?} {:?} {:?} {}", query.queue, query.status, query.thread, query.ascending);
    let start = match &query.cursor {
        Some(cursor) => Cursor::decode(cursor, &tag)?,
        None if query.ascending => Cursor { value: i64::MIN, id: String::new() },
        None => Cursor { value: i64::MAX, id: String::new() },
    };
    let statement = match (scope, query.ascending) {
        (Scope::All, false) => DOWN,
        (Scope::All, true) => UP,
        (Scope::Workspace(_), false) => DOWN_IN,
        (Scope::Workspace(_), true) => UP_IN,
    };
    let limit = query.limit.min(MAX_PAGE);
    let args = [
        scope.arg(),
        query.queue.as_deref().into(),
        query.status.as_ref().map(JobStatus::as_str).into(),
        query.thread.as_ref().map(ThreadId::as_str).into(),
        start.value.into(),
        start.id.as_str().into(),
        (i64::try_from(limit).unwrap_or(0) + 1).into(),
    ];
    let (mut entries, mut more): (Vec<Job>, bool) = (Vec::new(), false);
    tx.query(statement, &args, &mut |row| {
        more = entries.len() == limit;
        if more {
            return Ok(ControlFlow::Break(()));
        }
        entries.push(read_listed(row)?);
        Ok(ControlFlow::Continue(()))
    })?;
    let last = entries.last().filter(|_| more);
    let next_cursor = last.map(|last| Cursor { value: last.tick, id: last.id.to_string() }.encode(&tag));
    Ok(Page { entries, next_cursor })
}

/// The texts of a job that a person or a worker has written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Texts {
    pub(crate) id: String,
    /// Name, detail, payload, result and error, in this order.
    pub(crate) texts: [Option<String>; 5],
}

impl Texts {
    /// Whether a text is JSON, and has to stay so.
    pub(crate) const ARE_JSON: [bool; 5] = [false, false, true, true, false];

    fn bytes(&self) -> usize {
        self.texts.iter().flatten().map(String::len).sum()
    }
}

/// A page of the texts of the jobs of a thread, or of those of none, after an id.
pub(crate) fn texts(tx: &mut dyn Tx, scope: Scope, thread: Option<&ThreadId>, after: &str) -> Result<Vec<Texts>> {
    let (mut found, mut bytes) = (Vec::new(), 0);
    let mut visit = |row: &Row<'_>| {
        let text = |column: usize| Ok::<_, Error>(row.opt_text(column)?.map(str::to_owned));
        let texts = Texts { id: row.text(0)?.to_owned(), texts: [text(1)?, text(2)?, text(3)?, text(4)?, text(5)?] };
        bytes += texts.bytes();
        found.push(texts);
        Ok(if bytes < PAGE_BYTES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    };
    let limit = i64::try_from(MAX_PAGE).unwrap_or(i64::MAX).into();
    match thread {
        Some(thread) => tx.query(TEXTS_OF, &[thread.as_str().into(), after.into(), limit], &mut visit)?,
        None => tx.query(TEXTS_OF_NO_THREAD, &[after.into(), scope.arg(), limit], &mut visit)?,
    }
    Ok(found)
}

/// Puts texts in the place of those that were looked at; leaves a job whose texts were changed meanwhile, and says so.
pub(crate) fn put_texts(tx: &mut dyn Tx, before: &Texts, after: &Texts) -> Result<bool> {
    let Some(job) = query_one(tx, LOCKED, &[before.id.as_str().into()], read)? else { return Ok(true) };
    let now = [Some(job.name), job.detail, job.payload, job.result, job.error];
    if now == after.texts {
        return Ok(true);
    }
    if now != before.texts {
        return Ok(false);
    }
    let tick = next_tick(tx)?;
    let mut args: Vec<Value<'_>> = vec![after.id.as_str().into()];
    args.extend(after.texts.iter().map(|text| Value::from(text.as_deref())));
    args.push(tick.into());
    tx.execute(PUT_TEXTS, &args)?;
    Ok(true)
}

/// The store's own time: the engine's where it has a clock.
pub(crate) fn clock(tx: &mut dyn Tx, now: Timestamp) -> Result<Timestamp> {
    Ok(tx.clock()?.map_or(now, Timestamp))
}

fn next_tick(tx: &mut dyn Tx) -> Result<i64> {
    Ok(query_one(tx, NEXT_TICK, &[], |row| row.int(0))?.unwrap_or(1))
}

fn is_seen(scope: Scope, job: &Job) -> bool {
    scope == Scope::All || scope == Scope::Workspace(job.workspace)
}

/// The workspace of a job to be: that of its thread, which must be seen, or the one that the handle is opened on.
fn workspace_for(tx: &mut dyn Tx, scope: Scope, thread: Option<&ThreadId>) -> Result<WorkspaceId> {
    let Some(thread) = thread else {
        return match scope {
            Scope::Workspace(workspace) => Ok(workspace),
            Scope::All => Err(Error::invalid("thread", "a job belongs to a workspace: name a thread, or add it there")),
        };
    };
    threads::check_visible(tx, scope, thread)?;
    let found = query_one(tx, WORKSPACE_OF, &[thread.as_str().into()], |row| {
        row.parse(0, WorkspaceId::from_slice(row.blob(0)?), "16 bytes of an id")
    })?;
    found.ok_or_else(|| Error::not_found("thread", thread))
}

/// Reads and locks the job of a lease that still holds.
fn leased(tx: &mut dyn Tx, lease: &JobLease) -> Result<Job> {
    let found = query_one(tx, LOCKED, &[lease.job.as_str().into()], read)?;
    let job = found.ok_or_else(|| Error::not_found("job", &lease.job))?;
    if job.lease == Some(lease.lease) {
        return Ok(job);
    }
    let found = match job.status {
        JobStatus::Running => "another lease".to_owned(),
        status => format!("a job that is {status}"),
    };
    Err(Error::Conflict { what: "job", expected: format!("lease {}", lease.lease), found })
}

/// The job after its worker's end, and whether it is queued anew.
fn ended(mut job: Job, end: &JobEnd, now: Timestamp) -> Result<(Job, bool)> {
    job.lease = None;
    let status = match end {
        JobEnd::Completed { result } => {
            check_json("result", result.as_deref())?;
            (job.result, job.error, job.progress) = (result.clone(), None, Some(100));
            JobStatus::Completed
        }
        JobEnd::Failed { error, retry } => {
            check_text("error", error, MAX_TEXT_BYTES)?;
            job.error = Some(error.clone());
            if *retry && job.attempts < job.max_attempts {
                job.due_at = later(now, backoff(job.backoff_millis, job.attempts));
                job.status = JobStatus::Queued;
                return Ok((job, true));
            }
            JobStatus::Failed
        }
        JobEnd::Cancelled => JobStatus::Cancelled,
        JobEnd::Released => {
            job.attempts = job.attempts.saturating_sub(1);
            job.status = JobStatus::Queued;
            return Ok((job, false));
        }
    };
    (job.status, job.ended_at) = (status, Some(now));
    Ok((job, false))
}

/// Whether this lease was ended in this way already.
fn is_ended_so(job: &Job, lease: &JobLease, end: &JobEnd) -> bool {
    let is_so = match end {
        JobEnd::Completed { result } => job.status == JobStatus::Completed && job.result == *result,
        JobEnd::Failed { error, .. } => {
            matches!(job.status, JobStatus::Failed | JobStatus::Queued) && job.error.as_ref() == Some(error)
        }
        JobEnd::Cancelled => job.status == JobStatus::Cancelled,
        JobEnd::Released => job.status == JobStatus::Queued && job.error.is_none(),
    };
    is_so && job.lease.is_none() && job.last_lease == Some(lease.lease)
}

/// The job with what the patch names, and whether it is queued anew.
fn patched(mut job: Job, patch: &JobPatch, now: Timestamp) -> Result<(Job, bool)> {
    job.priority = patch.priority.unwrap_or(job.priority);
    job.max_attempts = patch.max_attempts.unwrap_or(job.max_attempts);
    match &patch.progress {
        Change::Keep => {}
        Change::Clear => job.progress = None,
        Change::Set(progress) => job.progress = Some(*progress),
    }
    match &patch.detail {
        Change::Keep => {}
        Change::Clear => job.detail = None,
        Change::Set(detail) => job.detail = Some(detail.clone()),
    }
    check_facts(job.max_attempts, job.progress, job.detail.as_deref())?;
    let Some(status) = patch.status.as_ref().filter(|status| **status != job.status) else { return Ok((job, false)) };
    check_status(status)?;
    let requeued = *status == JobStatus::Queued;
    if requeued {
        job.due_at = now;
        if has_ended(&job.status) {
            (job.attempts, job.result, job.progress) = (0, None, None);
        }
    }
    job.ended_at = has_ended(status).then_some(now);
    (job.status, job.lease) = (status.clone(), None);
    Ok((job, requeued))
}

/// Milliseconds to wait after so many attempts.
fn backoff(first: u64, attempts: u64) -> u64 {
    let doublings = u32::try_from(attempts.saturating_sub(1)).unwrap_or(u32::MAX);
    let factor = 1_u64.checked_shl(doublings).unwrap_or(u64::MAX);
    first.saturating_mul(factor).min(LONGEST_BACKOFF_MILLIS.max(first))
}

fn has_ended(status: &JobStatus) -> bool {
    matches!(status, JobStatus::Completed | JobStatus::Failed | JobStatus::Cancelled)
}

fn check_new(new: &NewJob) -> Result<()> {
    check_tag("queue", &new.queue)?;
    check_text("name", &new.name, MAX_TEXT_BYTES)?;
    if new.name.trim().is_empty() {
        return Err(Error::invalid("name", "it is empty"));
    }
    check_json("payload", new.payload.as_deref())?;
    check_status(new.status.as_ref().unwrap_or(&JobStatus::Queued))?;
    check_facts(new.max_attempts, new.progress, new.detail.as_deref())
}

fn check_status(status: &JobStatus) -> Result<()> {
    check_tag("status", status.as_str())?;
    match status.as_str() {
        "running" => Err(Error::invalid("status", "a job runs when a worker claims it")),
        _ => Ok(()),
    }
}

fn check_facts(max_attempts: u64, progress: Option<u8>, detail: Option<&str>) -> Result<()> {
    if max_attempts == 0 || i64::try_from(max_attempts).is_err() {
        return Err(Error::invalid("max_attempts", "a job is tried once at least"));
    }
    if progress.is_some_and(|progress| progress > 100) {
        return Err(Error::invalid("progress", "it is at most 100 percent"));
    }
    detail.map_or(Ok(()), |detail| check_text("detail", detail, MAX_TEXT_BYTES))
}

/// Refuses what is no JSON. JSON has no NUL, so both engines hold it as text.
fn check_json(field: &'static str, text: Option<&str>) -> Result<()> {
    let Some(text) = text else { return Ok(()) };
    check_text(field, text, MAX_JSON_BYTES)?;
    let read = serde_json::from_str::<serde::de::IgnoredAny>(text);
    read.map(drop).map_err(|error| Error::invalid(field, format!("it is no JSON: {error}")))
}

fn put(tx: &mut dyn Tx, mut job: Job, now: Timestamp, requeued: bool) -> Result<Job> {
    job.tick = next_tick(tx)?;
    job.updated_at = job.updated_at.max(now);
    if requeued {
        job.place = job.tick;
    }
    let args = [
        job.id.as_str().into(),
        job.status.as_str().into(),
        job.priority.into(),
        job.place.into(),
        job.due_at.0.into(),
        number(job.attempts).into(),
        number(job.max_attempts).into(),
        job.progress.map(i64::from).into(),
        job.detail.as_deref().into(),
        job.result.as_deref().into(),
        job.error.as_deref().into(),
        job.lease.as_ref().map(|lease| lease.as_bytes().as_slice()).into(),
        job.worker.as_ref().map(|worker| worker.heartbeat_at.0).into(),
        job.ended_at.map(|at| at.0).into(),
        job.updated_at.0.into(),
        job.tick.into(),
    ];
    tx.execute(PUT, &args)?;
    note(tx, &job, Verb::Changed, now)?;
    Ok(job)
}

/// Notes for those who follow what became of a job.
fn note(tx: &mut dyn Tx, job: &Job, verb: Verb, now: Timestamp) -> Result<()> {
    let note = Note { area: Area::Job, verb, subject: Some(job.id.as_str()), now };
    match &job.thread {
        Some(thread) => changes::note(tx, thread, None, note),
        None => changes::note_in(tx, job.workspace, note),
    }
}

fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn later(now: Timestamp, millis: u64) -> Timestamp {
    Timestamp(now.0.saturating_add(number(millis)))
}

/// Reads the columns of `job_columns!`. Damage names the job.
fn read(row: &Row<'_>) -> Result<Job> {
    let job = read_listed(row)?;
    match job.damage {
        None => Ok(job),
        Some(damage) => Err(Error::corrupt(format!("job {}", job.id), damage)),
    }
}

/// Reads a job for a list: what of it can't be read is left out, and said.
fn read_listed(row: &Row<'_>) -> Result<Job> {
    let id = row.parse(0, JobId::new(row.text(0)?).ok(), "a job id")?;
    let place = format!("job {id}");
    read_columns(row, id).map_err(|error| match error {
        Error::Corrupt { place: column, detail } => Error::corrupt(place, format!("{column}: {detail}")),
        other => other,
    })
}

fn read_columns(row: &Row<'_>, id: JobId) -> Result<Job> {
    let mut damage = None;
    let [attempts, max_attempts, backoff_millis] = [9, 10, 11].map(|column| {
        let number = |column| row.parse(column, u64::try_from(row.int(column)?).ok(), "a number that is not negative");
        keep(number(column).map(Some), &mut damage).unwrap_or_default()
    });
    let [detail, payload, result, error] =
        [13, 14, 15, 16].map(|column| keep(row.opt_text(column), &mut damage).map(str::to_owned));
    let [lease, last_lease] = [17, 32].map(|column| keep(read_lease(row, column), &mut damage));
    Ok(Job {
        id,
        workspace: row.parse(1, WorkspaceId::from_slice(row.blob(1)?), "16 bytes of an id")?,
        thread: keep(read_thread(row), &mut damage),
        queue: row.text(3)?.to_owned(),
        name: row.text(4)?.to_owned(),
        status: JobStatus::from_word(row.text(5)?),
        priority: row.int(6)?,
        place: row.int(7)?,
        due_at: Timestamp(row.int(8)?),
        attempts,
        max_attempts,
        backoff_millis,
        progress: keep(read_progress(row), &mut damage),
        detail,
        payload,
        result,
        error,
        lease,
        last_lease,
        worker: keep(read_worker(row), &mut damage),
        live: false,
        created_at: Timestamp(row.int(28)?),
        updated_at: Timestamp(row.int(29)?),
        ended_at: row.opt_int(30)?.map(Timestamp),
        tick: row.int(31)?,
        damage,
    })
}

/// What was read; notes the first thing that could not be.
fn keep<T>(read: Result<Option<T>>, damage: &mut Option<String>) -> Option<T> {
    read.unwrap_or_else(|error| {
        damage.get_or_insert_with(|| error.to_string());
        None
    })
}

fn read_thread(row: &Row<'_>) -> Result<Option<ThreadId>> {
    let Some(thread) = row.opt_text(2)? else { return Ok(None) };
    row.parse(2, ThreadId::new(thread).ok(), "a thread id").map(Some)
}

fn read_progress(row: &Row<'_>) -> Result<Option<u8>> {
    let Some(progress) = row.opt_int(12)? else { return Ok(None) };
    let percent = u8::try_from(progress).ok().filter(|percent| *percent <= 100);
    row.parse(12, percent, "a percentage").map(Some)
}

fn read_lease(row: &Row<'_>, column: usize) -> Result<Option<Uuid>> {
    let Some(lease) = row.opt_blob(column)? else { return Ok(None) };
    row.parse(column, Uuid::from_slice(lease).ok(), "16 bytes of an id").map(Some)
}

fn read_worker(row: &Row<'_>) -> Result<Option<Holder>> {
    let Some(id) = row.opt_text(18)? else { return Ok(None) };
    Ok(Some(Holder {
        id: id.to_owned(),
        machine: row.text(19)?.to_owned(),
        hostname: row.text(20)?.to_owned(),
        pid: row.int(21)?,
        label: row.text(22)?.to_owned(),
        boot: row.text(23)?.to_owned(),
        namespace: row.text(24)?.to_owned(),
        start_ticks: row.int(25)?,
        acquired_at: Timestamp(row.int(26)?),
        heartbeat_at: Timestamp(row.int(27)?),
    }))
}

#[cfg(test)]
mod tests {
    use super::{LONGEST_BACKOFF_MILLIS, backoff};

    #[test]
    fn each_attempt_waits_twice_as_long_and_none_longer_than_a_day() {
        assert_eq!([1, 2, 3, 4].map(|attempts| backoff(500, attempts)), [500, 1_000, 2_000, 4_000]);
        assert_eq!(backoff(500, u64::MAX), LONGEST_BACKOFF_MILLIS);
        assert_eq!((backoff(0, 70), backoff(u64::MAX, 2)), (0, u64::MAX));
    }
}
