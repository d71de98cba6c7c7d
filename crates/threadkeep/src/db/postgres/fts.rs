//! The search index of a store on a server: documents as vectors of lexemes, in tables beside the store's own.
//!
//! A vector is written here and not by the server, so its configuration has no say in what a word is. What a vector can't hold is
//! marked in it: then a phrase is looked for by its words, and the hit is doubtful.
//!
//! A search walks from the newest documents down, in blocks that grow: the lexemes of blocks bound what the inverted index
//! gives, so that a word that stands everywhere costs as little as one that stands nowhere.

pub(crate) mod lender;
mod question;
mod vector;

use std::ops::ControlFlow;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use self::lender::Lender;
use self::question::Question;
use crate::concurrency::{Mutex, thread};
use crate::db::index::{Batch, Behind, Changed, Expr, Fit, Index, Progress, Standing, Subject, tip_columns};
use crate::db::postgres::refusal::Fate;
use crate::db::postgres::session::{Begin, Committed, SessionTx};
use crate::db::postgres::{Place, RETRY_STEP};
use crate::db::{Row, Statement, Tx, Value, query_all, query_one, statements};
use crate::error::{Error, Result};

statements! {
    INDEX_STANDING = "SELECT records, generation, top FROM search_state WHERE only_row = 1";
    INDEX_TO_CHANGE = "SELECT records, generation, top FROM search_state WHERE only_row = 1 FOR UPDATE SKIP LOCKED";
    INDEX_TO_CLEAR = "SELECT generation FROM search_state WHERE only_row = 1 FOR UPDATE";
    INDEXED_BRANCHES = "SELECT branch, depth, hash FROM search_progress";
    BRANCHES_BEHIND = concat!("SELECT s.branch, s.tip, p.depth, p.hash
        FROM (SELECT ", tip_columns!(), " FROM branches b JOIN threads t ON t.id = b.thread) s (branch, tip, hash)
        LEFT JOIN search_progress p ON p.branch = s.branch
        WHERE p.branch IS NULL OR p.depth <> s.tip OR p.hash <> s.hash
        UNION ALL SELECT p.branch, CAST(NULL AS BIGINT), p.depth, p.hash FROM search_progress p
        WHERE NOT EXISTS (SELECT 1 FROM branches b WHERE b.key = p.branch)
        ORDER BY 1 LIMIT ?1");
    BRANCHES_BEHIND_SINCE = concat!("SELECT s.branch, s.tip, p.depth, p.hash
        FROM (SELECT ", tip_columns!(), " FROM threads t JOIN branches b ON b.thread = t.id WHERE t.updated >= ?2) s (branch, tip, hash)
        LEFT JOIN search_progress p ON p.branch = s.branch
        WHERE p.branch IS NULL OR p.depth <> s.tip OR p.hash <> s.hash
        ORDER BY 1 LIMIT ?1");
    FORGET_DOCS = "DELETE FROM search_docs WHERE item BETWEEN ?1 AND ?2";
    FORGET_DOC_OF_TITLE = "DELETE FROM search_docs WHERE thread = ?1";
    ADD_DOC = "INSERT INTO search_docs (doc, item, thread, stamp, terms)
        VALUES (?1, ?2, ?3, ?4, CAST(CAST(?5 AS TEXT) AS tsvector))";
    END_PROGRESS = "DELETE FROM search_progress WHERE branch = ?1";
    PUT_PROGRESS = "INSERT INTO search_progress (branch, depth, hash) VALUES (?1, ?2, ?3)
        ON CONFLICT (branch) DO UPDATE SET depth = excluded.depth, hash = excluded.hash";
    PUT_INDEX_STATE = "UPDATE search_state SET records = ?1, generation = ?2, top = ?3 WHERE only_row = 1";
    // The inner one is no part of the outer one's plan: it takes what the index of terms gives, and is small by its blocks.
    // Taken from a query of its own, the question is read once, and not for every row.
    FIND_DOCS = "SELECT doc, item, thread, CAST(0 AS BIGINT) FROM (
          SELECT doc, item, thread FROM search_docs WHERE terms @@ (SELECT CAST(CAST(?1 AS TEXT) AS tsquery)) OFFSET 0) found
        WHERE doc <= ?2 ORDER BY doc DESC LIMIT ?3";
    FIND_DOUBTFUL_DOCS = "SELECT doc, item, thread, CAST(CASE WHEN terms @@ (SELECT CAST(CAST(?4 AS TEXT) AS tsquery)) THEN 0 ELSE 1 END AS BIGINT)
        FROM (SELECT doc, item, thread, terms FROM (
            SELECT doc, item, thread, terms FROM search_docs WHERE terms @@ (SELECT CAST(CAST(?1 AS TEXT) AS tsquery)) OFFSET 0) found
          WHERE doc <= ?2 ORDER BY doc DESC LIMIT ?3) taken ORDER BY doc DESC";
    INDEXED_TITLES = "SELECT thread, stamp FROM search_docs WHERE thread IS NOT NULL ORDER BY thread";
    INDEXED_TITLE = "SELECT stamp FROM search_docs WHERE thread = ?1";
    INDEXED_ITEM = "SELECT CAST(1 AS BIGINT) FROM search_docs WHERE item = ?1";
    MAY_TRUNCATE = "SELECT CAST(CAST(pg_catalog.has_table_privilege('search_docs', 'TRUNCATE')
        AND pg_catalog.has_table_privilege('search_progress', 'TRUNCATE') AS INT) AS BIGINT)";
    TRUNCATE_INDEX = "TRUNCATE search_docs, search_progress";
    DELETE_DOCS = "DELETE FROM search_docs";
    DELETE_PROGRESS = "DELETE FROM search_progress";
    RESET_INDEX_STATE = "INSERT INTO search_state (only_row, records, generation, top)
        VALUES (1, 0, CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS BIGINT), 0)
        ON CONFLICT (only_row) DO UPDATE SET records = 0, generation = search_state.generation + 1, top = 0";
    INDEX_BYTES = "SELECT CAST(coalesce(sum(pg_catalog.pg_total_relation_size(c.oid)), 0) AS BIGINT) FROM pg_catalog.pg_class c
        JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = CAST(pg_catalog.current_schema() AS name) AND c.relkind = 'r'
          AND c.relname IN ('search_docs', 'search_progress', 'search_state')";
}

