//! The texts of runs that somebody has written, looked at and replaced one row after the other.

use std::ops::ControlFlow;

use super::{MAX_PAGE, NEXT_RUN_TICK, PAGE_BYTES, TOUCH_RUN, next};
use crate::db::{Statement, Tx, query_one, statements};
use crate::error::Result;
use crate::id::ThreadId;
use crate::threads::Scope;

/// How many texts a row has at most.
const TEXTS: usize = 3;

statements! {
    NEXT_RUN_OF_THREAD = "SELECT id FROM runs WHERE thread = ?1 AND id > ?2 ORDER BY id LIMIT 1";
    NEXT_RUN_OF_NO_THREAD = "SELECT id FROM runs WHERE thread IS NULL AND id > ?1 AND (CAST(?2 AS BYTEA) IS NULL OR workspace = ?2)
        ORDER BY id LIMIT 1";
    LOCK_FOR_TEXTS = "SELECT id FROM runs WHERE id = ?1 /* FOR UPDATE */";
    TEXTS_OF_RUN = "SELECT place, id, goal, reason, metadata FROM runs WHERE id = ?1 AND place > ?2 LIMIT ?3";
    TEXTS_OF_PARTS = "SELECT place, id, reason, result, list FROM run_parts WHERE run = ?1 AND place > ?2 ORDER BY place LIMIT ?3";
    TEXTS_OF_CANDIDATES = "SELECT place, id, rationale FROM run_candidates WHERE run = ?1 AND place > ?2 ORDER BY place LIMIT ?3";
    PUT_TEXTS_OF_RUN = "UPDATE runs SET goal = ?2, reason = ?3, metadata = ?4 WHERE id = ?1";
    PUT_TEXTS_OF_PART = "UPDATE run_parts SET reason = ?2, result = ?3, list = ?4 WHERE id = ?1";
    PUT_TEXTS_OF_CANDIDATE = "UPDATE run_candidates SET rationale = ?2 WHERE id = ?1";
}

/// Where texts of a run stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rows {
    /// In the run itself.
    Run,
    /// In its parts.
    Parts,
    /// In its candidates.
    Candidates,
}

impl Rows {
    /// All of them.
    pub(crate) const ALL: [Self; 3] = [Self::Run, Self::Parts, Self::Candidates];

    /// Whether a text is JSON, and has to stay so; and which is an array.
    pub(crate) fn forms(self) -> &'static [Form] {
        match self {
            Self::Run => &[Form::Words, Form::Words, Form::Json],
            Self::Parts => &[Form::Words, Form::Json, Form::List],
            Self::Candidates => &[Form::Json],
        }
    }

    fn read(self) -> Statement {
        match self {
            Self::Run => TEXTS_OF_RUN,
            Self::Parts => TEXTS_OF_PARTS,
            Self::Candidates => TEXTS_OF_CANDIDATES,
        }
    }

    fn put(self) -> Statement {
        match self {
            Self::Run => PUT_TEXTS_OF_RUN,
            Self::Parts => PUT_TEXTS_OF_PART,
            Self::Candidates => PUT_TEXTS_OF_CANDIDATE,
        }
    }
}

/// What a text has to stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Words,
    Json,
    /// A JSON array.
    List,
}

/// The texts of one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Texts {
    pub(crate) place: i64,
    id: String,
    pub(crate) texts: Vec<Option<String>>,
}

/// The next run of a thread, or of none, after an id.
pub(crate) fn next_run(
    tx: &mut dyn Tx,
    scope: Scope,
    thread: Option<&ThreadId>,
    after: &str,
) -> Result<Option<String>> {
    let read = |row: &crate::db::Row<'_>| Ok(row.text(0)?.to_owned());
    match thread {
        Some(thread) => query_one(tx, NEXT_RUN_OF_THREAD, &[thread.as_str().into(), after.into()], read),
        None => query_one(tx, NEXT_RUN_OF_NO_THREAD, &[after.into(), scope.arg()], read),
    }
}

/// A page of the texts of a run after a place, -1 for the first one.
pub(crate) fn texts(tx: &mut dyn Tx, run: &str, rows: Rows, after: i64) -> Result<Vec<Texts>> {
    page(tx, run, rows, after, MAX_PAGE)
}

fn page(tx: &mut dyn Tx, run: &str, rows: Rows, after: i64, limit: usize) -> Result<Vec<Texts>> {
    let (mut found, mut bytes) = (Vec::new(), 0);
    let args = [run.into(), after.into(), i64::try_from(limit).unwrap_or(i64::MAX).into()];
    tx.query(rows.read(), &args, &mut |row| {
        let read = |column: usize| Ok(row.opt_text(column)?.map(str::to_owned));
        let texts = (2..2 + rows.forms().len()).map(read).collect::<Result<Vec<_>>>()?;
        bytes += texts.iter().flatten().map(String::len).sum::<usize>();
        found.push(Texts { place: row.int(0)?, id: row.text(1)?.to_owned(), texts });
        Ok(if bytes < PAGE_BYTES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    Ok(found)
}

/// Puts texts in the place of those that were looked at; leaves a row whose texts were changed meanwhile, and says so.
pub(crate) fn put(tx: &mut dyn Tx, run: &str, rows: Rows, before: &Texts, after: &Texts) -> Result<bool> {
    if query_one(tx, LOCK_FOR_TEXTS, &[run.into()], |_| Ok(()))?.is_none() {
        return Ok(true);
    }
    let now = page(tx, run, rows, before.place - 1, 1)?;
    let Some(now) = now.into_iter().next().filter(|now| now.id == before.id) else { return Ok(true) };
    if now.texts == after.texts {
        return Ok(true);
    }
    if now.texts != before.texts {
        return Ok(false);
    }
    let mut args = Vec::with_capacity(1 + TEXTS);
    args.push(after.id.as_str().into());
    args.extend(after.texts.iter().map(|text| crate::db::Value::from(text.as_deref())));
    tx.execute(rows.put(), &args)?;
    let tick = next(tx, NEXT_RUN_TICK)?;
    tx.execute(TOUCH_RUN, &[run.into(), tick.into()])?;
    Ok(true)
}
