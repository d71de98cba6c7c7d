//! The parts of a run: branches, leaves and control nodes, and leaves whose output can be used again.

use serde::Serialize;

use super::{
    MAX_JSON_BYTES, RunStatus, check_begin, check_end, check_name, check_open, conflict, get_listed, is_seen, keep,
    lock_listed, read_json, the_only, told, touched, turned, within,
};
use crate::db::{Row, Tx, Value, query_all, query_one, statements};
use crate::error::{Error, Result};
use crate::id::{PartId, RunId};
use crate::item::check_json;
use crate::threads::Scope;
use crate::time::Timestamp;

/// So many leaves are looked at for one that can be read.
const REPLAYS: i64 = 100;

/// The columns of a part as [`read_listed`] takes them.
macro_rules! part_columns {
    () => {
        "SELECT p.id, p.run, p.place, p.kind, p.branch, p.name, p.about, p.input_hash, p.status, p.reason, p.result, p.list,
           p.started_at, p.completed_at FROM run_parts p "
    };
}
pub(super) use part_columns;

statements! {
    PART = concat!(part_columns!(), "WHERE p.id = ?1");
    RUN_OF_PART = "SELECT run FROM run_parts WHERE id = ?1";
    PART_IDS_FROM = "SELECT p.id FROM run_parts p JOIN runs r ON r.id = p.run WHERE p.id >= ?1 AND p.id < ?2
        AND (CAST(?3 AS BYTEA) IS NULL OR r.workspace = ?3) ORDER BY p.id LIMIT ?4";
    NEXT_PART_PLACE = "SELECT coalesce(max(place), 0) + 1 FROM run_parts WHERE run = ?1";
    PUT_PART = "INSERT INTO run_parts (id, run, place, kind, branch, name, about, input_hash, status, started_at)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) ON CONFLICT (id) DO NOTHING";
    SET_PART = "UPDATE run_parts SET status = ?2, reason = ?3, result = ?4, list = ?5, started_at = ?6, completed_at = ?7 WHERE id = ?1";
    INTERRUPT_PARTS = "UPDATE run_parts SET status = 'interrupted', reason = ?2,
        completed_at = CASE WHEN started_at > ?3 THEN started_at ELSE ?3 END WHERE run = ?1 AND status = 'running'";
    // Ids alone: what comes of a leaf may be large, and one is enough.
    REPLAY_IN_RUN = "SELECT id FROM run_parts WHERE name = ?2 AND input_hash = ?3 AND run = ?1 AND kind = 'leaf'
        AND status = 'completed' ORDER BY place DESC LIMIT ?4";
    REPLAY_IN_WORKFLOW = "SELECT p.id FROM run_parts p JOIN runs r ON r.id = p.run WHERE p.name = ?2 AND p.input_hash = ?3
        AND p.kind = 'leaf' AND p.status = 'completed' AND r.workspace = ?5 AND r.workflow = ?6
        ORDER BY CASE WHEN p.run = ?1 THEN 0 ELSE 1 END, r.place DESC, r.id DESC, p.place DESC LIMIT ?4";
}

/// What a part of a run is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum PartKind {
    /// A branch of the workflow.
    Branch {
        /// Which one of the workflow.
        branch: String,
        /// The node that it stands at.
        node: String,
    },
    /// One task.
    Leaf {
        /// Which one of the workflow.
        leaf: String,
        /// What it does.
        task: String,
        /// The branch that it is on: a part of the same run.
        branch_run: Option<PartId>,
        /// Tells what it is given from what it was given at other times; without it its output is never used again.
        input_hash: Option<String>,
    },
    /// A node that decides how the workflow goes on.
    Control {
        /// Which one of the workflow.
        node: String,
        /// How it decides, in the workflow's words.
        control: String,
    },
}