/// How many documents are in a block: of each number's own, from the newest ones down.
const BLOCKS: [i64; 5] = [1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20];

/// The index of a store on a server.
#[derive(Debug)]
pub(crate) struct PostgresIndex {
    place: Arc<Place>,
    lender: Lender,
    /// Whether there was an index when the store was opened, until it is asked: whoever opens a store pays for no further
    /// connection.
    known: Mutex<Option<bool>>,
}

impl PostgresIndex {
    /// The index in the schema of this place. It connects when it is asked for something that is not known.
    pub(crate) fn new(place: Arc<Place>, is_begun: Option<bool>) -> Self {
        Self { lender: Lender::new(Arc::clone(&place)), place, known: Mutex::new(is_begun) }
    }

    /// Runs something that reads one snapshot, on another connection when the first one is lost.
    fn read<T>(&self, run: impl Fn(&mut SessionTx<'_>) -> Result<T>) -> Result<T> {
        let deadline = Instant::now() + self.place.busy_bound;
        loop {
            let mut lent = self.lender.lend(deadline)?;
            let mut tx = lent.session()?.begin(Begin::Snapshot);
            let outcome = run(&mut tx);
            let may_pass = matches!(tx.refusal().map(|refusal| refusal.fate), Some(Fate::Again | Fate::Lost));
            if tx.roll_back() {
                lent.keep();
            }
            if !may_pass || Instant::now() >= deadline {
                return outcome.map_err(|error| self.meaning(error));
            }
            thread::sleep(RETRY_STEP);
        }
    }

    /// Runs something that writes in one transaction. It is not waited for the disk: what is lost there is made anew.
    fn write<T>(&self, run: impl Fn(&mut SessionTx<'_>) -> Result<T>) -> Result<T> {
        let deadline = Instant::now() + self.place.busy_bound;
        loop {
            let mut lent = self.lender.lend(deadline)?;
            let mut tx = lent.session()?.begin_posting(Begin::Written);
            let outcome = run(&mut tx).and_then(|done| tx.settle().map_err(|refusal| refusal.error).map(|()| done));
            let (error, fate) = match outcome {
                Ok(done) => match tx.commit() {
                    Committed::Yes => {
                        lent.keep();
                        return Ok(done);
                    }
                    Committed::No(refusal) => (refusal.error, refusal.fate),
                    Committed::Unknown(error) => return Err(error),
                },
                Err(error) => {
                    let fate = tx.refusal().map_or(Fate::Final, |refusal| refusal.fate);
                    if tx.roll_back() {
                        lent.keep();
                    }
                    (error, fate)
                }
            };
            if fate == Fate::Final || Instant::now() >= deadline {
                return Err(self.meaning(error));
            }
            thread::sleep(RETRY_STEP);
        }
    }

    /// What an error of the server means here: what the index alone can be blamed for is an index that has to be made anew.
    fn meaning(&self, error: Error) -> Error {
        let damaged = |detail: String| Error::corrupt(format!("the search index of {}", self.place.address), detail);
        match error {
            Error::AlreadyExists { id, .. } => damaged(id),
            // The server's own words for what should not be: a broken page, a value of which parts are gone.
            Error::Backend { detail } if detail.ends_with("(XX000)") => damaged(detail),
            other => other,
        }
    }
}

impl Index for PostgresIndex {
    fn check(&self) -> Result<()> {
        self.standing()?;
        self.titles()?;
        self.read(|tx| {
            tx.query(INDEXED_BRANCHES, &[], &mut |row| {
                read_progress(row, row.int(0)?, 1)?;
                Ok(ControlFlow::Continue(()))
            })
        })
    }

    fn exists(&self) -> Result<bool> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).take();
        known.map_or_else(|| self.read(|tx| is_begun(tx)), Ok)
    }

