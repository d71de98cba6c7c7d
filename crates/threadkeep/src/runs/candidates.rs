//! The candidates that a control node chooses from.

use std::ops::ControlFlow;

use serde::Serialize;

use super::parts::{admit, check_branch, check_control};
use super::score::Score;
use super::{
    MAX_JSON_BYTES, MAX_PAGE, PAGE_BYTES, RunStatus, check_name, is_seen, keep, lock_listed, read_json, the_only,
    touched, within,
};
use crate::cursor::Cursor;
use crate::db::{Row, Tx, query_one, statements};
use crate::error::{Error, Result};
use crate::id::{PartId, RunId};
use crate::item::check_json;
use crate::thread::Page;
use crate::threads::Scope;
use crate::time::Timestamp;

/// The columns of a candidate as [`read_listed`] takes them.
macro_rules! candidate_columns {
    () => {
        "SELECT c.id, c.run, c.control, c.branch, c.place, c.name, c.score, c.passed, c.rationale, c.created_at, c.score_order
         FROM run_candidates c "
    };
}
pub(super) use candidate_columns;

statements! {
    CANDIDATE_OF_RUN = concat!(candidate_columns!(), "WHERE c.id = ?1");
    CANDIDATE_IDS_FROM = "SELECT c.id FROM run_candidates c JOIN runs r ON r.id = c.run WHERE c.id >= ?1 AND c.id < ?2
        AND (CAST(?3 AS BYTEA) IS NULL OR r.workspace = ?3) ORDER BY c.id LIMIT ?4";
    NEXT_CANDIDATE_PLACE = "SELECT coalesce(max(place), 0) + 1 FROM run_candidates WHERE run = ?1";
    PUT_CANDIDATE = "INSERT INTO run_candidates (id, run, control, branch, place, name, score, score_order, passed, rationale,
        created_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) ON CONFLICT (id) DO NOTHING";
    JUDGE = "UPDATE run_candidates SET score = ?2, score_order = ?3, passed = ?4, rationale = ?5 WHERE id = ?1";
    BEST_CANDIDATES = concat!(candidate_columns!(), "WHERE c.control = ?1 AND (c.score_order < ?2 OR (c.score_order = ?2 AND c.place > ?3))
        ORDER BY c.score_order DESC, c.place LIMIT ?4");
}

/// A stored candidate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Candidate {
    /// Its name.
    pub id: PartId,
    /// The run.
    pub run: RunId,
    /// The control node that chooses.
    pub control: PartId,
    /// The branch that it comes from: a part of the same run.
    pub branch_run: Option<PartId>,
    /// Its place in the order in which the run's candidates were added.
    pub place: i64,
    /// Which one it is, in the workflow's words.
    pub candidate: String,
    /// What was found of it.
    #[serde(flatten)]
    pub judgement: Judgement,
    /// When it was added.
    pub created_at: Timestamp,
    /// In a list: what of it can't be read, and stands here as if it were nothing.
    pub damage: Option<String>,
}

impl Candidate {
    pub(super) fn bytes(&self) -> usize {
        self.judgement.rationale.as_ref().map_or(0, String::len)
    }
}

/// What was found of a candidate.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Judgement {
    /// How good it is.
    pub score: Option<Score>,
    /// Whether it is good enough.
    pub passed: Option<bool>,
    /// Why: JSON, as it was given.
    pub rationale: Option<String>,
}

impl Judgement {
    fn order(&self) -> i64 {
        self.score.as_ref().map_or(Score::NONE, Score::order)
    }
}

/// A candidate to be added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewCandidate {
    /// Chosen by the caller to make a retry safe; minted when `None`.
    pub id: Option<PartId>,
    /// The control node that chooses.
    pub control: PartId,
    /// The branch that it comes from.
    pub branch_run: Option<PartId>,
    /// Which one it is: 1 to 256 bytes.
    pub candidate: String,
    /// What was found of it, if that is known already.
    pub judgement: Judgement,
}

impl NewCandidate {
    /// A candidate that nothing is known of yet.
    pub fn new(control: PartId, candidate: impl Into<String>) -> Self {
        Self { id: None, control, branch_run: None, candidate: candidate.into(), judgement: Judgement::default() }
    }
}

/// A question for a page of the candidates of a control node: the best first, those without a score last, equal ones as they were
/// added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CandidateQuery {
    /// The page's size; 0 gives an empty page, more than 1,000 is 1,000. A page also ends after a few megabytes of text.
    pub limit: usize,
    /// Where the page starts.
    pub cursor: Option<String>,
}

