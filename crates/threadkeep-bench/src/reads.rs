//! P4, P8, P11: reading, opening and forking, by the length of the thread.

use std::path::Path;

use rusqlite::Connection;
use rusqlite::types::Value;
use threadkeep::blocking::{Store, Workspace};
use threadkeep::{Address, ItemQuery, NewThread, StoreOptions, ThreadId};

use crate::bare;
use crate::measure::{OneCpu, ratio, take_turns};
use crate::plan::Plan;
use crate::report::{Report, Target, cpu, time, wall};
use crate::{Error, Result, stores};

const SCAN: &str = "SELECT size, encoding, content FROM items WHERE key BETWEEN ?1 AND ?2 ORDER BY key";
const LAST_PAGE: usize = 50;
const WHOLE_PAGE: usize = 2_000;

/// P4, P8 and P11, on one store with a short, a middling, a long and a very long thread.
///
/// # Errors
/// As the store and SQLite.
pub fn large_store(plan: &Plan, root: &Path, report: &mut Report) -> Result<()> {
    let (store, workspace, folder) = stores::fresh(root, "large")?;
    let ids = plan.sizes.items.map(|items| stores::thread_of(&workspace, items));
    let [short, middling, long, very_long] = ids;
    let (short, middling, long, very_long) = (short?, middling?, long?, very_long?);
    drop((workspace, store));
    // From here on, with the store's threads.
    let _one_cpu = OneCpu::stay()?;
    if plan.wants("P8") {
        opening(plan, root, &folder, report)?;
    }
    let (store, workspace) = stores::open(root, &folder)?;
    if plan.wants("P4") {
        whole_path(plan, &store, &folder, &long, report)?;
        last_page(plan, &store, &folder, [&middling, &very_long], report)?;
    }
    if plan.wants("P11") {
        forks(plan, &workspace, [&short, &very_long], report)?;
    }
    Ok(())
}

/// Reads a thread's path page by page; gives the number of items.
///
/// # Errors
/// As the store.
pub fn read_all(store: &Store, thread: &ThreadId, limit: usize) -> Result<usize> {
    let mut query = ItemQuery { limit, ..ItemQuery::default() };
    let mut count = 0;
    loop {
        let page = store.items(thread, query.clone())?;
        count += page.entries.len();
        match page.next_cursor {
            None => return Ok(count),
            cursor => query.cursor = cursor,
        }
    }
}

fn whole_path(plan: &Plan, store: &Store, folder: &Path, id: &ThreadId, report: &mut Report) -> Result<()> {
    let bare = bare::open(folder, true)?;
    let (from, to) = range(&bare, id)?;
    let mut scan = bare.prepare(SCAN)?;
    let mut decompressor = bare::decompressor()?;
    let expected = usize::try_from(to - from + 1)?;
    let check = |count: usize| {
        if count == expected { Ok(()) } else { Err(Error::from(format!("{count} items of {expected}"))) }
    };
    let mut read = |limit: usize, what: &str, target: Target| -> Result<()> {
        let (ours, floor) = take_turns(
            plan.sizes.rounds,
            2,
            || check(read_all(store, id, limit)?),
            || check(bare::scan(&mut scan, &mut decompressor, from, to)?),
        )?;
        let what = format!("a path of {expected} items of 1 KiB, in pages of {limit}{what}");
        report.compare("P4", what, (wall(&ours), wall(&floor)), ratio(&floor.round_wall, &ours.round_wall), target);
        let figure = ratio(&floor.round_cpu, &ours.round_cpu);
        report.compare("P4", "… by CPU time", (time(ours.cpu()), time(floor.cpu())), figure, target);
        Ok(())
    };
    read(WHOLE_PAGE, "", Target::AtLeast(0.7))?;
    read(ItemQuery::default().limit, " (the default)", Target::None)
}

/// The keys of a thread that is one branch.
fn range(bare: &Connection, thread: &ThreadId) -> Result<(i64, i64)> {
    let head: i64 = bare.query_row("SELECT head FROM threads WHERE id = ?1", [thread.as_str()], |row| row.get(0))?;
    Ok((head >> 32 << 32, head))
}