impl PartKind {
    /// The word for its kind, as it is stored.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Branch { .. } => "branch",
            Self::Leaf { .. } => "leaf",
            Self::Control { .. } => "control",
        }
    }

    /// Which one of the workflow it is.
    pub fn name(&self) -> &str {
        match self {
            Self::Branch { branch: name, .. } | Self::Leaf { leaf: name, .. } | Self::Control { node: name, .. } => {
                name
            }
        }
    }

    /// The node of a branch, the task of a leaf, or how a control node decides.
    pub fn about(&self) -> &str {
        match self {
            Self::Branch { node: about, .. }
            | Self::Leaf { task: about, .. }
            | Self::Control { control: about, .. } => about,
        }
    }

    fn branch_run(&self) -> Option<&PartId> {
        match self {
            Self::Leaf { branch_run, .. } => branch_run.as_ref(),
            Self::Branch { .. } | Self::Control { .. } => None,
        }
    }

    fn input_hash(&self) -> Option<&str> {
        match self {
            Self::Leaf { input_hash, .. } => input_hash.as_deref(),
            Self::Branch { .. } | Self::Control { .. } => None,
        }
    }
}

/// A stored part of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RunPart {
    /// Its name.
    pub id: PartId,
    /// The run.
    pub run: RunId,
    /// Its place in the order in which the run's parts were started.
    pub place: i64,
    /// What it is.
    #[serde(flatten)]
    pub kind: PartKind,
    /// How far it is.
    pub status: RunStatus,
    /// Why it failed, was cancelled or was interrupted.
    pub reason: Option<String>,
    /// What came of it, a leaf's output: JSON, as it was given.
    pub result: Option<String>,
    /// A leaf's artifacts, or the children that a control node chose: a JSON array, as it was given.
    pub list: Option<String>,
    /// When it was begun; while it is pending, when it was added.
    pub started_at: Timestamp,
    /// When it ended; never before it was begun.
    pub completed_at: Option<Timestamp>,
    /// In a list: what of it can't be read, and stands here as if it were nothing.
    pub damage: Option<String>,
}

impl RunPart {
    pub(super) fn bytes(&self) -> usize {
        [&self.reason, &self.result, &self.list].into_iter().flatten().map(String::len).sum()
    }
}

/// A part to be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPart {
    /// Chosen by the caller to make a retry safe; minted when `None`.
    pub id: Option<PartId>,
    /// What it is.
    pub kind: PartKind,
    /// [`RunStatus::Running`] when `None`; one that has not ended.
    pub status: Option<RunStatus>,
}

impl NewPart {
    /// A part that runs.
    pub fn new(kind: PartKind) -> Self {
        Self { id: None, kind, status: None }
    }
}

/// How a part ends: the answer of whoever worked on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartEnd {
    /// [`RunStatus::Completed`], [`RunStatus::Failed`] or [`RunStatus::Cancelled`].
    pub status: RunStatus,
    /// What came of it: JSON.
    pub result: Option<String>,
    /// A leaf's artifacts, or the children that a control node chose: a JSON array. A branch has none.
    pub list: Option<String>,
    /// Why.
    pub reason: Option<String>,
}

impl PartEnd {
    /// The end of a part that is done.
    pub fn completed(result: impl Into<String>) -> Self {
        Self { status: RunStatus::Completed, result: Some(result.into()), list: None, reason: None }
    }
}

/// Where output that can be used again is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayFrom {
    /// In the run alone.
    Run,
    /// In the run first, and then in the other runs of its workflow in its workspace, the latest first.
    Workflow,
}

/// Starts a part of a run that runs; one that is pending may be added while the run is pending or paused, too. A repeated call with
/// the same id finds it, whatever has become of it.
pub(crate) fn start(
    tx: &mut dyn Tx,
    scope: Scope,
    run: &RunId,
    new: &NewPart,
    id: &PartId,
    now: Timestamp,
) -> Result<RunPart> {
    check_new(new)?;
    let status = new.status.clone().unwrap_or(RunStatus::Running);
    let run = lock_listed(tx, scope, run)?;
    if let Some(known) = stored(tx, id)? {
        let same = known.run == run.id && known.kind == new.kind;
        return if same { whole(known) } else { Err(Error::AlreadyExists { what: "part", id: id.to_string() }) };
    }
    admit(&run, &status)?;
    if let Some(branch) = new.kind.branch_run() {
        check_branch(tx, &run.id, branch)?;
    }
    let part = RunPart {
        id: id.clone(),
        run: run.id.clone(),
        place: query_one(tx, NEXT_PART_PLACE, &[run.id.as_str().into()], |row| row.int(0))?.unwrap_or(1),
        kind: new.kind.clone(),
        status,
        reason: None,
        result: None,
        list: None,
        started_at: now,
        completed_at: None,
        damage: None,
    };
    insert(tx, &part)?;
    touched(tx, run, now)?;
    Ok(part)
}

