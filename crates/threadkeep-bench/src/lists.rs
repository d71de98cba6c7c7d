//! P5: listing, finding and renaming, by the number of threads.

use std::path::{Path, PathBuf};
use std::time::Instant;

use rusqlite::types::Value;
use rusqlite::{Statement, params};
use threadkeep::blocking::{Store, Workspace};
use threadkeep::{ListQuery, ThreadId, ThreadPatch};

use crate::bare;
use crate::measure::{OneCpu, Samples, ratio, take_turns};
use crate::plan::Plan;
use crate::report::{Report, Target, cpu, time};
use crate::text::Writer;
use crate::{Result, stores};

/// What a search tree that is a level deeper, and no longer in the nearest cache, may cost for a hundred times the threads.
const DEEPER: f64 = 1.5;
/// How many of the threads are asked for.
const ASKED: u32 = 1_000;

const RETITLE: &str = "UPDATE threads SET title = ?2, version = version + 1, updated_at = ?3,
    (tick, updated) = (SELECT tick + 1, tick + 1 FROM threads ORDER BY updated DESC, id DESC LIMIT 1) WHERE id = ?1";

/// A store of many threads, and which of them to ask for next.
struct Crowd {
    store: Store,
    workspace: Workspace,
    folder: PathBuf,
    threads: u32,
    chance: Writer,
}

/// P5, on a small and a large store.
///
/// # Errors
/// As the store and SQLite.
pub fn many_threads(plan: &Plan, root: &Path, report: &mut Report) -> Result<()> {
    let [few, _, many] = plan.sizes.threads;
    let small = stores::many_threads(root, few)?;
    let start = Instant::now();
    let large = stores::many_threads(root, many)?;
    let seconds = start.elapsed().as_secs_f64();
    report.note(format!("P5: {many} threads with an item each, written by 64 threads in {}", time(seconds)));
    // From here on, with the threads of the stores.
    let _one_cpu = OneCpu::stay()?;
    let (mut small, mut large) = (Crowd::new(root, small, few)?, Crowd::new(root, large, many)?);
    pages(plan, &large, report)?;
    by_number(plan, "a thread by its id", [&mut small, &mut large], 1, Crowd::by_id, report)?;
    by_number(plan, "a thread by its title", [&mut small, &mut large], 1, Crowd::by_title, report)?;
    by_number(plan, "a rename", [&mut small, &mut large], 5, Crowd::rename, report)?;
    by_hand(plan, [&mut small, &mut large], report)
}

/// How much one bare UPDATE of the title and the tick grows with the number of threads: the more of them, the more of the
/// pages that a checkpoint copies are different ones.
fn by_hand(plan: &Plan, crowds: [&mut Crowd; 2], report: &mut Report) -> Result<()> {
    let [small, large] = crowds;
    let (few, many) = (small.threads, large.threads);
    let [on_small, on_large] = [bare::open(&small.folder, false)?, bare::open(&large.folder, false)?];
    let (mut small_title, mut large_title) = (on_small.prepare(RETITLE)?, on_large.prepare(RETITLE)?);
    let rename = |crowd: &mut Crowd, statement: &mut Statement<'_>| {
        let number = crowd.any()?;
        Ok(statement.execute(params![format!("thread-{number}"), crowd.chance.title(number), number])?)
    };
    let calls = (plan.sizes.calls / 5).max(1);
    let (large, small) =
        take_turns(plan.sizes.rounds, calls, || rename(large, &mut large_title), || rename(small, &mut small_title))?;
    let figure = ratio(&large.round_cpu, &small.round_cpu);
    let what = format!("… the same by a bare UPDATE of the title and the tick, {many} against {few}");
    report.compare("P5", what, (cpu(&large), cpu(&small)), figure, Target::None);
    Ok(())
}

fn by_number(
    plan: &Plan,
    what: &str,
    crowds: [&mut Crowd; 2],
    share: usize,
    call: fn(&mut Crowd) -> Result<()>,
    report: &mut Report,
) -> Result<()> {
    let [small, large] = crowds;
    let (few, many) = (small.threads, large.threads);
    let calls = (plan.sizes.calls / share).max(1);
    let (large, small) = take_turns(plan.sizes.rounds, calls, || call(large), || call(small))?;
    let what = format!("{what} among {many}, by CPU time against {few}");
    report.compare(
        "P5",
        what,
        (cpu(&large), cpu(&small)),
        ratio(&large.round_cpu, &small.round_cpu),
        Target::AtMost(DEEPER),
    );
    Ok(())
}

impl Crowd {
    fn new(root: &Path, folder: PathBuf, threads: u32) -> Result<Self> {
        let (store, workspace) = stores::open(root, &folder)?;
        Ok(Self { store, workspace, folder, threads, chance: Writer::new(9) })
    }