fn last_page(plan: &Plan, store: &Store, folder: &Path, ids: [&ThreadId; 2], report: &mut Report) -> Result<()> {
    let query = ItemQuery { newest_first: true, limit: LAST_PAGE, ..ItemQuery::default() };
    let page = |id: &ThreadId| Ok(store.items(id, query.clone())?);
    let [small, large] = ids;
    let (few, many) = take_turns(plan.sizes.rounds, plan.sizes.calls, || page(small), || page(large))?;
    let [_, few_items, _, many_items] = plan.sizes.items;
    let what = format!("the last page of {LAST_PAGE} of {many_items} items");
    report.time("P4", what, (cpu(&many), String::new()), many.cpu(), Target::AtMost(0.5e-3));
    let what = format!("… by CPU time against that of {few_items} items");
    let figure = ratio(&many.round_cpu, &few.round_cpu);
    report.compare("P4", what, (time(many.cpu()), time(few.cpu())), figure, Target::AtMost(1.3));
    let bare = bare::open(folder, true)?;
    let mut work = Vec::new();
    for id in ids {
        let (from, to) = range(&bare, id)?;
        let args = [Value::Integer(from), Value::Integer(to), Value::Integer(i64::try_from(LAST_PAGE)?)];
        work.push(bare::steps(&bare, "RANGE_DOWN", &args, LAST_PAGE)?);
    }
    report.note(format!("P4: rows and steps of SQLite's machine for the last page: {work:?}"));
    Ok(())
}

fn forks(plan: &Plan, workspace: &Workspace, ids: [&ThreadId; 2], report: &mut Report) -> Result<()> {
    let [short, very_long] = ids;
    let [few_items, _, _, many_items] = plan.sizes.items;
    let end = |id: &ThreadId| workspace.get(id)?.head.ok_or_else(|| Error::from("the thread is empty"));
    let (low, high) = (end(short)?, end(very_long)?);
    let early = Address { depth: low.depth.min(few_items), ..high };
    let fork = |id: &ThreadId, at: Address| Ok(workspace.fork(id, Some(at), NewThread::default())?);
    let calls = plan.sizes.synced.min(30);
    let (few, many) = take_turns(plan.sizes.rounds, calls, || fork(short, low), || fork(very_long, high))?;
    let what = format!("a fork at the end of {many_items} items, by CPU time against that at the end of {few_items}");
    report.compare("P11", what, (cpu(&many), cpu(&few)), ratio(&many.round_cpu, &few.round_cpu), Target::AtMost(1.3));
    let (start, end) = take_turns(plan.sizes.rounds, calls, || fork(very_long, early), || fork(very_long, high))?;
    let what = format!("a fork at depth {} of {many_items} items, by CPU time against that at the end", early.depth);
    report.compare("P11", what, (cpu(&start), cpu(&end)), ratio(&start.round_cpu, &end.round_cpu), Target::AtMost(1.3));
    Ok(())
}

fn opening(plan: &Plan, root: &Path, folder: &Path, report: &mut Report) -> Result<()> {
    let small = stores::closed(root, "small")?;
    let open = |folder: &Path| Ok(Store::open(StoreOptions::folder(folder))?);
    let bare = || -> Result<Connection> {
        let bare = bare::open(folder, false)?;
        bare.query_row("SELECT value FROM facts WHERE name = 'store-id'", [], |row| row.get::<_, Vec<u8>>(0))?;
        Ok(bare)
    };
    let rounds = plan.sizes.rounds * 5;
    let (large, floor) = take_turns(rounds, 1, || open(folder), bare)?;
    let (again, few) = take_turns(rounds, 1, || open(folder), || open(&small))?;
    let [.., many_items] = plan.sizes.items;
    let what = format!("opening a store of {many_items} items (floor: a bare connection, set up, and one row)");
    report.time("P8", what, (cpu(&large), cpu(&floor)), large.cpu(), Target::AtMost(3e-3));
    let figure = ratio(&again.round_cpu, &few.round_cpu);
    report.compare(
        "P8",
        "… by CPU time against that of one item",
        (cpu(&again), cpu(&few)),
        figure,
        Target::AtMost(1.3),
    );
    Ok(())
}