/// Reads a part.
pub(crate) fn read(tx: &mut dyn Tx, scope: Scope, id: &PartId) -> Result<RunPart> {
    let missing = || Error::not_found("part", id);
    let part = stored(tx, id)?.ok_or_else(missing)?;
    is_seen(tx, scope, &part.run)?.then_some(()).ok_or_else(missing)?;
    whole(part)
}

/// Finds a part by its id, or by an unambiguous beginning of it.
pub(crate) fn find(tx: &mut dyn Tx, scope: Scope, name: &str) -> Result<PartId> {
    let missing = |_| Error::not_found("part", name);
    let id = PartId::new(name).map_err(missing)?;
    if let Some(part) = stored(tx, &id)?
        && is_seen(tx, scope, &part.run)?
    {
        return Ok(id);
    }
    PartId::new(the_only(tx, PART_IDS_FROM, scope, "part", name)?).map_err(missing)
}

/// Ends a part. A repeated call with the same answer finds it.
pub(crate) fn end(tx: &mut dyn Tx, scope: Scope, id: &PartId, end: &PartEnd, now: Timestamp) -> Result<RunPart> {
    check_end(&end.status, end.reason.as_deref())?;
    end.result.as_ref().map_or(Ok(()), |result| check_json("result", result, MAX_JSON_BYTES))?;
    end.list.as_ref().map_or(Ok(()), |list| check_list("list", list))?;
    let (run, before) = lock(tx, scope, id)?;
    if before.status.has_ended() {
        let answer = (&before.status, &before.result, &before.list, &before.reason);
        return match answer == (&end.status, &end.result, &end.list, &end.reason) {
            true => Ok(before),
            false => Err(conflict("part", id, &end.status, &told(&before.status, before.reason.as_deref()))),
        };
    }
    if !before.status.is_open() {
        return Err(conflict("part", id, &end.status, before.status.as_str()));
    }
    if end.list.is_some() && matches!(before.kind, PartKind::Branch { .. }) {
        return Err(Error::invalid("list", "a branch has none"));
    }
    let mut after = before;
    after.completed_at = Some(now.max(after.started_at));
    (after.status, after.reason) = (end.status.clone(), end.reason.clone());
    (after.result, after.list) = (end.result.clone(), end.list.clone());
    put(tx, &after)?;
    touched(tx, run, now)?;
    Ok(after)
}

/// Says how far a part is that has not ended, or takes an interrupted one up again.
pub(crate) fn mark(tx: &mut dyn Tx, scope: Scope, id: &PartId, status: &RunStatus, now: Timestamp) -> Result<RunPart> {
    check_open(Some(status))?;
    let (run, mut part) = lock(tx, scope, id)?;
    let turned = turned(&part.status, status, now).map_err(|found| conflict("part", id, status, &found))?;
    let Some(started_at) = turned else { return Ok(part) };
    admit(&run, status)?;
    part.status = status.clone();
    (part.reason, part.completed_at) = (None, None);
    part.started_at = started_at.unwrap_or(part.started_at);
    put(tx, &part)?;
    touched(tx, run, now)?;
    Ok(part)
}