    fn standing(&self) -> Result<Standing> {
        self.read(|tx| standing(tx))
    }

    fn behind(&self, tx: &mut dyn Tx, since: Option<i64>, most: usize) -> Result<Vec<Behind>> {
        let most = count(most);
        match since {
            Some(since) => query_all(tx, BRANCHES_BEHIND_SINCE, &[most.into(), since.into()], read_behind),
            None => query_all(tx, BRANCHES_BEHIND, &[most.into()], read_behind),
        }
    }

    /// Nothing: a document takes no others along.
    fn holds(&self, item: i64) -> Result<bool> {
        self.read(|tx| Ok(query_one(tx, INDEXED_ITEM, &[item.into()], |row| row.int(0))?.is_some()))
    }

    fn missing(&self, _: usize) -> Result<Vec<(i64, Subject)>> {
        Ok(Vec::new())
    }

    /// Whoever may only read never gets to it.
    fn change(&self, generation: i64, batch: &Batch) -> Result<Changed> {
        if self.place.read_only {
            return Ok(Changed::Busy);
        }
        match self.write(|tx| apply(tx, generation, batch)) {
            Err(Error::ReadOnly { .. }) => Ok(Changed::Busy),
            outcome => outcome,
        }
    }

    fn find(&self, expr: &Expr, upto: i64, most: usize) -> Result<Vec<Fit>> {
        let Some(question) = Question::of(expr) else { return Ok(Vec::new()) };
        self.read(|tx| find(tx, &question, upto, most))
    }

    fn titles(&self) -> Result<Vec<(String, i64)>> {
        self.read(|tx| query_all(tx, INDEXED_TITLES, &[], |row| Ok((row.text(0)?.to_owned(), row.int(1)?))))
    }

    fn title_stamp(&self, thread: &str) -> Result<Option<i64>> {
        self.read(|tx| query_one(tx, INDEXED_TITLE, &[thread.into()], |row| row.int(0)))
    }

    /// Where the role does not own the tables, their rows stay in their files until the server clears them away, or the owner
    /// erases.
    fn clear(&self) -> Result<()> {
        self.write(|tx| {
            // Who is changing it is waited for.
            query_one(tx, INDEX_TO_CLEAR, &[], |_| Ok(()))?;
            let emptying: &[Statement] = match query_one(tx, MAY_TRUNCATE, &[], |row| row.int(0))? {
                Some(1) => &[TRUNCATE_INDEX],
                _ => &[DELETE_DOCS, DELETE_PROGRESS],
            };
            for statement in emptying.iter().chain(&[RESET_INDEX_STATE]) {
                tx.execute(*statement, &[])?;
            }
            Ok(())
        })
    }