impl Default for CandidateQuery {
    fn default() -> Self {
        Self { limit: 100, cursor: None }
    }
}

/// Adds a candidate to a run that runs. A repeated call with the same id finds it, whatever was found of it since.
pub(crate) fn add(
    tx: &mut dyn Tx,
    scope: Scope,
    run: &RunId,
    new: &NewCandidate,
    id: &PartId,
    now: Timestamp,
) -> Result<Candidate> {
    check_name("candidate", &new.candidate)?;
    check_judgement(&new.judgement)?;
    let run = lock_listed(tx, scope, run)?;
    if let Some(known) = stored(tx, id)? {
        let same = known.run == run.id
            && (&known.control, &known.branch_run, &known.candidate) == (&new.control, &new.branch_run, &new.candidate);
        return if same { whole(known) } else { Err(Error::AlreadyExists { what: "candidate", id: id.to_string() }) };
    }
    admit(&run, &RunStatus::Running)?;
    check_control(tx, &run.id, &new.control)?;
    new.branch_run.as_ref().map_or(Ok(()), |branch| check_branch(tx, &run.id, branch))?;
    let candidate = Candidate {
        id: id.clone(),
        run: run.id.clone(),
        control: new.control.clone(),
        branch_run: new.branch_run.clone(),
        place: query_one(tx, NEXT_CANDIDATE_PLACE, &[run.id.as_str().into()], |row| row.int(0))?.unwrap_or(1),
        candidate: new.candidate.clone(),
        judgement: new.judgement.clone(),
        created_at: now,
        damage: None,
    };
    insert(tx, &candidate)?;
    touched(tx, run, now)?;
    Ok(candidate)
}

/// Says what was found of a candidate. A repeated call with the same judgement finds it; another one is a conflict.
pub(crate) fn judge(
    tx: &mut dyn Tx,
    scope: Scope,
    id: &PartId,
    judgement: &Judgement,
    now: Timestamp,
) -> Result<Candidate> {
    check_judgement(judgement)?;
    let missing = || Error::not_found("candidate", id);
    let known = stored(tx, id)?.ok_or_else(missing)?;
    let run = match lock_listed(tx, scope, &known.run) {
        Err(Error::NotFound { .. }) => return Err(missing()),
        run => run?,
    };
    let mut candidate = whole(stored(tx, id)?.ok_or_else(missing)?)?;
    if candidate.judgement == *judgement {
        return Ok(candidate);
    }
    if candidate.judgement != Judgement::default() {
        let found = "it is judged already, in another way".to_owned();
        return Err(Error::Conflict { what: "candidate", expected: format!("`{id}` to be judged"), found });
    }
    candidate.judgement = judgement.clone();
    let args = [
        id.as_str().into(),
        judgement.score.as_ref().map(Score::as_str).into(),
        judgement.order().into(),
        judgement.passed.map(i64::from).into(),
        judgement.rationale.as_deref().into(),
    ];
    tx.execute(JUDGE, &args)?;
    touched(tx, run, now)?;
    Ok(candidate)
}

/// Finds a candidate by its id, or by an unambiguous beginning of it.
pub(crate) fn find(tx: &mut dyn Tx, scope: Scope, name: &str) -> Result<PartId> {
    let missing = |_| Error::not_found("candidate", name);
    let id = PartId::new(name).map_err(missing)?;
    if let Some(found) = stored(tx, &id)?
        && is_seen(tx, scope, &found.run)?
    {
        return Ok(id);
    }
    PartId::new(the_only(tx, CANDIDATE_IDS_FROM, scope, "candidate", name)?).map_err(missing)
}