    /// One of the threads that are asked for: as many in a small store as in a large one, there spread over all of it, so
    /// that what differs is the way to them and not what fits into a cache.
    fn any(&mut self) -> Result<u32> {
        let asked = self.threads.min(ASKED);
        let index = u32::try_from(self.chance.below(usize::try_from(asked)?))?;
        Ok(index * (self.threads / asked))
    }

    fn by_id(&mut self) -> Result<()> {
        let name = format!("thread-{}", self.any()?);
        self.workspace.get(&self.workspace.find(&name)?)?;
        Ok(())
    }

    fn by_title(&mut self) -> Result<()> {
        // The renaming comes later.
        let title = stores::title(self.any()?);
        self.workspace.find(&title)?;
        Ok(())
    }

    fn rename(&mut self) -> Result<()> {
        let number = self.any()?;
        let id: ThreadId = format!("thread-{number}").parse()?;
        self.store.update(&id, ThreadPatch::title(self.chance.title(number)))?;
        Ok(())
    }

    /// The cursor of a page far down the list.
    fn cursor(&self, page: usize) -> Result<Option<String>> {
        let mut query = ListQuery::default();
        for _ in 1..page {
            query.cursor = self.workspace.list(query.clone())?.next_cursor;
        }
        Ok(query.cursor)
    }

    /// The parameters of the list's statement: the workspace, where to start, the shelf, no filter, any number of branches.
    fn args(&self, activity: i64, id: String) -> Vec<Value> {
        let workspace = self.workspace.info().id.as_bytes().to_vec();
        let none = Value::Integer(0);
        let mut args =
            vec![Value::Blob(workspace), Value::Integer(activity), Value::Text(id), none.clone(), none.clone()];
        args.resize(11, Value::Null);
        args.push(none);
        // As many as are asked for.
        args.push(Value::Integer(i64::MAX));
        args
    }

    /// The rows and the steps of SQLite's machine for a page.
    fn steps(&self, page: usize, limit: usize) -> Result<(usize, i32)> {
        let bare = bare::open(&self.folder, true)?;
        let skip = i64::try_from((page - 1) * limit)?;
        let start = "SELECT activity, id FROM threads ORDER BY activity DESC, id DESC LIMIT 1 OFFSET ?1";
        let (activity, id) = match skip {
            0 => (i64::MAX, "~".to_owned()),
            _ => bare.query_row(start, [skip - 1], |row| Ok((row.get(0)?, row.get(1)?)))?,
        };
        let args = self.args(activity, id);
        bare::steps(&bare, "ACTIVITY_DOWN_IN", &args, limit)
    }
}

fn pages(plan: &Plan, crowd: &Crowd, report: &mut Report) -> Result<()> {
    let far = plan.sizes.far_page;
    let first = ListQuery::default();
    let deep = ListQuery { cursor: crowd.cursor(far)?, ..ListQuery::default() };
    let list = |query: &ListQuery| {
        let page = crowd.workspace.list(query.clone())?;
        if page.entries.len() == query.limit { Ok(page) } else { Err("the page is not full".into()) }
    };
    let calls = (plan.sizes.calls / 2).max(1);
    let (near, deep) = take_turns(plan.sizes.rounds, calls, || list(&first), || list(&deep))?;
    let threads = crowd.threads;
    let what = format!("a page of {} of {threads} threads", first.limit);
    report.time("P5", what, (cpu(&near), String::new()), near.cpu(), Target::AtMost(0.3e-3));
    let what = format!("… page {far} by CPU time against page 1");
    report.compare("P5", what, (cpu(&deep), cpu(&near)), ratio(&deep.round_cpu, &near.round_cpu), Target::AtMost(1.3));
    let work = [crowd.steps(1, first.limit)?, crowd.steps(far, first.limit)?];
    report.note(format!("P5: rows and steps of SQLite's machine for page 1 and page {far}: {work:?}"));
    bare_page(plan, crowd, first.limit, report)
}

/// The same statement without the store: what of a page is SQLite's.
fn bare_page(plan: &Plan, crowd: &Crowd, limit: usize, report: &mut Report) -> Result<()> {
    let bare = bare::open(&crowd.folder, true)?;
    let mut statement = bare.prepare(&bare::statement("ACTIVITY_DOWN_IN")?)?;
    let args = crowd.args(i64::MAX, "~".to_owned());
    let mut samples = Samples::default();
    for _ in 0..plan.sizes.rounds {
        samples.round(plan.sizes.calls, &mut || {
            let mut rows = bare::bind(&mut statement, &args)?;
            for _ in 0..limit {
                rows.next()?.ok_or("the page is not full")?;
            }
            Ok(())
        })?;
    }
    report.note(format!("P5: the statement of page 1 alone, no column read: {}", cpu(&samples)));
    Ok(())
}
