//! G1, G2, G3: the same store on a PostgreSQL server, against bare statements on the same tables by as many clients.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use postgres::fallible_iterator::FallibleIterator as _;
use postgres::{Client, NoTls, Statement};
use threadkeep::blocking::{LiveThread, Store, Workspace};
use threadkeep::{Durability, ItemQuery, ListQuery, NewThread, StoreOptions, ThreadId};

use crate::appends::append;
use crate::bare::{self, RowData};
use crate::measure::{Samples, at_once, count, quantile, ratio, take_turns};
use crate::plan::Plan;
use crate::report::{Report, Target, time, wall};
use crate::text::Writer;
use crate::{Error, Result, langgraph, reads, stores};

/// The bare tables lose what only the store needs: an insert checks no parent and refers to nothing.
const ONLY_INDEXES: &str =
    "DROP TRIGGER items_have_parents ON items; ALTER TABLE items DROP CONSTRAINT items_writer_fkey";
const SCAN: &str = "SELECT size, encoding, content FROM items WHERE key BETWEEN $1 AND $2 ORDER BY key";
const LAST_PAGE: usize = 50;
const WHOLE_PAGE: usize = 2_000;

/// G1: writers at once, each append synced, and the same turns by a peer.
///
/// # Errors
/// As the store and the server.
pub fn many_writers(plan: &Plan, _: &Path, report: &mut Report) -> Result<()> {
    let Some(server) = server(plan, report) else { return Ok(()) };
    for writers in plan.sizes.clients {
        let rate = side_by_side(plan, server, *writers, report)?;
        if *writers == plan.sizes.writers {
            langgraph::turns(plan, server, rate, report)?;
        }
    }
    Ok(())
}

fn server<'p>(plan: &'p Plan, report: &mut Report) -> Option<&'p str> {
    if plan.server.is_none() {
        report.note("PostgreSQL was not measured: its server programs are not here");
    }
    plan.server.as_deref()
}

/// Measures with this number of writers; gives our appends per second.
fn side_by_side(plan: &Plan, server: &str, writers: usize, report: &mut Report) -> Result<f64> {
    let each = plan.sizes.calls_of_all.div_ceil(writers).max(1);
    let (_store, workspace, _) = fresh(server)?;
    let lives = (0..writers).map(|_| Ok(workspace.create_now(NewThread::default())?));
    let lives: Vec<LiveThread> = lives.collect::<Result<_>>()?;
    let mut clients = bare_clients(server, writers)?;
    let (mut text, mut other) = (Writer::new(3), Writer::new(4));
    let (mut ours, mut floor, mut waits) = (Vec::new(), Vec::new(), [Samples::default(), Samples::default()]);
    for round in 0..=plan.sizes.server_rounds {
        let items = (0..writers).map(|_| text.items(each)).collect();
        let (seconds, mut calls) = at_once(lives.iter().collect(), items, |live: &mut &LiveThread, item| {
            append(live, Some(item), Durability::Synced)
        })?;
        let rows = (0..writers).map(|_| RowData::several(each, &mut other)).collect::<Result<_>>()?;
        let (bare_seconds, mut bare_calls) =
            at_once(clients.iter_mut().collect(), rows, |client, row| client.insert(&row))?;
        // The first round only warms up.
        if round > 0 {
            ours.push(count(writers * each) / seconds);
            floor.push(count(writers * each) / bare_seconds);
            let [waited, bare_waited] = &mut waits;
            waited.wall.append(&mut calls);
            bare_waited.wall.append(&mut bare_calls);
        }
    }
    let side = |rates: &[f64], waits: &Samples| format!("{:.0}/s ({})", quantile(rates, 500), wall(waits));
    let sides = (side(&ours, &waits[0]), side(&floor, &waits[1]));
    let what = format!("PostgreSQL, {writers} writers on as many threads, synced: appends per second (and the wait)");
    let target = if writers == plan.sizes.writers { Target::AtLeast(0.4) } else { Target::None };
    report.compare("G1", what, sides, ratio(&ours, &floor), target);
    Ok(quantile(&ours, 500))
}

/// A new store on the server, with the name of its schema.
fn fresh(server: &str) -> Result<(Store, Workspace, String)> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let schema = format!("bench_{}_{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let store = Store::open(StoreOptions::postgres(&format!("{server}&schema={schema}"))?)?;
    let workspace = store.workspace(Path::new("/"))?;
    Ok((store, workspace, schema))
}

/// A client that does nothing but insert rows, each in a transaction of its own, at the end of a branch of its own.
struct Bare {
    client: Client,
    insert: Statement,
    key: i64,
}

fn bare_clients(server: &str, clients: usize) -> Result<Vec<Bare>> {
    let (store, workspace, schema) = fresh(server)?;
    let live = workspace.create_now(NewThread::default())?;
    live.append(Writer::new(0).items(1))?;
    live.shutdown()?;
    drop((live, workspace, store));
    connect(server, &schema)?.batch_execute(ONLY_INDEXES)?;
    (1..).take(clients).map(|number: i64| Bare::new(connect(server, &schema)?, (number + 1) << 32)).collect()
}

/// A client whose statements mean the tables of this store.
fn connect(server: &str, schema: &str) -> Result<Client> {
    let mut client = Client::connect(server, NoTls)?;
    client.batch_execute(&format!("SET search_path = {schema}; SET jit = off"))?;
    Ok(client)
}

impl Bare {
    fn new(mut client: Client, key: i64) -> Result<Self> {
        let insert = client.prepare(&statement("INSERT_ITEM")?)?;
        Ok(Self { client, insert, key })
    }