/// Reads a page of the candidates of a control node.
pub(crate) fn page(tx: &mut dyn Tx, scope: Scope, control: &PartId, query: &CandidateQuery) -> Result<Page<Candidate>> {
    super::parts::read(tx, scope, control)?;
    let tag = format!("candidates {control}");
    let start = match &query.cursor {
        Some(cursor) => Cursor::decode(cursor, &tag)?,
        None => Cursor { value: i64::MAX, id: "0".to_owned() },
    };
    let place: i64 = start.id.parse().map_err(|_| Error::invalid("cursor", "it is damaged"))?;
    let limit = query.limit.min(MAX_PAGE);
    let one_more = i64::try_from(limit).unwrap_or(0) + 1;
    let args = [control.as_str().into(), start.value.into(), place.into(), one_more.into()];
    let (mut entries, mut more, mut bytes, mut order): (Vec<Candidate>, _, _, _) = (Vec::new(), false, 0, 0);
    tx.query(BEST_CANDIDATES, &args, &mut |row| {
        more = entries.len() == limit || bytes >= PAGE_BYTES;
        if more {
            return Ok(ControlFlow::Break(()));
        }
        let candidate = read_listed(row)?;
        // As it is stored: a damaged score has its place, too.
        order = row.int(10)?;
        bytes += candidate.bytes();
        entries.push(candidate);
        Ok(ControlFlow::Continue(()))
    })?;
    let last = entries.last().filter(|_| more);
    let next_cursor = last.map(|last| Cursor { value: order, id: last.place.to_string() }.encode(&tag));
    Ok(Page { entries, next_cursor })
}

fn stored(tx: &mut dyn Tx, id: &PartId) -> Result<Option<Candidate>> {
    query_one(tx, CANDIDATE_OF_RUN, &[id.as_str().into()], read_listed)
}

fn whole(candidate: Candidate) -> Result<Candidate> {
    match candidate.damage {
        None => Ok(candidate),
        Some(damage) => Err(Error::corrupt(place_of(&candidate.id, &candidate.run), damage)),
    }
}

fn insert(tx: &mut dyn Tx, candidate: &Candidate) -> Result<()> {
    let judgement = &candidate.judgement;
    let args = [
        candidate.id.as_str().into(),
        candidate.run.as_str().into(),
        candidate.control.as_str().into(),
        candidate.branch_run.as_ref().map(PartId::as_str).into(),
        candidate.place.into(),
        candidate.candidate.as_str().into(),
        judgement.score.as_ref().map(Score::as_str).into(),
        judgement.order().into(),
        judgement.passed.map(i64::from).into(),
        judgement.rationale.as_deref().into(),
        candidate.created_at.0.into(),
    ];
    match tx.execute(PUT_CANDIDATE, &args)? {
        0 => Err(Error::AlreadyExists { what: "candidate", id: candidate.id.to_string() }),
        _ => Ok(()),
    }
}

fn check_judgement(judgement: &Judgement) -> Result<()> {
    judgement.rationale.as_ref().map_or(Ok(()), |rationale| check_json("rationale", rationale, MAX_JSON_BYTES))
}

fn place_of(id: &PartId, run: &RunId) -> String {
    format!("candidate {id} of run {run}")
}

/// Reads a candidate for a list: what of it can't be read is left out, and said. Damage that leaves no row names the candidate.
pub(super) fn read_listed(row: &Row<'_>) -> Result<Candidate> {
    let id = row.parse(0, PartId::new(row.text(0)?).ok(), "a candidate's id")?;
    let run = row.parse(1, RunId::new(row.text(1)?).ok(), "a run id")?;
    let place = place_of(&id, &run);
    read_columns(row, id, run).map_err(|error| within(place, error))
}

fn read_columns(row: &Row<'_>, id: PartId, run: RunId) -> Result<Candidate> {
    let mut damage = None;
    let branch_run = match keep(row.opt_text(3), &mut damage) {
        None => None,
        Some(branch) => keep(row.parse(3, PartId::new(branch).ok(), "a part id").map(Some), &mut damage),
    };
    let score = match keep(row.opt_text(6), &mut damage) {
        None => None,
        Some(score) => keep(Score::new(score).map(Some), &mut damage),
    };
    let judgement = Judgement {
        score,
        passed: keep(read_passed(row), &mut damage),
        rationale: keep(read_json(row, 8, "rationale"), &mut damage),
    };
    if damage.is_none() && judgement.order() != row.int(10)? {
        damage = Some("its score and the order of its score differ".to_owned());
    }
    Ok(Candidate {
        id,
        run,
        control: row.parse(2, PartId::new(row.text(2)?).ok(), "a part id")?,
        branch_run,
        place: row.int(4)?,
        candidate: row.text(5)?.to_owned(),
        judgement,
        created_at: Timestamp(row.int(9)?),
        damage,
    })
}

fn read_passed(row: &Row<'_>) -> Result<Option<bool>> {
    match row.opt_int(7)? {
        None => Ok(None),
        Some(passed @ 0..=1) => Ok(Some(passed == 1)),
        Some(_) => row.parse(7, None, "0 or 1"),
    }
}