/// The completed leaf whose output can be used again for this input: the one that was started last. One that can't be read is passed
/// over for an earlier one, and told when there is none.
pub(crate) fn replay(
    tx: &mut dyn Tx,
    scope: Scope,
    run: &RunId,
    (leaf, input_hash): (&str, &str),
    from: ReplayFrom,
) -> Result<Option<RunPart>> {
    let run = get_listed(tx, scope, run)?;
    let mut args = vec![run.id.as_str().into(), leaf.into(), input_hash.into(), REPLAYS.into()];
    let statement = match from {
        ReplayFrom::Run => REPLAY_IN_RUN,
        ReplayFrom::Workflow => {
            args.extend([Value::Blob(run.workspace.as_bytes()), run.workflow.as_str().into()]);
            REPLAY_IN_WORKFLOW
        }
    };
    if [leaf, input_hash].iter().any(|text| text.contains('\0')) {
        return Ok(None);
    }
    let ids = query_all(tx, statement, &args, |row| row.parse(0, PartId::new(row.text(0)?).ok(), "a part id"))?;
    let mut damaged = None;
    for id in ids {
        match stored(tx, &id)?.map(whole) {
            Some(Ok(part)) => return Ok(Some(part)),
            Some(Err(damage)) => drop(damaged.get_or_insert(damage)),
            None => {}
        }
    }
    damaged.map_or(Ok(None), Err)
}

/// Marks the parts of a run that still run as interrupted; says how many.
pub(super) fn interrupt(tx: &mut dyn Tx, run: &RunId, reason: &str, now: Timestamp) -> Result<u64> {
    Ok(tx.execute(INTERRUPT_PARTS, &[run.as_str().into(), reason.into(), now.0.into()])? as u64)
}

/// Refuses what is no branch of the run.
pub(super) fn check_branch(tx: &mut dyn Tx, run: &RunId, branch: &PartId) -> Result<()> {
    match stored(tx, branch)? {
        Some(RunPart { run: of, kind: PartKind::Branch { .. }, .. }) if of == *run => Ok(()),
        _ => Err(Error::NotFound { what: "branch of the run", id: branch.to_string() }),
    }
}

/// Refuses what is no control node of the run.
pub(super) fn check_control(tx: &mut dyn Tx, run: &RunId, control: &PartId) -> Result<()> {
    match stored(tx, control)? {
        Some(RunPart { run: of, kind: PartKind::Control { .. }, .. }) if of == *run => Ok(()),
        _ => Err(Error::NotFound { what: "control node of the run", id: control.to_string() }),
    }
}

/// Refuses a part of this status for a run that does not go on.
pub(super) fn admit(run: &super::Run, status: &RunStatus) -> Result<()> {
    let is_admitted = match run.status {
        RunStatus::Running => true,
        RunStatus::Pending | RunStatus::Paused => *status != RunStatus::Running,
        _ => false,
    };
    if is_admitted {
        return Ok(());
    }
    let expected = format!("run `{}` to be running", run.id);
    Err(Error::Conflict { what: "run", expected, found: run.status.to_string() })
}

pub(super) fn check_list(field: &'static str, list: &str) -> Result<()> {
    check_json(field, list, MAX_JSON_BYTES)?;
    match list.trim_ascii_start().starts_with('[') {
        true => Ok(()),
        false => Err(Error::invalid(field, "it is no JSON array")),
    }
}

/// Locks the run of a part, and reads the part.
fn lock(tx: &mut dyn Tx, scope: Scope, id: &PartId) -> Result<(super::Run, RunPart)> {
    let missing = || Error::not_found("part", id);
    let run = query_one(tx, RUN_OF_PART, &[id.as_str().into()], |row| {
        row.parse(0, RunId::new(row.text(0)?).ok(), "a run id")
    })?;
    let run = match lock_listed(tx, scope, &run.ok_or_else(missing)?) {
        Err(Error::NotFound { .. }) => return Err(missing()),
        run => run?,
    };
    // Behind the lock: as the one that had it before has left it.
    Ok((run, whole(stored(tx, id)?.ok_or_else(missing)?)?))
}

fn stored(tx: &mut dyn Tx, id: &PartId) -> Result<Option<RunPart>> {
    query_one(tx, PART, &[id.as_str().into()], read_listed)
}