    /// Nothing: the tables are written anew with the store's.
    fn erase(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn bytes(&self) -> Result<u64> {
        let bytes = self.read(|tx| query_one(tx, INDEX_BYTES, &[], |row| row.int(0)))?;
        Ok(u64::try_from(bytes.unwrap_or(0)).unwrap_or(0))
    }
}

/// Whether anything was ever indexed.
pub(crate) fn is_begun(tx: &mut dyn Tx) -> Result<bool> {
    Ok(query_one(tx, INDEX_STANDING, &[], read_standing)?.is_some_and(|it| it.generation > 0))
}

fn standing(tx: &mut dyn Tx) -> Result<Standing> {
    query_one(tx, INDEX_STANDING, &[], read_standing)?.ok_or_else(stateless)
}

fn stateless() -> Error {
    Error::corrupt("the search index", "it does not say where it stands")
}

fn read_standing(row: &Row<'_>) -> Result<Standing> {
    Ok(Standing { records: row.int(0)?, generation: row.int(1)?, top: row.int(2)? })
}

fn read_behind(row: &Row<'_>) -> Result<Behind> {
    let branch = row.int(0)?;
    let tip = row.opt_int(1)?.map(|depth| (branch << 32) | depth);
    let is = row.opt_int(2)?.map(|_| read_progress(row, branch, 2));
    Ok(Behind { branch, is: is.transpose()?, tip })
}

/// How far a branch is, by the columns from `at` on.
fn read_progress(row: &Row<'_>, branch: i64, at: usize) -> Result<Progress> {
    Ok(Progress {
        branch,
        depth: row.parse(at, u32::try_from(row.int(at)?).ok(), "a depth")?,
        hash: row.parse(at + 1, row.blob(at + 1)?.try_into().ok(), "a hash")?,
    })
}

fn apply(tx: &mut dyn Tx, generation: i64, batch: &Batch) -> Result<Changed> {
    let Some(stands) = query_one(tx, INDEX_TO_CHANGE, &[], read_standing)? else {
        // It is there, and somebody else has it.
        return standing(tx).map(|_| Changed::Busy);
    };
    if stands.generation != generation {
        return Ok(Changed::Busy);
    }
    for (from, to) in &batch.forgotten {
        tx.execute(FORGET_DOCS, &[(*from).into(), (*to).into()])?;
    }
    for thread in &batch.forgotten_titles {
        tx.execute(FORGET_DOC_OF_TITLE, &[thread.as_str().into()])?;
    }
    for branch in &batch.ended {
        tx.execute(END_PROGRESS, &[(*branch).into()])?;
    }
    let mut top = stands.top;
    for document in &batch.added {
        let number = document.number.unwrap_or(top + 1);
        top = top.max(number);
        let (item, thread) = match &document.subject {
            Subject::Item(key) => (Some(*key), None),
            Subject::Title(thread) => (None, Some(thread.as_str())),
        };
        let terms = vector::of(&document.terms, number);
        let args = [number.into(), item.into(), thread.into(), document.stamp.into(), terms.as_str().into()];
        tx.post(ADD_DOC, &args)?;
    }
    for reached in &batch.reached {
        let args = [reached.branch.into(), i64::from(reached.depth).into(), Value::Blob(&reached.hash)];
        tx.post(PUT_PROGRESS, &args)?;
    }
    let records = batch.records.unwrap_or(stands.records);
    tx.post(PUT_INDEX_STATE, &[records.into(), (stands.generation + 1).into(), top.into()])?;
    Ok(Changed::Yes)
}

fn find(tx: &mut dyn Tx, question: &Question, upto: i64, most: usize) -> Result<Vec<Fit>> {
    let mut below = standing(tx)?.top.min(upto);
    let (mut fits, mut level) = (Vec::new(), 0);
    while below > 0 && fits.len() < most {
        let (before, lacking) = (fits.len(), most - fits.len());
        let (text, first) = question.in_blocks(level, below);
        let args = [text.as_str().into(), below.into(), count(lacking).into(), question.certain().into()];
        let (statement, args) = match question.may_be_doubtful() {
            true => (FIND_DOUBTFUL_DOCS, args.as_slice()),
            false => (FIND_DOCS, args.get(..3).unwrap_or(&args)),
        };
        tx.query(statement, args, &mut |row| {
            fits.push(read_fit(row)?);
            Ok(ControlFlow::Continue(()))
        })?;
        below = first - 1;
        // Where as many again would be enough, no larger blocks are looked through.
        if 2 * (fits.len() - before) < lacking {
            level = (level + 1).min(BLOCKS.len() - 1);
        }
    }
    Ok(fits)
}

fn read_fit(row: &Row<'_>) -> Result<Fit> {
    let subject = match (row.opt_int(1)?, row.opt_text(2)?) {
        (Some(item), _) => Subject::Item(item),
        (None, thread) => Subject::Title(row.parse(2, thread, "a thread")?.to_owned()),
    };
    Ok(Fit { number: row.int(0)?, subject, is_doubtful: row.int(3)? != 0 })
}

fn count(most: usize) -> i64 {
    i64::try_from(most).unwrap_or(i64::MAX)
}