    fn insert(&mut self, row: &RowData) -> Result<()> {
        self.key += 1;
        row.with_values(self.key, |values| Ok(self.client.execute(&self.insert, values)?))?;
        Ok(())
    }
}

/// The text of one of the library's own statements for PostgreSQL.
fn statement(name: &str) -> Result<String> {
    let found = threadkeep::statement_texts().into_iter().find(|(known, ..)| known == name);
    found.map(|(_, _, text)| text).ok_or_else(|| Error::from(format!("the library has no statement {name}")))
}

/// G2: a whole path and its last page, against a bare scan of the same rows that decompresses them.
///
/// # Errors
/// As the store and the server.
pub fn reading(plan: &Plan, _: &Path, report: &mut Report) -> Result<()> {
    let Some(server) = server(plan, report) else { return Ok(()) };
    let (store, workspace, schema) = fresh(server)?;
    let [_, _, items, _] = plan.sizes.items;
    let id = stores::thread_of(&workspace, items)?;
    let mut client = connect(server, &schema)?;
    client.batch_execute("VACUUM ANALYZE items")?;
    let (from, to) = range(&mut client, &id)?;
    let scan = client.prepare(SCAN)?;
    let mut decompressor = bare::decompressor()?;
    let mut bare = |from: i64| bare_scan(&mut client, &scan, &mut decompressor, [from, to]);
    let rounds = plan.sizes.server_rounds;
    let (ours, floor) = take_turns(rounds, 1, || reads::read_all(&store, &id, WHOLE_PAGE), || bare(from))?;
    let what = format!("PostgreSQL, a path of {items} items of 1 KiB (floor: a bare scan that decompresses)");
    let figure = ratio(&floor.round_wall, &ours.round_wall);
    report.compare("G2", what, (wall(&ours), wall(&floor)), figure, Target::AtLeast(0.7));
    let query = ItemQuery { newest_first: true, limit: LAST_PAGE, ..ItemQuery::default() };
    let last = to + 1 - i64::try_from(LAST_PAGE)?;
    let page = || Ok(store.items(&id, query.clone())?);
    let (ours, floor) = take_turns(rounds, plan.sizes.synced, page, || bare(last))?;
    let figure = ratio(&floor.round_wall, &ours.round_wall);
    let what = format!("… its last page of {LAST_PAGE}");
    report.compare("G2", what, (wall(&ours), wall(&floor)), figure, Target::None);
    Ok(())
}

/// The first and the last key of a thread's only branch.
fn range(client: &mut Client, thread: &ThreadId) -> Result<(i64, i64)> {
    let ends = "SELECT min(i.key), max(i.key) FROM items i JOIN branches b ON b.key = i.key >> 32 WHERE b.thread = $1";
    let row = client.query_one(ends, &[&thread.as_str()])?;
    Ok((row.try_get(0)?, row.try_get(1)?))
}

fn bare_scan(
    client: &mut Client,
    scan: &Statement,
    decompressor: &mut zstd::bulk::Decompressor<'_>,
    [from, to]: [i64; 2],
) -> Result<usize> {
    let mut rows = client.query_raw(scan, [from, to])?;
    let mut count = 0;
    while let Some(row) = rows.next()? {
        let size = usize::try_from(row.try_get::<_, i64>(0)?)?;
        let content: &[u8] = row.try_get(2)?;
        let whole = row.try_get::<_, i64>(1)? == 0;
        std::hint::black_box(if whole { content.to_vec() } else { decompressor.decompress(content, size)? });
        count += 1;
    }
    Ok(count)
}

/// G3: a page of the list, near and far.
///
/// # Errors
/// As the store and the server.
pub fn listing(plan: &Plan, _: &Path, report: &mut Report) -> Result<()> {
    let Some(server) = server(plan, report) else { return Ok(()) };
    let (store, workspace, schema) = fresh(server)?;
    let [_, threads, _] = plan.sizes.threads;
    let start = Instant::now();
    stores::fill(&store, &workspace, threads)?;
    let seconds = time(start.elapsed().as_secs_f64());
    report.note(format!("G3: {threads} threads with an item each, written by 64 threads in {seconds}"));
    let mut client = connect(server, &schema)?;
    client.batch_execute("VACUUM ANALYZE threads")?;
    let first = ListQuery::default();
    let mut far = first.clone();
    let page = usize::try_from(threads)? / first.limit / 2;
    for _ in 0..page {
        far.cursor = workspace.list(far.clone())?.next_cursor;
    }
    let (rounds, calls) = (plan.sizes.server_rounds, plan.sizes.synced);
    let list = |query: &ListQuery| Ok(workspace.list(query.clone())?);
    let (near, deep) = take_turns(rounds, calls, || list(&first), || list(&far))?;
    let what = format!("PostgreSQL, a page of {} of {threads} threads: page {} against page 1", first.limit, page + 1);
    let figure = ratio(&deep.round_wall, &near.round_wall);
    report.compare("G3", what, (wall(&deep), wall(&near)), figure, Target::AtMost(1.3));
    let ids = client.prepare("SELECT * FROM threads WHERE workspace = $1 ORDER BY activity DESC, id DESC LIMIT 50")?;
    let id = workspace.info().id;
    let (ours, floor) =
        take_turns(rounds, calls, || list(&first), || Ok(client.query(&ids, &[&id.as_bytes().as_slice()])?))?;
    let figure = ratio(&ours.round_wall, &floor.round_wall);
    report.compare(
        "G3",
        "… page 1 (floor: its rows by one bare statement)",
        (wall(&ours), wall(&floor)),
        figure,
        Target::None,
    );
    Ok(())
}
