//! What the index lacks, searched by reading it: so a search finds what was acknowledged a moment ago, and works without an index.

use std::time::{Duration, Instant};

use super::asking::Question;
use super::document::Tools;
use super::indexing::{self, Lack};
use super::looking::{Found, Looker};
use super::query::Query;
use super::searching::Search;
use crate::concurrency::block_on;
use crate::db::index::{Subject, tip_columns};
use crate::db::{Tx, query_all, query_one, statements};
use crate::error::{Error, Result};
use crate::id::ItemKey;

/// How many items are read one by one, and for how long, before it is said that others were not.
const MOST_ITEMS: usize = 20_000;
const LONGEST: Duration = Duration::from_secs(3);
const ROWS: i64 = 64;
const BRANCHES: i64 = 5_000;

statements! {
    BASE = "SELECT base FROM branches WHERE key = ?1";
    NEWEST_BRANCHES = concat!("SELECT ", tip_columns!(), ", b.base FROM branches b JOIN threads t ON t.id = b.thread
        ORDER BY b.key DESC LIMIT ?1");
}

/// A run of items on one branch that are not in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    from: i64,
    to: i64,
}

/// Searches what the index lacks; without an index the newest branches.
pub(super) fn read(
    search: &Search,
    query: &Query,
    question: &Question,
    lack: Option<&Lack>,
    notices: &mut Vec<String>,
) -> Result<Vec<Found>> {
    if lack.is_some_and(Lack::is_nothing) {
        return Ok(Vec::new());
    }
    let (looker, lack) = (search.looker(query, question), lack.cloned());
    let until = Instant::now() + LONGEST;
    let (found, left) = block_on(search.db.read(move |tx| {
        let mut reading = Reading { looker: looker.clone(), found: Vec::new(), items: 0, left: 0, until };
        reading.read(tx, lack.as_ref())?;
        Ok((reading.found, reading.left))
    }))?;
    if left > 0 {
        notices.push(format!("{left} items are not in the search index yet and were not searched; search again"));
    }
    Ok(found)
}

struct Reading {
    looker: Looker,
    found: Vec<Found>,
    items: usize,
    /// How many items were left out.
    left: i64,
    until: Instant,
}

impl Reading {
    fn read(&mut self, tx: &mut dyn Tx, lack: Option<&Lack>) -> Result<()> {
        let mut runs = match lack {
            Some(lack) => runs_of(lack),
            None => query_all(tx, NEWEST_BRANCHES, &[BRANCHES.into()], |row| {
                let branch = row.int(0)? << 32;
                Ok(Run { from: branch | row.int(3)?, to: branch | row.int(1)? })
            })?,
        };
        // The newest first: they are looked for most.
        runs.sort_unstable_by_key(|run| std::cmp::Reverse(run.to));
        for run in runs {
            self.read_run(tx, run)?;
        }
        for title in lack.map(Lack::titles).unwrap_or_default() {
            let words = title.title.as_deref().unwrap_or_default();
            let found = self.looker.judge_title(tx, &title.thread, words, title.workspace)?;
            self.found.extend(found);
        }
        Ok(())
    }

    fn read_run(&mut self, tx: &mut dyn Tx, run: Run) -> Result<()> {
        let mut next = run.from;
        let mut tools = Tools::default();
        while next <= run.to {
            if self.items >= MOST_ITEMS || Instant::now() >= self.until {
                let base = query_one(tx, BASE, &[ItemKey(next).branch().into()], |row| row.int(0))?.unwrap_or(0);
                let first = next.max(next >> 32 << 32 | base);
                self.left += run.to - first + 1;
                return Ok(());
            }
            let items = match indexing::sources(tx, next, run.to, ROWS) {
                Ok(items) => items,
                // It is told by verification; the others are found.
                Err(Error::Corrupt { .. }) => return Ok(()),
                Err(error) => return Err(error),
            };
            let Some((last, _)) = items.last() else { return Ok(()) };
            next = last.key + 1;
            self.items += items.len();
            for (source, _) in items {
                let view = self.looker.view(&source);
                tools.see(&view);
                let found = self.looker.judge(tx, &source, &view, &tools)?;
                self.found.extend(found);
            }
        }
        Ok(())
    }
}

fn runs_of(lack: &Lack) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for behind in &lack.behind {
        let Some(to) = behind.tip else { continue };
        let from = behind.is.map_or(behind.branch << 32, |is| ItemKey::new(behind.branch, is.depth).0 + 1);
        if from <= to {
            runs.push(Run { from, to });
        }
    }
    for (_, subject) in &lack.missing {
        if let Subject::Item(key) = subject {
            runs.push(Run { from: *key, to: *key });
        }
    }
    runs
}