fn whole(part: RunPart) -> Result<RunPart> {
    match part.damage {
        None => Ok(part),
        Some(damage) => Err(Error::corrupt(place_of(&part.id, &part.run), damage)),
    }
}

fn insert(tx: &mut dyn Tx, part: &RunPart) -> Result<()> {
    let args = [
        part.id.as_str().into(),
        part.run.as_str().into(),
        part.place.into(),
        part.kind.word().into(),
        part.kind.branch_run().map(PartId::as_str).into(),
        part.kind.name().into(),
        part.kind.about().into(),
        part.kind.input_hash().into(),
        part.status.as_str().into(),
        part.started_at.0.into(),
    ];
    match tx.execute(PUT_PART, &args)? {
        // Somebody else has just given the id to a part of another run.
        0 => Err(Error::AlreadyExists { what: "part", id: part.id.to_string() }),
        _ => Ok(()),
    }
}

fn put(tx: &mut dyn Tx, part: &RunPart) -> Result<()> {
    let args = [
        part.id.as_str().into(),
        part.status.as_str().into(),
        part.reason.as_deref().into(),
        part.result.as_deref().into(),
        part.list.as_deref().into(),
        part.started_at.0.into(),
        part.completed_at.map(|at| at.0).into(),
    ];
    tx.execute(SET_PART, &args).map(drop)
}

fn check_new(new: &NewPart) -> Result<()> {
    let fields = match new.kind {
        PartKind::Branch { .. } => ["branch", "node"],
        PartKind::Leaf { .. } => ["leaf", "task"],
        PartKind::Control { .. } => ["node", "control"],
    };
    for (field, text) in fields.into_iter().zip([new.kind.name(), new.kind.about()]) {
        check_name(field, text)?;
    }
    new.kind.input_hash().map_or(Ok(()), |hash| check_name("input_hash", hash))?;
    check_begin(new.status.as_ref())
}

fn place_of(id: &PartId, run: &RunId) -> String {
    format!("part {id} of run {run}")
}

/// Reads a part for a list: what of it can't be read is left out, and said. Damage that leaves no row names the part.
pub(super) fn read_listed(row: &Row<'_>) -> Result<RunPart> {
    let id = row.parse(0, PartId::new(row.text(0)?).ok(), "a part id")?;
    let run = row.parse(1, RunId::new(row.text(1)?).ok(), "a run id")?;
    let place = place_of(&id, &run);
    read_columns(row, id, run).map_err(|error| within(place, error))
}

fn read_columns(row: &Row<'_>, id: PartId, run: RunId) -> Result<RunPart> {
    let mut damage = None;
    let branch_run = match keep(row.opt_text(4), &mut damage) {
        None => None,
        Some(branch) => keep(row.parse(4, PartId::new(branch).ok(), "a part id").map(Some), &mut damage),
    };
    let (name, about) = (row.text(5)?.to_owned(), row.text(6)?.to_owned());
    let kind = match row.text(3)? {
        "branch" => PartKind::Branch { branch: name, node: about },
        "leaf" => {
            let input_hash = keep(row.opt_text(7), &mut damage).map(str::to_owned);
            PartKind::Leaf { leaf: name, task: about, branch_run, input_hash }
        }
        "control" => PartKind::Control { node: name, control: about },
        _ => return row.parse(3, None, "a kind of part"),
    };
    let list = keep(read_json(row, 11, "list"), &mut damage);
    if let Some(list) = &list {
        keep(check_list("list", list).map(Some), &mut damage);
    }
    Ok(RunPart {
        id,
        run,
        place: row.int(2)?,
        kind,
        status: RunStatus::from_word(row.text(8)?),
        reason: keep(row.opt_text(9), &mut damage).map(str::to_owned),
        result: keep(read_json(row, 10, "result"), &mut damage),
        list,
        started_at: Timestamp(row.int(12)?),
        completed_at: row.opt_int(13)?.map(Timestamp),
        damage,
    })
}
